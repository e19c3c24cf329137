"""Why the model can't be asked now: for the prompt, and for keys that need it."""

from tui.core.deployment import DeploymentState
from tui.core.how_far import amounts, how_far, one_of
from tui.core.logs.phase_names import name_of
from tui.core.logs.state import Phase
from tui.widgets.failure import title


def why_not(state: DeploymentState) -> str:
    """In a few words; "" when it can be asked."""
    if state.api.ready:
        return ""
    load = state.load
    if not state.connection.online and state.api.reach != "up":
        return "no connection to the host" + (f": {state.connection.cause}" if state.connection.cause else "")
    if load is not None and load.failure is not None:
        served = load.failure.phase is Phase.READY or load.was_ready
        return f"the server {'died' if served else 'failed to start'}: {title(load.failure)}"
    if load is not None and load.phase is Phase.STOPPED:
        return "the server has been stopped"
    if load is not None and load.phase is Phase.LOADING and load.shards and load.shards.total:
        bar = load.shards
        far = how_far(bar) if bar.unit == "bytes" else f"{one_of(bar)} {' of '.join(amounts(bar))}"
        return f"the model is not up yet: {far}"
    if load is not None and load.lines and not load.ready:
        return f"the model is not up yet: {name_of(load.phase)}"
    if state.api.error:
        return f"the server does not answer properly: {state.api.error}"
    return "the model is not up yet"

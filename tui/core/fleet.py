"""Several deployments at once: which to look at first, in which order, which of them a text means."""

from collections.abc import Sequence

from tui.core.connection import Link
from tui.core.deployment import DeploymentState, Status, status_of
from tui.core.logs.load_state import Verdict

ORDERS = ("worst first", "by name", "by host", "as configured")
_GRAVITY = {
    Status.FAILED: 0,
    Status.MISCONFIGURED: 0,
    Status.UNREACHABLE: 1,
    Status.STOPPED: 3,
    Status.LOADING: 4,
    Status.CONNECTING: 5,
    Status.WAITING: 6,
    Status.READY: 7,
}


def gravity(state: DeploymentState) -> int:
    """0 is the worst: failed, link lost, hung or stalled, stopped, loading, connecting, waiting, ready."""
    if state.forecast.verdict in (Verdict.STALLED, Verdict.HUNG) and state.connection.online:
        return 2
    return _GRAVITY[status_of(state)]


def state_word(state: DeploymentState) -> str:
    """As the screen writes it; a link that was there and is gone has its own."""
    return "link lost" if state.connection.link is Link.LOST else status_of(state)


def arranged(states: Sequence[DeploymentState], order: str, sought: str = "") -> list[DeploymentState]:
    """Those whose name, host, model or state contains the text, in the order asked for; equals keep the configuration's."""
    words = sought.casefold().split()

    def told(state: DeploymentState) -> str:
        model = state.load.model if state.load is not None else None
        return " ".join((state.name, state.target, state_word(state), model or "")).casefold()

    kept = [state for state in states if all(word in told(state) for word in words)]
    match order:
        case "worst first":
            return sorted(kept, key=gravity)
        case "by name":
            return sorted(kept, key=lambda state: state.name.casefold())
        case "by host":
            return sorted(kept, key=lambda state: (state.target.casefold(), state.name.casefold()))
    return kept

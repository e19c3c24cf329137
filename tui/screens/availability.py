"""Why an action is disabled just now, and what to do instead: one line for whoever pressed its key."""

from collections.abc import Mapping

from tui.actions import BY_ID, Action, shown_key
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import UNREACHED, log_problem, not_ready_reason
from tui.core.logs.load_state import Phase
from tui.screens.layout import layout
from tui.screens.room_app import NOT_YET
from tui.screens.view import ScreenView

SILENT = ""
"""The action is disabled, and nobody would expect it to act."""


def unavailable(view: ScreenView, action: Action) -> str | None:
    """Return why the action would do nothing now, in words for the user or SILENT; None if it would do something."""
    state, own = view.state, view.own_keys
    match action.needs:
        case "typing":
            return None if view.typing else SILENT
        case "prompt":
            return None if view.tab == "chat" and not view.typing else SILENT
        case "leave":
            return None if view.typing or view.busy or view.filtered else SILENT
        case "failed" if state.load is None or state.load.failure is None:
            return f"No start has failed here. {_key('show-log', own)} shows the log, {_key('load_report', own)} the report."
        case "servers" if all(server.pid == state.server_pid for server in state.servers):
            return "Only one server runs on this host." if state.servers else "No server has been found on this host yet."
        case "unkept":
            return _unkept(view)
        case "gpus":
            return _gpus(view)
        case "several" if not view.several:
            return "The configuration has no other deployment: readyroom init adds them."
        case "load" if state.load is None or not state.load.recognised:
            return f"No line of a start has been read yet. {_where_the_log_is(state)}".strip()
        case "offline" if state.connection.online:
            return "The connection is up: nothing to retry."
        case "ready" | "bench" if not state.api.ready:
            return f"{NOT_YET}: {not_ready_reason(state)}. {_key('show-load', own)} shows {_on_the_load_tab(view)}."
        case "ready" if view.smoking:
            return f"The smoke prompts are being asked; {_key('stop', own)} stops them."
        case "bench" if view.busy:
            return f"{_running(view)} must end first, or be stopped with {_key('stop', own)}."
        case "busy" if not view.busy:
            return "Nothing is running that could be stopped."
        case "benchmark" if view.tab != "runs" and not view.measured:
            single, sweep = _key("bench-single", own), _key("bench-sweep", own)
            return f"No benchmark to compare yet: {single} or {sweep} runs one, {_key('show-runs', own)} has earlier ones."
        case "settled" if view.tab == "runs":
            return None if view.recorded else "No runs are recorded yet."
        case "settled" if state.load is None or state.load.phase not in (Phase.READY, Phase.FAILED, Phase.STOPPED):
            return f"A report can be written once the start has ended; {_key('load_report', own)} shows it as it is now."
        case "log" if ("bottom", "log") not in layout(view).rows:
            return f"{_key('show-log', own)} shows the log; {_key('follow', own)} pauses it there."
    return None


def _key(id: str, own: Mapping[str, str]) -> str:
    return shown_key(BY_ID[id], own)


def _on_the_load_tab(view: ScreenView) -> str:
    failed = view.state.load is not None and view.state.load.failure is not None
    return "why" if failed or view.status in UNREACHED else "how far it is"


def _running(view: ScreenView) -> str:
    if view.benching:
        return "The running benchmark"
    return "The smoke run" if view.smoking else "The streaming reply"


def _unkept(view: ScreenView) -> str | None:
    if view.state.server_pid is None:
        return "No server has been found on this host yet."
    return "It is in the configuration." if view.state.name in view.kept else None


def _gpus(view: ScreenView) -> str | None:
    samples = (view.state.gpus, *(other.gpus for other in view.state.others))
    count = sum(len(sample.gpus) for sample in samples if sample is not None)
    if view.tab != "gpus":
        return f"{_key('show-gpus', view.own_keys)} shows the GPUs; sort and filter them there."
    return None if count > 1 else "There is only one GPU." if count else "No GPUs are known here yet."


def _where_the_log_is(state: DeploymentState) -> str:
    if problem := log_problem(state):
        return f"{state.log.source}: {problem}"
    return f"The log is {state.log.source}." if state.log.source else "The log is being looked for."

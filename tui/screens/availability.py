"""Why an action can't be done just now, and what to do instead: in one line, for whoever pressed its key."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tui.actions import BY_ID, Action, shown_key
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import UNREACHED, not_ready_reason, status_of
from tui.core.logs.load_state import Phase

if TYPE_CHECKING:
    from tui.screens.main_screen import MainScreen

NO_WORD = ""
"""It can't be done, and nobody would expect it to."""
NOT_YET = "Not yet"
"""So begins what will hold no longer when the server is up."""


def unavailable(screen: "MainScreen", action: Action) -> str | None:
    """None where it can be done."""
    state, own = screen.shown, screen.own_keys
    match action.needs:
        case "typing":
            return None if screen.typing else NO_WORD
        case "prompt":
            return None if screen.tab == "chat" and not screen.typing else NO_WORD
        case "leave":
            busy = screen.typing or bool(screen.activity) or (screen.furnished and screen.log_pane.sought != "")
            return None if busy else NO_WORD
        case "failed" if state.load is None or state.load.failure is None:
            return f"No start has failed here. {_key('show-log', own)} shows the log, {_key('load_report', own)} the report."
        case "servers" if len(state.servers) < 2:
            return "Only one server runs on this host." if state.servers else "No server has been found on this host yet."
        case "unkept":
            return _unkept(screen, state)
        case "gpus":
            return _gpus(screen, state, own)
        case "several" if not getattr(screen.app, "several", False):
            return "The configuration has no other deployment: readyroom init adds them."
        case "load" if state.load is None or not state.load.lines:
            return f"No line of a start has been read yet. {_where_the_log_is(state)}".strip()
        case "offline" if state.connection.online:
            return "The connection is up: there is nothing to try."
        case "ready" | "bench" if not state.api.ready:
            why = not_ready_reason(state)
            return f"{NOT_YET}: {why}. {_key('show-load', own)} shows {_shown(state)}."
        case "ready" if screen.smoking:
            return f"The smoke prompts are being asked; {_key('stop', own)} stops them."
        case "bench" if screen.activity:
            return f"{_running(screen)} first ends, or is stopped with {_key('stop', own)}."
        case "busy" if not screen.activity:
            return "Nothing runs that could be stopped."
        case "benchmark" if screen.tab != "runs" and screen.result is None:
            single, sweep = _key("bench-single", own), _key("bench-sweep", own)
            return f"No benchmark to compare yet: {single} or {sweep} runs one, {_key('show-runs', own)} has earlier ones."
        case "settled" if screen.tab == "runs":
            return None if screen.runs else "No runs are kept yet."
        case "settled" if state.load is None or state.load.phase not in (Phase.READY, Phase.FAILED, Phase.STOPPED):
            return f"A report is written when the start has ended; {_key('load_report', own)} shows it as it is now."
        case "log" if not screen.query_one("#log").region:
            return f"{_key('show-log', own)} shows the log; {_key('follow', own)} holds it still there."
    return None


def _key(id: str, own: Mapping[str, str]) -> str:
    return shown_key(BY_ID[id], own)


def _shown(state: DeploymentState) -> str:
    failed = state.load is not None and state.load.failure is not None
    return "why" if failed or status_of(state) in UNREACHED else "how far it is"


def _running(screen: "MainScreen") -> str:
    if screen.benching:
        return "The benchmark that runs"
    return "The smoke run" if screen.smoking else "The reply that streams"


def _unkept(screen: "MainScreen", state: DeploymentState) -> str | None:
    if state.server_pid is None:
        return "No server has been found on this host yet."
    return "It is in the configuration." if state.name in getattr(screen.app, "kept", {state.name}) else None


def _gpus(screen: "MainScreen", state: DeploymentState, own: Mapping[str, str]) -> str | None:
    samples = (state.gpus, *(other.gpus for other in state.others))
    count = sum(len(sample.gpus) for sample in samples if sample is not None)
    if screen.tab != "gpus":
        return f"{_key('show-gpus', own)} shows the GPUs; they are ordered and chosen there."
    return None if count > 1 else "There is one GPU only." if count else "No GPUs are known here yet."


def _where_the_log_is(state: DeploymentState) -> str:
    if state.log.problem:
        return f"{state.log.source}: {state.log.problem}"
    return f"The log is {state.log.source}." if state.log.source else "The log is being looked for."

"""The tab Load before a start: what is watched, what is waited for, and why there is no connection where there is none."""

from textual.content import Content

from tui.core.api import Reach
from tui.core.deployment import DeploymentState, gone_silently, silent_so_far
from tui.widgets.figures import QUIET, B, W, facts, label, line, rows
from tui.widgets.numbers import clock
from tui.widgets.phases import last_time


def _no_link(state: DeploymentState, width: int) -> list[Content | str]:
    """Connecting; or why there is no connection, and what to do, in full."""
    link = state.connection
    host = link.host or state.target
    if not link.cause:
        return [line((f"Connecting to {host}", B))]
    out: list[Content | str] = [line((f"No connection to {host}", B)), ""]
    for name, text in (("because", link.cause), ("next", link.advice)):
        wrapped = Content(text or "").wrap(max(8, width - 10)) if text else []
        out += [line(label(f"{name if i == 0 else '':<10}"), one) for i, one in enumerate(wrapped)]
    return out


def before(state: DeploymentState, width: int, height: int) -> Content:
    """Nothing has started yet: what is watched, and what would make it start to show."""
    reach = {
        Reach.UNKNOWN: "not asked yet",
        Reach.CLOSED: "port closed: not yet",
        Reach.SICK: f"answers, /health says {state.api.health}",
        Reach.UP: "up",
        Reach.ERROR: state.api.error or "does not answer properly",
    }[state.api.reach]
    source = state.log.source or "looking for it"
    lines: list[Content | str] = []
    if state.connection.online:
        title, words = "No start in the log yet.", "It shows here as soon as the server writes its first line."
        if gone_silently(state):
            title, words = "The server's process is gone.", "It left no line to read: look at what started it, and at dmesg."
        elif silent_so_far(state) is not None:
            title = f"The server's process {state.server_pid} is there."
            words = (
                "Its log is not at hand: the API and the GPUs will tell of it."
                if state.log.unread
                else "No line of it yet: the imports before the first one take 10 to 60 s, longer from a slow disk."
            )
        lines += [
            line((title, B)),
            *Content(words).stylize(QUIET).wrap(max(8, width)),
        ]
    else:
        lines += _no_link(state, width)
    lines += ["", *facts(width, ("host", state.connection.host or state.target), ("log", source), ("API", reach), column=10)]
    if state.log.problem:
        lines += [
            "",
            *[line(("▲ ", W) if i == 0 else "  ", one) for i, one in enumerate(Content(state.log.problem).wrap(max(8, width - 2)))],
        ]
    if past := last_time(state):
        lines += ["", line(label("last time   "), (clock(past.total_s), B))]
    return rows(*lines[:height])

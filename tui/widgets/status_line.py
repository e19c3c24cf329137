"""The status line: the state in one word, what is watched, and how it is reached."""

import time

from textual.content import Content

from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, status_of
from tui.core.presentation import age, brief, clock, whole
from tui.widgets.canvas import Canvas, drawn
from tui.widgets.draw import BE, BW, B, W, label, line, meter, middle, rows, short, spread
from tui.widgets.key_bar import key_of

LOOKS = {
    Status.CONNECTING: ("◐", "$primary"),
    Status.WAITING: ("·", "$quiet"),
    Status.LOADING: ("◐", "$primary"),
    Status.READY: ("●", "$success"),
    Status.HUNG: ("✗", "$error"),
    Status.FAILED: ("✗", "$error"),
    Status.STOPPED: ("·", "$warning"),
    Status.LOST: ("○", "$warning"),
    Status.UNREACHABLE: ("✗", "$warning"),
    Status.REFUSED: ("✗", "$warning"),
    Status.MISCONFIGURED: ("✗", "$error"),
}


def chip(state: DeploymentState) -> Content:
    """Return the status in a field of fixed width."""
    status = status_of(state)
    glyph, tint = LOOKS[status]
    ink = "bold reverse" if tint == "$quiet" else f"bold reverse {tint}"
    return line((f" {glyph} {status.label:<11} ", ink))


def progress_words(state: DeploymentState) -> str:
    """Return `14/64 28:32`: how far, and how long still."""
    load = state.load
    if load is None or status_of(state) is not Status.LOADING:
        return ""
    out = []
    if load.shards and load.shards.total:
        out.append(brief(load.shards))
    if state.forecast.ready_eta_s is not None:
        out.append(clock(state.forecast.ready_eta_s))
    return " ".join(out)


def gpu_words(state: DeploymentState) -> str:
    """Return `8 × RTX PRO 6000`."""
    if state.gpus is None or not state.gpus.gpus:
        return ""
    names = {gpu.name for gpu in state.gpus.gpus if gpu.name}
    name = next(iter(names)) if len(names) == 1 else "mixed GPUs" if names else "GPUs"
    for noise in ("NVIDIA ", "GeForce ", " Blackwell", " Server Edition", " Workstation Edition", " Max-Q"):
        name = name.replace(noise, "")
    further = [other.gpus for other in state.others if other.gpus is not None]
    count = len(state.gpus.gpus) + sum(len(sample.gpus) for sample in further)
    return f"{count} × {name}" + (f" on {1 + len(state.others)} hosts" if state.others else "")


def engine_words(state: DeploymentState) -> Content:
    """Return `vLLM 0.24.0`."""
    version = (state.load.version if state.load else None) or state.api.version
    if not version:
        return Content("")
    from tui.engines.registry import title_of  # not needed for the first paint

    engine = (state.load.engine if state.load else None) or "server"
    return line(label(title_of(engine) + " "), middle(version, 16))


class StatusLine(Canvas):
    """One row; what does not fit goes whole, the chip and the name never."""

    DEFAULT_CSS = "StatusLine { height: 1; }"

    activity: drawn[str] = drawn("")
    """What runs besides the load: `◐ sweep 8 of 9`."""

    tab: drawn[str] = drawn("load")
    """The tab that is open: on Load its progress need not stand here too."""

    def draw(self, width: int, height: int) -> Content:
        state = self.state
        where = state.connection.host or state.target
        mark = chip(state)
        room = max(4, width - mark.cell_length - 12)
        name = middle(state.name or where, min(room, 32))
        left = line(mark, "  ", (name, B))
        named = line(left, label(" on "), middle(where, 28)) if where and where != state.name else left
        busy = self.activity or ("" if self.tab == "load" else progress_words(state))
        now = time.strftime("%H:%M:%S", time.localtime(self.moment.wall)) if self.moment.wall else ""
        trip = state.connection.round_trip_ms
        link = line(label("ssh "), (whole(trip), "" if state.connection.online else BW), label(" ms   "))
        link = link if trip is not None or not state.connection.online else Content("")
        end = line((now, B), " ")
        engine = engine_words(state)
        engine = line(engine, "   ") if engine else engine
        gpus = gpu_words(state)
        full = line(label(gpus + "   " if gpus else ""), engine, link, end)
        working = line(named, "   ", (busy, "$primary")) if busy else named
        if width - working.cell_length < end.cell_length + 2:
            working = named if width - named.cell_length >= end.cell_length + 2 else left
        return spread(width, working, full, line(engine, link, end), line(link, end), end)


def says(state: DeploymentState) -> bool:
    """Return whether the banner has anything to say: no link, and not just the first try under way."""
    link = state.connection
    match link.link:
        case LinkState.LOST | LinkState.UNREACHABLE | LinkState.REFUSED:
            return True
        case LinkState.CONNECTING:
            return link.attempt > 1
        case LinkState.IDLE:
            return link.cause is not None
    return False


class Banner(Canvas):
    """Nothing moves in it but the ages and the countdown to the next try."""

    DEFAULT_CSS = "Banner { height: 2; }"

    def draw(self, width: int, height: int) -> Content:
        link = self.state.connection
        ago = self.moment.since(link.since)
        host = link.host or self.state.target
        refused = link.link in (LinkState.REFUSED, LinkState.IDLE)
        title = {
            LinkState.LOST: f"Link lost {age(ago)} ago" if ago is not None else "Link lost",
            LinkState.UNREACHABLE: f"{host} can't be reached",
            LinkState.REFUSED: f"{host} refused the login"
            if "host key" not in (link.cause or "").casefold()
            else f"The key of {host} was refused",
            LinkState.IDLE: "The configuration is not valid",
            LinkState.CONNECTING: f"Connecting to {host}, attempt {link.attempt}",
        }.get(link.link, "")
        mark = ("✗ ", BE) if refused else ("▲ ", BW)
        left = line(mark, (title, BE if refused else BW))
        rights = []
        if link.retry_at is not None:
            wait = max(0.0, link.retry_at - self.moment.mono)
            seconds = line(label("next try in "), (f"{wait:.0f} s", B), " ")
            rights = [line(seconds, " ", meter(min(8, round(wait)), 8, 8, live=False, style=W)), seconds]
        elif refused:
            rights = [line(label("not retried by itself"))]
        room = width - left.cell_length - 3
        cause = line(left, "   ", short(link.cause or "", max(0, room))) if room > 8 else left
        first = (
            spread(width, cause, *rights)
            if not rights or width - cause.cell_length - rights[-1].cell_length >= 2
            else spread(width, left, *rights)
        )
        if first.plain == left.plain and link.cause and width - left.cell_length > 12:
            first = cause
        rest = [link.advice] if link.advice else []
        if first.plain.find(link.cause or "") < 0 and link.cause:
            rest.insert(0, link.cause)
        if link.link is LinkState.LOST:
            sampled = self.state.gpus.received_at if self.state.gpus else None
            old = self.moment.since(sampled)
            if old is not None:
                at = time.strftime("%H:%M:%S", time.localtime(self.moment.wall - old))
                rest.append(f"The host keeps running. Figures are from {at}; the log resumes where it stopped.")
        elif refused:
            rest.append(f"Press {key_of(self, 'retry')} to try again.")
        while len(rest) > 1 and len(" · ".join(rest)) > width:
            rest.pop(0 if link.link is LinkState.LOST else -1)
        second = line(label(short(" · ".join(rest), width)))
        return rows(first, second)

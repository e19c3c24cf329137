"""The band under the status line while there is no link: since when, why, what happens next."""

import time

from textual.content import Content

from tui.core.connection import Link
from tui.core.deployment import DeploymentState
from tui.widgets.figure import Figure
from tui.widgets.figures import BE, BW, B, W, label, line, meter, rows, short, spread
from tui.widgets.key_bar import key_of
from tui.widgets.numbers import age


def says(state: DeploymentState) -> bool:
    """Whether there is anything to say: no link, and not just the first try under way."""
    link = state.connection
    match link.link:
        case Link.LOST | Link.UNREACHABLE | Link.REFUSED:
            return True
        case Link.CONNECTING:
            return link.attempt > 1
        case Link.IDLE:
            return link.cause is not None
    return False


class Banner(Figure):
    """Nothing moves in it but the ages and the countdown to the next try."""

    DEFAULT_CSS = "Banner { height: 2; }"

    def draw(self, width: int, height: int) -> Content:
        link = self.state.connection
        ago = self.moment.since(link.since)
        host = link.host or self.state.target
        refused = link.link in (Link.REFUSED, Link.IDLE)
        title = {
            Link.LOST: f"Link lost {age(ago)} ago" if ago is not None else "Link lost",
            Link.UNREACHABLE: f"{host} can't be reached",
            Link.REFUSED: f"{host} refused the login"
            if "host key" not in (link.cause or "").casefold()
            else f"The key of {host} was refused",
            Link.IDLE: "The configuration does not hold",
            Link.CONNECTING: f"Connecting to {host}, try {link.attempt}",
        }.get(link.link, "")
        mark = ("✗ ", BE) if refused else ("▲ ", BW)
        left = line(mark, (title, BE if refused else BW))
        rights = []
        if link.retry_at is not None:
            wait = max(0.0, link.retry_at - self.moment.mono)
            seconds = line(label("next try in "), (f"{wait:.0f} s", B), " ")
            rights = [line(seconds, " ", meter(min(8, round(wait)), 8, 8, live=False, style=W)), seconds]
        elif refused:
            rights = [line(label("not tried again by itself"))]
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
        if link.link is Link.LOST:
            sampled = self.state.gpus.received_at if self.state.gpus else None
            old = self.moment.since(sampled)
            if old is not None:
                at = time.strftime("%H:%M:%S", time.localtime(self.moment.wall - old))
                rest.append(f"The host goes on. Figures are of {at}; the log is read on from where it stopped.")
        elif refused:
            rest.append(f"Press {key_of(self, 'retry')} to try again.")
        while len(rest) > 1 and len(" · ".join(rest)) > width:
            rest.pop(0 if link.link is Link.LOST else -1)
        second = line(label(short(" · ".join(rest), width)))
        return rows(first, second)

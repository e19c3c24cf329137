"""A ten-line app around one pane, with the real themes, that keeps the messages that the pane posts."""

import time
from collections.abc import Callable

from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot
from textual.widget import Widget

from tui import themes

HOSTILE = (
    "[/x] [bold]not bold[/] \x1b]0;title\x07 \x1b[31mred \u202eright\x9b2J 你好 🙂🏽 " + "w" * 300 + " <script>alert(1)</script>"
)


class PaneHost(App[None]):
    def __init__(self, pane: Widget, theme: str = "readyroom-dark") -> None:
        super().__init__()
        self.pane = pane
        self.posted: list[Message] = []
        for known in themes.THEMES:
            self.register_theme(known)
        self.theme = theme

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(themes.DARK.variables)

    def compose(self) -> ComposeResult:
        yield self.pane

    def seen(self, kind: type[Message]) -> list[Message]:
        """Return the messages of a kind, each one once: the hook is called for every widget that a message passes."""
        return list({id(message): message for message in self.posted if isinstance(message, kind)}.values())


async def until(pilot: Pilot[None], holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Let the app run until the predicate holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        await pilot.pause(0.01)


def text(app: App[None]) -> str:
    """Return what is on the screen, as text."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    assert width
    return "\n".join("".join(segment.text for segment in strip) for strip in lines[:height])

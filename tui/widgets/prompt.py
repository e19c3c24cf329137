"""The line in which the user types: enter sends, ctrl+j starts a new line, up and down walk through what was sent before."""

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

HISTORY = 200


class Prompt(TextArea):
    """Grows with its text up to a third of the screen. Nothing is taken away from the user: what can't be sent now stays."""

    DEFAULT_CSS = """
    Prompt {
        height: auto; min-height: 3; max-height: 33vh; border: round $rule; background: $background; padding: 0 1;
        scrollbar-size: 0 1; border-title-color: $foreground; border-subtitle-color: $foreground;
    }
    Prompt:focus { border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+j", "new_line", "new line", show=False)]

    @dataclass
    class Entered(Message):
        """The user pressed enter; the prompt keeps its text until `clear` or `sent`."""

        text: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, show_line_numbers=False, highlight_cursor_line=False, soft_wrap=True, tab_behavior="focus")
        self.cursor_blink = False  # at the end of a slow link even that is traffic, and it wakes the screen twice a second
        self._sent: list[str] = []
        self._place = 0
        """Where in the history the text shown stands; its length means the draft."""
        self._draft = ""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            if self.text.strip():
                self.post_message(self.Entered(self.text.strip("\n")))
            return
        if event.key == "up" and self.cursor_location[0] == 0 and self._walk(-1):
            event.stop()
            event.prevent_default()
            return
        if event.key == "down" and self.cursor_location[0] == self.document.line_count - 1 and self._walk(1):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def action_new_line(self) -> None:
        self.insert("\n")

    def sent(self, text: str) -> None:
        """The text went out: it becomes the newest of the history, and the prompt is empty again."""
        if not self._sent or self._sent[-1] != text:
            self._sent = [*self._sent, text][-HISTORY:]
        self._place, self._draft = len(self._sent), ""
        self.text = ""

    def _walk(self, step: int) -> bool:
        """Shows the entry before or after; False at the ends, where the key keeps its usual meaning."""
        place = self._place + step
        if not 0 <= place <= len(self._sent):
            return False
        if self._place == len(self._sent):
            self._draft = self.text
        self._place = place
        self.text = self._draft if place == len(self._sent) else self._sent[place]
        self.move_cursor(self.document.end)
        return True

"""The footer: the keys that do something now; and the key of an action, for whatever else names it."""

from collections.abc import Mapping

from textual.content import Content
from textual.events import Click
from textual.reactive import var
from textual.widget import Widget

from tui.actions import BY_ID, Action, shown_key
from tui.widgets.canvas import Canvas, drawn
from tui.widgets.draw import BP, line

KEPT = ("help", "quit")
"""These stay when room goes."""


def key_of(widget: Widget, action: str) -> str:
    """Return the key of an action, as the user has set it, for a text of the widget."""
    own: Mapping[str, str] = getattr(widget.app, "own_keys", {})
    return shown_key(BY_ID[action], own)


class KeyBar(Canvas):
    """One row; what does not fit goes whole. Clicking a key does it."""

    DEFAULT_CSS = "KeyBar { height: 1; }"

    actions: drawn[tuple[Action, ...]] = drawn(())
    own: var[dict[str, str]] = var({}, init=False)

    def placed(self, width: int) -> list[tuple[int, int, Action, str]]:
        """Start, end, action and key of what is shown."""

        def size(one: Action) -> int:
            return len(shown_key(one, self.own)) + len(one.text) + 3

        chosen = list(self.actions)
        while len(chosen) > 1 and sum(map(size, chosen)) - 1 > width:
            loose = [action for action in chosen if action.id not in KEPT]
            chosen.remove(loose[-1] if loose else chosen[-1])
        out, at = [], 1
        for action in chosen:
            out.append((at, at + size(action) - 1, action, shown_key(action, self.own)))
            at += size(action)
        return out

    def draw(self, width: int, height: int) -> Content:
        parts: list[Content] = [line(" ")]
        parts += [line((key, BP), f" {action.text}  ") for _, _, action, key in self.placed(width)]
        return line(*parts).rstrip()

    async def on_click(self, event: Click) -> None:
        for start, end, action, _ in self.placed(self.size.width):
            if start <= event.x < end and action.bound:
                await self.screen.run_action(action.action)

"""The command palette: the actions by name, found by a word of their description, too."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final

from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider, SearchIcon
from textual.content import Content

IN_THE_TEXT: Final = 0.5
"""What a match in the description counts, of one in the name."""


class Actions(Provider):
    """The app's own list, in its order. One palette runs one command, however often enter was pressed."""

    _ran = False

    def _once(self, run: Callable[[], Any]) -> Callable[[], Awaitable[None]]:
        async def once() -> None:
            if not self._ran:
                self._ran = True
                if isawaitable(done := run()):
                    await done

        return once

    async def discover(self) -> Hits:
        for name, help, run, _ in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(name, self._once(run), help=help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        words = query.casefold().split()
        for name, help, run, _ in self.app.get_system_commands(self.screen):
            if (score := matcher.match(name)) > 0:
                yield Hit(score, matcher.highlight(name), self._once(run), help=help)
            elif words and all(word in help.casefold() for word in words):  # letters scattered over a sentence are no match
                yield Hit(IN_THE_TEXT * len(words) / len(help), Content(name), self._once(run), text=name, help=help)


class Palette(CommandPalette):
    """It is closed once, as every dialog: see `Modal`, which can't be a base of it without taking its styles away."""

    def __init__(self) -> None:
        super().__init__(providers=[Actions], placeholder="Search the commands", id="--command-palette")

    def on_mount(self) -> None:
        for icon in self.query(SearchIcon):
            icon.icon = "/"  # the usual one is an emoji, which some terminals draw too wide

    def dismiss(self, result: None = None) -> AwaitComplete:
        if not self.is_current:
            return AwaitComplete()
        if not self.is_mounted:
            self.call_later(self._dismiss_mounted)
            return AwaitComplete()
        self._cancel_gather_commands()  # a search that begins now would look for a list that is gone
        return super().dismiss(result)

    def _gather_commands(self, search_value: str) -> None:  # type: ignore[override]
        """Search, unless the palette is being closed: Textual would look for a list that is gone."""
        if self.is_current and self.query(CommandList):
            super()._gather_commands(search_value)

    def _dismiss_mounted(self) -> None:
        """Dismiss, and return nothing: Textual awaits what a callback returns, and a screen may not await its own end."""
        self.dismiss()

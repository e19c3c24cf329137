"""Screens that lie over another one and are closed once, however fast the keys come."""

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType


class Modal(ModalScreen[ScreenResultType]):
    """A key that is pressed again before the first one took effect finds the screen closed: closing it twice would close the one
    below, too. One that comes before the screen has its parts closes it when it has them: Textual would look for them in vain."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        if not self.is_current:
            return AwaitComplete()
        if not self.is_mounted:
            self.call_later(self.dismiss, result)
            return AwaitComplete()
        return super().dismiss(result)

"""How a login asks the person while the control room is on the screen."""

import asyncio
from dataclasses import dataclass

from textual.app import App
from textual.message import Message
from textual.screen import ModalScreen


@dataclass
class Asked(Message):
    """A login waits for the answer to a dialog."""

    dialog: ModalScreen[bool] | ModalScreen[str | None]
    answer: "asyncio.Future[bool | str | None]"


class ScreenAsker:
    """An Asker whose questions appear as dialogs. It is made before the app, given to the host, and bound to the app later.

    One question at a time; before the screen is there a question waits for it, and when it goes the login is cancelled.
    """

    def __init__(self) -> None:
        self._bound: App[str | None] | None = None
        self._turn = asyncio.Lock()
        self._there = asyncio.Event()

    def bind(self, app: App[str | None]) -> None:
        """Show questions on that app's screen from now on."""
        self._bound = app
        self._there.set()

    async def _ask(self, dialog: ModalScreen[bool] | ModalScreen[str | None]) -> bool | str | None:
        async with self._turn:
            await self._there.wait()
            answer: asyncio.Future[bool | str | None] = asyncio.get_running_loop().create_future()
            if self._bound is None or not self._bound.post_message(Asked(dialog, answer)):
                return None
            try:
                return await answer
            finally:
                if answer.cancelled() and dialog.is_current:  # the connection that asked is gone, and the dialog goes with it
                    dialog.dismiss(None)

    async def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Return whether the user accepts the unknown key."""
        from tui.screens.dialogs import HostKeyDialog

        return bool(await self._ask(HostKeyDialog(host, key_type, fingerprint)))

    async def secret(self, host: str, prompt: str, echo: bool) -> str | None:
        """Return what the user typed; None cancels the login."""
        from tui.screens.dialogs import SecretDialog

        answer = await self._ask(SecretDialog(host, prompt, echo))
        return answer if isinstance(answer, str) else None

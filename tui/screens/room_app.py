"""The app as screens know it: what it tells of itself, how keys come to them in order, and how it says a word on one."""

from collections import deque
from collections.abc import Callable, Coroutine

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event, Key, Paste
from textual.message import Message
from textual.notifications import Notification, Notify
from textual.worker import Worker

NOT_YET = "Not yet"
"""So begins what no longer holds when the server is up."""
WORD_S = 4.0
COMPLAINT_S = 8.0
LOOK_S = 0.1
"""How often it is looked whether the widget that has a key is still there."""
KEY_S = 5.0
"""So long a key waits for the one before it; a widget that takes longer is stuck."""


class KeyDone(Message):
    """Follow a key from the widget that got it up to the app: once it arrives there, all that the key does has been done."""


class RoomApp(App[str | None], inherit_bindings=False):
    """The part of the control room that does not know its screens."""

    last_key_at: float = -1e9
    """Monotonic; what opens by itself keeps away from a person who is at the keys."""
    _word: Notification | None = None
    """What was last said on a key."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[Key | Paste] = deque()
        self._followed: tuple[KeyDone, DOMNode] | None = None
        """What follows the key that is being handled, and the widget that has it."""

    # -- keys ----------------------------------------------------------------------------------------------------------------------
    # Textual gives each key to the focused widget as it comes, but runs what it is bound to in the app, and posts what it leads to:
    # of keys that come together a character would be typed before the backspace in front of it, or after enter had cleared it.

    async def on_event(self, event: Event) -> None:
        """Handle keys one after the other: the next one begins once all that the one before does is done."""
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._waiting.append(event)
        if self._followed is None:
            await self._handle_keys()
        elif len(self._waiting) == 1:
            self._look(self._followed[0], KEY_S)

    async def _handle_keys(self) -> None:
        while self._waiting and self._followed is None:
            if self._exit or not self.screen_stack:
                self._waiting.clear()  # there is no screen any more that they could be meant for
                return
            target: DOMNode = self.focused or self.screen
            done = KeyDone()
            await super().on_event(self._waiting.popleft())
            if target.is_attached and target.post_message(done):
                self._followed = done, target
                if self._waiting:
                    self._look(done, KEY_S)

    async def on_key_done(self, done: KeyDone) -> None:
        """Go on with the next key; on a screen that has just come up when it has its parts, and its focus."""
        if self._followed is None or self._followed[0] is not done or not self.screen_stack:
            return
        target = self._followed[1]
        if self.screen in (target, *target.ancestors):
            self.call_later(self._go_on, done)  # what is focused by then has been put off in the same way
        else:
            self.screen.call_after_refresh(self._go_on, done)

    async def _go_on(self, done: KeyDone) -> None:
        if self._followed is not None and self._followed[0] is done:
            self._followed = None
            await self._handle_keys()

    def _look(self, done: KeyDone, seconds: float) -> None:
        """Go on without the widget that has the key if it is gone, or stuck."""
        if self._followed is None or self._followed[0] is not done:
            return
        if seconds <= 0 or not self._followed[1].is_attached:
            self.call_later(self._go_on, done)
        else:
            self.set_timer(LOOK_S, lambda: self._look(done, seconds - LOOK_S))

    # -- words ---------------------------------------------------------------------------------------------------------------------

    @property
    def several(self) -> bool:
        """Whether there is more than one deployment to look at."""
        return False

    @property
    def kept(self) -> frozenset[str]:
        """Names of deployments that need not be written into the configuration."""
        return frozenset()

    def start(self, work: Callable[[], Coroutine[None, None, None]], group: str, *, exclusive: bool = False) -> Worker[None]:
        """Run something in the background; what it raises ends the app. `exclusive` ends what the group does meanwhile."""
        return self.run_worker(work, group=group, exclusive=exclusive)

    def say(self, what: str) -> None:
        """Show a word on a key that was pressed, in place of the one before. What else is told on the screen stays."""
        self._take_back()
        self._word = Notification(what, timeout=WORD_S)
        self._on_notify(Notify(self._word))  # at once, so that it can be taken back when two keys come together

    def forget_refusal(self) -> None:
        """Take back the word that it is too early for something: it no longer is."""
        if self._word is not None and self._word.message.startswith(NOT_YET):
            self._take_back()

    def complain(self, what: str) -> None:
        """Say that something asked for could not be done, in the words of who refused."""
        self.notify(what, severity="warning", markup=False, timeout=COMPLAINT_S)

    def _take_back(self) -> None:
        if self._word is not None and self._word in self._notifications:
            self._unnotify(self._word)  # Textual 8 takes back all or none otherwise
        self._word = None

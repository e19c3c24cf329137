"""The app as screens know it: what it tells of itself, and how it says a word on a key."""

from collections.abc import Callable, Coroutine

from textual.app import App
from textual.notifications import Notification, Notify
from textual.worker import Worker

NOT_YET = "Not yet"
"""So begins what no longer holds when the server is up."""
WORD_S = 4.0
COMPLAINT_S = 8.0


class RoomApp(App[str | None], inherit_bindings=False):
    """The part of the control room that does not know its screens."""

    last_key_at: float = -1e9
    """Monotonic; what opens by itself keeps away from a person who is at the keys."""
    _word: Notification | None = None
    """What was last said on a key."""

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

"""What the main screen shows at one moment, as a value: its layout, and which keys can act, follow from it alone."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from tui.core.deployment import DeploymentState
from tui.core.deployment_status import UNREACHED, Status, status_of
from tui.panes import Size

NARROW, SHORT, WIDE, HIGH = 110, 32, 180, 50
TINY = (60, 12)


class ScreenView(Struct, frozen=True, kw_only=True):
    """The main screen at one moment."""

    state: DeploymentState
    """What its figures show."""
    tab: str = "load"
    width: int = 120
    height: int = 35
    own_keys: Mapping[str, str] = {}
    """Action -> key, for actions that the user gave another key."""
    zoomed: Literal["", "stage", "log"] = ""
    """The part that has the screen to itself."""
    typing: bool = False
    """Whether keys go into a text."""
    filtered: bool = False
    """Whether the log shows only what holds a text."""
    streaming: bool = False
    smoking: bool = False
    benching: bool = False
    measured: bool = False
    """Whether there is a benchmark to compare."""
    recorded: bool = False
    """Whether the record has been listed and has runs."""
    several: bool = False
    """Whether other deployments are configured."""
    kept: frozenset[str] = frozenset()
    """Names that need not be written into the configuration."""

    @property
    def tiny(self) -> bool:
        """Whether there is room for a few lines only."""
        return self.width < TINY[0] or self.height < TINY[1]

    @property
    def size(self) -> Size:
        """The layout that fits: `narrow` and `tall` have one column."""
        if self.width < NARROW or self.height < SHORT:
            return "tall" if self.height >= SHORT else "narrow"
        return "wide" if self.width >= WIDE and self.height >= HIGH else "mid"

    @property
    def narrow(self) -> bool:
        """Whether there is one column only."""
        return self.size in ("narrow", "tall")

    @property
    def status(self) -> Status:
        """The one word for the state of the deployment."""
        return status_of(self.state)

    @property
    def served(self) -> bool:
        """Whether the server is up."""
        return self.status in (Status.READY, Status.HUNG)

    @property
    def offline(self) -> bool:
        """Whether the host cannot be reached, or never will be."""
        return self.status in (*UNREACHED, Status.MISCONFIGURED)

    @property
    def stale(self) -> bool:
        """Whether the figures on the screen are old ones."""
        return self.offline and (self.state.gpus is not None or self.state.load is not None)

    @property
    def busy(self) -> bool:
        """Whether the model is working for the user: a chat, a smoke test or a benchmark."""
        return self.streaming or self.smoking or self.benching

"""News of the tabs that are not looked at: how many things came to each since it was last seen."""

from tui.core.deployment import DeploymentState
from tui.core.gpu_engine import engine_of
from tui.core.gpu_health import health
from tui.core.gpu_others import leftovers


class News:
    """Counts that only rise are told, a tab at a time; what was told before the first look is no news."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._seen: dict[str, int] = {}

    def tell(self, tab: str, total: int) -> None:
        """So many there are by now. A total that fell begins anew: the server was started again, the list was cleared."""
        if tab not in self._told or total < self._told[tab]:
            self._seen[tab] = total
        self._told[tab] = total

    def add(self, tab: str) -> None:
        """One thing more, of what has no total."""
        self._told[tab] = self._told.get(tab, 0) + 1

    def see(self, tab: str) -> None:
        """The tab is looked at."""
        if tab in self._told:
            self._seen[tab] = self._told[tab]

    def count(self, tab: str) -> int:
        """How much is new there."""
        return self._told.get(tab, 0) - self._seen.get(tab, 0)

    def marks(self, tabs: tuple[str, ...]) -> tuple[int, ...]:
        """The counts of all, for comparing."""
        return tuple(self.count(tab) for tab in tabs)

    def take(self, state: DeploymentState) -> None:
        """What a state tells: errors in the log, and what is wrong with the GPUs."""
        if state.load is not None and state.load.lines:
            self.tell("log", state.load.errors)
        if state.gpus is not None:
            self.tell("gpus", len(health(state.gpus, leftovers(state), engine_of(state))))

"""News of the tabs that are not looked at: how many things came to each since it was last seen."""

from tui.core.deployment import DeploymentState
from tui.core.findings import hosts_of


class News:
    """Counts that only rise are told, a tab at a time; what was told before the first look is no news."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], int] = {}
        self._seen: dict[tuple[str, str], int] = {}

    def tell(self, tab: str, total: int, source: str = "") -> None:
        """So many there are by now, of one source. A total that fell begins anew: the server was started again, the list was
        cleared."""
        key = (tab, source)
        if key not in self._told or total < self._told[key]:
            self._seen[key] = total
        self._told[key] = total

    def add(self, tab: str) -> None:
        """One thing more, of what has no total."""
        self._told[tab, ""] = self._told.get((tab, ""), 0) + 1

    def see(self, tab: str) -> None:
        """The tab is looked at."""
        self._seen.update({key: total for key, total in self._told.items() if key[0] == tab})

    def count(self, tab: str) -> int:
        """How much is new there."""
        return sum(total - self._seen.get(key, 0) for key, total in self._told.items() if key[0] == tab)

    def marks(self, tabs: tuple[str, ...]) -> tuple[int, ...]:
        """The counts of all, for comparing."""
        return tuple(self.count(tab) for tab in tabs)

    def take(self, state: DeploymentState) -> None:
        """What a state tells: errors in the log, and what is wrong with the GPUs of each host."""
        if state.load is not None and state.load.lines:
            self.tell("log", state.load.errors)
        for one in hosts_of(state):
            if one.sample is not None:
                self.tell("gpus", len(one.wrong), one.host)

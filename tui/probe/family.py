"""Which processes are the engine's: those that the client told, and all that descends from them.

One thread looks at /proc, another asks of each process on a GPU; what a look found is published as one value. Python 3.8.
"""

import os
from typing import FrozenSet, List, NamedTuple, Optional

from tui.probe.processes import Processes

FAMILY_S = 5.0
"""Between two looks, where nothing on a GPU asks for an earlier one."""
HOST = "pid:[4026531836]"
"""The kernel's name of the host's own list of processes (PROC_PID_INIT_INO); a container has another."""


class Kin(NamedTuple):
    """What one look found."""

    family: FrozenSet[int]
    """The engine's processes."""
    judged: FrozenSet[int]
    """Those of which the look could tell whether they are."""

    def has(self, pid: int) -> Optional[bool]:
        """Whether a process is the engine's; None for one that came after the look, or that can't be told."""
        if pid in self.family:
            return True
        return False if pid in self.judged else None


NOBODY: Kin = Kin(frozenset(), frozenset())


class Family:
    """Looks for the engine's processes. `kin` may be read, and `used` set, by another thread: read it once for one sample."""

    def __init__(self, processes: Processes, in_container: bool) -> None:
        self.kin: Optional[Kin] = None
        """None where no processes were told."""
        self.used: FrozenSet[int] = frozenset()
        """The processes that the last sample saw on the GPUs."""
        self._processes = processes
        self._in_container = in_container
        self._roots: Optional[List[int]] = None
        self._judged: FrozenSet[int] = frozenset()
        """By the last look that found one of the roots alive."""
        self._asked: FrozenSet[int] = frozenset()
        """Those on the GPUs before the last look."""
        self._due = 0.0

    def tell(self, roots: Optional[List[int]], now: float) -> None:
        """Takes the processes that descend from `roots` for the engine's; None: nobody is known."""
        self._roots = roots
        if roots is None:
            self.kin = None
        else:
            self._look(roots, now)

    def look_if_due(self, now: float) -> None:
        """Looks from time to time, and once more for each process that is new on a GPU."""
        if self._roots is None:
            return
        new = self.used - self._asked - self._judged
        if new or now >= self._due:
            self._look(self._roots, now)

    def _look(self, roots: List[int], now: float) -> None:
        self._due = now + FAMILY_S
        self._asked = used = self.used  # before the look: what comes while it goes on is not judged by it
        family = frozenset(self._processes.family(roots))
        known = self._processes.known
        if family:
            # A process of a GPU that /proc hides is another user's, or would be in the family; but in a container the driver may
            # tell the host's numbers, and then it can be anybody's.
            self._judged = known if self._in_container else known | used
        else:
            # All that were told have ended: what is younger than they may be the engine of the server's next start.
            self._judged &= known | used
        self.kin = Kin(family, self._judged)


def in_container() -> bool:
    """Whether this process sees a list of processes of its own, not the host's."""
    try:
        return os.readlink("/proc/self/ns/pid") != HOST
    except OSError:
        return False

"""The services of one `docker compose logs`: each line names its own, and a server's log is the lines of one service alone."""

import re
from typing import Final

from tui.core.logs.exit_signs import container_of, is_container_of
from tui.core.logs.failure_kinds import joined
from tui.engines.registry import START_MARKERS

_NAMED: Final = re.compile(r"(?:\[\d+m)?([\w.@/-]{1,80}) *( \|)(?: |$)")
_NUMBERED: Final = re.compile(r".*[-_]\d+$")
_SERVER: Final = joined(
    *START_MARKERS,
    r"\b(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./+-]+\.(?:py|rs):\d+\]"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:(?:DP|PP|TP)\d+ ?)+\]",
)
"""What only a server writes: the first lines of a start, and records of processes that have a rank."""

ENOUGH: Final = 2000
"""After so many lines without a name there will be none."""


class ComposeServices:
    """Choose the lines that are the server's. The first service that writes as a server does is the one that is read, unless
    `wanted` names
    another; while none has, all lines count."""

    def __init__(self, wanted: str | None = None) -> None:
        self.chosen = wanted
        self.servers: list[str] = [wanted] if wanted is not None else []
        """The services that hold a server, the first to start first."""
        self.seen: list[str] = []
        self.settled = False
        """Whether this is the log of one server, and nothing is to be looked for any more."""
        self._alone = 0
        self._column = 0
        self._speaks: str | None = None

    @property
    def parted(self) -> bool:
        """Tell whether there is more than one service, and a server among them."""
        return self.chosen is not None and len(self.seen) > 1

    def take(self, text: str) -> bool:
        """Tell whether a cleaned line is the server's. A line without a name goes on from the one before."""
        named = _NAMED.match(text) if " |" in text[:90] else None
        if named is None:
            self._alone += 1
            ended = container_of(text) if self.seen else None
            if ended is not None:
                return self._is_chosen(ended)
            if self.chosen is None and self._speaks is None and (self._alone >= ENOUGH or _SERVER.search(text, 0, 400)):
                self.settled = True  # whatever tables it prints
            return self.chosen is None or self._speaks in (None, self.chosen)
        name, column = named[1], named.start(2)
        if name not in self.seen:
            if self._column not in (0, column) and not _NUMBERED.match(name):
                return self.chosen is None or self._speaks in (None, self.chosen)  # a table that the server prints
            if len(self.seen) >= 64:
                return self.chosen is None
            self.seen.append(name)
        self._column = column
        self._speaks = name
        if name not in self.servers and _SERVER.search(text, named.end(), named.end() + 400):
            self.servers.append(name)
            if self.chosen is None:
                self.chosen = name
        return self.chosen in (None, name)

    @property
    def read(self) -> str | None:
        """Return the service whose lines count as the server's, None if there is none or it is not known yet."""
        return self.chosen or (self.seen[0] if len(self.seen) == 1 else None)

    def _is_chosen(self, ended: str) -> bool:
        """Tell whether the container that exited is that of the service that is read."""
        if self.chosen is None or ended in self.seen:
            return self.chosen in (None, ended)
        return is_container_of(ended, self.chosen)

    @property
    def note(self) -> str | None:
        """Say which service the report is about, if there are several, and how another is chosen that is a server too server."""
        if not self.parted:
            return None
        others = [name for name in self.servers if name != self.chosen]
        if not others:
            return f"{len(self.seen)} services write in this log: only {self.chosen}, which holds the server, is read"
        return (
            f"{len(self.servers)} services hold a server: {self.chosen} is read; others: {', '.join(others)} "
            f'(readyroom log FILE --service {others[0]}, or log = "compose:SERVICE" in the configuration)'
        )

"""What a server's statistics lines say of all its engines together."""

from typing import TypeVar

from tui.core.logs.state import Serving

QUIET_S = 60.0
"""An engine whose statistics are so much older than another one's writes none any more: it is idle."""

Figure = TypeVar("Figure", int, float)


class Statistics:
    """The last statistics of each data-parallel engine, and of the server: the sum over its engines, of shares the mean. What the
    server says of all of them together goes before."""

    def __init__(self) -> None:
        self.server: Serving | None = None
        self._engines: dict[int, Serving] = {}
        self._together = False

    def take(self, said: Serving, engine: int | None) -> None:
        """A line of one engine, or of the whole server."""
        if engine is None:
            self.server, self._together = said, True
            return
        self._engines[engine] = said
        if self._together:
            return
        now = said.at
        if now is not None:
            self._engines = {key: one for key, one in self._engines.items() if one.at is None or one.at >= now - QUIET_S}
        engines = self._engines.values()
        self.server = Serving(
            _sum([one.prompt_tokens_s for one in engines]),
            _sum([one.generation_tokens_s for one in engines]),
            _sum([one.running for one in engines]),
            _sum([one.waiting for one in engines]),
            _mean([one.kv_cache_share for one in engines]),
            _mean([one.prefix_hit_share for one in engines]),
            now,
        )

    def last(self, engine: int | None) -> Serving | None:
        """What one engine, or the whole server, said last."""
        return self.server if engine is None else self._engines.get(engine)


def _sum(figures: list[Figure | None]) -> Figure | None:
    known = [one for one in figures if one is not None]
    return sum(known[1:], known[0]) if known else None


def _mean(shares: list[float | None]) -> float | None:
    known = [one for one in shares if one is not None]
    return sum(known) / len(known) if known else None

"""What a run has recorded so far, and how it is doing. Python 3.8."""

from collections import deque
from typing import Any, Collection, Deque, Dict, List, Tuple

from tui.probe.load_stream import Stream
from tui.wire.metrics import Record

RATE_LOOKS = 5
"""The rate of tokens is that of so many last looks: about a second."""


class Tally:
    """Records of requests that ended, in the order in which they ended."""

    def __init__(self) -> None:
        self.records: List[Record] = []
        self.done = 0
        self.failed = 0
        self.in_a_row = 0
        """Failures since the last success, over all streams."""
        self._chunks = 0
        self._looks: Deque[Tuple[float, int]] = deque(maxlen=RATE_LOOKS)

    def completed(self, record: Record) -> None:
        self.records.append(record)
        self.done += 1
        self.in_a_row = 0
        self._chunks += len(record.chunks)

    def failure(self, record: Record) -> None:
        self.records.append(record)
        self.failed += 1
        self.in_a_row += 1

    def pause(self, streams: int) -> float:
        """Seconds that a stream waits after a failure: a dead server must not be asked ten thousand times a second."""
        return 0.0 if self.in_a_row <= streams else min(1.0, 0.05 * 2 ** min(5, self.in_a_row // streams))

    def progress(self, now: float, streams: Collection[Stream]) -> Dict[str, Any]:
        """The counts of a progress frame."""
        chunks = self._chunks + sum(len(stream.record.chunks) for stream in streams)
        self._looks.append((now, chunks))
        then, before = self._looks[0]
        return {
            "in_flight": len(streams),
            "done": self.done,
            "failed": self.failed,
            "chunks": chunks,
            "chunks_s": (chunks - before) / (now - then) if now > then else None,
        }

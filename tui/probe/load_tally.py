"""What a run has recorded so far, and how it is doing. Python 3.8."""

from collections import deque
from typing import Any, Collection, Deque, Dict, Iterable, List, Optional, Tuple

from tui.probe.load_stream import Stream
from tui.wire.record import COMPLETED, Record

MANY = 64
"""With so many streams the loop rests for a moment after each turn, so that the next one finds several arrivals: the kernel has
stamped them, and a turn for each would double the CPU that a token costs. How long: see `Tally.moment`."""

RATE_LOOKS = 5
"""The rate of tokens is that of so many last looks: about a second."""

LEAST_S = 0.0002
"""A shorter pause is not worth its system call."""

SHORT_S = 0.0005
LONG_S = 0.002
OF_A_GAP = 8
OF_A_REQUEST = 1000
"""A pause of the loop is at most this part of the time between two tokens of a stream, and of that from a request to its end: the
next request of a stream may wait for it."""

OFTEN = 0.005
"""Above this part of all chunks read together with another of their stream, the loop takes short pauses: a read has one stamp."""


def a_chunk_of(records: Iterable[Record]) -> Optional[float]:
    """Tokens in a chunk, over the completed ones of these requests; None where there are none."""
    tokens = chunks = 0
    for record in records:
        if record.state == COMPLETED:
            tokens += record.tokens
            chunks += len(record.chunks)
    return tokens / chunks if chunks else None


class Pace:
    """Tokens a second of about the last second: chunks are what is seen to come, requests that end tell what one holds."""

    def __init__(self, a_chunk: Optional[float] = None) -> None:
        """`a_chunk` are the tokens in one as far as it is known, until a request has ended."""
        self.looks: Deque[Tuple[float, int]] = deque(maxlen=RATE_LOOKS)
        """When it was looked, and the chunks until then."""
        self._a_chunk = a_chunk
        self._tokens = 0
        self._chunks = 0

    def completed(self, record: Record) -> None:
        self._tokens += record.tokens
        self._chunks += len(record.chunks)

    def look(self, now: float, chunks: int) -> Optional[float]:
        """Takes that so many chunks had come until `now`, in seconds; the tokens a second, None where they are not known yet."""
        self.looks.append((now, chunks))
        then, before = self.looks[0]
        a_chunk = self._tokens / self._chunks if self._chunks else self._a_chunk
        return None if a_chunk is None or now <= then else (chunks - before) / (now - then) * a_chunk


class Tally:
    """Records of requests that ended, in the order in which they ended."""

    def __init__(self, a_chunk: Optional[float] = None) -> None:
        """`a_chunk`: see `Pace`."""
        self.records: List[Record] = []
        self.done = 0
        self.failed = 0
        self.in_a_row = 0
        """Failures since the last success, over all streams."""
        self.together = 0
        """Chunks of the ended requests that were read together with a later one of theirs."""
        self._lasted = 0.0
        self._chunks = 0
        self._often = False
        self._pace = Pace(a_chunk)

    def completed(self, stream: Stream) -> None:
        record = stream.record
        self.ended(stream)
        self.done += 1
        self.in_a_row = 0
        self._lasted += record.end - record.start
        self._pace.completed(record)

    def failure(self, stream: Stream) -> None:
        self.ended(stream)
        self.failed += 1
        self.in_a_row += 1

    def ended(self, stream: Stream) -> None:
        """Takes the record of a request, whatever ended it: the end of the run, too."""
        self.records.append(stream.record)
        self.together += stream.together
        self._chunks += len(stream.record.chunks)  # those of a failed one have come, too: the count never falls

    def moment(self, streams: int, elapsed: float) -> float:
        """Seconds for which a loop with many streams may let arrivals gather, by what came so far; to be asked after `progress`.

        0 where requests are too short for a pause. Until one has ended they last at least as long as the run has, `elapsed`.
        """
        (then, before), (now, chunks) = self._pace.looks[0], self._pace.looks[-1]
        self._often = self._often or self.together > OFTEN * max(1, self._chunks)
        if chunks <= before:
            return 0.0
        gap = streams * (now - then) / (chunks - before)
        lasts = self._lasted / self.done if self.done else elapsed
        longest = min(SHORT_S if self._often else LONG_S, gap / OF_A_GAP, lasts / OF_A_REQUEST)
        return longest if longest >= LEAST_S else 0.0

    def pause(self, streams: int) -> float:
        """Seconds that a stream waits after a failure: a dead server must not be asked ten thousand times a second."""
        return 0.0 if self.in_a_row <= streams else min(1.0, 0.05 * 2 ** min(5, self.in_a_row // streams))

    def progress(self, now: float, streams: Collection[Stream]) -> Dict[str, Any]:
        """The counts of a progress frame."""
        chunks = self._chunks + sum(len(stream.record.chunks) for stream in streams)
        return {
            "in_flight": len(streams),
            "done": self.done,
            "failed": self.failed,
            "chunks": chunks,
            "tokens_s": self._pace.look(now, chunks),
        }

"""Per-request arrays on their way to the client: cut by bytes, since a thousand short replies are less than one long one.

A piece takes the client some 50 ms to read, in the event loop that draws its screen. Python 3.8.
"""

import base64
import json
import zlib
from collections import deque
from typing import Any, Collection, Deque, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from tui.probe.load_stream import Stream
from tui.wire.request_record import COMPLETED, Record
from tui.wire.summary import ARRAYS, detail

PIECE_BYTES = 4 << 20
"""Of JSON in one piece, by the estimate below; a request with more of its own is a piece alone."""

GAP_BYTES = 24
"""Of JSON that the gap before a chunk is at most: a double of 17 digits with its exponent, and a comma."""
CHARACTER_BYTES = 12
"""Of JSON that a character is at most: one beyond the 16-bit plane is two escapes."""
REST_BYTES = 256
"""Of JSON for a request's other values."""


def pieces(records: Sequence[Record], names: Sequence[str] = ARRAYS) -> List[List[Record]]:
    """The records in order, in pieces of which those arrays have PIECE_BYTES at most."""
    cut: List[List[Record]] = []
    room = 0
    for record in sorted(records, key=lambda r: r.index):
        size = REST_BYTES
        if "itls" in names:
            size += GAP_BYTES * len(record.chunks)
        if "errors" in names:
            size += CHARACTER_BYTES * (len(record.text) + len(record.error))
        if size > room or not cut:
            cut.append([])
            room = PIECE_BYTES
        cut[-1].append(record)
        room -= size
    return cut


def frames(
    cut: Sequence[Sequence[Record]],
    number: Any,
    keep_text: bool,
    names: Sequence[str] = ARRAYS,
    asked_input: Optional[int] = None,
) -> Iterator[Dict[str, Any]]:
    """The frames of those pieces for the point `number`, made one at a time; `names` and `asked_input` are those of `detail`."""
    for records in cut:
        arrays = detail(records, names, texts=keep_text, asked_input=asked_input)
        # the lowest level: a fifth of the CPU of the usual one, for 14 % more bytes
        packed = zlib.compress(json.dumps(arrays).encode("ascii"), 1)
        yield {"f": "records", "id": number, "z": base64.b64encode(packed).decode("ascii")}


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

"""What a load generator records of a request. Python 3.8: this runs on the GPU host."""

from array import array
from typing import Any, Optional, Sequence, Tuple

COMPLETED = "completed"
FAILED = "failed"
INCOMPLETE = "incomplete"
"""Cut off because the asked duration ended or the run was stopped: neither completed nor failed."""


class RequestRecord:
    """Record one request: when it was sent, when each token-bearing chunk arrived, how it ended."""

    __slots__ = (
        "answer",
        "asked",
        "cached",
        "chunks",
        "connect_s",
        "due",
        "end",
        "error",
        "finish",
        "index",
        "kind",
        "n_in",
        "n_out",
        "reasoning",
        "retried",
        "start",
        "state",
        "status",
        "text",
    )

    def __init__(self, index: int, asked: int, due: Optional[float] = None) -> None:
        self.index = index
        self.asked = asked
        """Output tokens asked for."""
        self.due = due
        """When the schedule wanted it sent (open loop)."""
        self.start = 0.0
        self.end = 0.0
        self.chunks = array("d")
        """Arrival of each token-bearing chunk."""
        self.answer: Optional[float] = None
        """Arrival of the first chunk that is no reasoning."""
        self.state = INCOMPLETE
        self.kind = ""
        """What kind of failure."""
        self.error = ""
        self.status: Optional[int] = None
        self.n_out: Optional[int] = None
        """usage.completion_tokens; None when the server told none."""
        self.n_in: Optional[int] = None
        self.cached: Optional[int] = None
        self.reasoning: Optional[int] = None
        self.finish = ""
        self.connect_s: Optional[float] = None
        """How long its connection took to open; None when it used an open one."""
        self.retried = False
        self.text = ""

    @property
    def tokens(self) -> int:
        """Return the output tokens: the server's count, or the number of chunks if it told none."""
        return len(self.chunks) if self.n_out is None else self.n_out

    def pack(self) -> Tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    @classmethod
    def unpack(cls, values: Sequence[Any]) -> "RequestRecord":
        record = cls.__new__(cls)
        for name, value in zip(cls.__slots__, values):
            setattr(record, name, value)
        return record

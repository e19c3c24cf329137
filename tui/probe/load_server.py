"""Single plain requests beside the load: models, /tokenize, /metrics. Blocking, on one kept connection. Python 3.8."""

import contextlib
import json
import math
import select
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from tui.probe.load_http import Response, Target, head_of, target_of
from tui.probe.load_net import Address, Connection, tls_context

MAX_REPLY_BYTES = 16 << 20


def json_of(reply: bytes) -> Any:
    """Return the JSON of a body; None if it is none."""
    try:
        return json.loads(reply.decode("utf-8", "replace"))
    except ValueError:
        return None


class ApiCaller:
    """Ask one server, on one kept connection. Not for use by several threads."""

    def __init__(
        self,
        target: Target,
        addresses: Sequence[Address],
        context: Any,
        headers: Mapping[str, str],
        version: str,
        timeout_s: float = 30.0,
    ) -> None:
        self._target = target
        self._addresses = addresses
        self._context = context
        self._headers = dict(headers)
        self._version = version
        self._timeout_s = timeout_s
        self._connection: Optional[Connection] = None
        self._wake_fd: Optional[int] = None
        self._stopping: Callable[[], bool] = lambda: False

    @classmethod
    def of_plan(cls, plan: Dict[str, Any], address: Address) -> "ApiCaller":
        """Make a caller for the plan's server at `address`. Raises OSError or ValueError."""
        target = target_of(plan["url"])
        context = tls_context(plan.get("verify", True), plan.get("ca")) if target.tls else None
        headers = dict(plan.get("headers") or {}, **{"Content-Type": "application/json"})
        return cls(target, [address], context, headers, plan.get("version", ""))

    @contextlib.contextmanager
    def stoppable(self, wake_fd: int, stopping: Callable[[], bool]) -> Iterator[None]:
        """Within the context, let go of an answer that is waited for (OSError) once `stopping` says so.

        It is asked whenever `wake_fd` is readable.
        """
        self._wake_fd, self._stopping = wake_fd, stopping
        try:
            yield
        finally:
            self._wake_fd, self._stopping = None, lambda: False

    def __enter__(self) -> "ApiCaller":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def full(self, path: str) -> str:
        """Return the path that is really asked: with what the URL has in front of it."""
        return self._target.prefix + path

    def ask(
        self, method: str, path: str, body: Optional[Dict[str, Any]] = None, within_s: Optional[float] = None
    ) -> Tuple[int, bytes]:
        """Return status and body of the reply, which may take the caller's time limit, or `within_s`.

        Raises OSError (TimeoutError) or ValueError if there was none.
        """
        until = time.monotonic() + (self._timeout_s if within_s is None else within_s)
        fresh = self._connection is None or time.monotonic() - self._connection.idle_since > 3.0
        try:
            try:
                return self._ask(method, path, body, fresh, until)
            except (OSError, ValueError):
                if fresh or time.monotonic() >= until:
                    raise
            return self._ask(method, path, body, True, until)
        except (OSError, ValueError):
            self.close()  # what may still come on it is no answer to the next question
            raise

    def ask_json(self, method: str, path: str, body: Optional[Dict[str, Any]] = None) -> Tuple[int, Any]:
        """Ask as `ask` does; return the status and the JSON of the reply (None if it is none)."""
        status, reply = self.ask(method, path, body)
        return status, json_of(reply)

    def _ask(self, method: str, path: str, body: Optional[Dict[str, Any]], fresh: bool, until: float) -> Tuple[int, bytes]:
        if fresh:
            self.close()
            self._connection = self._open(until)
        connection = self._connection
        assert connection is not None
        head = head_of(self._target, method, path, self._headers, self._version)
        data = b"" if body is None else json.dumps(body).encode("ascii")
        connection.send(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(data), data) if body is not None else head + b"\r\n")
        response = Response()
        pieces = []
        size = 0
        while not response.done:
            self._wait(connection, until)
            if connection.writing:
                connection.flush()
            piece, _ = connection.receive()
            if piece is None:
                continue
            if not piece:
                response.eof()
                break
            body_piece = response.feed(piece)
            size += len(body_piece)
            if size > MAX_REPLY_BYTES:
                raise ValueError("the reply is larger than %d bytes" % MAX_REPLY_BYTES)
            pieces.append(body_piece)
        connection.idle_since = time.monotonic()
        if not response.keep:
            self.close()
        return response.status, b"".join(pieces)

    def _open(self, until: float) -> Connection:
        last: Optional[OSError] = None
        for address in self._addresses:
            connection = None
            try:
                connection = Connection(address, self._context, self._target.host)
                while not connection.open:
                    self._wait(connection, until, True)
                    connection.advance()
                return connection
            except OSError as error:
                last = error
                if connection is not None:
                    connection.close()
        raise last or OSError("no address")

    def _wait(self, connection: Connection, until: float, opening: bool = False) -> None:
        if self._stopping():
            raise OSError("stopped")
        left = until - time.monotonic()
        # a connected socket is writable all the time: then only what is read matters
        writing = connection.writing or (opening and not connection.listening)
        poll = select.poll()
        poll.register(connection.fd, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
        if self._wake_fd is not None:
            poll.register(self._wake_fd, select.POLLIN)
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError("no answer in time")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


NAMES = (
    "request_success_total",
    "num_requests_running",
    "num_requests_waiting",
    "num_running_reqs",
    "num_queue_reqs",
    "requests_processing",
    "requests_deferred",
    "num_requests_total",
    "num_preemptions_total",
    "kv_cache_usage_perc",
    "gpu_cache_usage_perc",
    "token_usage",
    "kv_cache_usage_ratio",
    "request_queue_time_seconds_sum",
    "request_queue_time_seconds_count",
    "request_prefill_time_seconds_sum",
    "request_prefill_time_seconds_count",
    "request_decode_time_seconds_sum",
    "request_decode_time_seconds_count",
    "time_to_first_token_seconds_sum",
    "time_to_first_token_seconds_count",
    "prompt_tokens_total",
    "generation_tokens_total",
    "tokens_predicted_total",
    "prefix_cache_hits_total",
    "prefix_cache_queries_total",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
)
"""Families of interest, without the engine's prefix, which ends in a colon."""

EVERY_S = 1.0
METRICS_S = 10.0
"""A server that is at work takes its time; one that hangs takes for ever."""

LEAVING_S = 3.0
"""For who has asked to stop: then the server's last counters are worth no longer wait."""


def metrics_lines(caller: ApiCaller, within_s: float = METRICS_S) -> Tuple[bool, List[str]]:
    """Ask for the metrics, for so many seconds at most; return whether there are any, and the lines that matter as they are."""
    try:
        status, body = caller.ask("GET", "/metrics", within_s=within_s)
    except (OSError, ValueError):
        return False, []
    if status != 200:
        return False, []
    found = []
    for line in body.decode("utf-8", "replace").split("\n"):
        name = line.split("{", 1)[0].split(" ", 1)[0].partition(":")[2]
        if name in NAMES:
            found.append(line[:1000])
    return bool(found), found


def values_of(lines: List[str], *names: str) -> List[float]:
    """Return what each engine says of the first of these families that is there, without values that are no number."""
    for name in names:
        values = []
        for line in lines:
            family, _, word = line.rpartition(" ")
            if family.split("{", 1)[0].split(":", 1)[1] == name:
                try:
                    value = float(word)
                except ValueError:
                    continue
                if math.isfinite(value):
                    values.append(value)
        if values:
            return values
    return []


def note_peaks(peaks: Dict[str, float], lines: List[str]) -> None:
    """Raise the peaks to what these lines say.

    Requests that run and that wait are those of all engines together; the share of the KV cache (0 to 1) is that of the engine
    whose is the largest, since each has a cache of its own.
    """
    for key, over, names in (
        ("running", sum, ("num_requests_running", "num_running_reqs", "requests_processing")),
        ("waiting", sum, ("num_requests_waiting", "num_queue_reqs", "requests_deferred")),
        ("kv_cache", max, ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage", "kv_cache_usage_ratio")),
    ):
        values = values_of(lines, *names)
        if values:
            peaks[key] = max(peaks.get(key, 0.0), over(values))


class GaugeWatch:
    """Look at the server's gauges once a second, from a thread that sleeps nearly all the time, and keep their peaks."""

    def __init__(self, plan: Dict[str, Any], address: Address) -> None:
        self._caller = ApiCaller.of_plan(plan, address)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gauges", daemon=True)
        self._peaks: Dict[str, float] = {}
        self._samples = 0

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            there, lines = metrics_lines(self._caller)
            if not there:
                continue
            self._samples += 1
            note_peaks(self._peaks, lines)
        self._caller.close()

    def end(self) -> Dict[str, float]:
        """Stop looking and return the peaks seen. Waits for a sample in progress for a moment only."""
        self._ended.set()
        self._thread.join(0.5)
        return dict(self._peaks, samples=float(self._samples))

"""Several processes that carry one load, if one cannot: each runs the same loop on its share, and the raw records are pooled.

The parent starts them with the interpreter and the import path that it runs on itself, on its leash; they begin together and send
their records back through their stdout. Percentiles of the pool are exact, since nothing was summarised before. Python 3.8.
"""

import contextlib
import json
import os
import pickle
import select
import ssl
import subprocess
import sys
import time
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from tui.probe.load_http import head_of, target_of
from tui.probe.load_loop import LoadLoop
from tui.probe.load_net import Address, tls_context
from tui.probe.load_prompts import PATHS, Prompts, TokenLengths
from tui.probe.load_schedule import ClientHealth, LoadEndpoint, LoadOrder, LoadOutcome
from tui.wire.request_record import RequestRecord
from tui.wire.summary import percentile

Spawn = Callable[..., "subprocess.Popen[bytes]"]
Reaped = Callable[["subprocess.Popen[bytes]"], None]

START = "import sys;sys.path[:0]=%r;from tui.probe.load_workers import work;work()"


class LoadShare(NamedTuple):
    """What one process needs to carry its part of a point."""

    plan: Dict[str, Any]
    lengths: Dict[str, Any]
    fields: Dict[str, Any]
    order: Dict[str, Any]
    first: int
    step: int
    base: int
    """Added to a request's number for its prompt, so that no prompt of an earlier point comes again."""
    output: Optional[int]
    address: Address

    def load(self, **hooks: Any) -> LoadLoop:
        """Make the loop that carries this share. Raises ValueError for a header that can't be sent."""
        plan = self.plan
        target = target_of(plan["url"])
        headers = dict(plan.get("headers") or {})
        headers["Content-Type"] = "application/json"
        head = head_of(target, "POST", PATHS[plan["endpoint"]], headers, plan.get("version", ""))
        context: Optional[ssl.SSLContext] = tls_context(plan.get("verify", True), plan.get("ca")) if target.tls else None
        prompts = Prompts(plan, TokenLengths(self.lengths), self.fields)
        return LoadLoop(
            LoadEndpoint([self.address], context, target.host, head, plan["endpoint"]),
            LoadOrder(**self.order),
            lambda number: prompts.body(self.base + number, self.output),
            first=self.first,
            step=self.step,
            **hooks,
        )


def split(share: LoadShare, count: int) -> List[LoadShare]:
    """Split the work into `count` parts that differ by one stream at most; into fewer if one would have no stream or request."""
    parts = []
    order = share.order
    schedule = order.get("schedule")
    most = [order.get("concurrency"), order.get("gate"), order.get("requests"), None if schedule is None else len(schedule)]
    count = max(1, min([count] + [limit for limit in most if limit is not None]))
    for i in range(count):
        part = dict(order)
        for name in ("concurrency", "requests", "at_least", "gate"):
            if order.get(name):
                part[name] = order[name] // count + (i < order[name] % count)
        if schedule is not None:
            part["schedule"] = schedule[i::count]
        parts.append(share._replace(order=part, first=i, step=count))
    return parts


EVENT_S = 15e-6
"""CPU seconds of a token event, the kernel's share included: 8 to 12 microseconds on an idle server, 20 on a slow one."""

REQUEST_S = 200e-6
"""CPU seconds of a request beyond its tokens: its body, its sending, its record. 150 to 250 microseconds."""

ONE_CARRIES = 0.6
"""A process that needs less of its core carries a load alone."""

HALF = 0.5
"""How busy each of several processes should be at most."""

QUICK = 10.0
"""Of the warm-up's replies those at this percentile count: all of its prompts come at once, and slow most replies down."""


def lasts_of(replies: Sequence[RequestRecord], chunks: float) -> float:
    """Return the seconds that a reply of so many chunks takes, by the quick ones of these.

    Gaps are means of a reply: if chunks are read together, by a late client or since the server sends them in batches, most single
    gaps are 0.
    """
    first = percentile(sorted(r.chunks[0] - r.start for r in replies), QUICK)
    gaps: List[float] = sorted((r.chunks[-1] - r.chunks[0]) / (len(r.chunks) - 1) for r in replies if len(r.chunks) > 1)
    gap = percentile(gaps, QUICK) if gaps else 0.0
    return first + gap * max(0.0, chunks - 1.0)


def demand_of(order: Dict[str, Any], records: Sequence[RequestRecord], output: int) -> float:
    """Return the cores that an order of replies of `output` tokens needs, from the records of its warm-up; 0 if nothing tells.

    It has as many requests a second as its streams can make, or as its schedule wants if that is less.
    """
    replies = [r for r in records if r.chunks]
    tokens = sum(r.n_out or len(r.chunks) for r in replies)
    chunks = output * (sum(len(r.chunks) for r in replies) / tokens if tokens else 1.0)
    schedule = order.get("schedule") or ()
    rates = [len(schedule) / schedule[-1]] if schedule and schedule[-1] > 0.0 else []
    if replies:
        streams = order.get("concurrency") or order.get("gate") or len(schedule)
        rates.append(streams / max(lasts_of(replies, chunks), 1e-4))
    return min(rates) * (chunks * EVENT_S + REQUEST_S) if rates else 0.0


def processes_of(demand: float, most: int) -> int:
    """Return how many processes carry a load that needs so many cores."""
    return 1 if demand < ONE_CARRIES else min(most, 1 + int(demand / HALF))


def run_share(
    share: LoadShare,
    workers: int,
    spawn: Spawn,
    *,
    stopping: Callable[[], bool],
    tick: Callable[[Dict[str, Any]], None],
    wake_fd: Optional[int] = None,
    reaped: Reaped = lambda child: None,
) -> Tuple[LoadOutcome, List[float]]:
    """Carry a share out, here or in several processes; return the pooled outcome, and how busy each process was (CPU seconds a
    second).

    What `spawn` started is handed to `reaped` once it has ended: its number may be another's from then on. Raises RuntimeError if
    a worker died, OSError if one could not be started.
    """
    parts = split(share, workers) if workers > 1 else [share]
    if len(parts) == 1:
        outcome = share.load(stopping=stopping, tick=tick, wake_fd=wake_fd).run()
        return outcome, [_busy(outcome.health)]
    crew = _Workers(parts, spawn, reaped)
    try:
        outcomes = crew.run(stopping, tick, wake_fd)
    finally:
        crew.end()
    return pool(outcomes), [_busy(outcome.health) for outcome in outcomes]


def pool(outcomes: Sequence[LoadOutcome]) -> LoadOutcome:
    """Make one outcome of several that ran at the same time."""
    records = sorted((r for outcome in outcomes for r in outcome.records), key=lambda r: r.index)
    lags = array("f")
    for outcome in outcomes:
        lags.extend(outcome.health.lags)
    ends = [outcome.dispatch_end for outcome in outcomes if outcome.dispatch_end is not None]
    begin = min(outcome.begin for outcome in outcomes)
    end = max(outcome.end for outcome in outcomes)
    health = ClientHealth(
        lags,
        sum(outcome.health.cpu_s for outcome in outcomes),
        end - begin,
        sum(outcome.health.events for outcome in outcomes),
        all(outcome.health.kernel_stamps for outcome in outcomes),
        max((outcome.health.clock_step_s for outcome in outcomes), key=abs),
        sum(outcome.health.unstamped for outcome in outcomes),
        sum(outcome.health.together for outcome in outcomes),
        max(outcome.health.rest_s for outcome in outcomes),
    )
    stopped = next((outcome.stopped for outcome in outcomes if outcome.stopped), "")
    return LoadOutcome(records, begin, end, min(ends) if ends else None, stopped, health)


def _busy(health: ClientHealth) -> float:
    return health.cpu_s / health.wall_s if health.wall_s > 0 else 0.0


class _Workers:
    """The processes of one point."""

    def __init__(self, parts: Sequence[LoadShare], spawn: Spawn, reaped: Reaped) -> None:
        self._children: List["subprocess.Popen[bytes]"] = []
        self._reaped = reaped
        self._buffers: Dict[int, bytearray] = {}
        try:
            self._start(parts, spawn)
        except BaseException:
            self.end()
            raise

    def _start(self, parts: Sequence[LoadShare], spawn: Spawn) -> None:
        paths = [path for path in sys.path if path]
        keep = [int(path.rsplit("/", 1)[1]) for path in paths if path.startswith(("/proc/self/fd/", "/dev/fd/"))]
        code = START % (paths,)
        plan = json.dumps(parts[0].plan).encode("ascii")  # once: it may hold many prompts
        for part in parts:
            child = spawn(
                [sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=keep, bufsize=0
            )
            self._children.append(child)
            assert child.stdin is not None
            assert child.stdout is not None
            _write_all(child.stdin.fileno(), b"[%b,%b\n" % (plan, json.dumps(list(part)[1:]).encode("ascii")[1:]))
            self._buffers[child.stdout.fileno()] = bytearray()

    def run(
        self, stopping: Callable[[], bool], tick: Callable[[Dict[str, Any]], None], wake_fd: Optional[int]
    ) -> List[LoadOutcome]:
        states: Dict[int, Dict[str, Any]] = {}
        outcomes: List[LoadOutcome] = []
        ready = 0
        stopped = False
        poll = select.poll()
        for fd in self._buffers:
            poll.register(fd, select.POLLIN)
        if wake_fd is not None:
            poll.register(wake_fd, select.POLLIN)
        while len(outcomes) < len(self._children):
            for fd, _ in poll.poll(250):
                if fd == wake_fd:
                    continue
                data = os.read(fd, 1 << 20)
                if not data:
                    raise RuntimeError("a worker of the load generator ended early")
                buffer = self._buffers[fd]
                buffer += data
                for kind, body in _messages(buffer):
                    if kind == b"R":
                        ready += 1
                        if ready == len(self._children):
                            self._say(b"go\n")
                    elif kind == b"P":
                        states[fd] = json.loads(body)
                    else:
                        outcomes.append(_unpacked(body))
                        if fd in states:  # while others go on, this one does nothing more
                            states[fd].update(in_flight=0, tokens_s=0.0)
                        poll.unregister(fd)
            if stopping() and not stopped:
                stopped = True
                self._say(b"stop\n")
            if states:
                tick(_sum(list(states.values())))
        return outcomes

    def _say(self, word: bytes) -> None:
        for child in self._children:
            assert child.stdin is not None
            with contextlib.suppress(OSError):
                os.write(child.stdin.fileno(), word)

    def end(self) -> None:
        for child in self._children:
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
        for child in self._children:
            try:
                child.wait(2.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            self._reaped(child)


def _sum(states: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    total = dict(states[0])
    for name in ("in_flight", "done", "failed", "sent", "chunks", "tokens_s", "planned"):
        values = [state[name] for state in states if state.get(name) is not None]
        total[name] = sum(values) if values else None
    total["elapsed_s"] = max(state["elapsed_s"] for state in states)
    return total


def _messages(buffer: bytearray) -> List[Tuple[bytes, bytes]]:
    """Take the complete messages out of the start of a buffer: a letter, a length, a newline, the bytes."""
    found: List[Tuple[bytes, bytes]] = []
    while True:
        line = buffer.find(b"\n")
        if line < 0:
            return found
        size = int(buffer[1:line])
        if len(buffer) < line + 1 + size:
            return found
        found.append((bytes(buffer[:1]), bytes(buffer[line + 1 : line + 1 + size])))
        del buffer[: line + 1 + size]


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _unpacked(body: bytes) -> LoadOutcome:
    records, begin, end, dispatch_end, stopped, health = pickle.loads(body)
    return LoadOutcome(
        [RequestRecord.unpack(values) for values in records], begin, end, dispatch_end, stopped, ClientHealth(*health)
    )


def work() -> None:
    """Live a worker's whole life: a share on stdin, `go`, perhaps `stop`; the end of stdin ends it, whatever it is doing."""
    out = os.dup(1)
    os.dup2(2, 1)
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 if not line else 1 << 16)
        if not piece:
            os._exit(1)
        line += piece
    values = json.loads(line)
    family, where, server = values[8]
    values[8] = Address(family, tuple(where) if isinstance(where, list) else where, server)
    share = LoadShare(*values)
    os.set_blocking(0, False)

    def say(kind: bytes, body: bytes) -> None:
        _write_all(out, b"%b%d\n%b" % (kind, len(body), body))

    def told() -> bytes:
        try:
            word = os.read(0, 4096)
        except BlockingIOError:
            return b""
        if not word:
            os._exit(1)  # the parent is gone
        return word

    stop = []

    def stopping() -> bool:
        if b"stop" in told():
            stop.append(True)
        return bool(stop)

    def go() -> None:
        say(b"R", b"")
        while True:
            select.select([0], [], [], None)
            word = told()
            if b"stop" in word:
                stop.append(True)
            if word:
                return

    outcome = share.load(
        stopping=stopping, tick=lambda progress: say(b"P", json.dumps(progress).encode("ascii")), go=go, wake_fd=0
    ).run()
    packed = ([r.pack() for r in outcome.records], *outcome[1:5], tuple(outcome.health))
    say(b"O", pickle.dumps(packed, 4))
    time.sleep(0)
    os._exit(0)

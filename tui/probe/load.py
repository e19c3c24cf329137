"""Role "load": carry out the points of a benchmark, one after the other, and send back their figures.

Arguments: `url`, `tunnel` (a socket that leads to the server at `url`, or None: see `tui.services.bench_tunnel`), `model` (or
None), `endpoint` ("chat" or "completions"), `headers`, `verify`, `ca` (PEM text), `extra_body`, `input_tokens`, `output_tokens`,
`shared_prefix`, `style` ("text" or "tokens"), `prompts` (given ones, or None), `seed`, `version`, `ignore_eos`, `max_workers`.

    probe -> client   {"f": "work", "work"}                      what is waited for; empty once it is over
                      {"f": "ready", "model", "max_model_len", "notes", "exact_lengths", "server"}
                      {"f": "refused", "kind", "why"}            instead: nothing follows
    client -> probe   {"do": "point", "id", "order", "warmup", "limits", "arrays": [names], "workers": N or 0,
                       "input_tokens", "output_tokens"}          these two instead of the plan's, if not None; no prompt is longer
                                                                 than such `input_tokens` (see `load_preflight.fit_longest`)
    probe -> client   {"f": "progress", "id", "stage", …}        4 a second at most
                      {"f": "progress", "id", "stage", "work", "elapsed_s"}    before and after the measuring
                      {"f": "progress", "id", "stage": "measured"}             once: the last request has ended
                      {"f": "point", "id", "figures", "client", "before", "after", "peaks", "stopped", "begin", "pieces"}
                      {"f": "records", "id", "z": base64 of zlib of JSON}      `pieces` times: per-request arrays
    client -> probe   {"do": "stop"}                             close every request; the point comes with what there is
                      {"do": "quit"}

It judges nothing: figures are summaries of arrivals, `before` and `after` are lines of the server's own /metrics. Python 3.8.
"""

import base64
import json
import os
import socket
import threading
import time
import zlib
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type

from tui.probe.leash import Link
from tui.probe.load_client import MachineUse, client_figures
from tui.probe.load_http import target_of
from tui.probe.load_net import Address, keep_stamping, kind_of, resolve, words_of
from tui.probe.load_preflight import RetryingCaller, check_lengths, fit_longest, settle_fields, settle_model
from tui.probe.load_prompts import PlanRefused, asked_input, settle_lengths
from tui.probe.load_schedule import a_chunk_of
from tui.probe.load_server import LEAVING_S, METRICS_S, ApiCaller, GaugeWatch, metrics_lines
from tui.probe.load_workers import LoadShare, demand_of, processes_of, run_share
from tui.wire.request_record import RequestRecord
from tui.wire.summary import ARRAYS, detail, summary

EVERY_S = 1.0
"""What takes less is not told of."""


class Heartbeat:
    """Send a progress frame each second, from a thread that sleeps in between, until its end."""

    def __init__(self, link: Link, number: Any, stage: str, work: str) -> None:
        """Begin heartbeats for the point `number`; `work` says in words what is done."""
        self._link = link
        self._frame = {"f": "progress", "id": number, "stage": stage, "work": work}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.end()

    def end(self) -> None:
        """Send no more frames. May be called again."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()

    def _tell(self) -> None:
        began = time.monotonic()
        while not self._over.wait(EVERY_S):
            if not self._link.outlet_blocked():
                frame: Dict[str, Any] = dict(self._frame, elapsed_s=time.monotonic() - began)
                self._link.send(frame)


WARM_UP_TOKENS = 32


class _ClientRequests:
    """The requests of the client while a point runs."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.stop = False
        self.quit = False
        self.a_chunk: Optional[float] = None
        """Tokens in a chunk of this server, from the newest load."""

    def look(self) -> bool:
        while True:
            request = self._link.request(0)
            if request is None:
                return self.stop
            self.take(request)

    def take(self, request: Dict[str, Any]) -> None:
        if request.get("do") in ("stop", "quit"):
            self.stop = True
            self.quit = self.quit or request["do"] == "quit"


def play(arguments: Dict[str, Any], link: Link) -> None:
    """Play the role until the client says quit, or the server refuses."""
    plan = {name: value for name, value in arguments.items() if name != "role"}
    stamping = keep_stamping()
    try:
        address, caller = _reach(plan)
        patient = RetryingCaller(
            caller,
            wait=lambda seconds: link.request(seconds) is None,
            tell=lambda words: link.send({"f": "work", "work": words}),
        )
        settle_model(patient, plan)
        longest, notes = check_lengths(patient, plan)
        fields, more = settle_fields(patient, plan)
        notes += more
        lengths, more = settle_lengths(caller, plan, fields)
        notes += more
    except PlanRefused as refused:
        link.send({"f": "refused", "kind": refused.kind, "why": str(refused)})
        return
    except (OSError, ValueError) as error:
        kind = kind_of(error, True) if isinstance(error, OSError) else "bad_http"
        where = target_of(plan["url"]).where if isinstance(error, OSError) else ""
        link.send({"f": "refused", "kind": kind, "why": words_of(error, where) if where else str(error)})
        return
    _, lines = metrics_lines(caller)
    link.send(
        {
            "f": "ready",
            "model": plan["model"],
            "max_model_len": longest,
            "notes": notes,
            "exact_lengths": lengths.exact,
            "server": lines,
            "cpus": _cpus(),
        }
    )
    share = LoadShare(plan, lengths.known, fields, {}, 0, 1, 0, None, address)
    desk = _ClientRequests(link)
    number = 0
    while not desk.quit:
        request = link.request(None)
        if request is None:
            continue
        desk.stop = False
        if request.get("do") == "point":
            number = _Point(share, request, link, desk, caller).run(number)
        else:
            desk.take(request)
    caller.close()
    if stamping is not None:
        stamping.close()


def _reach(plan: Dict[str, Any]) -> Tuple[Address, ApiCaller]:
    """Return the first address that answers, and a caller for single requests. Raises OSError or ValueError."""
    target = target_of(plan["url"])
    tunnel = plan.get("tunnel")
    address = Address(socket.AF_UNIX, tunnel, target.where) if tunnel else _first_that_answers(resolve(target))
    return address, ApiCaller.of_plan(plan, address)


def _first_that_answers(addresses: Sequence[Address]) -> Address:
    last = OSError("no address")
    for address in addresses:
        try:
            with socket.socket(address.family, socket.SOCK_STREAM) as sock:
                sock.settimeout(10.0)
                sock.connect(address.where)
            return address
        except OSError as error:
            last = error
    raise last


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _requests(count: int) -> str:
    return "1 request" if count == 1 else "{:,} requests".format(count)


class _Point:
    """One point: warm-up, the measured run, its figures."""

    def __init__(self, share: LoadShare, request: Dict[str, Any], link: Link, desk: _ClientRequests, caller: ApiCaller) -> None:
        output = request.get("output_tokens")
        self._share = share._replace(plan=dict(share.plan, output_tokens=output)) if output else share
        self._request = request
        self._link = link
        self._desk = desk
        self._caller = caller
        self._id = request.get("id")
        self._planned = 0

    def run(self, number: int) -> int:
        """Run it with prompts numbered from `number`; return the next free number."""
        request = self._request
        order = dict(request["order"])
        workers = int(request.get("workers") or 0)
        if request.get("input_tokens"):
            share = self._share
            with self._caller.stoppable(self._link.wake_fd, self._desk.look):
                lengths, wanted = fit_longest(self._caller, share.plan, share.fields, share.lengths, int(request["input_tokens"]))
            self._share = share._replace(plan=dict(share.plan, input_tokens=wanted), lengths=lengths)
        if request.get("warmup", True):
            streams = int(order.get("concurrency") or min(order.get("gate") or 16, 16))
            warm = {"concurrency": streams, "requests": streams, "max_failures": 2 * streams}
            warm["stall_s"] = order.get("stall_s", 120.0)
            tokens = min(WARM_UP_TOKENS, int(self._share.plan["output_tokens"]))
            outcome, _ = self._carry(warm, max(1, workers), number, tokens, "warm-up")
            workers = workers or self._workers(order, outcome.records)
            number += 2 * streams
        workers = max(1, workers)
        before: List[str] = []
        if not self._desk.look():
            _, before = metrics_lines(self._caller)
        if self._desk.look():
            self._send_point(before, before, "stopped", {})
            return number
        gauges = GaugeWatch(self._share.plan, self._share.address)
        use = MachineUse(self._share.address)
        gauges.start()
        outcome, busy = self._carry(order, workers, number, None, "measuring")
        self._link.send({"f": "progress", "id": self._id, "stage": "measured"})
        machine = use.figures()
        peaks = gauges.end()
        _, after = metrics_lines(self._caller, LEAVING_S if self._desk.look() else METRICS_S)
        number = max([number] + [number + r.index + 1 for r in outcome.records]) + 64
        begun = time.process_time()
        with Heartbeat(self._link, self._id, "summing up", "summing up %s" % _requests(len(outcome.records))):
            figures = summary(
                outcome.records,
                outcome.begin,
                outcome.end,
                concurrency=order.get("concurrency"),
                dispatch_end=outcome.dispatch_end,
                limits=request.get("limits") or {},
            )
            client = client_figures(outcome, busy, figures)
            client["summary_cpu_s"] = time.process_time() - begun
            client.update(machine)
            names = request.get("arrays") or ()
            cut = pieces(outcome.records, names) if names else []
        # the figures first: what happens to the arrays on their way must not cost them
        told = {"figures": figures, "client": client, "peaks": peaks, "begin": outcome.begin, "pieces": len(cut)}
        self._send_point(before, after, outcome.stopped, told)
        for frame in frames(cut, self._id, bool(order.get("keep_text")), names, asked_input(self._share.plan)):
            self._link.send(frame)
        return number

    def _carry(self, order: Dict[str, Any], workers: int, base: int, output: Optional[int], stage: str) -> Any:
        share = self._share._replace(order=dict(order, a_chunk=self._desk.a_chunk), base=base, output=output)
        last = [0.0]
        work = "preparing the first requests" + (" in %d processes" % workers if workers > 1 else "")

        def tick(progress: Dict[str, Any]) -> None:
            telling.end()
            now = time.monotonic()
            if now - last[0] < 0.25 or self._link.outlet_blocked():
                return
            last[0] = now
            if stage == "warm-up":
                progress = dict(progress, stage=stage)
            self._link.send(dict(progress, f="progress", id=self._id))

        with Heartbeat(self._link, self._id, "preparing", work) as telling:
            link = self._link
            outcome, busy = run_share(
                share, workers, link.spawn, stopping=self._desk.look, tick=tick, wake_fd=link.wake_fd, reaped=link.reaped
            )
        self._desk.a_chunk = a_chunk_of(outcome.records) or self._desk.a_chunk
        return outcome, busy

    def _workers(self, order: Dict[str, Any], records: List[Any]) -> int:
        """Return how many processes the measured run needs, from what the warm-up showed and what a token costs."""
        most = int(self._share.plan.get("max_workers") or max(1, min(8, _cpus() - 1)))
        return processes_of(demand_of(order, records, int(self._share.plan["output_tokens"])), most)

    def _send_point(self, before: List[str], after: List[str], stopped: str, told: Dict[str, Any]) -> None:
        """Send the point, without figures if nothing was measured."""
        frame: Dict[str, Any] = {"f": "point", "id": self._id, "figures": None, "client": {}, "peaks": {}}
        frame.update(before=before, after=after, stopped=stopped, **told)
        self._link.send(frame)


PIECE_BYTES = 4 << 20
"""Of JSON in one piece, by the estimate below; a request with more of its own is a piece alone."""

GAP_BYTES = 24
"""Of JSON that the gap before a chunk is at most: a double of 17 digits with its exponent, and a comma."""

CHARACTER_BYTES = 12
"""Of JSON that a character is at most: one beyond the 16-bit plane is two escapes."""

REST_BYTES = 256
"""Of JSON for a request's other values."""


def pieces(records: Sequence[RequestRecord], names: Sequence[str] = ARRAYS) -> List[List[RequestRecord]]:
    """Cut the records, in order, into pieces whose arrays of those `names` are at most PIECE_BYTES."""
    cut: List[List[RequestRecord]] = []
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
    cut: Sequence[Sequence[RequestRecord]],
    number: Any,
    keep_text: bool,
    names: Sequence[str] = ARRAYS,
    asked_input: Optional[int] = None,
) -> Iterator[Dict[str, Any]]:
    """Make the frames of those pieces for point `number`, one at a time; `names` and `asked_input` are those of `detail`."""
    for records in cut:
        arrays = detail(records, names, texts=keep_text, asked_input=asked_input)
        # the lowest level: a fifth of the CPU of the usual one, for 14 % more bytes
        packed = zlib.compress(json.dumps(arrays).encode("ascii"), 1)
        yield {"f": "records", "id": number, "z": base64.b64encode(packed).decode("ascii")}

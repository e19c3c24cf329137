"""Role "load": carries the points of a benchmark, one after the other, and sends back their figures.

Arguments: `url`, `model` (or None), `endpoint` ("chat" or "completions"), `headers`, `verify`, `ca` (PEM text), `extra_body`,
`input_tokens`, `output_tokens`, `shared_prefix`, `style` ("text" or "tokens"), `prompts` (given ones, or None), `seed`, `version`,
`ignore_eos`, `max_workers`.

    probe -> client   {"f": "ready", "model", "address", "notes", "exact_lengths", "server"}    or  {"f": "refused", "kind", "why"}
                      {"f": "work", "work"}                               before that: what is waited for, empty when it is over
    client -> probe   {"do": "point", "id", "order": {...}, "warmup": bool, "limits": {...}, "arrays": [names], "workers": N or 0,
                       "input_tokens": N or None, "output_tokens": N or None}      instead of the plan's;
                                                                           no prompt passes such `input_tokens` (see load_longest)
    probe -> client   {"f": "progress", "id", "stage", ...}               4 a second at most
                      {"f": "progress", "id", "stage", "work", "elapsed_s"}    what is done before and after the measuring
                      {"f": "progress", "id", "stage": "measured"}    once, when the last request has ended
                      {"f": "point", "id", "figures", "client", "before", "after", "peaks", "stopped", "pieces"}
                      {"f": "records", "id", "z": base64 of zlib of JSON}  then `pieces` of them: per-request arrays, if asked for
    client -> probe   {"do": "stop"}                                      closes every request; the point comes with what there is
                      {"do": "quit"}

It judges nothing: figures are summaries of arrivals, `before` and `after` are lines of the server's own /metrics. Python 3.8.
"""

import os
import socket
import time
from typing import Any, Dict, List, Optional, Tuple

from tui.probe.leash import Link
from tui.probe.load_ask import Caller
from tui.probe.load_client import client_figures
from tui.probe.load_demand import demand_of, processes_of
from tui.probe.load_fit import fit
from tui.probe.load_http import target_of
from tui.probe.load_longest import fitted
from tui.probe.load_machine import MachineUse
from tui.probe.load_net import Address, keep_stamping, kind_of, resolve, tls_context, words_of
from tui.probe.load_patience import Patient
from tui.probe.load_prompts import Refused, asked_input, settle_fields, settle_lengths, settle_model
from tui.probe.load_records import frames, pieces
from tui.probe.load_server import LEAVING_S, METRICS_S, Gauges, metrics_lines
from tui.probe.load_tally import a_chunk_of
from tui.probe.load_telling import Telling
from tui.probe.load_workers import Share, carry
from tui.wire.metrics import summary

WARM_UP_TOKENS = 32


class Stop(Exception):
    """The client asked to stop."""


class _Desk:
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
    """Plays the role until the client says quit, or the server refuses."""
    plan = {name: value for name, value in arguments.items() if name != "role"}
    stamping = keep_stamping()
    try:
        address, caller = _reach(plan)
        patient = Patient(
            caller,
            wait=lambda seconds: link.request(seconds) is None,
            tell=lambda words: link.send({"f": "work", "work": words}),
        )
        settle_model(patient, plan)
        longest, notes = fit(patient, plan)
        fields, more, _ = settle_fields(patient, plan)
        notes += more
        lengths, more = settle_lengths(caller, plan, fields)
        notes += more
    except Refused as refused:
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
    share = Share(plan, lengths.known, fields, {}, 0, 1, 0, None, address)
    desk = _Desk(link)
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


def _reach(plan: Dict[str, Any]) -> Tuple[Address, Caller]:
    """The first address that answers, and a caller for single requests. Raises OSError or ValueError."""
    target = target_of(plan["url"])
    context = tls_context(plan.get("verify", True), plan.get("ca")) if target.tls else None
    last: Optional[Exception] = None
    for address in resolve(target):
        try:
            with socket.socket(address[0], socket.SOCK_STREAM) as sock:
                sock.settimeout(10.0)
                sock.connect(address[1])
        except OSError as error:
            last = error
            continue
        headers = dict(plan.get("headers") or {})
        headers["Content-Type"] = "application/json"
        return address, Caller(target, [address], context, headers, plan.get("version", ""))
    raise last or OSError("no address")


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _requests(count: int) -> str:
    return "1 request" if count == 1 else "{:,} requests".format(count)


class _Point:
    """One point: warm-up, the measured run, its figures."""

    def __init__(self, share: Share, request: Dict[str, Any], link: Link, desk: _Desk, caller: Caller) -> None:
        output = request.get("output_tokens")
        self._share = share._replace(plan=dict(share.plan, output_tokens=output)) if output else share
        self._request = request
        self._link = link
        self._desk = desk
        self._caller = caller
        self._id = request.get("id")
        self._planned = 0

    def run(self, number: int) -> int:
        """Runs it; prompts are numbered from `number`. Returns the next free number."""
        request = self._request
        order = dict(request["order"])
        workers = int(request.get("workers") or 0)
        if request.get("input_tokens"):
            share = self._share
            lengths, wanted = fitted(self._caller, share.plan, share.fields, share.lengths, int(request["input_tokens"]))
            self._share = share._replace(plan=dict(share.plan, input_tokens=wanted), lengths=lengths)
        if request.get("warmup", True):
            streams = int(order.get("concurrency") or min(order.get("gate") or 16, 16))
            warm = {
                "concurrency": streams,
                "requests": streams,
                "max_failures": 2 * streams,
                "stall_s": order.get("stall_s", 120.0),
            }
            tokens = min(WARM_UP_TOKENS, int(self._share.plan["output_tokens"]))
            outcome, _ = self._carry(warm, max(1, workers), number, tokens, "warm-up")
            workers = workers or self._workers(order, outcome.records)
            number += 2 * streams
        workers = max(1, workers)
        before: List[str] = []
        if not self._desk.look():
            _, before = metrics_lines(self._caller)
        if self._desk.look():
            self._send_nothing(before)
            return number
        gauges = Gauges(self._share.plan, self._share.address)
        use = MachineUse(self._share.address)
        gauges.start()
        outcome, busy = self._carry(order, workers, number, None, "measuring")
        self._link.send({"f": "progress", "id": self._id, "stage": "measured"})
        machine = use.figures()
        peaks = gauges.end()
        _, after = metrics_lines(self._caller, LEAVING_S if self._desk.look() else METRICS_S)
        number = max([number] + [number + r.index + 1 for r in outcome.records]) + 64
        begun = time.process_time()
        with Telling(self._link, self._id, "summing up", "summing up %s" % _requests(len(outcome.records))):
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
        self._link.send(
            {
                "f": "point",
                "id": self._id,
                "figures": figures,
                "client": client,
                "before": before,
                "after": after,
                "peaks": peaks,
                "stopped": outcome.stopped,
                "begin": outcome.begin,
                "pieces": len(cut),
            }
        )
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

        with Telling(self._link, self._id, "preparing", work) as telling:
            link = self._link
            outcome, busy = carry(
                share, workers, link.spawn, stopping=self._desk.look, tick=tick, wake_fd=link.wake_fd, reaped=link.reaped
            )
        self._desk.a_chunk = a_chunk_of(outcome.records) or self._desk.a_chunk
        return outcome, busy

    def _workers(self, order: Dict[str, Any], records: List[Any]) -> int:
        """How many processes the measured run needs, from what the warm-up showed and what a token costs."""
        most = int(self._share.plan.get("max_workers") or max(1, min(8, _cpus() - 1)))
        return processes_of(demand_of(order, records, int(self._share.plan["output_tokens"])), most)

    def _send_nothing(self, before: List[str]) -> None:
        self._link.send(
            {
                "f": "point",
                "id": self._id,
                "figures": None,
                "client": {},
                "before": before,
                "after": before,
                "peaks": {},
                "stopped": "stopped",
            }
        )

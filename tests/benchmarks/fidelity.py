"""How true the load generator's figures are: against a server with a known schedule that writes down when it sent each token.

    python tests/benchmarks/fidelity.py [--concurrency 1,16,128,512] [--gap MS] [--seconds S] [--processes N] [--workers N]
                                        [--tunnel] [--json]

For each concurrency: p50 and p99 of TTFT, ITL and TPOT and the throughput as the load generator has them and as the server's own
record has them; how late the arrival stamps are against the sending of the same token; CPU per token event; how late the process
read (`now - stamp`). With `--tunnel` the load goes through the forward of an sshd on this machine, as `bench --vantage tunnel` has
it, and the CPU is that of the client's own process. Run it on a machine that has nothing else to do. The exit code is 1 if anything
is off.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sshd import Sshd

from tui.core.bench_result import Plan, Vantage
from tui.host.local import LocalHost
from tui.host.ssh import SshHost
from tui.probe.load_http import target_of
from tui.probe.load_net import resolve
from tui.probe.load_prompts import uncounted_lengths
from tui.probe.load_workers import LoadShare, run_share
from tui.services.bench_run import Benchmarks, BenchmarkTarget, collect
from tui.wire.request_record import COMPLETED
from tui.wire.summary import percentile, summary

HERE = Path(__file__).parent
STAMPS_LATE_MS = 0.1
"""The 99th percentile of a stamp's lateness may be so much …"""
BUSY_STREAMS = 16
"""… from so many streams on: with fewer a machine sleeps between tokens, and what it takes to wake up is its own."""


class ScheduleServer:
    """`schedule_server.py` in processes of its own."""

    def __init__(self, ttft: float, gap: float, processes: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.log = Path(tempfile.mkdtemp()) / "sent"
        command = [sys.executable, str(HERE / "schedule_server.py"), str(self.port), "--ttft", str(ttft), "--gap", str(gap)]
        self._process = subprocess.Popen([*command, "--processes", str(processes), "--log", str(self.log)])
        self._processes = processes
        self.url = f"http://127.0.0.1:{self.port}"
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def stop(self) -> dict[str, dict[str, Any]]:
        """End the server and return what it sent, by the id of the reply."""
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(30):
            raise RuntimeError("a process of the schedule server died: see its words above")
        sent = {}
        for worker in range(self._processes):
            for line in Path(f"{self.log}.{worker}").read_text().splitlines():
                reply = json.loads(line)
                sent[reply["id"]] = reply
        return sent


def spawn(argv: list[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a worker of the load generator."""
    return subprocess.Popen(argv, **options)


def measure(url: str, concurrency: int, tokens: int, requests: int, workers: int) -> tuple[Any, list[float]]:
    """Run the load generator as the probe does."""
    plan = {"url": url, "endpoint": "completions", "model": "scheduled", "input_tokens": 64, "output_tokens": tokens, "seed": "f"}
    order = {"concurrency": concurrency, "requests": requests, "keep_text": True}
    share = LoadShare(
        plan, uncounted_lengths().known, {"max_tokens": "$asked", "stream": True}, order, 0, 1, 0, None, resolve(target_of(url))[0]
    )
    return run_share(share, workers, spawn, stopping=lambda: False, tick=lambda progress: None)


async def measure_tunnel(url: str, concurrency: int, tokens: int, requests: int) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Measure through an sshd of this machine; return the figures, and the arrival stamps by the id of the reply."""
    plan = Plan(
        concurrency=(concurrency,),
        requests=requests,
        input_tokens=64,
        output_tokens=tokens,
        endpoint="completions",
        vantage=Vantage.TUNNEL,
        save_detailed=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        server = Sshd(Path(folder)).start()
        try:
            async with SshHost("gpu-box", config_files=[server.client_config]) as host:
                await host.connect()
                benchmarks = Benchmarks("box", BenchmarkTarget(url), host=host, open_local=LocalHost, state=Path(folder))
                cpu, began = time.process_time(), time.monotonic()
                (point,) = (await collect(benchmarks, plan)).points
                cpu, took = time.process_time() - cpu, time.monotonic() - began
        finally:
            server.stop()
    detail = point.detail
    assert detail is not None
    arrivals = {}
    for text, start, ttft, gaps in zip(
        detail["generated_texts"], detail["start_times"], detail["ttfts"], detail["itls"], strict=True
    ):
        stamps = [start + ttft]
        for gap in gaps:
            stamps.append(stamps[-1] + gap)
        arrivals[text.split(" ", 1)[0]] = stamps
    return {**point.figures, "own_cpu_s": cpu, "took_s": took}, arrivals


def truth(sent: list[dict[str, Any]]) -> dict[str, float]:
    """Return the figures by the server's own record."""
    ttfts = sorted(reply["sent"][0] - reply["arrived"] for reply in sent)
    itls = sorted(b - a for reply in sent for a, b in zip(reply["sent"], reply["sent"][1:], strict=False))
    tpots = sorted((reply["sent"][-1] - reply["sent"][0]) / (len(reply["sent"]) - 1) for reply in sent)
    tokens = sum(len(reply["sent"]) for reply in sent)
    whole = max(reply["sent"][-1] for reply in sent) - min(reply["arrived"] for reply in sent)
    found = {"output_throughput": tokens / whole}
    for name, values in (("ttft", ttfts), ("itl", itls), ("tpot", tpots)):
        for p in (50, 99):
            found[f"p{p}_{name}_ms"] = percentile(values, p) * 1000
    return found


def lateness(arrivals: dict[str, list[float]], sent: dict[str, dict[str, Any]]) -> list[float]:
    """Arrival stamp minus the time just before the sending of the same token, in ascending order."""
    return sorted(a - s for number, stamps in arrivals.items() for a, s in zip(stamps, sent[number]["sent"], strict=True))


def one(concurrency: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run one point; return what was measured and what was true."""
    server = ScheduleServer(options.ttft, options.gap, options.processes)
    tokens = options.tokens
    waves = max(2, round(options.seconds * 1000 / (options.ttft + options.gap * tokens)))
    requests = concurrency * waves
    found: dict[str, Any] = {"concurrency": concurrency, "requests": requests}
    try:
        if options.tunnel:
            figures, arrivals = asyncio.run(measure_tunnel(server.url, concurrency, tokens, requests))
            found["events_per_s"] = requests * tokens / figures["duration"]
            found["cpu_us_per_event"] = figures["own_cpu_s"] / (requests * tokens) * 1e6
            found["busy"] = figures["own_cpu_s"] / figures["took_s"]
            lags = {50: figures.get("client_lag_p50_ms"), 99: figures.get("client_lag_p99_ms")}
            found["unstamped"] = found["together"] = None
        else:
            outcome, busy = measure(server.url, concurrency, tokens, requests, options.workers)
            figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=concurrency)
            arrivals = {r.text.split(" ", 1)[0]: list(r.chunks) for r in outcome.records if r.state == COMPLETED}
            found["events_per_s"] = outcome.health.events / outcome.health.wall_s
            ordered = sorted(outcome.health.lags)
            lags = {p: percentile(ordered, p) * 1000 for p in (50, 99)}
            found["cpu_us_per_event"] = outcome.health.cpu_s / outcome.health.events * 1e6
            found["busy"] = max(busy)
            found["unstamped"] = outcome.health.unstamped
            found["together"] = outcome.health.together
    finally:
        sent = server.stop()
    if not figures["completed"]:
        raise SystemExit(f"c={concurrency}: none of {requests} requests was completed: {figures['errors_by_kind']}")
    true = truth([sent[number] for number in arrivals])
    late = lateness(arrivals, sent)
    found.update(failed=figures["failed"], completed=figures["completed"])
    for name, value in true.items():
        measured = figures[name]
        found[name] = {"true": value, "measured": measured, "off_ms": measured - value if name.endswith("_ms") else None}
        found[name]["off_percent"] = (measured / value - 1) * 100
    found["stamp_late_p50_ms"] = percentile(late, 50) * 1000
    found["stamp_late_p99_ms"] = percentile(late, 99) * 1000
    found["read_lag_p50_ms"], found["read_lag_p99_ms"] = lags[50], lags[99]
    return found


def verdict(found: dict[str, Any]) -> list[str]:
    """List the figures that are off by more than 1 ms and 2 %, failed or lost requests, and late stamps.

    Processor time is the machine's: it is only shown.
    """
    bad = []
    if found["failed"]:
        bad.append(f"{found['failed']} failed")
    if lost := found["requests"] - found["completed"] - found["failed"]:
        bad.append(f"{lost} lost")
    if found["concurrency"] >= BUSY_STREAMS and found["stamp_late_p99_ms"] > STAMPS_LATE_MS:
        bad.append("stamps late")
    for name, values in found.items():
        if isinstance(values, dict):
            off = abs(values["off_ms"]) if values["off_ms"] is not None else float("inf")
            if off > 1.0 and abs(values["off_percent"]) > 2.0:
                bad.append(name)
    return bad


def main() -> int:
    """Run the comparison and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", default="1,16,128,512")
    parser.add_argument("--ttft", type=float, default=50.0)
    parser.add_argument("--gap", type=float, default=40.0, help="ms between tokens of a stream")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="of the server")
    parser.add_argument("--workers", type=int, default=1, help="of the load generator")
    parser.add_argument("--tunnel", action="store_true", help="through an sshd of this machine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    off = False
    for concurrency in map(int, options.concurrency.split(",")):
        found = one(concurrency, options)
        rows.append(found)
        bad = verdict(found)
        off = off or bool(bad)
        if options.json:
            continue
        words = [
            f"c={concurrency:4d} {found['events_per_s']:8.0f} ev/s {found['cpu_us_per_event']:6.1f} us/ev busy {found['busy']:.2f}"
        ]
        names = ("p50_ttft_ms", "p99_ttft_ms", "p50_itl_ms", "p99_itl_ms", "p50_tpot_ms", "p99_tpot_ms")
        words += [f"{name[:-3]} {found[name]['true']:.2f}{found[name]['off_ms']:+.3f}" for name in names]
        words.append(f"tok/s {found['output_throughput']['true']:.0f}{found['output_throughput']['off_percent']:+.2f}%")
        words.append(f"stamps late {found['stamp_late_p50_ms']:.3f}/{found['stamp_late_p99_ms']:.3f} ms")
        if found["read_lag_p50_ms"] is not None:
            words.append(f"read lag {found['read_lag_p50_ms']:.2f}/{found['read_lag_p99_ms']:.2f} ms")
        if found["together"] is not None:
            words.append(f"unstamped {found['unstamped']} together {found['together']}")
        print("  ".join(words) + ("  OFF: " + ", ".join(bad) if bad else "  ok"), flush=True)
    if options.json:
        print(json.dumps(rows))
    return int(off)


if __name__ == "__main__":
    sys.exit(main())

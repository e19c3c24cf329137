"""The load generator and other clients in turn on the same server with the same load.

    python tests/benchmarks/against_others.py URL --vllm VENV --tokenizer DIR [--concurrency 1,8] [--seconds 60] [--rounds 2]
    python tests/benchmarks/against_others.py --schedule --vllm VENV --aiperf VENV --guidellm VENV --tokenizer DIR [--gaps 40,20]

Whichever of --vllm, --aiperf and --guidellm is given runs: a virtual environment that has it, or its command. With a URL (a real
server), prompts are of one length on /v1/completions for all, new ones each time, with ignore_eos; the table shows each round, and
by how much the means differ from ours. With `--schedule` the server is the one with a known schedule: the table shows each client's
figures against the truth as the event rate rises, and its CPU for a token event (without that of its start).
"""

import argparse
import sys
from typing import Any

import httpx
from fidelity import ScheduleServer, truth
from other_clients import KEYS, Run, clients

from tui.core.bench_server import server_figures

SERVER = ("server_mean_ttft_ms", "server_mean_queue_ms")
"""What the server itself says of the time of a run."""
SHORT = 8
"""Tokens of the runs that tell what a client's start costs."""


def shown(value: float | None, digits: int = 2) -> str:
    return "—" if value is None else f"{value:,.{digits}f}"


def counters(url: str) -> list[str]:
    """Return the lines of the server's metrics, or none if it has no metrics."""
    answer = httpx.get(url + "/metrics", timeout=30.0, trust_env=False)
    return answer.text.splitlines() if answer.status_code == 200 else []


def rounds(url: str, options: argparse.Namespace) -> None:
    """ABAB against a real server."""
    runs = clients(options)
    for concurrency in map(int, options.concurrency.split(",")):
        first = runs["readyroom"](url, options.model, concurrency, concurrency * 4, options.tokens)
        each = concurrency * options.tokens / first["output_throughput"]
        requests = max(4, round(options.seconds / each)) * concurrency
        table: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
        print(f"\n{concurrency} streams, {requests} requests of {options.tokens} tokens\n")
        print(
            "| | " + " | ".join((*KEYS, *SERVER)) + " | failed |\n| --- |" + " ---: |" * (len(KEYS) + len(SERVER) + 1), flush=True
        )
        for _ in range(options.rounds):
            for name, run in runs.items():
                before = counters(url)
                row = run(url, options.model, concurrency, requests, options.tokens)
                row.update(server_figures(before, counters(url), {}, 0, 0))
                table[name].append(row)
                print(
                    f"| {name} | " + " | ".join(shown(row[key]) for key in (*KEYS, *SERVER)) + f" | {row['failed']} |", flush=True
                )
        for name in list(runs)[1:]:
            for key in ("output_throughput", "median_tpot_ms"):
                ours, others = (sum(row[key] for row in table[who]) / options.rounds for who in ("readyroom", name))
                print(f"\n{key}: readyroom {ours:.2f}, {name} {others:.2f}, {100 * (ours / others - 1):+.2f} %", flush=True)


def ramp(options: argparse.Namespace) -> None:
    """Run all clients against a schedule that gets faster and faster."""
    runs = clients(options)
    concurrency = int(options.concurrency.split(",")[0])
    start = {name: start_cost(run, options) if name != "readyroom" else 0.0 for name, run in runs.items()}
    print(f"\n{concurrency} streams\n")
    print("| | events/s true | measured | TTFT p50 true → measured | TTFT p99 | ITL p50 | ITL p99 | TPOT p50 | CPU an event | |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
    for gap in map(float, options.gaps.split(",")):
        tokens = options.tokens
        waves = max(2, round(options.seconds * 1000 / (50 + gap * tokens)))
        for name, run in runs.items():
            server = ScheduleServer(50.0, gap, options.processes)
            try:
                found = run(server.url, "scheduled", concurrency, concurrency * waves, tokens)
            except RuntimeError as error:
                print(f"{name} at a gap of {gap:g} ms: {error}", file=sys.stderr, flush=True)
                continue
            finally:
                sent = [reply for reply in server.stop().values() if len(reply["sent"]) == tokens]
            true = truth(sent)
            cost = (found["cpu_s"] - start[name]) / (len(sent) * tokens) * 1e6
            cells = [f"{true['output_throughput']:,.0f}", shown(found["output_throughput"], 0)]
            for key, exact in (
                ("median_ttft_ms", "p50_ttft_ms"),
                ("p99_ttft_ms", "p99_ttft_ms"),
                ("median_itl_ms", "p50_itl_ms"),
                ("p99_itl_ms", "p99_itl_ms"),
                ("median_tpot_ms", "p50_tpot_ms"),
            ):
                cells.append(f"{true[exact]:.2f} → {shown(found[key])}")
            cells += [f"{cost:.1f} µs", distortion(found, true)]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def distortion(found: dict[str, Any], true: dict[str, float]) -> str:
    """Say which figures are off by more than 1 ms and 2 %, throughput by more than 2 %, and how many requests failed.

    What the others say is true of a lighter load.
    """
    off = [f"{found['failed']} failed"] if found["failed"] else []
    for key, exact, name in (
        ("median_ttft_ms", "p50_ttft_ms", "TTFT"),
        ("p99_itl_ms", "p99_itl_ms", "ITL p99"),
        ("median_tpot_ms", "p50_tpot_ms", "TPOT"),
    ):
        value = found[key]
        if value is not None and abs(value - true[exact]) > max(1.0, 0.02 * true[exact]):
            off.append(name)
    if abs((found["output_throughput"] or 0.0) / true["output_throughput"] - 1) > 0.02:
        off.append("throughput")
    return "off: " + ", ".join(off) if off else "true"


def start_cost(run: Run, options: argparse.Namespace) -> float:
    """CPU seconds of a run that does next to nothing."""
    server = ScheduleServer(50.0, 20.0, 1)
    try:
        return float(run(server.url, "scheduled", 1, 2, SHORT)["cpu_s"])
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        return 0.0
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--vllm", help="the virtual environment that holds `vllm`, or the command")
    parser.add_argument("--aiperf", help="the same of `aiperf`")
    parser.add_argument("--guidellm", help="the same of `guidellm`")
    parser.add_argument("--tokenizer", required=True, help="a directory")
    parser.add_argument("--model", default="/models/tiny")
    parser.add_argument("--schedule", action="store_true")
    parser.add_argument("--concurrency", default="1,8")
    parser.add_argument("--tokens", type=int, default=None, help="of a reply; default 128, on the schedule 200")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--gaps", default="40,20,10,5")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    options.tokens = options.tokens or (200 if options.schedule else 128)
    if options.schedule:
        ramp(options)
    elif options.url:
        rounds(options.url, options)
    else:
        parser.error("name a URL, or say --schedule")


if __name__ == "__main__":
    main()

"""The load generator and `vllm bench serve` in turn (ABAB) on the same server with the same load.

    python tests/benchmarks/against_vllm.py URL --vllm VENV --tokenizer DIR [--concurrency 1,8] [--seconds 60] [--rounds 2]
    python tests/benchmarks/against_vllm.py --schedule --vllm VENV --tokenizer DIR [--concurrency 64] [--gaps 40,20,10,5]

With a URL (a real server), prompts are token ids of one length on /v1/completions for both, new ones each time, with ignore_eos;
the table shows throughput and median TPOT of each round and by how much the means differ. With `--schedule` the server is the one
with a known schedule: the table shows each client's figures against the truth as the event rate rises, and the CPU of each.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from fidelity import ScheduleServer, spawn, truth

from tui.probe.load_prompts import _unknown
from tui.probe.load_workers import Share, carry, first_address
from tui.wire.metrics import summary

INPUT = 128
KEYS = ("output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "median_itl_ms", "p99_itl_ms")


def vllm_command(where: str) -> list[str]:
    """`vllm` of a virtual environment, or a command that is it."""
    return [str(Path(where) / "bin" / "vllm")] if Path(where).is_dir() else shlex.split(where)


def ours(url: str, model: str, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    """One run of the load generator in a process of its own, as the probe is."""
    plan = {
        "url": url,
        "endpoint": "completions",
        "model": model,
        "input_tokens": INPUT,
        "output_tokens": tokens,
        "style": "tokens",
    }
    plan["seed"] = str(time.time_ns())
    fields = {"max_tokens": "$asked", "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    order = {"concurrency": concurrency, "requests": requests}
    share = Share(plan, _unknown().known, fields, order, 0, 1, 0, None, first_address(url)[0])
    outcome, busy = carry(share, 1, spawn, stopping=lambda: False, tick=lambda progress: None)
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=concurrency)
    if figures["failed"]:
        raise RuntimeError(str(figures["error_examples"]))
    lags = sorted(outcome.health.lags)
    return {
        **{key: figures[key] for key in KEYS},
        "failed": figures["failed"],
        "cpu_s": outcome.health.cpu_s,
        "busy": busy[0],
        "lag_p99_ms": lags[int(len(lags) * 0.99)] * 1000,
    }


def theirs(url: str, model: str, concurrency: int, requests: int, tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    """One run of `vllm bench serve`; its CPU without that of its start (measured by `start_cost`)."""
    folder = Path(tempfile.mkdtemp())
    command = [
        *(*vllm_command(options.vllm), "bench", "serve", "--backend", "openai", "--base-url", url),
        *("--endpoint", "/v1/completions", "--model", model, "--tokenizer", options.tokenizer, "--dataset-name", "random"),
        *("--random-input-len", str(INPUT), "--random-output-len", str(tokens), "--num-prompts", str(requests), "--ignore-eos"),
        *("--max-concurrency", str(concurrency), "--save-result", "--result-dir", str(folder), "--result-filename", "r.json"),
        *("--seed", str(time.time_ns() % 2**31), "--disable-tqdm", "--percentile-metrics", "ttft,tpot,itl"),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    saved = json.loads((folder / "r.json").read_text())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**{key: saved[key] for key in KEYS}, "failed": saved["failed"], "cpu_s": cpu, "duration": saved["duration"]}


def rounds(url: str, options: argparse.Namespace) -> None:
    """ABAB against a real server."""
    for concurrency in map(int, options.concurrency.split(",")):
        first = ours(url, options.model, concurrency, concurrency * 4, options.tokens)
        each = concurrency * options.tokens / first["output_throughput"]
        requests = max(4, round(options.seconds / each)) * concurrency
        table: dict[str, list[dict[str, Any]]] = {"ours": [], "vllm": []}
        for _ in range(options.rounds):
            table["ours"].append(ours(url, options.model, concurrency, requests, options.tokens))
            table["vllm"].append(theirs(url, options.model, concurrency, requests, options.tokens, options))
            for who in ("ours", "vllm"):
                row = table[who][-1]
                print(
                    f"c={concurrency} {who:5s} " + "  ".join(f"{key} {row[key]:.2f}" for key in KEYS) + f"  failed {row['failed']}",
                    flush=True,
                )
        for key in ("output_throughput", "median_tpot_ms"):
            a, b = (sum(row[key] for row in table[who]) / options.rounds for who in ("ours", "vllm"))
            print(f"c={concurrency} {key}: ours {a:.2f}, vllm {b:.2f}, {100 * (a / b - 1):+.2f} %", flush=True)


def ramp(options: argparse.Namespace) -> None:
    """Both clients against a schedule, faster and faster."""
    model = "scheduled"
    concurrency = int(options.concurrency.split(",")[0])
    for gap in map(float, options.gaps.split(",")):
        tokens = 200
        waves = max(2, round(options.seconds * 1000 / (50 + gap * tokens)))
        for who in ("ours", "vllm"):
            server = ScheduleServer(50.0, gap, options.processes)
            try:
                if who == "ours":
                    found = ours(server.url, model, concurrency, concurrency * waves, tokens)
                    cpu = found["cpu_s"]
                else:
                    idle = theirs(server.url, model, 1, 1, 2, options)["cpu_s"]
                    found = theirs(server.url, model, concurrency, concurrency * waves, tokens, options)
                    cpu = found["cpu_s"] - idle
            finally:
                sent = [reply for reply in server.stop().values() if len(reply["sent"]) == tokens]
            true = truth(sent)
            events = concurrency * waves * tokens
            print(
                f"{who:5s} gap {gap:g} ms  {true['output_throughput']:7.0f} ev/s true, {found['output_throughput']:7.0f} measured  "
                f"TTFT p50 {true['p50_ttft_ms']:.2f} -> {found['median_ttft_ms']:.2f}  "
                f"p99 {true['p99_ttft_ms']:.2f} -> {found['p99_ttft_ms']:.2f}  "
                f"ITL p50 {true['p50_itl_ms']:.2f} -> {found['median_itl_ms']:.2f}  "
                f"p99 {true['p99_itl_ms']:.2f} -> {found['p99_itl_ms']:.2f}  "
                f"TPOT {true['p50_tpot_ms']:.3f} -> {found['median_tpot_ms']:.3f}  {cpu / events * 1e6:.1f} us CPU an event",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--vllm", required=True, help="the virtual environment that holds `vllm`, or the command")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--model", default="/models/tiny")
    parser.add_argument("--schedule", action="store_true")
    parser.add_argument("--concurrency", default="1,8")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--gaps", default="40,20,10,5")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    if options.schedule:
        ramp(options)
    else:
        rounds(options.url, options)


if __name__ == "__main__":
    main()

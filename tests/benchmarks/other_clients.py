"""The load generator and other benchmark clients, each in processes of its own, with one way to run them and one set of figures.

A run answers with `output_throughput`, `mean_ttft_ms`, `median_ttft_ms`, `p99_ttft_ms`, `median_itl_ms`, `p99_itl_ms`,
`median_tpot_ms` (what a client does not tell is None), `failed`, and `cpu_s`, the CPU of all of its processes with their start.
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fidelity import spawn

from tui.probe.load_http import target_of
from tui.probe.load_net import resolve
from tui.probe.load_prompts import uncounted_lengths
from tui.probe.load_workers import LoadShare, run_share
from tui.wire.summary import summary

INPUT = 128
KEYS = ("output_throughput", "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "median_itl_ms", "p99_itl_ms")
Run = Callable[[str, str, int, int, int], dict[str, Any]]
"""(url, model, concurrency, requests, tokens)"""


def clients(options: argparse.Namespace) -> dict[str, Run]:
    """Return the clients that were given, by name; ours first."""
    found: dict[str, Run] = {"readyroom": readyroom}
    if options.vllm:
        found["vllm"] = lambda *plan: vllm(options, *plan)
    if options.aiperf:
        found["aiperf"] = lambda *plan: aiperf(options, *plan)
    if options.guidellm:
        found["guidellm"] = lambda *plan: guidellm(options, *plan)
    return found


def command_of(where: str, name: str) -> list[str]:
    """Return the words of a command in a virtual environment, or of a command line."""
    return [str(Path(where) / "bin" / name)] if Path(where).is_dir() else shlex.split(where)


def readyroom(url: str, model: str, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    """Run the load generator once, as the probe does; its CPU is that of the measured run alone."""
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
    share = LoadShare(plan, uncounted_lengths().known, fields, order, 0, 1, 0, None, resolve(target_of(url))[0])
    outcome, busy = run_share(share, 1, spawn, stopping=lambda: False, tick=lambda progress: None)
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=concurrency)
    if figures["failed"]:
        raise RuntimeError(str(figures["error_examples"]))
    return {**{key: figures[key] for key in KEYS}, "failed": figures["failed"], "cpu_s": outcome.health.cpu_s, "busy": busy[0]}


def vllm(options: argparse.Namespace, url: str, model: str, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    """`vllm bench serve`."""
    folder = Path(tempfile.mkdtemp())
    command = [
        *(*command_of(options.vllm, "vllm"), "bench", "serve", "--backend", "openai", "--base-url", url),
        *("--endpoint", "/v1/completions", "--model", model, "--tokenizer", options.tokenizer, "--dataset-name", "random"),
        *("--random-input-len", str(INPUT), "--random-output-len", str(tokens), "--num-prompts", str(requests), "--ignore-eos"),
        *("--max-concurrency", str(concurrency), "--save-result", "--result-dir", str(folder), "--result-filename", "r.json"),
        *("--seed", str(time.time_ns() % 2**31), "--disable-tqdm", "--percentile-metrics", "ttft,tpot,itl"),
    ]
    cpu = run(command, {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    saved = json.loads((folder / "r.json").read_text())
    return {**{key: saved[key] for key in KEYS}, "failed": saved["failed"], "cpu_s": cpu}


def aiperf(options: argparse.Namespace, url: str, model: str, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    """`aiperf profile`. Its "inter token latency" is one value a request: it is TPOT; "inter chunk latency" is ITL."""
    folder = Path(tempfile.mkdtemp())
    command = [
        *(*command_of(options.aiperf, "aiperf"), "profile", "-m", model, "--url", url, "--endpoint-type", "completions"),
        *("--streaming", "--concurrency", str(concurrency), "--request-count", str(requests), "--tokenizer", "local/tokenizer"),
        *("--synthetic-input-tokens-mean", str(INPUT), "--synthetic-input-tokens-stddev", "0"),
        *("--output-tokens-mean", str(tokens), "--output-tokens-stddev", "0", "--extra-inputs", "ignore_eos:true"),
        *("--artifact-dir", str(folder / "out"), "--use-server-token-count", "--ui", "none"),
        *("--random-seed", str(time.time_ns() % 2**31)),
    ]
    cpu = run(command, {"HF_HOME": str(hub_of(options.tokenizer, folder)), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"})
    told = json.loads((folder / "out" / "profile_export_aiperf.json").read_text())

    def value(name: str, statistic: str) -> float | None:
        found = (told.get(name) or {}).get(statistic)
        return float(found) if found is not None else None

    return {
        "output_throughput": value("output_token_throughput", "avg"),
        "mean_ttft_ms": value("time_to_first_token", "avg"),
        "median_ttft_ms": value("time_to_first_token", "p50"),
        "p99_ttft_ms": value("time_to_first_token", "p99"),
        "median_tpot_ms": value("inter_token_latency", "p50"),
        "median_itl_ms": value("inter_chunk_latency", "p50"),
        "p99_itl_ms": value("inter_chunk_latency", "p99"),
        "failed": requests - int(value("request_count", "avg") or 0),
        "cpu_s": cpu,
    }


def guidellm(options: argparse.Namespace, url: str, model: str, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    """`guidellm run`. Its "inter token latency" is one value a request: it is TPOT; it tells no gaps between chunks."""
    folder = Path(tempfile.mkdtemp())
    backend = {
        "kind": "openai_http",
        "target": url,
        "model": model,
        "request_format": "/v1/completions",
        "validate_backend": False,
        "extras": {"body": {"ignore_eos": True}},
    }
    command = [*command_of(options.guidellm, "guidellm"), "run", "--disable-console"]
    for name, value in (
        ("backend", backend),
        ("profile", {"kind": "concurrent", "streams": [concurrency]}),
        ("constraint", {"kind": "max_requests", "count": requests}),
        ("tokenizer", {"kind": "huggingface_auto", "model": options.tokenizer}),
        ("data", {"kind": "synthetic_text", "prompt_tokens": INPUT, "output_tokens": tokens}),
        ("output", {"kind": "json", "path": str(folder / "r.json")}),
    ):
        command += [f"--{name}", json.dumps(value)]
    cpu = run(command, {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"})
    (told,) = json.loads((folder / "r.json").read_text())["benchmarks"]
    metrics = told["metrics"]

    def told_of(name: str, statistic: str) -> float | None:
        found = (metrics.get(name) or {}).get("successful") or {}
        number = found.get("percentiles", {}).get(statistic) if statistic.startswith("p") else found.get(statistic)
        return float(number) if number is not None else None

    return {
        "output_throughput": told_of("output_tokens_per_second", "mean"),
        "mean_ttft_ms": told_of("time_to_first_token_ms", "mean"),
        "median_ttft_ms": told_of("time_to_first_token_ms", "p50"),
        "p99_ttft_ms": told_of("time_to_first_token_ms", "p99"),
        "median_tpot_ms": told_of("inter_token_latency_ms", "p50"),
        "median_itl_ms": None,
        "p99_itl_ms": None,
        "failed": requests - int((metrics.get("request_totals") or {}).get("successful") or 0),
        "cpu_s": cpu,
    }


def run(command: list[str], more: dict[str, str]) -> float:
    """Run a client to its end; return the CPU seconds of all its processes. Raises RuntimeError with its last words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def hub_of(tokenizer: str, folder: Path) -> Path:
    """Make a model hub's cache that holds one tokenizer, as `local/tokenizer`: offline, aiperf takes none from a directory."""
    revision = "0" * 39 + "1"
    home = folder / "hub-home"
    entry = home / "hub" / "models--local--tokenizer"
    (entry / "refs").mkdir(parents=True)
    (entry / "refs" / "main").write_text(revision)
    (entry / "snapshots" / revision).mkdir(parents=True)
    for file in Path(tokenizer).glob("*.json"):
        if "safetensors" not in file.name:
            shutil.copy(file, entry / "snapshots" / revision)
    return home

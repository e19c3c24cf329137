"""What `readyroom bench` says of itself: prompts it can't take, fewer requests than streams, a server that keeps it waiting."""

import asyncio
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from scripted_server import Exchange, scripted
from test_bench_command import COMMAND, bench, environment, good

from tui.cli.bench import refusal
from tui.cli.bench_options import PROMPTS_LIMIT
from tui.cli.bench_tables import status
from tui.core.bench_documents import against, notes_of
from tui.core.bench_result import BenchProgress, Plan, Point, Result, Vantage
from tui.host.local import LocalHost
from tui.services.bench_run import BenchmarkRefused, Benchmarks, BenchmarkTarget
from tui.widgets.bench_pane import hero, progress_line, remarks

SHORT = ("--requests", "2", "--input-tokens", "16", "--output-tokens", "3")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(PROMPTS_LIMIT + 1)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file; - reads standard input"),
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, "is not a regular file"),
        (lambda path: None, "No such file"),
        (large, "is larger than 64 MiB"),
        (lambda path: path.write_bytes(b"\xff\xfe{"), "is not UTF-8 text (byte 0)"),
        (lambda path: path.write_text('{"prompt": "a"}\n{]\n'), "line 2 is not JSON"),
    ],
    ids=["device", "pipe", "directory", "missing", "large", "binary", "broken"],
)
def test_prompts_that_can_not_be_taken(tmp_path: Path, make: object, why: str) -> None:
    path = tmp_path / "prompts"
    make(path)  # type: ignore[operator]
    done = bench(tmp_path, "--base-url", "http://127.0.0.1:9", "--prompts", str(path))
    assert done.returncode == 2
    assert why in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        (True, "422 Unprocessable", "rejects such a request (http_422): the engine is loading"),
        (False, "422 Unprocessable", "rejects such a request (http_422): the engine is loading"),
    ],
)
def test_a_refusal_is_told_in_words(tmp_path: Path, target: bool, status: str, words: str) -> None:
    with scripted(good) as server:

        def answer(exchange: Exchange) -> None:
            if exchange.path.endswith("completions"):
                exchange.plain(status, b'{"error": {"message": "the engine is loading"}}')
            else:
                server.single(exchange)

        server.answer = answer
        (tmp_path / "config" / "readyroom").mkdir(parents=True)
        config = f'[deployments.box]\napi = "{server.url}"\n[[deployments.box.engines]]\nhost = "local"\nlog = "none"\n'
        (tmp_path / "config" / "readyroom" / "config.toml").write_text(config)
        done = bench(tmp_path, *(("box",) if target else ("--base-url", server.url)), *SHORT)
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize(("kind", "by_url"), [("http_503", False), ("http_429", True), ("http_422", True)])
def test_a_refusal_says_whether_another_time_would_help(kind: str, by_url: bool) -> None:
    cause = refusal("box", BenchmarkRefused(kind, "the engine is loading"), by_url).message
    assert f"({kind}): the engine is loading" in cause
    assert ("not ready, or full" in cause) is (kind != "http_422")
    assert ("`readyroom status box` tells" in cause) is not by_url


def test_prompts_of_standard_input(tmp_path: Path) -> None:
    seen: set[str] = set()

    def script(exchange: Exchange) -> None:
        seen.add(exchange.body["messages"][0]["content"])
        exchange.reply()

    with scripted(script) as server:
        words = [*COMMAND, "--base-url", server.url, "--prompts", "-", "--requests", "2", "--output-tokens", "3", "--json"]
        given = '{"prompt": "one"}\n{"prompt": "two"}\n'
        done = subprocess.run(words, input=given, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert seen == {"one", "two"}


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(concurrency=(1, 64), requests=8), "64 streams but 8 requests: at most 8 run at once"),
        (Plan(concurrency=(2,), requests=1), "2 streams but 1 request: at most 1 run at once"),
        (Plan(concurrency=(8,), requests=8), None),
        (Plan(concurrency=(8,)), None),
        (Plan(kind="rate", request_rate=1.0, requests=4, concurrency=(8,)), None),
    ],
)
def test_fewer_requests_than_streams(plan: Plan, said: str | None) -> None:
    assert [note for note in notes_of(plan) if "streams but" in note] == ([said] if said else [])


def test_fewer_requests_than_streams_are_told_before_and_after(tmp_path: Path) -> None:
    with scripted(good) as server:
        done = bench(tmp_path, "--base-url", server.url, "--concurrency", "4", *SHORT, "--json")
    said = "4 streams but 2 requests: at most 2 run at once"
    assert said in done.stderr
    assert said in json.loads(done.stdout)["deviations"]


async def test_a_server_that_keeps_it_waiting_is_told_of(tmp_path: Path) -> None:
    """At every stage in which nothing came yet: while it gets to know the server, in the warm-up, in the measured run."""
    go = threading.Event()

    def slow(exchange: Exchange) -> None:
        go.wait(20)
        exchange.reply()

    waited: dict[str, float] = {}
    with scripted(slow) as server:

        def late(exchange: Exchange) -> None:
            go.wait(20)
            server.single(exchange)

        server.answer = late
        benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=None, open_local=LocalHost, state=tmp_path)
        async for item in benchmarks.run(Plan(concurrency=(1,), requests=1, input_tokens=16, output_tokens=3)):
            if isinstance(item, BenchProgress) and item.waiting_s is not None:
                waited[item.stage] = item.waiting_s
                if item.stage == "preparing" or item.waiting_s > 0.5:
                    go.set()
            elif isinstance(item, BenchProgress) and item.stage == "preparing":
                continue
            elif isinstance(item, Result):
                assert item.points[0].figures["completed"] == 1
    assert waited["preparing"] >= 1.0


async def test_one_that_waits_for_the_server_is_stopped_at_once(tmp_path: Path) -> None:
    go = threading.Event()
    with scripted(good) as server:
        server.answer = lambda exchange: go.wait(60)
        benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=None, open_local=LocalHost, state=tmp_path)
        try:
            async with asyncio.timeout(20):
                async for item in benchmarks.run(Plan(concurrency=(1,), requests=1, input_tokens=16, output_tokens=3)):
                    if isinstance(item, BenchProgress) and item.waiting_s is not None:
                        await benchmarks.stop()
        finally:
            go.set()
    assert isinstance(item, Result)
    assert (item.stopped, item.points) == ("stopped by the user", ())
    assert not benchmarks.running


def test_the_words_of_waiting() -> None:
    progress = BenchProgress(0, 1, 4, "warm-up", 4, waiting_s=12.4)
    assert "waiting for the first reply, 12 s" in status(progress)
    assert "tok/s" not in status(progress)
    assert "waiting for the first reply, 0:12" in progress_line(progress, 100).plain
    failed = BenchProgress(0, 1, 4, "measuring", 4, failed=3, waiting_s=2.0)
    assert "3 failed, waiting for the first reply, 2 s" in status(failed)


def point(rate: float | None, concurrency: int = 1) -> Point:
    return Point(concurrency, {"output_throughput": rate, "warnings": ["too few requests for a p99"], "request_rate": "inf"})


def test_a_single_stream_below_what_is_expected() -> None:
    found = against(80.0, point(61.23))
    assert found["expected_tokens_per_s"] == 80.0
    words = "slower than expected: 61.2 tok/s in a single stream, 80 are expected"
    assert found["warnings"] == ["too few requests for a p99", words]
    assert "warnings" not in against(80.0, point(80.0))
    assert "warnings" not in against(80.0, point(None))
    slow = Point(1, {"output_throughput": 61.23, **found})
    result = Result("x", "m", Vantage.HOST, Plan(), (slow,))
    assert any(words in line.plain for line in remarks(result, (slow,), None))


def test_the_command_says_that_a_stream_is_slower_than_configured(tmp_path: Path) -> None:
    with scripted(good) as server:
        config = tmp_path / "config.toml"
        config.write_text(
            f'[deployments.box]\napi = "{server.url}"\n[[deployments.box.engines]]\nhost = "local"\nlog = "none"\n'
            "[deployments.box.expect]\ntokens_per_s = 1e9\n"
        )
        done = bench(tmp_path, "box", "--config", str(config), *SHORT)
        both = bench(tmp_path, "box", "--config", str(config), *SHORT, "--concurrency", "2", "--json")
    assert "slower than expected" in done.stdout
    assert "slower than expected" not in both.stdout


def test_a_single_stream_shows_no_peak_while_it_runs() -> None:
    shown = "\n".join(line.plain for line in hero((), None, True, 120, several=False))
    assert "single stream" in shown
    assert "peak" not in shown
    assert "peak so far" in "\n".join(line.plain for line in hero((), None, True, 120))


def test_an_open_loop_that_could_not_keep_its_rate_says_so(tmp_path: Path) -> None:
    def slow(exchange: Exchange) -> None:
        if not exchange.body.get("stream"):
            good(exchange)
            return
        threading.Event().wait(0.2)
        exchange.reply()

    with scripted(slow) as server:
        words = ("--base-url", server.url, "--request-rate", "40", "--concurrency", "1", "--input-tokens", "16")
        done = bench(tmp_path, *words, "--output-tokens", "3", "--duration", "1s", "--json")
        shown = bench(tmp_path, *words, "--output-tokens", "3", "--requests", "8")
    (figures,) = json.loads(done.stdout)["points"]
    assert figures["unsent_requests"] > 20
    (told,) = (warning for warning in figures["warnings"] if warning.startswith("the schedule"))
    assert told.endswith("never sent (only 1 stream was allowed)")
    assert "sent late" in shown.stdout
    assert "at p99 (only 1 stream was allowed)" in " ".join(shown.stdout.split())


def test_what_the_figures_mean_is_told_when_asked(tmp_path: Path) -> None:
    """What is so in every benchmark is not said after each: what is of this one alone would be lost in it."""
    words = ("--concurrency", "2", "--requests", "4", "--input-tokens", "16", "--output-tokens", "3")
    with scripted(good) as server:
        done = bench(tmp_path, "--base-url", server.url, *words)
        asked = bench(tmp_path, "--base-url", server.url, *words, "--definitions")
        open_loop = bench(
            tmp_path, "--base-url", server.url, "--request-rate", "9", "--duration", "1s", *words[4:], "--definitions"
        )
    always = ("TTFT: first token-bearing chunk", "no local tokenizer")
    assert not any(words in done.stdout for words in always)
    assert all(words in asked.stdout for words in always)
    assert "--definitions" in done.stdout
    for shown in (done.stdout, asked.stdout):
        assert "req/s" in shown.splitlines()[0]
        assert "· all streams begin at once" in shown
        (warning,) = (line for line in shown.splitlines() if line.startswith("▲ too few"))
        assert warning.endswith("2 streams had 4")
    assert "steady" in asked.stdout
    assert "steady" not in open_loop.stdout
    assert "are in no total but arrived_output_tokens" in open_loop.stdout


def test_all_options_are_in_a_group_of_the_help(tmp_path: Path) -> None:
    done = bench(tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith(":") and not line.startswith(" ")] == [
        "Server:",
        "Load:",
        "Duration:",
        "Requests:",
        "Results:",
        "Examples:",
    ]

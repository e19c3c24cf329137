"""Benchmarks of servers that send escape sequences, bombs and endless replies."""

import asyncio
import base64
import gzip
import json
import os
import tempfile
import threading
import zlib
from contextlib import aclosing
from pathlib import Path

import pytest
from scripted_server import SSE, Exchange, scripted

from tui.core.bench_result import BenchProgress, Plan, Vantage
from tui.host.base import ProbeFailed
from tui.host.local import LocalHost
from tui.probe.load import PIECE_BYTES
from tui.services.bench_generator import RECORDS_LIMIT, _arrays
from tui.services.bench_run import BenchmarkRefused, Benchmarks, BenchmarkTarget, collect

HOSTILE = "over\x1b]52;c;aGk=\x07loaded\x1b[2J\u202e"


def plan(vantage: Vantage, **more: object) -> Plan:
    return Plan(concurrency=(1,), requests=2, input_tokens=16, output_tokens=3, vantage=vantage, **more)  # type: ignore[arg-type]


async def bench(url: str, state: Path, asked: Plan) -> dict[str, object]:
    async with LocalHost() as host:
        await host.connect()
        benchmarks = Benchmarks("box", BenchmarkTarget(url), host=host, open_local=LocalHost, state=state)
        return (await collect(benchmarks, asked)).points[0].figures


async def test_a_servers_words_are_cleaned(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        exchange.plain("503 Service Unavailable", json.dumps({"error": {"message": HOSTILE}}).encode())

    with scripted(script) as server:
        figures = await bench(server.url, tmp_path, plan(Vantage.HOST))
    assert figures["errors_by_kind"] == {"http_503": 2}
    examples = figures["error_examples"]
    assert isinstance(examples, list)
    assert {example["message"] for example in examples} == {"overloaded"}


async def test_of_several_models_none_is_taken_silently(tmp_path: Path) -> None:
    def models(exchange: Exchange) -> None:
        if exchange.path == "/v1/models":
            exchange.plain("200 OK", b'{"data": [{"id": "chat", "root": "a"}, {"id": "embed", "root": "b"}]}')
        else:
            server.single(exchange)

    with scripted(lambda exchange: exchange.reply()) as server:
        server.answer = models
        with pytest.raises(BenchmarkRefused, match="several models, name one with --model: chat, embed"):
            await bench(server.url, tmp_path, plan(Vantage.HOST))
        figures = await bench(server.url, tmp_path, plan(Vantage.HOST, model="chat"))
    assert figures["completed"] == 2


async def test_of_thousands_of_models_a_few_are_named(tmp_path: Path) -> None:
    """However many a server lists, and however long their names are: the refusal is a line that can be read."""
    listed = [{"id": f"adapter-{number}-{'x' * 4000}", "root": str(number)} for number in range(3000)]
    page = json.dumps({"data": listed}).encode()
    with scripted(lambda exchange: exchange.reply()) as server:
        server.answer = lambda exchange: exchange.plain("200 OK", page)
        with pytest.raises(BenchmarkRefused) as refused:
            await bench(server.url, tmp_path, plan(Vantage.HOST))
    names = ", ".join(f"adapter-{number}-{'x' * 54}" for number in range(6))
    assert refused.value.cause == f"the server has several models, name one with --model: {names} and 2994 more"


async def test_a_refusal_without_end_is_cut_after_its_secrets_are_hidden(tmp_path: Path) -> None:
    key = "sk-very-secret-key-0123456789"
    words = "x" * 490 + key + "y" * 5000

    def refuses(exchange: Exchange) -> None:
        if exchange.path == "/v1/models":
            exchange.plain("200 OK", b'{"data": [{"id": "chat"}]}')
        else:
            exchange.plain("403 Forbidden", json.dumps({"error": {"message": words}}).encode())

    with scripted(lambda exchange: exchange.reply()) as server:
        server.answer = refuses
        with pytest.raises(BenchmarkRefused) as refused:
            await bench(server.url, tmp_path, plan(Vantage.HOST, headers={"X-Key": key}))
    assert len(refused.value.cause) <= 500
    assert refused.value.cause.startswith("x" * 490)
    assert "sk-" not in refused.value.cause


async def test_through_the_connection_nothing_is_unpacked_and_no_reply_is_endless(tmp_path: Path) -> None:
    """A packed reply is none that was asked for; a page without an end is left."""
    asked: list[str] = []
    page = b"vllm:num_requests_running 0\n"

    def answers(exchange: Exchange) -> None:
        asked.append(exchange.headers.get("accept-encoding", ""))
        if exchange.path == "/metrics":
            size = 1 << 30
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            while True:  # until the client hangs up
                exchange.send(page * 4096)
        elif exchange.path == "/v1/models":
            packed = gzip.compress(b'{"data": [{"id": "packed"}]}')
            exchange.plain("200 OK", packed, b"Content-Encoding: gzip\r\n")
        else:
            server.single(exchange)

    with scripted(lambda exchange: exchange.reply()) as server:
        server.answer = answers
        with pytest.raises(BenchmarkRefused, match="no model"):
            await bench(server.url, tmp_path, plan(Vantage.TUNNEL))
        figures = await bench(server.url, tmp_path, plan(Vantage.TUNNEL, model="m"))
    assert figures["completed"] == 2
    assert set(asked) == {"identity"}


async def test_leaving_a_point_through_the_connection_closes_its_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and with the socket that they came through."""
    closed = threading.Event()

    def endless(exchange: Exchange) -> str:
        exchange.send(SSE)
        exchange.token()
        exchange.wait_closed()
        closed.set()
        return "close"

    with scripted(endless) as server, tempfile.TemporaryDirectory() as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        async with LocalHost() as host:
            await host.connect()
            tasks = asyncio.all_tasks()
            benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=host, open_local=LocalHost, state=tmp_path)
            async with aclosing(benchmarks.run(plan(Vantage.TUNNEL))) as news:
                async for progress in news:
                    if isinstance(progress, BenchProgress) and progress.in_flight == 1:
                        (folder,) = os.listdir(short)
                        assert os.stat(os.path.join(short, folder)).st_mode & 0o777 == 0o700
                        break
            assert os.listdir(short) == []
            assert asyncio.all_tasks() == tasks
        assert await asyncio.to_thread(closed.wait, 5)


def pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def test_records_are_unpacked_up_to_a_limit() -> None:
    assert _arrays(pack(b'{"ttfts": [0.5, 1]}')) == {"ttfts": [0.5, 1]}
    bomb = pack(b'{"ttfts": [' + b" " * (RECORDS_LIMIT + 1) + b"]}")
    assert len(bomb) < 200_000
    for bad, words in [
        (bomb, "larger than 64 MiB"),
        (pack(b'{"ttfts": []}')[:16], "cut"),
        ("a", "can't be read"),
        (pack(b"[" * 100_000), "can't be read"),
        (pack(b'{"ttfts": 1}'), "no arrays"),
    ]:
        with pytest.raises(ProbeFailed, match=words):
            _arrays(bad)


async def test_arrays_that_are_lost_do_not_cost_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One piece that can't be read: its point has figures and says so, and the next point is as ever."""
    broken: list[bool] = []
    unpack = _arrays

    def arrays(packed: str) -> dict[str, list[object]]:
        if not broken:
            broken.append(True)
            return unpack(packed[:16])
        return unpack(packed)

    monkeypatch.setattr("tui.services.bench_generator._arrays", arrays)
    asked = Plan(concurrency=(1, 2), requests=4, input_tokens=16, output_tokens=3, save_detailed=True)
    with scripted(lambda exchange: exchange.reply()) as server:
        benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=None, open_local=LocalHost, state=tmp_path)
        result = await collect(benchmarks, asked)
    first, second = result.points
    assert first.figures["completed"] == second.figures["completed"] == 4
    assert first.detail is None
    assert any("arrays of its requests are lost: the load generator's records are cut" in w for w in first.figures["warnings"])
    assert second.detail is not None
    assert len(second.detail["ttfts"]) == 4
    assert not any("lost" in warning for warning in second.figures["warnings"])


async def test_long_replies_of_many_requests_bring_their_arrays(tmp_path: Path) -> None:
    """In as many pieces as they need."""
    piece = "y" * (300 << 10)

    def script(exchange: Exchange) -> None:
        exchange.send(SSE)
        exchange.token(piece)
        exchange.token(piece, "length")
        exchange.usage(2)
        exchange.done()

    asked = Plan(concurrency=(4,), requests=16, input_tokens=16, output_tokens=2, save_detailed=True)
    with scripted(script) as server:
        benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=None, open_local=LocalHost, state=tmp_path)
        (point,) = (await collect(benchmarks, asked)).points
    assert point.figures["completed"] == 16
    assert point.detail is not None
    assert sum(len(text) for text in point.detail["generated_texts"]) == 16 * 2 * len(piece) > PIECE_BYTES

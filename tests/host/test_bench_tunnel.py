"""The load through the connection: what it measures, what it says of itself, and that it does what the load generator does."""

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Exchange, scripted
from sshd import eventually, free_port

from tui.core.bench_conclusions import soak_words
from tui.core.bench_result import STOPPED_BY_USER, Plan, Result, Vantage
from tui.host.base import ProbeFailed
from tui.host.local import LocalHost
from tui.host.shipped import ShippedProbe
from tui.services.bench_run import Benchmarks, BenchmarkTarget, collect
from tui.services.bench_tunnel import Tunnel

TUNNEL: dict[str, Any] = {"input_tokens": 16, "output_tokens": 3, "vantage": Vantage.TUNNEL}


def good(exchange: Exchange) -> None:
    exchange.reply()


async def through(url: str, state: Path, plan: Plan, host: LocalHost | None = None) -> Result:
    async with host or LocalHost() as there:
        await there.connect()
        return await collect(Benchmarks("box", BenchmarkTarget(url), host=there, open_local=LocalHost, state=state), plan)


async def test_a_soak_has_its_longest_prompts_and_the_peak_of_the_cache(tmp_path: Path) -> None:
    sizes: list[int] = []

    def script(exchange: Exchange) -> None:
        sizes.append(len(str(exchange.body)))
        exchange.reply()

    with scripted(script) as server:
        server.metrics = b'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:num_requests_running{engine="0"} 1.0\n'
        result = await through(server.url, tmp_path, Plan(kind="soak", concurrency=(2,), duration_s=2.5, **TUNNEL))
    assert [point.figures["repeat"] for point in result.points] == ["longest prompt", None]
    assert max(sizes) > 10 * 1024  # of the 4,096 tokens that the server allows; those of the load itself have 16
    assert sizes[-1] < 1024
    assert result.points[1].figures["server_peak_kv_cache"] == 0.25
    assert "KV cache up to 25 %" in soak_words(result)
    assert not any("doesn't say its longest length" in note for note in result.deviations)


@pytest.mark.parametrize("seed", [0, 15])
async def test_no_longest_prompt_passes_the_limit_of_a_server_that_only_counts(tmp_path: Path, seed: int) -> None:
    """Its tokenizer makes more of some words than of those that were counted first."""
    longest: list[int] = []

    def tokens(body: dict[str, Any]) -> int:
        return 9 + sum(-(-len(word) // 5) for word in body["messages"][0]["content"].split())

    def single(exchange: Exchange) -> None:
        if exchange.path == "/v1/chat/completions":
            usage = {"prompt_tokens": tokens(exchange.body), "completion_tokens": 1}
            exchange.plain("200 OK", json.dumps({"choices": [{}], "usage": usage}).encode())
        else:
            server.single(exchange)

    def script(exchange: Exchange) -> None:
        asked = tokens(exchange.body) + exchange.body["max_tokens"]
        if asked > 1000:
            longest.append(asked)
        exchange.reply()

    plan = Plan(
        kind="soak", concurrency=(8,), duration_s=0.5, seed=seed, input_tokens=512, output_tokens=16, vantage=Vantage.TUNNEL
    )
    with scripted(script) as server:
        server.answer = single
        await through(server.url, tmp_path, plan)
    assert len(longest) == 8
    assert 0.9 * 4096 < max(longest) <= 4096


async def test_a_stop_lets_go_of_a_server_that_does_not_count_the_longest_prompt(tmp_path: Path) -> None:
    counting = threading.Event()

    def single(exchange: Exchange) -> None:
        if exchange.path == "/v1/chat/completions" and len(str(exchange.body)) > 4000:
            counting.set()
            exchange.wait_closed(60)
        else:
            server.single(exchange)

    plan = Plan(kind="soak", concurrency=(2,), duration_s=30.0, **TUNNEL)
    with scripted(good) as server:
        server.answer = single
        async with LocalHost() as host:
            await host.connect()
            benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=host, open_local=LocalHost, state=tmp_path)
            running = asyncio.create_task(collect(benchmarks, plan))
            assert await asyncio.to_thread(counting.wait, 20)
            began = time.monotonic()
            await benchmarks.stop()
            result = await running
    assert result.stopped == STOPPED_BY_USER
    assert result.points == ()
    assert time.monotonic() - began < 10


async def test_it_says_why_it_was_used_and_what_its_times_are(tmp_path: Path) -> None:
    class Without(LocalHost):
        async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ShippedProbe:
            raise ProbeFailed("no Python")

    plan = Plan(concurrency=(1,), requests=1, **TUNNEL)
    with scripted(good) as server:
        asked = await through(server.url, tmp_path, plan)
        unasked = await through(
            server.url, tmp_path, Plan(concurrency=(1,), requests=1, input_tokens=16, output_tokens=3), Without()
        )
    reason = "the load generator can't run on the host"
    assert [reason in " ".join(result.deviations) for result in (asked, unasked)] == [False, True]
    for result in (asked, unasked):
        assert result.vantage is Vantage.TUNNEL
        assert any("at most 32 streams" in note for note in result.deviations)
        assert not any("kernel's stamps" in note for note in result.deviations)
        assert any("client's own process read them" in note for note in result.deviations)


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield the first line of a tunnel to a server at `url`, and a connection through it."""
    async with LocalHost() as host, Tunnel(host, url) as tunnel:
        reader, writer = await asyncio.open_unix_connection(tunnel.path)
        try:
            yield await reader.readline(), reader, writer
        finally:
            writer.close()


async def test_the_tunnel_says_first_whether_the_server_was_reached() -> None:
    port = free_port()
    async with connected(f"http://127.0.0.1:{port}") as (line, reader, _):
        assert line.decode() == f"nothing listens on 127.0.0.1:{port}\n"
        assert await reader.read() == b""
    async with connected("unix:/nowhere/s") as (line, reader, _):
        assert line == b"nothing listens on /nowhere/s\n"
    with scripted(good) as server:
        async with connected(server.url) as (line, reader, writer):
            assert line == b"\n"
            writer.write(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_the_tunnel_brings_what_was_said_before_the_server_closed() -> None:
    """A proxy refuses a large prompt without reading it: sending fails, and its words are on their way."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\n\r\n")
        writer.write_eof()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connected(f"http://127.0.0.1:{port}") as (_, reader, writer):
            writer.write(b"x" * (4 << 20))
            assert await reader.read() == b"HTTP/1.1 413 Too Large\r\n\r\n"


async def test_the_tunnel_ends_with_its_connections() -> None:
    with scripted(good) as server:
        async with LocalHost() as host:
            async with Tunnel(host, server.url) as tunnel:
                reader, writer = await asyncio.open_unix_connection(tunnel.path)
                assert await reader.readline() == b"\n"
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        with pytest.raises(FileNotFoundError):
            os.stat(tunnel.path)
        await eventually(lambda: server.open <= 0, what="the server's connection closed")

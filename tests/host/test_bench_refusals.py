"""What `readyroom bench` refuses before it sends anything, and what it says to do if it could not begin."""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Exchange, Scripted, scripted
from test_bench_command import bench, good
from test_load_connections import certificate, secured

from tui.core.bench_result import BenchProgress, Plan, Result, Vantage
from tui.host.local import LocalHost
from tui.probe.load_http import target_of
from tui.probe.load_net import resolve
from tui.probe.load_preflight import AGAIN_S, check_lengths
from tui.probe.load_prompts import PlanRefused
from tui.probe.load_server import ApiCaller
from tui.services.bench_run import BenchmarkRefused, Benchmarks, BenchmarkTarget, collect

__all__ = ["certificate"]


def models(*entries: dict[str, Any]) -> Callable[[Exchange], None]:
    def answer(exchange: Exchange) -> None:
        exchange.plain("200 OK", json.dumps({"data": entries}).encode())

    return answer


LONG = {"id": "m", "max_model_len": 1000}


@pytest.mark.parametrize(
    ("listed", "plan", "longest", "said"),
    [
        ([LONG], {}, 1000, ""),
        ([LONG], {"input_tokens": 800, "output_tokens": 200}, 1000, ""),
        (
            [LONG],
            {"input_tokens": 900, "output_tokens": 200},
            None,
            "a prompt of 900 and a reply of 200 tokens are more than the 1,000",
        ),
        ([LONG], {"input_tokens": 500, "shared_prefix": 400}, None, "a prompt of 900 and a reply of 128"),
        ([LONG], {"output_tokens": 2000, "extra_body": {"max_tokens": 10}}, 1000, ""),
        ([LONG], {"prompts": [{"prompt": "a"}], "output_tokens": 1000}, None, "replies of 1,000 tokens and a prompt are more"),
        ([LONG], {"prompts": [{"prompt": "a", "output_tokens": 9}, {"prompt": "b"}], "output_tokens": 1000}, 1000, ""),
        ([{"id": "m", "max_model_len": None}], {"input_tokens": 900, "output_tokens": 2000}, None, ""),
        ([{"id": "a"}, {"id": "b"}], {}, None, "the server does not list the model m: it lists a, b"),
        ([], {}, None, ""),
    ],
)
def test_what_fits_into_a_server(listed: list[dict[str, Any]], plan: dict[str, Any], longest: int | None, said: str) -> None:
    asked = {"model": "m", "input_tokens": 128, "output_tokens": 128, **plan}
    with scripted(good) as server:
        server.answer = models(*listed)
        target = target_of(server.url)
        with ApiCaller(target, resolve(target), None, {}, "0") as client:
            if said and "list" not in said:
                with pytest.raises(PlanRefused, match=said):
                    check_lengths(client, asked)
            else:
                assert check_lengths(client, asked) == (longest, [said] if said else [])


def test_nothing_is_sent_where_nothing_fits(tmp_path: Path) -> None:
    asked: list[str] = []
    with scripted(good) as server:

        def answer(exchange: Exchange) -> None:
            asked.append(exchange.path)
            server.single(exchange)

        server.answer = answer
        done = bench(tmp_path, "--base-url", server.url, "--input-tokens", "4000", "--output-tokens", "200", "--requests", "12")
    assert done.returncode == 2
    assert "a prompt of 4,000 and a reply of 200 tokens are more than the 4,096" in done.stderr
    assert not [path for path in asked if path.endswith("completions")]


def test_a_model_that_is_not_listed_is_told_of(tmp_path: Path) -> None:
    words = ("--requests", "2", "--input-tokens", "16", "--output-tokens", "3", "--model", "nope")
    with scripted(good) as server:
        done = bench(tmp_path, "--base-url", server.url, *words)
    assert done.returncode == 0, done.stderr
    assert "the server does not list the model nope: it lists scripted" in " ".join(done.stdout.split())


def test_a_certificate_that_is_not_trusted(tmp_path: Path, certificate: Path) -> None:
    short = ("--requests", "2", "--input-tokens", "16", "--output-tokens", "3")
    with scripted(good, tls=secured(certificate)) as server:
        url = server.url
        said = bench(tmp_path, "--base-url", url, *short)
        named = bench(tmp_path, "--base-url", url, *short, "--ca-file", str(certificate))
        by_variable = bench(tmp_path, "--base-url", url, *short, SSL_CERT_FILE=str(certificate))
        unchecked = bench(tmp_path, "--base-url", url, *short, "--insecure")
    assert said.returncode == 5
    assert "self-signed certificate" in said.stderr
    assert "--ca-file FILE, or SSL_CERT_FILE" in said.stderr
    assert "--insecure" in said.stderr
    assert [done.returncode for done in (named, by_variable, unchecked)] == [0, 0, 0]


def test_tls_where_none_is_spoken(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        said = bench(tmp_path, "--base-url", f"https://127.0.0.1:{server.server_port}", "--requests", "1")
        server.shutdown()
    assert said.returncode == 5
    assert "does it speak TLS?" in said.stderr
    assert "http://" in said.stderr


@pytest.mark.parametrize("text", ["nothing", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "ü"])
def test_a_file_of_no_certificates(tmp_path: Path, text: str) -> None:
    (tmp_path / "ca.pem").write_text(text, encoding="utf-8")
    said = bench(tmp_path, "--base-url", "https://x", "--ca-file", str(tmp_path / "ca.pem"))
    assert (said.returncode, "holds no certificate in PEM" in said.stderr) == (2, True)
    missing = bench(tmp_path, "--base-url", "https://x", "--ca-file", str(tmp_path / "none"))
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)


def only(status: str) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.plain(status, b'{"error":"Unauthorized"}')


@pytest.mark.parametrize("named", [(), ("--model", "m")])
def test_a_key_that_is_missing(tmp_path: Path, named: tuple[str, ...]) -> None:
    with scripted(good) as server:
        server.answer = only("401 Unauthorized")
        said = bench(tmp_path, "--base-url", server.url, "--requests", "1", *named)
    assert said.returncode == 8
    assert "an API key is missing, or is not the right one" in said.stderr
    assert "VLLM_API_KEY" in said.stderr
    assert "--model" not in said.stderr


def test_the_path_that_was_asked_is_told(tmp_path: Path) -> None:
    with scripted(good) as server:
        server.answer = only("404 Not Found")
        said = bench(tmp_path, "--base-url", server.url + "/there", "--requests", "1")
    assert "GET /there/v1/models answers 404: is this the server's base URL?" in " ".join(said.stderr.split())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models/"])
def test_the_address_of_a_request_is_no_base_url(tmp_path: Path, path: str) -> None:
    said = bench(tmp_path, "--base-url", "http://box:1/api" + path)
    assert said.returncode == 2
    assert "the base URL is http://box:1/api\n" in said.stderr


def busy(server: Scripted, status: str, times: int, body: bytes = b'{"error":{"message":"overloaded"}}') -> list[str]:
    """Answer the first `times` requests for a completion with that status; return the paths of all requests."""
    asked: list[str] = []

    def answer(exchange: Exchange) -> None:
        asked.append(exchange.path)
        if sum(path.endswith("completions") for path in asked) <= times and exchange.path.endswith("completions"):
            exchange.plain(status, body)
        else:
            server.single(exchange)

    server.answer = answer
    return asked


SHORT = ("--requests", "2", "--input-tokens", "16", "--output-tokens", "3")


@pytest.mark.parametrize(("status", "times"), [("502 Bad Gateway", 1), ("429 Too Many Requests", 2)])
def test_one_refusal_for_want_of_room_is_no_end(tmp_path: Path, status: str, times: int) -> None:
    with scripted(good) as server:
        busy(server, status, times)
        done = bench(tmp_path, "--base-url", server.url, *SHORT)
    assert done.returncode == 0, done.stderr
    assert ("the server answers 429, asking again" in done.stderr) == (times > 1)  # what takes a second is not told of


async def test_a_server_without_room_is_asked_a_few_times_and_a_stop_ends_it(tmp_path: Path) -> None:
    plan = Plan(concurrency=(1,), requests=2, input_tokens=16, output_tokens=3, vantage=Vantage.TUNNEL)
    with scripted(good) as server:
        asked = busy(server, "503 Service Unavailable", 99)
        benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=LocalHost(), open_local=LocalHost, state=tmp_path)
        with pytest.raises(BenchmarkRefused, match="overloaded") as caught:
            await collect(benchmarks, plan)
        assert caught.value.kind == "http_503"
        assert sum(path.endswith("completions") for path in asked) == 1 + len(AGAIN_S)
        works = set()
        began = time.monotonic()
        async for item in benchmarks.run(plan):
            if isinstance(item, BenchProgress) and item.work:
                works.add(item.work)
                await benchmarks.stop()
        assert time.monotonic() - began < sum(AGAIN_S)
    assert works == {"the server answers 503, asking again"}
    assert isinstance(item, Result)
    assert item.stopped == "stopped by the user"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        ("500 Internal Server Error", b'{"error":{"message":"EngineCore died"}}', "the server failed (http_500): EngineCore died"),
        ("501 Not Implemented", b"<html><h1>No\nsuch</h1>\x1b[31m</html>", "the server failed (http_501): No such"),
        ("400 Bad Request", b"", "the server rejects such a request (http_400): no reason given"),
        ("400 Bad Request", b"[1]", "the server rejects such a request (http_400): [1]"),
    ],
)
def test_what_failed_is_told_in_the_servers_words(tmp_path: Path, status: str, body: bytes, words: str) -> None:
    with scripted(good) as server:
        busy(server, status, 99, body)
        done = bench(tmp_path, "--base-url", server.url, *SHORT)
    assert done.returncode == 1
    assert words in done.stderr
    assert "\x1b" not in done.stderr

"""Single requests beside a load: how long they wait, that each gets its own answer, and what gauges say."""

import time

import pytest
from loads import good
from scripted_server import Exchange, scripted, until

from tui.probe.load_http import target_of
from tui.probe.load_net import resolve
from tui.probe.load_server import ApiCaller, metrics_lines, note_peaks


def caller(url: str) -> ApiCaller:
    target = target_of(url)
    return ApiCaller(target, resolve(target), None, {}, "0")


@pytest.mark.parametrize("kept", [False, True], ids=["a new connection", "a kept connection"])
def test_one_question_waits_once_and_the_next_gets_its_own_answer(kept: bool) -> None:
    asked: list[str] = []

    def late(exchange: Exchange) -> None:
        asked.append(exchange.path)
        if exchange.path == "/late":
            exchange.wait_closed(20.0)
        exchange.plain("200 OK", exchange.path.encode())

    with scripted(good) as server, caller(server.url) as client:
        server.answer = late
        if kept:
            client.ask("GET", "/first")
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            client.ask("GET", "/late", within_s=0.3)
        assert 0.3 <= time.monotonic() - began < 5.0
        assert client.ask("GET", "/next") == (200, b"/next")
    assert asked.count("/late") == 1


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again() -> None:
    with scripted(good) as server, caller(server.url) as client:
        server.idle_limit = 0.05
        for _ in range(3):
            assert client.ask("GET", "/v1/models", within_s=20.0)[0] == 200
            until(lambda: server.open == 0)


def test_metrics_that_do_not_come_are_none() -> None:
    with scripted(good) as server, caller(server.url) as client:
        server.answer = lambda exchange: exchange.wait_closed(20.0)
        assert metrics_lines(client, 0.3) == (False, [])
        server.answer = server.single
        server.metrics = b"vllm:num_requests_running 1.0\n"
        assert metrics_lines(client, 20.0) == (True, ["vllm:num_requests_running 1.0"])


def engines(family: str, *values: object) -> list[str]:
    return [f'{family}{{engine="{i}",model_name="m: {{}} 7"}} {value}' for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("lines", "peaks"),
    [
        ([], {}),
        (engines("vllm:kv_cache_usage_perc", 0.6), {"kv_cache": 0.6}),
        # four engines have a cache each: none is fuller than 0.7
        (engines("vllm:kv_cache_usage_perc", 0.6, 0.7, 0.6, 0.6), {"kv_cache": 0.7}),
        (engines("vllm:gpu_cache_usage_perc", 0.25, 0.5), {"kv_cache": 0.5}),  # V0's
        (engines("sglang:token_usage", 0.25, 0.5), {"kv_cache": 0.5}),
        (engines("vllm:num_requests_running", 3, 4) + engines("vllm:num_requests_waiting", 1, 0), {"running": 7.0, "waiting": 1.0}),
        (engines("sglang:num_running_reqs", 3, 4) + engines("sglang:num_queue_reqs", 0, 2), {"running": 7.0, "waiting": 2.0}),
        (engines("vllm:kv_cache_usage_perc", "NaN", 0.5), {"kv_cache": 0.5}),
        (engines("vllm:kv_cache_usage_perc", "NaN"), {}),
        (engines("vllm:num_requests_running", "many", "+Inf", 2), {"running": 2.0}),
    ],
)
def test_the_peaks_of_one_look(lines: list[str], peaks: dict[str, float]) -> None:
    found: dict[str, float] = {}
    note_peaks(found, lines)
    assert found == peaks


def test_a_peak_stays() -> None:
    found: dict[str, float] = {}
    for shares in ((0.2, 0.3), (0.6, 0.1), (0.4, 0.4)):
        note_peaks(found, engines("vllm:kv_cache_usage_perc", *shares))
    assert found == {"kv_cache": 0.6}

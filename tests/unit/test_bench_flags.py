"""Flags of `readyroom bench`: none is dropped in silence, and the same limits hold for each way to say a number."""

from typing import Any

import click
import pytest

from tui.cli.bench import bench
from tui.cli.bench_options import plan_of
from tui.core.bench_result import Plan
from tui.settings import Settings


def plan(*words: str) -> Plan:
    given: dict[str, Any] = dict(bench.make_context("bench", ["--base-url", "http://x", *words]).params)
    return plan_of(Settings(), given)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--sweep 8 --concurrency 4", "--sweep and --concurrency exclude each other"),
        ("--sweep 8 --request-rate 4", "--sweep and --request-rate exclude each other"),
        ("--requests 7 --duration 30s", "--requests and --duration exclude each other"),
        ("--soak 10m --sweep 64", "--soak and --sweep exclude each other"),
        ("--soak 10m --request-rate 4", "--soak and --request-rate exclude each other"),
        ("--soak 10m --requests 7", "--soak and --requests exclude each other"),
        ("--soak 10m --duration 30s", "--soak and --duration exclude each other"),
        ("--soak 10m --thorough", "--soak and --thorough exclude each other"),
        ("--soak 10m --concurrency 1,8,64", "--soak takes one number of --concurrency, not 3"),
        ("--request-rate 4 --concurrency 1,8,64", "--request-rate takes one number of --concurrency, not 3"),
        ("--request-rate 4 --thorough", "--request-rate and --thorough exclude each other"),
        ("--request-rate 4 --stagger 5s", "--request-rate and --stagger exclude each other"),
        ("--burstiness 0.5", "--burstiness needs --request-rate"),
        ("--prompts f --input-tokens 16", "--prompts and --input-tokens exclude each other"),
        ("--prompts f --shared-prefix 16", "--prompts and --shared-prefix exclude each other"),
        ("--prompts f --token-ids", "--prompts and --token-ids exclude each other"),
        ("--sweep 65537", "65537 is not in the range 1<=x<=65536"),
        ("--sweep 1000000", "1000000 is not in the range 1<=x<=65536"),
        ("--concurrency 1,65537", "65537: 65,536 streams at most"),
        ("--input-tokens 10000001", "10000001 is not in the range 1<=x<=10000000"),
        ("--output-tokens 10000001", "10000001 is not in the range 1<=x<=10000000"),
        ("--shared-prefix 10000001", "10000001 is not in the range 0<=x<=10000000"),
        ("--request-rate 1e6 --duration 1h", "--request-rate with 3,600,000,000 requests: 1,000,000 at most"),
        ("--request-rate 1 --requests 1000001", "--request-rate with 1,000,001 requests: 1,000,000 at most"),
    ],
)
def test_what_contradicts_is_refused(words: str, why: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        plan(*words.split())
    assert why in caught.value.message


def test_what_goes_together_is_all_in_the_plan() -> None:
    soak = plan("--soak", "10m", "--concurrency", "8", "--output-tokens", "10000000")
    assert (soak.kind, soak.concurrency, soak.duration_s, soak.output_tokens) == ("soak", (8,), 600.0, 10_000_000)
    rate = plan("--request-rate", "4", "--concurrency", "8", "--burstiness", "0.5", "--duration", "30s")
    assert (rate.kind, rate.request_rate, rate.max_concurrency, rate.burstiness, rate.duration_s) == ("rate", 4.0, 8, 0.5, 30.0)
    points = plan("--concurrency", "1,65536", "--thorough", "--requests", "7")
    assert (points.kind, points.concurrency, points.thorough, points.requests) == ("sweep", (1, 65536), True, 7)
    assert plan("--sweep", "65536").concurrency[-1] == 65_536


@pytest.mark.parametrize(
    "words",
    [("--goodput", "ttft:500 tpot:50"), ("--goodput", "ttft:500,tpot:50"), ("--goodput", "ttft:500", "--goodput", "tpot:50")],
)
def test_limits_of_goodput_however_they_are_separated(words: tuple[str, ...]) -> None:
    assert plan(*words).goodput == {"ttft": 500.0, "tpot": 50.0}


def test_a_stall_of_less_than_a_second() -> None:
    assert plan("--stall", "300ms").stall_s == 0.3

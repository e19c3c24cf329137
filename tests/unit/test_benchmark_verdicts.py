"""What the scripts of tests/benchmarks call true and off."""

import importlib
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def figure(true: float, off_ms: float | None, off_percent: float) -> dict[str, Any]:
    return {"true": true, "off_ms": off_ms, "off_percent": off_percent}


GOOD = {
    "concurrency": 16,
    "requests": 32,
    "completed": 32,
    "failed": 0,
    "p50_ttft_ms": figure(50.0, 0.02, 0.04),
    "output_throughput": figure(390.0, None, -0.01),
    "stamp_late_p99_ms": 0.04,
    "busy": 0.9,
    "cpu_us_per_event": 200.0,
}


@pytest.mark.parametrize(
    ("found", "bad"),
    [
        ({}, []),
        ({"p50_ttft_ms": figure(50.0, 1.5, 3.0)}, ["p50_ttft_ms"]),
        ({"p50_ttft_ms": figure(5.0, -0.5, -10.0)}, []),
        ({"p50_ttft_ms": figure(500.0, 1.5, 0.3)}, []),
        ({"output_throughput": figure(390.0, None, -3.0)}, ["output_throughput"]),
        ({"failed": 1, "completed": 31}, ["1 failed"]),
        ({"completed": 20}, ["12 lost"]),
        ({"stamp_late_p99_ms": 0.15}, ["stamps late"]),
        ({"stamp_late_p99_ms": 0.15, "concurrency": 1}, []),
    ],
)
@pytest.mark.usefixtures("scripts")
def test_how_true_the_load_generator_is(found: dict[str, Any], bad: list[str]) -> None:
    assert importlib.import_module("fidelity").verdict({**GOOD, **found}) == bad


TRUE = {"p50_ttft_ms": 50.0, "p99_itl_ms": 40.0, "p50_tpot_ms": 40.0, "output_throughput": 390.0}
MEASURED = {"median_ttft_ms": 50.0, "p99_itl_ms": 40.0, "median_tpot_ms": 40.0, "output_throughput": 390.0, "failed": 0}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "true"),
        ({"p99_itl_ms": None}, "true"),
        ({"median_ttft_ms": 80.0, "output_throughput": 300.0}, "off: TTFT, throughput"),
        ({"failed": 16}, "off: 16 failed"),
        ({"failed": 16, "median_tpot_ms": 20.0}, "off: 16 failed, TPOT"),
        ({"output_throughput": None}, "off: throughput"),
    ],
)
@pytest.mark.usefixtures("scripts")
def test_how_true_a_client_is(found: dict[str, Any], words: str) -> None:
    assert importlib.import_module("against_others").distortion({**MEASURED, **found}, TRUE) == words

"""What a server's gauges say beside a load, of one engine and of several."""

import pytest

from tui.probe.load_server import note_peaks


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

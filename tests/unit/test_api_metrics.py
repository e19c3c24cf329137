"""/metrics pages of several eras read into figures."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tui.core.api_status import ServerMetrics
from tui.host.prometheus import MOST_SAMPLES, MetricsReader, samples_of

DATA = Path(__file__).parent.parent / "data" / "http"

V0 = """\
# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 1.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
# TYPE vllm:gpu_prefix_cache_hit_rate gauge
vllm:gpu_prefix_cache_hit_rate{model_name="m"} -1.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{model_name="m"} 100.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="m"} 50.0
"""

TWO_ENGINES = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} %d.0
vllm:generation_tokens_total{engine="1",model_name="m"} %d.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} %d.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.2",model_name="m"} %d.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} %d.0
"""


def page(name: str) -> bytes:
    return (DATA / name).read_text().split("\n\n", 1)[1].encode()


def test_a_real_page() -> None:
    metrics = MetricsReader().read(page("get-metrics-loaded.response"), 0.0)
    assert metrics is not None
    assert (metrics.running, metrics.waiting) == (4, 0)
    assert (metrics.prompt_tokens, metrics.generation_tokens) == (7335, 7088)
    assert metrics.kv_cache_share == pytest.approx(0.009775, rel=1e-3)
    assert metrics.requests_finished == 36
    assert metrics.preemptions == 0
    assert metrics.prefix_hit_share == pytest.approx(5888 / 7335)
    assert metrics.generation_tokens_s is None
    assert metrics.ttft_p50_ms is not None


def test_names_of_v0() -> None:
    assert MetricsReader().read(V0.encode(), 0.0) == ServerMetrics(
        running=3, waiting=1, kv_cache_share=0.25, prompt_tokens=100, generation_tokens=50
    )


def test_sums_over_engines_and_rates_between_pages() -> None:
    reader = MetricsReader()
    first = reader.read((TWO_ENGINES % (100, 200, 1, 2, 2)).encode(), 10.0)
    assert first is not None
    assert (first.running, first.kv_cache_share, first.generation_tokens) == (7, 0.75, 300)
    second = reader.read((TWO_ENGINES % (150, 350, 1, 12, 12)).encode(), 12.0)
    assert second is not None
    assert second.generation_tokens_s == 100
    assert second.ttft_p50_ms == pytest.approx(150)
    assert second.ttft_p50_between_ms == pytest.approx((100, 200))
    idle = reader.read((TWO_ENGINES % (150, 350, 1, 12, 12)).encode(), 13.0)
    assert idle is not None
    assert idle.generation_tokens_s == 0
    assert idle.ttft_p50_ms == pytest.approx(150)
    restarted = reader.read((TWO_ENGINES % (5, 5, 0, 0, 0)).encode(), 14.0)
    assert restarted is not None
    assert restarted.generation_tokens_s is None


@pytest.mark.parametrize("text", ["", "<html>no</html>", "vllm:num_requests_running{", "\x00" * 100, "a b c\n" * 10])
def test_no_metrics(text: str) -> None:
    assert MetricsReader().read(text.encode(), 0.0) is None


ODD = """\
vllm:num_requests_running{model_name="a \\"quoted\\", le=\\"7\\" } 5",engine="0"} 3 1700000000000
vllm:num_requests_running 1e0
vllm:num_requests_running_other 100
vllm:generation_tokens_total{engine="0"} +Inf
vllm:kv_cache_usage_perc{engine="0"}\tNaN
vllm:time_to_first_token_seconds_bucket{model_name="le=",le="+Inf"} 4
vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.5"} 2.0
vllm:time_to_first_token_seconds_count 4
"""


def test_samples_are_those_that_the_library_reads() -> None:
    for text in (ODD, V0, TWO_ENGINES % (1, 2, 3, 4, 5), page("get-metrics-loaded.response").decode()):
        expected: dict[str, list[tuple[str, float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                expected.setdefault(sample.name, []).append((sample.labels.get("le", ""), float(sample.value)))
        found = samples_of(text.encode())
        assert found
        assert repr(found) == repr({name: expected[name] for name in found})  # as text: NaN is not itself
    assert [len(values) for values in samples_of(ODD.encode()).values()] == [2, 1, 1, 2]


def test_more_samples_than_any_server_has_are_none() -> None:
    line = b"vllm:num_requests_running 1\n"
    assert MetricsReader().read(line * MOST_SAMPLES, 0.0) is not None
    assert MetricsReader().read(line * (MOST_SAMPLES + 1), 0.0) is None


@pytest.mark.parametrize("written", ["+Inf", "-Inf", "NaN", "-5", "1e308", "9" * 400])
def test_a_value_that_can_be_none_is_not_known(written: str) -> None:
    text = f"vllm:num_requests_running {written}\nvllm:kv_cache_usage_perc {written}\nvllm:num_requests_waiting 2\n"
    metrics = MetricsReader().read(text.encode(), 0.0)
    assert metrics is not None
    assert (metrics.running, metrics.kv_cache_share, metrics.waiting) == (None, None, 2.0)

"""/metrics pages of several eras read into figures."""

from pathlib import Path

import pytest

from tui.core.api import ServerMetrics
from tui.host.metrics import MetricsReader

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


def page(name: str) -> str:
    return (DATA / name).read_text().split("\n\n", 1)[1]


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
    assert MetricsReader().read(V0, 0.0) == ServerMetrics(
        running=3, waiting=1, kv_cache_share=0.25, prompt_tokens=100, generation_tokens=50
    )


def test_sums_over_engines_and_rates_between_pages() -> None:
    reader = MetricsReader()
    first = reader.read(TWO_ENGINES % (100, 200, 1, 2, 2), 10.0)
    assert first is not None
    assert (first.running, first.kv_cache_share, first.generation_tokens) == (7, 0.75, 300)
    second = reader.read(TWO_ENGINES % (150, 350, 1, 12, 12), 12.0)
    assert second is not None
    assert second.generation_tokens_s == 100
    assert second.ttft_p50_ms == pytest.approx(150)
    idle = reader.read(TWO_ENGINES % (150, 350, 1, 12, 12), 13.0)
    assert idle is not None
    assert idle.generation_tokens_s == 0
    assert idle.ttft_p50_ms == pytest.approx(150)
    restarted = reader.read(TWO_ENGINES % (5, 5, 0, 0, 0), 14.0)
    assert restarted is not None
    assert restarted.generation_tokens_s is None


@pytest.mark.parametrize("text", ["", "<html>no</html>", "vllm:num_requests_running{", "\x00" * 100, "a b c\n" * 10])
def test_no_metrics(text: str) -> None:
    assert MetricsReader().read(text, 0.0) is None

"""Plans, the server's counters and the documents of a benchmark."""

import json

import pytest

from tui.core.bench_conclusions import soak_words
from tui.core.bench_documents import document, heading, notes_of, saved_name, what_was_sent
from tui.core.bench_plan import Step, estimate, powers, schedule, single_stream, slices, steps_of, sweep
from tui.core.bench_prompts import parse_prompts
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.core.bench_server import foreign_running, sequences_of, series, server_figures, serving
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_findings import engine_gpus
from tui.services.bench_generator import Measurement
from tui.services.bench_point import point_of
from tui.wire.request_record import RequestRecord
from tui.wire.summary import summary


@pytest.mark.parametrize(("top", "expected"), [(1, (1,)), (2, (1, 2)), (100, (1, 2, 4, 8, 16, 32, 64, 100)), (8, (1, 2, 4, 8))])
def test_powers(top: int, expected: tuple[int, ...]) -> None:
    assert powers(top) == expected


def test_a_sweep_measures_the_first_point_again() -> None:
    steps = steps_of(sweep(4))
    assert [(step.concurrency, step.label) for step in steps] == [(1, ""), (2, ""), (4, ""), (1, "again")]
    assert steps[2].order["at_least"] == 16
    assert steps[2].order["at_least_s"] == 20.0


def test_single_stream_is_a_few_requests() -> None:
    (step,) = steps_of(single_stream())
    assert step.order["requests"] == 5
    assert step.order["concurrency"] == 1


def test_thorough_repeats_for_a_minute() -> None:
    steps = steps_of(Plan(concurrency=(8,), thorough=True))
    assert [step.label for step in steps] == ["", "repeat 2"]
    assert steps[0].order["at_least_s"] == 60.0


def test_a_soak_begins_with_the_longest_prompts_and_is_sliced() -> None:
    steps = steps_of(Plan(kind="soak", concurrency=(16,), duration_s=600.0))
    assert steps[0].label == "longest prompt"
    assert steps[0].order["requests"] == 4
    assert [step.order["duration_s"] for step in steps[1:]] == [120.0] * 5
    assert sum(slices(90.0)) == pytest.approx(90.0)


def test_a_soak_with_prompts_of_a_file_has_no_longest_ones() -> None:
    plan = Plan(kind="soak", concurrency=(16,), duration_s=240.0, prompts_file="f.jsonl")
    assert [step.label for step in steps_of(plan)] == ["", ""]
    assert any("no prompt near the server's longest length was tried" in note for note in notes_of(plan))


@pytest.mark.parametrize(
    "plan", [Plan(concurrency=()), Plan(concurrency=(0,)), Plan(request_rate=-1.0), Plan(request_rate=1.0, burstiness=0)]
)
def test_plans_without_sense(plan: Plan) -> None:
    with pytest.raises(ValueError, match="must be"):
        steps_of(plan)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 100.0])
def test_a_schedule_takes_count_over_rate(burstiness: float) -> None:
    due = schedule(4.0, burstiness, 200, seed=1)
    assert due == sorted(due)
    assert due[-1] == pytest.approx(50.0)
    gaps = [b - a for a, b in zip([0.0, *due], due, strict=False)]
    mean = sum(gaps) / len(gaps)
    variation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean
    assert variation == pytest.approx(burstiness**-0.5, rel=0.25)  # of a gamma distribution with that shape


def point(concurrency: int, throughput: float, tpot: float, **more: object) -> Point:
    figures = {
        **heading(Plan(), "org/model-7b", concurrency, 1.8e9),
        "output_throughput": throughput,
        "median_tpot_ms": tpot,
        **more,
    }
    return Point(concurrency, figures)


BEFORE = """vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 10.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 3.0
vllm:request_queue_time_seconds_sum{engine="0"} 1.0
vllm:request_queue_time_seconds_count{engine="0"} 10.0
vllm:num_preemptions_total{engine="0"} 4.0
vllm:prefix_cache_hits_total{engine="0"} 100.0
vllm:prefix_cache_queries_total{engine="0"} 1000.0
vllm:spec_decode_num_drafts_total{engine="0"} 10.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 9.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 5.0""".splitlines()

AFTER = """vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 45.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 5.0
vllm:request_queue_time_seconds_sum{engine="0"} 2.0
vllm:request_queue_time_seconds_count{engine="0"} 30.0
vllm:num_preemptions_total{engine="0"} 6.0
vllm:prefix_cache_hits_total{engine="0"} 150.0
vllm:prefix_cache_queries_total{engine="0"} 1200.0
vllm:spec_decode_num_drafts_total{engine="0"} 110.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 330.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 170.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 89.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 55.0""".splitlines()


def test_the_servers_side() -> None:
    figures = server_figures(BEFORE, AFTER, {"kv_cache": 0.5}, ours_completed=32, ours_other=0)
    assert figures["foreign_requests"] == 3
    assert figures["server_running_before"] == 2.0
    assert figures["server_waiting_before"] == 1.0
    assert figures["server_mean_queue_ms"] == pytest.approx(50.0)
    assert figures["server_mean_prefill_ms"] is None
    assert figures["server_preemptions"] == 2.0
    assert figures["server_prefix_cache_hit_rate"] == pytest.approx(0.25)
    assert figures["server_peak_kv_cache"] == 0.5
    assert figures["spec_decode_acceptance_rate"] == pytest.approx(50.0)
    assert figures["spec_decode_acceptance_length"] == pytest.approx(2.5)
    assert figures["spec_decode_per_position_acceptance_rates"] == [0.8, 0.5]


@pytest.mark.parametrize(
    ("figures", "sequences", "others"),
    [
        ({"server_peak_running": 3.0, "peak_concurrency": 2, "server_running_before": 1.0}, 1, 1),
        ({"server_peak_running": 2.0, "peak_concurrency": 2, "server_running_before": 1.0}, 1, 0),  # ours, cut before
        ({"server_peak_running": 1.0, "peak_concurrency": 2, "server_running_before": 0.0}, 1, 0),
        ({"server_peak_running": 8.0, "peak_concurrency": 2, "server_running_before": 0.0}, 4, 0),
        ({"server_peak_running": None, "peak_concurrency": 2, "server_running_before": 1.0, "server_waiting_before": 2.0}, 1, 3),
        ({"server_peak_running": None, "peak_concurrency": 2, "server_running_before": None}, 1, None),
    ],
)
def test_requests_of_others_that_did_not_end(figures: dict[str, float], sequences: int, others: int | None) -> None:
    assert foreign_running(figures, sequences) == others


@pytest.mark.parametrize(
    ("body", "sequences"), [({}, 1), ({"n": 4}, 4), ({"n": 2, "best_of": 3}, 3), ({"n": None, "best_of": "x"}, 1), ({"n": 0}, 1)]
)
def test_sequences_of_a_request(body: dict[str, object], sequences: int) -> None:
    assert sequences_of(body) == sequences


@pytest.mark.parametrize(
    ("lines", "requests"),
    [
        (BEFORE, 3),
        (AFTER, 0),
        (['sglang:num_running_reqs{model_name="m"} 2.0', 'sglang:num_queue_reqs{model_name="m"} 5.0'], 7),
        (['vllm:num_requests_running{engine="0"} 1.0', 'vllm:num_requests_running{engine="1"} 2.0'], 3),
        (['vllm:num_requests_running{engine="0"} NaN', 'vllm:num_requests_waiting{engine="0"} 2.0'], 2),
        (["vllm:num_requests_running +Inf", "vllm:num_requests_waiting -1"], None),
        (["vllm:num_preemptions_total 4.0"], None),
        ([], None),
    ],
)
def test_what_a_server_is_serving(lines: list[str], requests: int | None) -> None:
    assert serving(series(lines)) == requests


def test_sglang_says_what_it_served_before() -> None:
    lines = ['sglang:num_running_reqs{model_name="m"} 2.0', 'sglang:num_queue_reqs{model_name="m"} 5.0']
    figures = server_figures(lines, lines, {}, 1, 0)
    assert (figures["server_running_before"], figures["server_waiting_before"]) == (2.0, 5.0)
    assert foreign_running(figures, 1) == 7


def test_without_metrics_nothing_is_claimed() -> None:
    figures = server_figures([], [], {}, 5, 0)
    assert set(figures.values()) == {None}


def test_a_restarted_server_is_unknown() -> None:
    assert server_figures(AFTER, BEFORE, {}, 1, 0)["server_preemptions"] is None


def result(*points: Point, kind: str = "sweep") -> Result:
    plan = Plan(kind=kind, headers={"X-Secret": "hush"})
    return Result("/v1/chat/completions", "org/model-7b", Vantage.HOST, plan, points, started_at=1.8e9)


def test_the_document_has_vllms_keys_and_no_secrets() -> None:
    made = document(result(point(8, 10.0, 1.0)), ("file.json",))
    assert made["definitions"] == "vllm-0.33"
    assert made["vantage"] == "host"
    assert made["points"][0]["max_concurrency"] == 8
    assert made["points"][0]["backend"] == "openai-chat"
    assert made["points"][0]["request_rate"] == "inf"
    assert "hush" not in json.dumps(made)


def test_files_are_named_as_vllm_names_them() -> None:
    name = saved_name(point(8, 1.0, 1.0))
    assert name.startswith("openai-chat-infqps-concurrency8-model-7b-20")
    assert name.endswith(".json")


def test_an_estimate() -> None:
    guess = estimate(single_stream(), tokens_s_per_stream=100.0)
    assert guess.requests == 6
    assert 25 < guess.seconds < 30


PROMPTS = [
    (
        '{"prompt": "a"}\n\n{"text": "b", "output_tokens": 9}\n"c"\n',
        [{"prompt": "a"}, {"prompt": "b", "output_tokens": 9}, {"prompt": "c"}],
    ),
    ('[{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}]}]', [{"prompt": "q"}]),
    ('{"messages": [{"role": "user", "content": "x"}]}', [{"messages": [{"role": "user", "content": "x"}]}]),
    (
        # as the public ShareGPT files are: conversations without a turn, without a human one, with an empty one
        '[{"id": "a", "conversations": []}, {"id": "b", "conversations": [{"from": "gpt", "value": "x"}]},'
        ' {"id": "c", "conversations": [{"from": "human", "value": ""}, {"from": "gpt", "value": "x"}]},'
        ' {"id": "d", "conversations": [{"from": "gpt", "value": "x"}, {"from": "human", "value": "q"}]}]',
        [{"prompt": "q"}],
    ),
    # what a string of JSON may hold as it is, though Unicode counts it as the end of a line
    ('{"prompt": "a\u2028b\u2029c\x85d"}\r\n"\u2028"\r\n', [{"prompt": "a\u2028b\u2029c\x85d"}, {"prompt": "\u2028"}]),
    ('{"prompt": ""}\n{"text": null}\n{"messages": []}\n""\n{"prompt": "a"}', [{"prompt": "a"}]),
]


@pytest.mark.parametrize(("text", "expected"), PROMPTS)
def test_prompt_files(text: str, expected: list[dict[str, object]]) -> None:
    assert parse_prompts(text, "chat").prompts == expected


@pytest.mark.parametrize(
    ("text", "out", "title"),
    [
        ('{"prompt": "a"}', "", "prompts of a file, 40 out"),
        ('{"prompt": "a", "output_tokens": 9}\n{"prompt": "b", "output_tokens": 9}', "9", "prompts of a file, 9 out"),
        (
            '{"prompt": "a", "output_tokens": 9}\n{"prompt": "b", "max_tokens": 2000}',
            "9 to 2,000",
            "prompts of a file, 9 to 2,000 out",
        ),
        ('{"prompt": "a", "output_tokens": 9}\n{"prompt": "b"}', "9 to 40", "prompts of a file, 9 to 40 out"),
    ],
)
def test_the_lengths_that_a_file_asks_for_are_told(text: str, out: str, title: str) -> None:
    assert parse_prompts(text, "chat").out(40) == out
    assert what_was_sent(Plan(prompts_file="f", output_tokens=40, prompts_out=out))[0] == title


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ('{"prompt": "a"}', ()),
        ('{"prompt": "a"}\n{"prompt": ""}', ("1 of the 2 entries of the file had no prompt: left out",)),
        (
            '[{"conversations": []}, {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a b c"}]}]',
            (
                "1 of the 2 entries of the file had no prompt: left out",
                "replies to the file's conversations have the asked length: vLLM's client takes that of the answers in the file",
            ),
        ),
        ('{"conversations": [{"from": "human", "value": "q"}], "output_tokens": 9}', ()),
    ],
)
def test_what_is_said_of_a_file_of_prompts(text: str, notes: tuple[str, ...]) -> None:
    assert parse_prompts(text, "chat").notes == notes
    told = notes_of(Plan(prompts_file="f", prompts_notes=notes))
    assert all(note in told for note in notes)


@pytest.mark.parametrize(
    ("text", "endpoint", "words"),
    [
        ("", "chat", "holds no prompts"),
        ('[{"conversations": []}, {"conversations": []}]', "chat", "holds no prompts: 2 entries without one"),
        ('[{"prompt": "a"}, {"conversations": [7]}]', "chat", "entry 2 has no prompt"),
        ('{"prompt": "a"}\n{"prompt": 7}', "chat", "line 2 has no prompt"),
        ('{"prompt": "a"}\n{oops', "chat", "line 2 is not JSON"),
        ('{"prompt": "a\u2028b"}\r\n\r\n{oops', "chat", "line 3 is not JSON"),
        ('{"prompt": "a"}\n{"other": 1}', "chat", "line 2 has no prompt"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "completions", "line 1 has messages"),
        ("[1", "chat", "neither"),
        ("[" * 20000 + "]" * 20000, "chat", "line 1 begins an array: it is nested more than 64 levels deep"),
        ('{"prompt": "a"}\n{"x": ' + "[" * 20000 + "]" * 20000 + "}", "chat", "line 2: it is nested more than 64"),
        ('\n{"prompt": "a", "x": ' + "[" * 70 + "]" * 70 + "}", "chat", "line 2: it is nested more than 64"),
        ('[{"prompt": "a", "x": ' + "[" * 70 + "]" * 70 + "}]", "chat", "entry 1: it is nested more than 64"),
        ('{"prompt": "a"}\n{"prompt": "b", "output_tokens": -5}', "chat", "line 2: output_tokens must be .* not -5"),
        ('{"prompt": "b", "output_tokens": 0}', "chat", "line 1: output_tokens must be .* not 0"),
        ('{"prompt": "b", "max_tokens": 1e99}', "chat", r"line 1: max_tokens must be .* not 1e\+99"),
        ('{"prompt": "b", "output_len": "many"}', "chat", 'line 1: output_len must be .* not "many"'),
        ('{"prompt": "b", "output_len": true}', "chat", "line 1: output_len must be .* not true"),
        ('{"prompt": "a"}\n{"prompt": "b", "output_tokens": NaN}', "chat", "line 2: NaN and infinity are not JSON"),
        ('{"prompt": "a"}\n{"messages": [{"role": "user", "content": 1e999}]}', "chat", "line 2: NaN and infinity"),
        ('[{"prompt": "a"}, {"prompt": "b", "t": -Infinity}]', "chat", "entry 2: NaN and infinity"),
    ],
)
def test_bad_prompt_files(text: str, endpoint: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_prompts(text, endpoint)


def test_gpus_of_the_engine() -> None:
    gpus = tuple(Gpu(index=i, uuid=f"GPU-{i}", memory_used_mib=90000.0 if i < 2 else 4.0) for i in range(4))
    sample = GpuSample(gpus=gpus)
    assert [gpu.index for gpu in engine_gpus(sample)] == [0, 1]
    assert [gpu.index for gpu in engine_gpus(sample, "1-2")] == [1, 2]
    assert [gpu.index for gpu in engine_gpus(sample, "0,GPU-3")] == [0, 3]


def test_a_soak_says_what_it_saw() -> None:
    slices_of = [
        point(16, 1000.0, 1.0, completed=4, failed=0, duration=5.0, repeat="longest prompt", total_input_tokens=16000),
        point(16, 1000.0, 1.0, completed=100, failed=0, duration=120.0, server_peak_kv_cache=0.4),
        point(16, 900.0, 1.0, completed=90, failed=2, duration=120.0, server_peak_kv_cache=0.9),
    ]
    words = soak_words(result(*slices_of, kind="soak"))
    assert words.startswith("observed for 4 min: 194 requests completed, 2 failed")
    assert "4 prompts of about 4,000 tokens" in words
    assert "KV cache up to 90 %" in words
    assert "throughput between 900 and 1,000 tok/s" in words


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"completed": 4, "total_input_tokens": 16000}, "4 prompts of about 4,000 tokens among them"),
        (
            {"completed": 4, "total_input_tokens": 16000, "max_num_batched_tokens": 2048},
            "4 prompts of about 4,000 tokens among them (more than one batch of prefill, 2,048 tokens)",
        ),
        (
            {"completed": 1, "total_input_tokens": 4000, "max_num_batched_tokens": 8192},
            "1 prompt of about 4,000 tokens among them (within one batch of prefill, 8,192 tokens)",
        ),
        (
            {"completed": 4, "total_input_tokens": None, "max_num_batched_tokens": 8192},
            "4 prompts near the longest length among them (how long, the server doesn't tell)",
        ),
        ({"completed": 0, "total_input_tokens": 0}, "no prompt near the longest length was answered"),
    ],
)
def test_a_soak_says_how_long_its_longest_prompts_were(seen: dict[str, object], words: str) -> None:
    longest = point(4, 1000.0, 1.0, **{"failed": 0, "duration": 5.0, "repeat": "longest prompt", **seen})
    assert words in soak_words(result(longest, kind="soak"))


def test_tokens_a_joule_are_those_of_the_time_in_which_the_joules_were_drawn() -> None:
    """One stream: 10 tokens/s for 5 s, then a pause of 5 s, at 20 W throughout; cut by the end of its duration."""
    record = RequestRecord(0, 100)
    record.start = 1000.0
    record.chunks.extend(1000.0 + k / 10 for k in range(1, 51))
    record.end = 1010.0
    figures = summary([record], 1000.0, 1010.0, concurrency=1, dispatch_end=1010.0)
    assert figures["output_throughput"] == 0.0  # of completed requests: there is none
    measured = Measurement(figures, {}, (), (), {}, "", 1000.0, None)
    gpu = {"count": 2, "memory_used_mib": [1.0, 1.0], "mean_power_w": 20.0}
    found = point_of(Plan(), "m", Step(1, None, {}), measured, gpu).figures["gpu"]
    assert found["tokens_per_joule"] == pytest.approx(50 / (20.0 * 10.0))
    unknown = point_of(Plan(), "m", Step(1, None, {}), measured, {**gpu, "mean_power_w": None}).figures["gpu"]
    assert unknown["tokens_per_joule"] is None

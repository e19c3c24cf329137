"""The benchmark pane, the smoke panel and the record's pane by themselves."""

import dataclasses
import json

import pytest
from pane_host import HOSTILE, PaneHost, text, until

from tui.core.bench_documents import notes_of
from tui.core.bench_result import REFUSED, BenchProgress, Plan, Point, Result, Vantage
from tui.core.smoke_prompts import Outcome, SmokeResult, SmokeRun
from tui.core.text import clean
from tui.messages import CompareRequested, ReportRequested, RunOpened
from tui.record.store import Run
from tui.widgets.bench_pane import BenchPane, how, remarks
from tui.widgets.runs_pane import Compared, RunsPane, columns
from tui.widgets.smoke_panel import SmokePanel, SmokeStrip, sum_line
from tui.widgets.sweep import fitting, sweep

AT = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FIGURES: dict[str, tuple[float, ...]] = {
    "output_throughput": (81.4, 158, 301, 561, 1012, 1744, 2741, 3602, 4012),
    "median_ttft_ms": (187, 192, 203, 226, 284, 402, 688, 1312, 2871),
    "p99_ttft_ms": (204, 231, 262, 318, 467, 792, 1540, 3208, 7906),
    "median_tpot_ms": (12.1, 12.4, 12.9, 13.8, 15.2, 17.6, 22.4, 33.9, 60.1),
    "p99_tpot_ms": (12.3, 12.7, 13.4, 14.6, 16.5, 19.8, 27.1, 42.8, 81.7),
    "failed": (0, 0, 0, 0, 0, 0, 0, 0, 3),
}
POINTS = tuple(Point(at, {name: float(values[i]) for name, values in FIGURES.items()}) for i, at in enumerate(AT))
PLAN = Plan(concurrency=AT, output_tokens=256, vantage=Vantage.HOST)
RESULT = Result("http://x", "m", Vantage.HOST, PLAN, POINTS)
BEFORE = dataclasses.replace(
    RESULT, points=tuple(Point(p.concurrency, {"output_throughput": (p.get("output_throughput") or 0) * 0.75}) for p in POINTS)
)
EVIL = clean(HOSTILE)


@pytest.mark.parametrize("theme", ["readyroom-dark", "readyroom-light", "readyroom-16"])
@pytest.mark.parametrize("size", [(80, 18), (70, 31), (134, 46)])
async def test_a_sweep_while_it_runs_and_after(size: tuple[int, int], theme: str) -> None:
    pane = BenchPane()
    async with PaneHost(pane, theme).run_test(size=size) as pilot:
        pane.plan, pane.running, pane.points, pane.previous = PLAN, True, POINTS[:7], BEFORE
        pane.progress = BenchProgress(8, 9, 128, "measuring", 128, 312, 0, 512, 3598.0, 40.0, 70.0)
        await until(pilot, lambda: "312 of 512 requests" in text(pilot.app))
        shown = text(pilot.app)
        for words in ("peak so far", "single stream", "TTFT p99 under 2 s", "+33 % ✓", "128 streams", "1:10 left", "1,744", "◐"):
            assert words in shown
        rows = [line for line in shown.splitlines() if line.startswith("concurrency")]
        assert rows[0].split()[1:] == [str(at) for at in AT]
        pane.running, pane.result, pane.points = False, RESULT, POINTS
        await until(pilot, lambda: "4,012" in text(pilot.app) and "peak so far" not in text(pilot.app))
        values = next(line for line in text(pilot.app).splitlines() if line.startswith("tok/s   ") and "158" in line)
        heads = next(line for line in text(pilot.app).splitlines() if line.startswith("concurrency"))
        assert len(values.rstrip()) == len(heads.rstrip())  # the figures stand under their columns


async def test_more_points_than_columns_scroll() -> None:
    at = tuple(2**i for i in range(13))
    points = tuple(Point(concurrency, POINTS[0].figures) for concurrency in at)
    pane = BenchPane()
    async with PaneHost(pane).run_test(size=(80, 20)) as pilot:
        pane.plan, pane.points = Plan(concurrency=at), points
        pane.focus()
        await until(pilot, lambda: "4096" in text(pilot.app))
        assert "‹4" in text(pilot.app)
        await pilot.press("left", "left", "left", "left", "left")
        await until(pilot, lambda: "4›" in text(pilot.app))
        assert "concurrency" in text(pilot.app)
        await pilot.press("end")
        await until(pilot, lambda: "4096" in text(pilot.app))


async def test_a_single_stream_shows_its_spread() -> None:
    pane = BenchPane()
    figures = {**POINTS[0].figures, "mean_ttft_ms": 190.0, "p90_ttft_ms": 200.5, "completed": 5, "duration": 31.0}
    async with PaneHost(pane).run_test(size=(80, 20)) as pilot:
        pane.plan = Plan(kind="single")
        pane.points = (Point(1, figures),)
        await until(pilot, lambda: "TPOT p50" in text(pilot.app))
        shown = text(pilot.app)
        assert "5 completed, 0 failed  in 0:31" in shown
        assert next(line for line in shown.splitlines() if line.startswith("TTFT ms")).split() == [
            "TTFT",
            "ms",
            "190",
            "187",
            "200",
            "204",
            "—",
        ]


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (20, 5), (30, 12), (60, 12), (300, 80)])
async def test_it_bears_any_size(size: tuple[int, int]) -> None:
    pane = BenchPane()
    async with PaneHost(pane).run_test(size=size) as pilot:
        for running, points in ((True, ()), (True, POINTS[:1]), (True, POINTS), (False, POINTS), (False, POINTS[:1]), (False, ())):
            pane.plan, pane.running, pane.points, pane.problem = PLAN, running, points, EVIL
            pane.told_below = not pane.told_below
            await pilot.pause()
    for width in range(0, 90, 7):
        for height in range(0, 30, 3):
            for points in ((), POINTS[:1], POINTS, (Point(1, {}), Point(2, {"output_throughput": 0.0}))):
                assert len(sweep(points, PLAN, None, True, width, height)) <= max(height, 0)
    assert fitting(0) == 1


async def test_what_is_not_known_is_a_dash_and_what_went_wrong_is_said() -> None:
    odd = Point(
        4,
        {
            "output_throughput": None,
            "failed": 12,
            "error_examples": [{"message": EVIL}],
            "warnings": ["the client was the bottleneck"],
        },
    )
    pane = BenchPane()
    async with PaneHost(pane).run_test(size=(100, 34)) as pilot:
        pane.plan, pane.points = PLAN, (*POINTS[:2], odd)
        pane.result = dataclasses.replace(RESULT, points=pane.points, stopped="link lost")
        await until(pilot, lambda: "incomplete: link lost" in text(pilot.app))
        shown = text(pilot.app)
        assert "[/x]" in shown
        assert "and 1 more" in shown
        assert next(line for line in shown.splitlines() if line.startswith("TTFT p99 ms")).split()[-1] == "—"
        assert next(line for line in shown.splitlines() if line.startswith("failed")).split()[-1] == "12"


def test_warnings_of_one_kind_share_a_line() -> None:
    short = ["too few requests for a p99: 4 completed, 368 needed", "3 requests from others were served meanwhile"]
    told = [
        remark.plain for remark in remarks(None, [Point(at, {"warnings": short[: 1 + (at == 2)]}) for at in (1, 2, 4, 8)], None)
    ]
    assert told == ["▲ 1 to 8 streams: too few requests for a p99", "▲ 2 streams: 3 requests from others were served meanwhile"]


def test_how_it_was_measured() -> None:
    assert how(None, RESULT).plain == "on the host · 512 in, 256 out · unique prompts · vLLM definitions"
    assert how(None, None).plain == ""


@pytest.mark.parametrize(
    ("plan", "sent"),
    [
        (Plan(), "512 in, 512 out · unique prompts"),
        (Plan(endpoint="completions", token_ids=True), "512 in, 512 out · completions · unique prompts"),
        (Plan(prompts_file="prompts.jsonl", output_tokens=2048), "prompts of a file, 2,048 out"),
        (Plan(prompts_file="prompts.jsonl", seed=7), "prompts of a file, 512 out"),
        (Plan(seed=7), "512 in, 512 out · prompts of seed 7"),
        (Plan(seed=0, shared_prefix_tokens=1024), "512 in, 512 out · 1,024 tokens shared · prompts of seed 0"),
        (Plan(shared_prefix_tokens=1024), "512 in, 512 out · 1,024 tokens shared"),
    ],
)
def test_what_was_sent_is_told_as_it_was(plan: Plan, sent: str) -> None:
    assert how(plan, None).plain == f"{sent} · vLLM definitions"
    # the words beside the figures and the report agree
    assert ("unique prompts" in sent) is not any("prefix cache" in note for note in notes_of(plan))


SMOKE = SmokeRun(
    "m",
    4,
    (
        SmokeResult("arithmetic", Outcome.PASSED, "391", "391", 0.9, 120.0, "What is 17 × 23?"),
        SmokeResult("comparison", Outcome.FAILED, "holds 9.11 to be larger", "9.11 is larger than 9.9", 0.6),
        SmokeResult("fact", Outcome.INCONCLUSIVE, "cut by its length after 4,096 tokens", EVIL, None),
    ),
    started_at=1.8e9,
)


async def test_the_smoke_panel() -> None:
    panel = SmokePanel()
    async with PaneHost(panel).run_test(size=(44, 6)) as pilot:
        await until(pilot, lambda: "six prompts" in text(pilot.app))
        panel.run, panel.running = SMOKE, True
        await until(pilot, lambda: "prompt 4 of 4" in text(pilot.app))
        shown = text(pilot.app)
        assert "✓ arithmetic   391" in shown
        assert "✗ comparison" in shown
        assert "0.9 s" in shown
        await pilot.resize_terminal(44, 3)
        await until(pilot, lambda: "1 passed" in text(pilot.app) and "✗ comparison" in text(pilot.app))
    told = sum_line(dataclasses.replace(SMOKE, finished=True), False)
    assert told is not None
    assert told.plain.startswith("1 of 4, ")
    strip = SmokeStrip()
    strip.styles.display = "block"
    async with PaneHost(strip).run_test(size=(60, 3)) as pilot:
        strip.run = SMOKE
        await until(pilot, lambda: "comparison: holds 9.11" in text(pilot.app))


def stored(id: int, kind: str, document: object = None) -> Run:
    return Run(id, kind, EVIL if id == 8 else "kimi", 1.8e9 - id, f"title {id} [/x]", document or {})  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(80, 22), (120, 35), (200, 60)])
async def test_the_record(size: tuple[int, int]) -> None:
    load = {
        "engine": "vllm",
        "total_s": 2178.0,
        "phases": [["loading", 2046.0], ["odd"]],
        "failure": {"kind": "cuda_oom", "cause": HOSTILE},
    }
    smoke = json.loads(json.dumps(dataclasses.asdict(SMOKE)))
    runs = (stored(9, "benchmark"), stored(8, "benchmark"), stored(7, "smoke", smoke), stored(6, "load", load), stored(5, "other"))
    pane = RunsPane()
    app = PaneHost(pane)
    async with app.run_test(size=size, message_hook=app.posted.append) as pilot:
        await until(pilot, lambda: "No runs are recorded yet" in text(app))
        pane.runs = runs
        pane.focus_list()
        await until(pilot, lambda: "title 9 [/x]" in text(app))
        await pilot.press("down", "space", "up", "enter")
        await until(pilot, lambda: [message.run for message in app.seen(RunOpened)] == ["9"])  # type: ignore[attr-defined]
        pane.compare()
        pane.export()
        await until(pilot, lambda: bool(app.seen(ReportRequested)))
        asked = app.seen(CompareRequested)[0]
        assert isinstance(asked, CompareRequested)
        assert (asked.first, asked.second) == ("9", "8")
        for run, result, words in (
            (runs[0], RESULT, "unique prompts"),
            (runs[2], None, "9.11 is larger than 9.9"),
            (runs[3], None, "cuda oom"),
            (runs[4], None, "can't be read"),
        ):
            pane.opened, pane.result = run, result
            await until(pilot, lambda words=words: words in text(app))  # type: ignore[misc]
        pane.compared = Compared(runs[1], runs[0], BEFORE, RESULT)
        await until(pilot, lambda: "+33 % ✓" in text(app))
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(text(app))


TITLES = ("failed: host_oom_or_killed", "single stream: 84.6 tok/s", "ready after 36:18", "6 of 6 passed", "sweep: 4,012 tok/s")


@pytest.mark.parametrize("width", [70, 78])  # of the pane on screens of 120 and 80 columns
@pytest.mark.parametrize(
    "names", [("simulated-gpu-box",), ("kimi-k2-w4", "qwen3-235b"), ("simulated-gpu-box", "a-deployment-with-a-long-name")]
)
async def test_the_list_of_runs_fits(width: int, names: tuple[str, ...]) -> None:
    kinds = ("load", "benchmark", "load", "smoke", "benchmark")
    runs = tuple(Run(12_345 - i, kinds[i], names[i % len(names)], 1.8e9 - i, title, {}) for i, title in enumerate(TITLES))
    wide = columns(runs, width)
    assert sum(wide.values()) + 2 * len(wide) + 1 <= width
    pane = RunsPane()
    app = PaneHost(pane)
    async with app.run_test(size=(width, 24)) as pilot:
        pane.runs = runs
        await until(pilot, lambda: TITLES[0] in text(app))
        shown = text(app)
        heads = shown.splitlines()[0].split()
        assert heads == ["run", "when", *(["deployment"] if len(names) > 1 else []), "kind", "what"]
        for run in runs:
            row = next(line for line in shown.splitlines() if str(run.id) in line)
            assert f" {'bench' if run.kind == 'benchmark' else run.kind} " in row
            assert run.title in row
        if names[0] == "kimi-k2-w4":
            assert all(name in shown for name in names)
        elif len(names) > 1:
            cut = ("sim…pu-box", "a-d…g-name") if width == 70 else ("simulated-gpu-box ", "a-dep…-a-long-name")
            assert all(name in shown for name in cut)
        pane.focus_list()
        await pilot.press("down", "space")
        await until(pilot, lambda: "▸ 12344" in text(app))


async def test_the_result_gives_way_last() -> None:
    runs = (stored(9, "benchmark"), dataclasses.replace(stored(8, "smoke"), deployment="x" * 60))
    assert columns(runs, 200)["deployment"] == 40
    assert columns(runs, 40)["deployment"] == 8
    assert columns((), 20) == {"run": 5, "when": 11, "kind": 4, "what": 8}


@pytest.mark.parametrize("size", [(80, 20), (44, 16)])
async def test_a_run_of_nothing_but_a_refused_point_says_why(size: tuple[int, int]) -> None:
    why = f"{REFUSED}90 streams need 117 open files, and a process may have 48: raise the hard limit (ulimit -Hn)"
    pane = BenchPane()
    async with PaneHost(pane).run_test(size=size) as pilot:
        pane.plan, pane.result = PLAN, dataclasses.replace(RESULT, points=(), stopped=why)
        await until(pilot, lambda: "Nothing was measured." in text(pilot.app))
        assert why in " ".join(text(pilot.app).split())
        assert "—" not in text(pilot.app)


@pytest.mark.parametrize("size", [(80, 18), (134, 46)])
async def test_a_point_that_was_cut_is_marked_and_on_no_curve(size: tuple[int, int]) -> None:
    cut = Point(128, {**POINTS[7].figures, "output_throughput": 1718.0, "p99_ttft_ms": 9999.0, "cut": True})
    pane = BenchPane()
    async with PaneHost(pane).run_test(size=size) as pilot:
        pane.plan, pane.points = PLAN, (*POINTS[:7], cut)
        pane.result = dataclasses.replace(RESULT, points=pane.points, stopped="stopped by the user")
        await until(pilot, lambda: "incomplete: stopped by the user (▲128 was cut short: not plotted)" in text(pilot.app))
        shown = text(pilot.app)
        assert shown.count("1,718") == 1  # in the table, and no end of the curve
        assert shown.count("2,741") >= 2
        assert next(line for line in shown.splitlines() if line.startswith("concurrency")).split()[-1] == "▲128"


async def test_a_rate_without_a_completed_request_is_not_known() -> None:
    """A sweep that was stopped before its first request had ended."""
    cut = Point(1, {"output_throughput": 0.0, "completed": 0, "failed": 0, "cut": True})
    pane = BenchPane()
    async with PaneHost(pane).run_test(size=(80, 20)) as pilot:
        pane.plan, pane.points = PLAN, (cut,)
        pane.result = dataclasses.replace(RESULT, points=(cut,), stopped="stopped by the user")
        await until(pilot, lambda: "incomplete" in text(pilot.app))
        rows = text(pilot.app).splitlines()
        assert rows[0].split() == ["peak", "single", "stream"]
        assert [row.split() for row in rows if row.startswith("tok/s ")][-1] == ["tok/s", "—"]
        pane.running, pane.result, pane.points = True, None, ()
        pane.progress = BenchProgress(0, 9, 1, "measuring", 1, 0, 0, 16, 0.0, 1.0, None, 1.0)
        await until(pilot, lambda: "0 of 16 requests" in text(pilot.app))
        assert "0 tok/s" not in text(pilot.app)

"""News marks on the tabs, tabs under the mouse, and what does not open under the fingers."""

import time

import scenes
from msgspec.structs import replace
from room import room, screen, shows, until

from tui.core.bench_result import STOPPED_BY_USER, Plan, Point, Result, Vantage
from tui.core.smoke_prompts import Outcome, SmokeResult, SmokeRun
from tui.screens.layout import News


def test_what_was_there_before_the_first_look_is_no_news() -> None:
    news = News()
    news.tell("log", 7)
    assert news.count("log") == 0
    news.tell("log", 9)
    assert news.count("log") == 2
    news.see("log")
    assert news.count("log") == 0
    news.tell("log", 3)  # a new start
    assert news.count("log") == 0
    news.add("chat")
    assert news.marks(("log", "chat")) == (0, 1)


async def test_errors_and_faulty_gpus_mark_their_tabs_until_they_are_looked_at() -> None:
    state = scenes.SCENES["ready"](time.monotonic())
    app, session = room(state)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.main.tab == "chat")
        assert state.load is not None
        assert state.gpus is not None
        lost = scenes.gpus(8, used=96733.0, lost=2, mono=time.monotonic())
        session.set(replace(state, load=replace(state.load, errors=state.load.errors + 3), gpus=lost))
        await shows(pilot, "5 Log ▲3", "4 GPUs ▲1")
        await pilot.press("escape", "5")
        await until(pilot, lambda: "▲3" not in screen(pilot))
        await shows(pilot, "4 GPUs ▲1")


async def test_a_tab_opens_under_the_mouse() -> None:
    app, _ = room(scenes.SCENES["loading"](time.monotonic()))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING", "6 Runs")
        column = screen(pilot).splitlines()[1].index("6 Runs")
        await pilot.click(offset=(column + 3, 1))
        await until(pilot, lambda: app.main.tab == "runs")
        await pilot.click(offset=(screen(pilot).splitlines()[1].index("4 GPUs") + 3, 1))
        await until(pilot, lambda: app.main.tab == "gpus")


async def test_the_chat_does_not_open_under_the_fingers() -> None:
    app, session = room(scenes.SCENES["loading"](time.monotonic()))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("f5")
        await shows(pilot, "Not yet: the model is not up yet")
        session.set(scenes.SCENES["ready"](time.monotonic()))
        await shows(pilot, "READY")
        await until(pilot, lambda: "Not yet" not in screen(pilot) and not app._notifications)  # it is no longer so
        assert app.main.tab == "load"
        assert "2 Chat  3 Bench" in screen(pilot)  # nothing new has come there


async def test_results_that_have_not_been_seen_mark_their_tab() -> None:
    app, _ = room(scenes.SCENES["ready"](time.monotonic()))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.main.tab == "chat")
        app.main.streaming = True
        await pilot.press("1")
        app.main.streaming = False
        await shows(pilot, "2 Chat •")
        await pilot.press("2", "escape", "1")
        await until(pilot, lambda: "2 Chat  3 Bench" in screen(pilot))
        app.main.smoking = True
        app.main.smoke = SmokeRun("m", 1, (SmokeResult("fact", Outcome.PASSED, ""),), finished=True)
        app.main.smoking = False
        await shows(pilot, "2 Chat •")
        app.main.begin_benchmark(Plan(kind="sweep", concurrency=(1, 2)))
        await pilot.press("1")
        app.main.end_benchmark()
        await shows(pilot, "3 Bench •")


async def test_a_benchmark_that_measured_nothing_leaves_the_comparison() -> None:
    """One that is stopped while it is being prepared ends with a result without points."""
    app, _ = room(scenes.SCENES["ready"](time.monotonic()))
    plan = Plan(kind="sweep", concurrency=(1, 2))
    measured = Result("http://x", "m", Vantage.HOST, plan, (Point(1, {"output_throughput": 81.4}),))
    compared = []
    async with app.run_test(size=(80, 24)):
        for result in (measured, Result("http://x", "m", Vantage.HOST, plan, (), stopped=STOPPED_BY_USER), None):
            app.main.begin_benchmark(plan)
            compared.append(app.main.previous)
            app.main.result = result
            app.main.end_benchmark()
        app.main.begin_benchmark(plan)
        assert [*compared, app.main.previous] == [None, measured, measured, measured]

"""What the screen has the model do, and keeps: benchmarks over real connections, and a record that another process holds."""

import asyncio
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace as with_fields
from pathlib import Path

import pytest
import scenes
from msgspec.structs import replace
from room import SetSession, room, shows, until
from scripted_server import SSE, Exchange, scripted

from tui import __version__
from tui.actions import BY_ID
from tui.core.api_status import ApiStatus
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.core.deployment import DeploymentState
from tui.core.logs.load_state import LoadState, Phase, ServerStart
from tui.messages import CompareRequested, ReportRequested, RunOpened
from tui.record.store import RunStore
from tui.settings import BenchSettings, Deployment, Settings, UiSettings

pytestmark = pytest.mark.slow

SMALL = Settings(
    ui=UiSettings(theme="dark"), bench=BenchSettings(input_tokens=8, output_tokens=3, single_requests=2, min_seconds=0.1)
)
RESULT = Result("/v1/completions", "kimi", Vantage.HOST, Plan(), (Point(1, {"output_throughput": 81.4}),), started_at=5.0)


def idle() -> DeploymentState:
    """Return a ready server with no requests from others."""
    state = scenes.SCENES["ready"](time.monotonic())
    metrics = state.api.metrics
    assert metrics is not None
    return replace(state, api=replace(state.api, metrics=replace(metrics, running=0.0, waiting=0.0)))


class SlowPoll(SetSession):
    """A server that takes its time to say how busy it is."""

    def __init__(self, state: DeploymentState, deployment: Deployment) -> None:
        super().__init__(state, deployment)
        self.answers = asyncio.Event()

    async def poll(self) -> ApiStatus:
        status = await super().poll()
        await self.answers.wait()
        return status


def endless(exchange: Exchange) -> str:
    exchange.send(SSE)
    exchange.token()
    exchange.wait_closed()
    return "close"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


async def test_two_quick_keys_begin_one_benchmark() -> None:
    with scripted(endless) as server:
        session = SlowPoll(idle(), Deployment(api=server.url, direct=True))
        app, _ = room(session.state, SMALL, session=session)
        async with app.run_test(size=(120, 35)) as pilot:
            await until(pilot, lambda: app.main.unavailable(BY_ID["bench-sweep"]) is None)
            await pilot.press("f6", "f7", "f6")
            await until(pilot, lambda: session.polls == 1)
            session.answers.set()
            await until(pilot, lambda: app.main.benching and server.open > 0)
            await pilot.press("f7")
            await pilot.pause()
            assert session.polls == 1
            assert app.main.benching
            assert app.main.plan is not None
            assert app.main.plan.kind == "single"
            await pilot.press("f8")
            await until(pilot, lambda: not app.main.benching)
            await pilot.press("f7")  # the next one may begin
            await until(pilot, lambda: app.main.benching and app.main.plan is not None and app.main.plan.kind == "sweep")
            await pilot.press("f8")
            await until(pilot, lambda: not app.main.benching)


async def test_a_benchmark_that_is_not_begun_leaves_the_key_free() -> None:
    app, session = room(scenes.SCENES["ready"](time.monotonic()))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.main.unavailable(BY_ID["bench-single"]) is None)
        for times in (1, 2):
            await pilot.press("f6")
            await until(pilot, lambda times=times: session.polls == times and app.screen is not app.main)  # type: ignore[misc]
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is app.main and not app.jobs._benchmark_asked)


@pytest.mark.parametrize(
    ("headers", "sent"), [({}, "Bearer key-of-the-command"), ({"authorization": "Bearer configured"}, "Bearer configured")]
)
async def test_a_benchmark_asks_as_everything_else_does(headers: dict[str, str], sent: str, tmp_path: Path) -> None:
    heard: list[Exchange] = []

    def script(exchange: Exchange) -> None:
        heard.append(exchange)
        exchange.reply()

    with scripted(script) as server:
        session = SetSession(idle(), Deployment(api=server.url, direct=True, headers=headers))
        session.api_key = "key-of-the-command"
        record = RunStore(tmp_path / "record.sqlite")
        app, _ = room(session.state, SMALL, session=session, record=record)
        async with app.run_test(size=(120, 35)) as pilot:
            await until(pilot, lambda: app.main.unavailable(BY_ID["bench-single"]) is None)
            await pilot.press("f6")
            await until(pilot, lambda: app.main.result is not None and not app.main.benching)
    assert app.main.bench_problem is None
    assert {exchange.headers["authorization"] for exchange in heard} == {sent}
    assert {exchange.headers["user-agent"] for exchange in heard} == {f"readyroom/{__version__}"}
    assert [run.kind for run in record.runs()] == ["benchmark"]
    record.close()


async def test_a_server_that_moved_is_asked_where_it_is() -> None:
    with scripted(lambda exchange: exchange.reply()) as first, scripted(lambda exchange: exchange.reply()) as second:
        session = SetSession(idle(), Deployment(api=first.url, direct=True))
        app, _ = room(session.state, SMALL, session=session)
        async with app.run_test(size=(120, 35)) as pilot:
            await until(pilot, lambda: app.main.unavailable(BY_ID["bench-single"]) is None)
            await pilot.press("f6")
            await until(pilot, lambda: app.main.result is not None and not app.main.benching)
            before = first.served
            assert (before > 0, second.served) == (True, 0)
            session.deployment = replace(session.deployment, api=second.url)
            await pilot.press("f6")
            await until(pilot, lambda: second.served > 0 and app.main.result is not None and not app.main.benching)
            assert first.served == before


async def test_a_stopped_benchmark_is_compared_with_the_one_before(tmp_path: Path) -> None:
    """From the tab on which it was stopped, whatever is selected among the runs."""
    record = RunStore(tmp_path / "record.sqlite")
    session = SetSession(idle())
    record.save_benchmark(session.name, RESULT)
    app, _ = room(session.state, SMALL, session=session, record=record)
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await until(pilot, lambda: app.main.unavailable(BY_ID["bench-single"]) is None)
        app.main.action_show("bench")
        app.main.result = RESULT
        app.main.action_compare()
        await shows(pilot, "There is no earlier benchmark to compare with")
        record.save_benchmark(session.name, with_fields(RESULT, stopped="stopped by the user"))
        app.main.action_show("bench")
        app.main.action_compare()
        await until(pilot, lambda: app.main.compared is not None)
        assert app.main.compared is not None
        assert (app.main.compared.before.id, app.main.compared.after.id) == (1, 2)
    record.close()


async def test_a_locked_record_is_said_and_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    RunStore(path).save_benchmark("kimi-k2-w4", RESULT)
    record = RunStore(path)
    with scripted(lambda exchange: exchange.reply()) as server, closing(sqlite3.connect(path)) as other:
        session = SetSession(idle(), Deployment(api=server.url, direct=True))
        app, _ = room(session.state, SMALL, session=session, record=record)
        async with app.run_test(size=(120, 35), notifications=True) as pilot:
            await until(pilot, lambda: app.main.unavailable(BY_ID["bench-single"]) is None)
            other.execute("BEGIN EXCLUSIVE")
            asks: list[Callable[[], object]] = [
                lambda: app.main.action_show("runs"),
                lambda: app.post_message(RunOpened("1")),
                lambda: app.post_message(CompareRequested("1")),
                lambda: app.post_message(ReportRequested()),
            ]
            for ask in asks:
                app.clear_notifications()
                ask()
                await shows(pilot, "record.sqlite is locked")
            app.clear_notifications()
            await pilot.press("f6")
            await until(pilot, lambda: app.main.result is not None and not app.main.benching)
            await shows(pilot, "This benchmark is not in the record", "is locked")
            other.rollback()
            app.main.action_show("load")
            app.main.action_show("runs")
            await until(pilot, lambda: len(app.main.runs) == 1)
    record.close()


def check_reports(folder: Path) -> None:
    written = sorted(folder.glob("*.md"))
    assert [path.name.split("-")[1] for path in written] == ["benchmark", "load", "load"]
    for path in written:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not {"\x1b", "\u202e"} & set(path.read_text())


async def test_a_report_takes_no_other_files_place(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    load = LoadState(model="\x1b[2Jkimi", phase=Phase.READY, ready=True, started_at=1000.0, ready_at=3160.0)
    number = record.save_load(ServerStart("kimi-k2-w4", "gpu-8x", 8000), load, at=3160.0)
    record.save_benchmark("kimi-k2-w4", with_fields(RESULT, model="kimi\u202e"))
    app, session = room(idle(), record=record)
    session.recorded_load = number
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        for count, run in ((1, None), (2, None), (3, "2")):
            app.post_message(ReportRequested(run))
            await until(pilot, lambda count=count: len([*tmp_path.glob("*.md")]) == count)  # type: ignore[misc]
        await shows(pilot, "Report written to")
    check_reports(tmp_path)
    record.close()

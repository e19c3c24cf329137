"""Servers that were found on a host: choosing the one that is watched, and writing it into the configuration."""

import time
from pathlib import Path

import pytest
import scenes
from msgspec.structs import replace
from room import room, screen, shows, until

from tui.core.api_status import ApiStatus, Reach
from tui.core.deployment import ServerSeen
from tui.core.logs.load_state import Forecast, LoadState
from tui.core.text import clean
from tui.screens.dialogs import NameDialog, ServerDialog
from tui.services.server_search import FoundServer
from tui.settings import load_settings

HOSTILE = clean("[/x] [bold]b[/] \x1b[31mred " + "w" * 90)
SEEN = (
    ServerSeen(377, "vllm", "kimi-k2-w4", 8000, "root"),
    ServerSeen(555, "sglang", HOSTILE, "/run/s.sock", None),
)


async def test_another_server_is_chosen() -> None:
    state = replace(scenes.SCENES["loading"](time.monotonic()), servers=SEEN, server_pid=377)
    app, session = room(state)
    chosen: list[int] = []
    session.choose = chosen.append  # type: ignore[attr-defined]
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "v servers")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, ServerDialog))
        await shows(pilot, "● vllm kimi-k2-w4", "port 8000", "[/x] [bold]b[/]")
        await pilot.press("down", "enter")
        await until(pilot, lambda: chosen == [555])


async def test_the_found_server_is_written_into_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("READYROOM_CONFIG", str(path))
    app, session = room(replace(scenes.SCENES["loading"](time.monotonic()), server_pid=377))
    server = FoundServer(377, "vllm", user="root", model="/models/kimi-k2-w4", port=8000, host="127.0.0.1", source="file:/v.log")
    session.servers = (server,)  # type: ignore[attr-defined]
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "w keep")
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, NameDialog))
        await shows(pilot, "kimi-k2-w4", "readyroom NAME")
        await pilot.press("enter")
        await until(pilot, path.exists)
        await until(pilot, lambda: "w keep" not in app.main.query_one("#keys").render().plain)  # type: ignore[union-attr]
    kept = load_settings(path).deployments["kimi-k2-w4"]
    assert (kept.engines[0].host, kept.engines[0].log) == ("gpu-8x", "file:/v.log")


@pytest.mark.parametrize("scene", ["failed", "waiting"])
@pytest.mark.parametrize("size", [(120, 35), (80, 24)])
async def test_one_that_runs_in_its_stead_is_named_and_can_be_chosen(scene: str, size: tuple[int, int]) -> None:
    other = ServerSeen(9, "vllm", "another", 8001, "root")
    app, session = room(replace(scenes.SCENES[scene](time.monotonic()), servers=(other,), server_pid=None))
    chosen: list[int] = []
    session.choose = chosen.append  # type: ignore[attr-defined]
    async with app.run_test(size=size) as pilot:
        await shows(pilot, "another server runs on port 8001", "key v")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, ServerDialog))
        await pilot.press("enter")
        await until(pilot, lambda: chosen == [9])


async def test_the_log_follows_again_once_another_start_has_begun() -> None:
    state = scenes.SCENES["failed"](time.monotonic())
    app, session = room(scenes.SCENES["loading"](time.monotonic()))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        session.set(state)
        await shows(pilot, "FAILED", "paused")
        session.set(replace(state, load=LoadState(), forecast=Forecast(), server_pid=41, api=ApiStatus(Reach.CLOSED)))
        await shows(pilot, "LOADING")
        await until(pilot, lambda: "paused" not in screen(pilot))

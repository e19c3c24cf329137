"""With --ascii nothing of the room's own is written in other characters, wherever it stands."""

import re
import time
from typing import Any

import pytest
import scenes
from msgspec.structs import replace
from room import Room, room, screen, shows, until

from tui.app import ControlRoom
from tui.core.bench_result import BenchProgress, Plan, Point
from tui.core.conversation import Conversation, Turn
from tui.core.deployment import DeploymentState, LogLine
from tui.core.gpu_findings import GpuSeen
from tui.screens.dialogs import ConfirmDialog, GpuDialog, HelpDialog, HostKeyDialog, Modal, NameDialog, SecretDialog, ServerDialog
from tui.screens.load_report import LoadReport
from tui.screens.palette import Palette
from tui.settings import Settings, UiSettings

pytestmark = pytest.mark.slow

LONG = "INFO 07-30 10:00:00 [x.py:1] " + "a long line " * 30


def plain_room(state: DeploymentState) -> ControlRoom:
    state = replace(state, log=state.log.extended([LogLine(LONG, "INFO")]))
    return room(state, Settings(ui=UiSettings(ascii=True, theme="16")))[0]


def others(pilot: Room) -> str:
    return "".join(sorted({char for char in screen(pilot) if not char.isascii()}))


async def stays_ascii(pilot: Room, what: str) -> None:
    await pilot.pause()
    assert not others(pilot), f"{what}: {others(pilot)}\n{screen(pilot)}"


@pytest.mark.parametrize("name", ["loading", "ready", "failed", "lost", "connecting"])
async def test_every_pane_and_dialog(name: str) -> None:
    app = plain_room(scenes.SCENES[name](time.monotonic()))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app.main.furnished and app.main.shown.name != "")
        app.main.points = (Point(1, {"output_throughput": 80.0, "completed": 3, "p99_ttft_ms": 3000.0}),)
        app.main.begin_benchmark(Plan(kind="sweep", concurrency=tuple(2**i for i in range(12))))
        app.main.points = tuple(
            Point(2**i, {"output_throughput": 80.0 + i, "completed": 3, "p99_ttft_ms": 3000.0}) for i in range(5)
        )
        app.main.progress = BenchProgress(5, 12, 32, "measuring", 32, 3, 0, 40, 90.0, 5.0, 9.0)
        app.main.conversation = Conversation(turns=(Turn("say hello", "hello\n\n* a list\n\n| a | b |\n| - | - |\n| 1 | 2 |"),))
        for key in ("1", "2", "f3", "escape", "escape", "3", "4", "5", "home", "6", "1", "f8", "slash", "escape"):
            await pilot.press(key)
            await stays_ascii(pilot, key)
        await pilot.press("5")
        for size in ((200, 60), (120, 35), (20, 5), (80, 24)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: app.main.size == size)  # type: ignore[misc]
            await stays_ascii(pilot, str(size))
        await pilot.press("5", "end")
        await shows(pilot, "a long line")
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await shows(pilot, "Go to Chat")
        await stays_ascii(pilot, "palette")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        shown = app.main.shown
        dialogs: list[Modal[Any]] = [
            HelpDialog({}),
            ConfirmDialog("a", "b", "c"),
            HostKeyDialog("gpu-box", "ssh-ed25519", "SHA256:abc"),
            SecretDialog("gpu-box", "Password:", False),
            NameDialog("Keep", "told", "name"),
            ServerDialog(shown.servers, None),
            LoadReport(shown),
        ]
        if shown.gpus is not None:
            dialogs.append(GpuDialog(GpuSeen(shown.gpus.gpus[0], shown.gpus)))
        for dialog in dialogs:
            await app.push_screen(dialog)
            await pilot.pause()
            await stays_ascii(pilot, type(dialog).__name__)
            dialog.dismiss()
            await until(pilot, lambda: app.screen is app.main)


async def test_text_of_others_stays_what_it_is() -> None:
    state = scenes.SCENES["loading"](time.monotonic())
    theirs = "モデル loaded, 3 ≤ 5 ± 1 — “├── a…” ●"
    app = plain_room(replace(state, log=state.log.extended([LogLine(theirs, "INFO")])))
    async with app.run_test(size=(120, 60)) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("5")
        await shows(pilot, theirs)
        assert others(pilot) == "".join(sorted({char for char in theirs if not char.isascii()}))
        reply = (
            "# x ≤ 1\n\nx ≤ 2 `x ≤ 3`\n\n* x ≤ 4\n\n> x ≤ 5\n\n| x ≤ 6 |\n| - |\n| x ≤ 7 |\n\n```\nx ≤ 8\n```\n\n1. x ≤ 9\n\n---\n"
        )
        done = Turn("x ≤ a", reply, reasoning="x ≤ b", finish="stop", seconds=1.0, error="x ≤ c")
        app.main.conversation = Conversation(turns=(done, Turn("y ≤ a", "", reasoning="y ≤ b")))
        await pilot.press("2")
        wanted = [f"x ≤ {digit}" for digit in (*range(1, 10), "a", "c")]
        await shows(pilot, *wanted, "y ≤ a", "y ≤ b")
        await pilot.press("f9", "z")
        await shows(pilot, "x ≤ b", "y ≤ b")
        await until(pilot, lambda: theirs not in screen(pilot))
        assert others(pilot) == "≤"  # no border, bullet, rule or sign of the room's own


@pytest.mark.parametrize("how", ["NO_COLOR", "--ascii", "both"])
async def test_memory_bars_are_as_full_as_the_memory_without_colours(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if how != "--ascii":
        monkeypatch.setenv("NO_COLOR", "1")
    state = scenes.SCENES["loading"](time.monotonic())
    app, _ = room(state, Settings(ui=UiSettings(ascii=how != "NO_COLOR", theme="dark")))
    async with app.run_test(size=(160, 50)) as pilot:
        await shows(pilot, "LOADING")
        await until(pilot, lambda: bool(re.search(r"[▆#]{3,}[·.]+", screen(pilot))))
        found = re.findall(r"[▆#]{3,}[·.]+", screen(pilot))
    assert state.gpus is not None
    shares = {gpu.memory_share for gpu in state.gpus.gpus if gpu.memory_share is not None}
    for bar in found:
        filled = sum(char in "▆#" for char in bar)
        assert any(abs(filled - share * len(bar)) <= 1 for share in shares), bar

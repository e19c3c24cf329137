"""The control room on states that the real reader made: what it shows, at each size and in 16 colours, and what its keys do."""

import re
import time

import pytest
import scenes
from msgspec.structs import replace
from room import room, screen, shows, until

from tui.actions import ACTIONS, BY_ID, help_of, in_footer, markdown_table
from tui.core.deployment import DeploymentState, LogLine, LogTail
from tui.core.expectations import Expected
from tui.core.gpu import Gpu, GpuSample
from tui.core.text import clean
from tui.messages import BenchmarkRequested
from tui.screens.dialogs import ConfirmDialog, GpuDialog, HelpDialog, HostKeyDialog, SecretDialog
from tui.screens.login_dialogs import ScreenAsker
from tui.settings import Settings, UiSettings
from tui.widgets.gpu_panel import GpuPanel
from tui.widgets.log_pane import LogPane
from tui.widgets.log_view import LogView

pytestmark = pytest.mark.slow

SIZES = [(80, 24), (120, 35), (200, 60)]
HOSTILE = "[/x] [bold]b[/] \x1b]0;title\x07\x1b[31mred\u202eright\x9b2J 你好 🙂🏽 " + "w" * 220
CHIPS = {
    "loading": "LOADING",
    "warming": "LOADING",
    "ready": "READY",
    "hosts": "READY",
    "failed": "FAILED",
    "dead": "FAILED",
    "lost": "LINK LOST",
    "waiting": "WAITING",
    "importing": "LOADING",
    "connecting": "CONNECTING",
    "refused": "REFUSED",
}


def scene(name: str) -> DeploymentState:
    return scenes.SCENES[name](time.monotonic())


@pytest.mark.parametrize("name", scenes.SCENES)
async def test_every_state_at_every_size(name: str) -> None:
    app, _ = room(scene(name))
    async with app.run_test(size=(120, 35)) as pilot:
        for width, height in (*SIZES, (20, 5), (60, 12), (160, 45), (80, 50), (40, 10), (3, 1), (80, 24)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda w=width, h=height: screen(pilot).count("\n") == h - 1 and app.main.size.width == w)  # type: ignore[misc]
            if width >= 20:
                tiny = width < 60 or height < 12
                word = {"loading": "21.9 %", "warming": "warm-up"}.get(name, CHIPS[name].lower())
                await shows(pilot, word if tiny else CHIPS[name], "kimi")


async def test_loading_tells_how_far_how_fast_and_how_long() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "14 of 64", "21.9 %", "s/shard", "8 × 14,951 MiB", "✓ even", "vLLM 0.24.0", "▲ ~44", "14/64 [")
        await shows(pilot, "starting", "0:20", "post-load")
        assert "14.60 80.99" in screen(pilot)


async def test_narrow_has_all_of_it_in_one_column() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "14 of 64", "4 GPUs", "5 Log", "8 × 14.60", "✓ even", "verdict", "~0:48")
        await shows(pilot, "…")  # long log lines say that they go on


async def test_a_failure_shows_cause_line_and_who_holds_the_memory() -> None:
    app, _ = room(scene("failed"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "CUDA out of memory", "52.29 GiB", "pid 41877", "shard 41 of 64", "Worker_TP3")
        line = app.main.shown.load.failure.line  # type: ignore[union-attr]
        await shows(pilot, f"{line} ▸")
        await pilot.press("y")
        await until(pilot, lambda: "CUDA out of memory" in app.clipboard)


async def test_memory_of_others_stays_hatched_after_the_engine_died() -> None:
    app, _ = room(scene("dead"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "▒ not the engine's: 52.29 GiB on GPU 3", "end pid 41877 (ask lena)", "8 GPUs needed, 7 free")
        row = next(line for line in screen(pilot).splitlines() if "│ 3 " in line)
        assert "▒▒▒" in row


async def test_a_ready_server_opens_the_chat_and_shows_headroom() -> None:
    app, session = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        session.set(scene("ready"))
        await shows(pilot, "READY", "1,154 MiB free on each", "81.2 tok/s", "1,204,224 tokens")
        await until(pilot, lambda: app.main.tab == "chat")


async def test_a_tab_that_the_user_chose_stays() -> None:
    app, session = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("4")
        session.set(scene("ready"))
        await shows(pilot, "READY")
        assert app.main.tab == "gpus"


async def test_a_lost_link_keeps_the_figures_and_counts_down() -> None:
    app, session = room(scene("lost"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LINK LOST", "no answer to 3 keepalives", "next try in", "14 of 64", "s old", "try now")
        await pilot.press("r")
        await until(pilot, lambda: session.retries == 1)


async def test_keys_typed_into_the_prompt_are_text() -> None:
    app, _ = room(scene("ready"))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.main.tab == "chat")
        await shows(pilot, "enter: type here")
        await pilot.press("enter")
        await until(pilot, lambda: app.main.typing)
        await pilot.press("q", "1", "question_mark", "slash")
        assert app.main.query_one("#prompt").text == "q1?/"  # type: ignore[attr-defined]
        await pilot.press("escape", "1")
        await until(pilot, lambda: app.main.tab == "load")


async def test_fast_keys_never_reach_a_prompt_that_is_hidden_again() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("2", "escape", "3", "1", "z")
        assert app.main.query_one("#prompt").text == ""  # type: ignore[attr-defined]


async def test_quit_and_the_second_interrupt_leave() -> None:
    for keys in (("q",), ("ctrl+c", "ctrl+c")):
        app, _ = room(scene("loading"))
        async with app.run_test(size=(120, 35)) as pilot:
            await shows(pilot, "LOADING")
            await pilot.press(*keys)
            await until(pilot, lambda app=app: not app.is_running or app._exit)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"running": 1.0, "waiting": 0.0}, "1 request from others"),
        ({"running": 0.0, "waiting": 2.0}, "2 requests from others"),
        ({"running": None, "waiting": None}, "does not say whether"),
        (None, "does not say whether"),
    ],
)
async def test_a_benchmark_on_a_busy_server_asks_first(metrics: dict[str, float | None] | None, words: str) -> None:
    state = scene("ready")
    assert state.api.metrics is not None
    known = None if metrics is None else replace(state.api.metrics, **metrics)
    app, _ = room(replace(state, api=replace(state.api, metrics=known)))
    posted: list[object] = []
    async with app.run_test(size=(120, 35), message_hook=posted.append) as pilot:
        await until(pilot, lambda: app.main.unavailable(BY_ID["bench-sweep"]) is None)
        await pilot.press("f7")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        assert any(isinstance(message, BenchmarkRequested) and message.kind == "sweep" for message in posted)
        await until(pilot, lambda: words in " ".join(screen(pilot).replace("│", " ").split()))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert not app.main.benching


# -- one table ---------------------------------------------------------------------------------------------------------------------


async def test_footer_help_and_palette_come_from_one_table() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(200, 60)) as pilot:
        await shows(pilot, "LOADING")
        footer = screen(pilot).splitlines()[-1]
        for action in in_footer("load"):
            assert (f"{action.shown} {action.text}" in footer) == (app.main.unavailable(action) is None), action.id
        offered = {command.help for command in app.get_system_commands(app.main)}
        assert offered == {
            help_of(action, {}) for action in ACTIONS if action.palette and action.bound and app.main.unavailable(action) is None
        }
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpDialog))
        told = app.screen.told().plain  # type: ignore[attr-defined]
        assert all(help_of(action, {}) in " ".join(told.split()) for action in ACTIONS)
        assert all(help_of(action, {}) in markdown_table() for action in ACTIONS)
        assert "{" not in told + markdown_table()


async def test_every_bound_action_has_its_method() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        for action in ACTIONS:
            if action.bound:
                name = action.action.partition("(")[0]
                owner: object = app if name.startswith("app.") else app.main
                assert hasattr(owner, f"action_{name.removeprefix('app.')}"), action.id


# -- the log -----------------------------------------------------------------------------------------------------------------------


async def test_find_filters_and_escape_clears() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "14/64 [")
        await pilot.press("slash", *"WARNING")
        await shows(pilot, "only WARNING", "falls back")
        assert app.screen.query_one("#log-find").content_size.height == 1  # what is typed can be seen
        await until(pilot, lambda: "14/64 [" not in screen(pilot))
        await pilot.press("escape")
        await shows(pilot, "14/64 [")


async def test_a_held_log_stands_still_and_counts() -> None:
    state = scene("loading")
    app, session = room(state)
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "14/64 [")
        await pilot.press("5", "f")
        session.set(replace(state, log=state.log.extended([LogLine("a line that came later", "INFO")])))
        await shows(pilot, "paused", "1 new")
        assert "a line that came later" not in screen(pilot)
        await pilot.press("f")
        await shows(pilot, "a line that came later")


async def test_a_flood_of_lines_keeps_only_the_last_ones() -> None:
    state = scene("loading")
    app, session = room(state)
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "14/64 [")
        tail = state.log
        for batch in range(20):
            tail = tail.extended([LogLine(f"line {batch * 1000 + i}", "INFO", batch * 1000 + i) for i in range(1000)])
            session.set(replace(state, log=tail))
            await pilot.pause()
        await shows(pilot, "line 19999")
        assert len(app.main.query_one(LogPane)._kept) <= 5000
        session.set(replace(state, log=LogTail(source="/var/log/vllm/kimi.log", seen=tail.seen).extended([LogLine("a new start")])))
        await shows(pilot, "a new start")
        await until(pilot, lambda: "line 19999" not in screen(pilot))


# -- GPUs --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64])
async def test_one_to_64_gpus(count: int) -> None:
    state = replace(scene("loading"), gpus=scenes.gpus(count, mono=time.monotonic()))
    app, _ = room(state)
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, f"{count} × 14.60")
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await pilot.press("4")
            await until(pilot, lambda: re.search(rf"\b{count - 1} +▆", screen(pilot)) is not None)
            await pilot.press("1")


async def test_a_gpu_in_full_on_enter() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("4", "down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, GpuDialog))
        await shows(pilot, "GPU-00000002", "2,430 of 2,617 MHz", "VLLM::Worker_TP2")


async def test_what_a_driver_does_not_tell_is_a_dash_and_a_lost_gpu_is_named() -> None:
    sample = scenes.gpus(4, lost=2, mono=time.monotonic())
    unknown = Gpu(index=4, name="NVIDIA RTX PRO 6000 Blackwell Server Edition")
    app, _ = room(replace(scene("loading"), gpus=replace(sample, gpus=(*sample.gpus, unknown))))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "✗ GPU is lost")
        row = next(line for line in screen(pilot).splitlines() if "│ 4 " in line)
        assert "—" in row
        assert " 0.00" not in row


async def test_a_host_without_gpus_says_so() -> None:
    sample = GpuSample(source="none", note="no NVIDIA driver on this host", received_at=time.monotonic())
    app, _ = room(replace(scene("loading"), gpus=sample))
    async with app.run_test(size=(120, 35)) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await shows(pilot, "no NVIDIA driver")


# -- untrusted text ----------------------------------------------------------------------------------------------------------------


def hostile() -> DeploymentState:
    text = clean(HOSTILE)
    state = scene("failed")
    assert state.load is not None
    assert state.load.failure is not None
    assert state.gpus is not None
    gpu = replace(
        state.gpus.gpus[0], name=text, processes=(replace(state.gpus.gpus[0].processes[0], name=text, engine=False),), error=text
    )
    return replace(
        state,
        name=text,
        target=text,
        connection=replace(state.connection, host=text, cause=text, advice=text),
        gpus=replace(state.gpus, gpus=(gpu, *state.gpus.gpus[1:]), note=text),
        load=replace(
            state.load,
            failure=replace(state.load.failure, cause=text, process=text, advice=text),
            model=text,
            version=text,
            notes=(text,),
        ),
        api=replace(state.api, error=text, version=text),
        log=LogTail(source=text, problem=text).extended([LogLine(text, "ERROR", 1), LogLine(text, None, 2)]),
    )


@pytest.mark.parametrize("theme", ["dark", "16"])
@pytest.mark.parametrize("size", [(80, 24), (200, 60), (20, 5)])
async def test_hostile_text_is_only_text(size: tuple[int, int], theme: str) -> None:
    app, session = room(hostile(), Settings(ui=UiSettings(theme=theme)))
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: "[/x]" in screen(pilot))
        for key in ("1", "2", "escape", "3", "4", "enter", "escape", "5", "6", "1", "y"):
            await pilot.press(key)
        ready = scene("ready")
        session.set(replace(hostile(), api=ready.api, load=ready.load))
        await until(pilot, lambda: app.main.shown.api.ready)
        for link in ("lost", "refused"):
            other = scene(link).connection
            session.set(
                replace(hostile(), connection=replace(other, host=clean(HOSTILE), cause=clean(HOSTILE), advice=clean(HOSTILE)))
            )
            await until(pilot, lambda other=other: app.main.shown.connection.link is other.link)  # type: ignore[misc]
        shown = screen(pilot)
        assert not any(char in shown for char in "\x1b\x07\x9b\u202e")


# -- a login's questions -----------------------------------------------------------------------------------------------------------


async def test_a_host_key_is_shown_and_refused_by_default() -> None:
    asker = ScreenAsker()
    app, _ = room(scene("connecting"), asker=asker)
    async with app.run_test(size=(80, 24)) as pilot:
        for key, expected in (("enter", False), ("escape", False), ("a", True)):
            question = app.run_worker(asker.trust_host_key("gpu[/x]", "ssh-ed25519", "SHA256:abcdefg"), exit_on_error=False)
            await until(pilot, lambda: isinstance(app.screen, HostKeyDialog))
            await shows(pilot, "SHA256:abcdefg", "gpu[/x]")
            await pilot.press(key)
            assert await question.wait() is expected


async def test_a_secret_is_asked_and_not_shown() -> None:
    asker = ScreenAsker()
    app, _ = room(scene("connecting"), asker=asker)
    async with app.run_test(size=(80, 24)) as pilot:
        question = app.run_worker(asker.secret("gpu", "[/x] Password:", False), exit_on_error=False)
        await until(pilot, lambda: isinstance(app.screen, SecretDialog))
        await pilot.press(*"hunter2")
        assert "hunter2" not in screen(pilot)
        await pilot.press("enter")
        assert await question.wait() == "hunter2"
        question = app.run_worker(asker.secret("gpu", "Password:", False), exit_on_error=False)
        await until(pilot, lambda: isinstance(app.screen, SecretDialog))
        await pilot.press("escape")
        assert await question.wait() is None


async def test_a_dialog_goes_with_the_login_that_asked() -> None:
    asker = ScreenAsker()
    app, _ = room(scene("connecting"), asker=asker)
    async with app.run_test(size=(80, 24)) as pilot:
        question = app.run_worker(asker.secret("gpu", "Password:", False), exit_on_error=False)
        await until(pilot, lambda: isinstance(app.screen, SecretDialog))
        question.cancel()
        await until(pilot, lambda: not isinstance(app.screen, SecretDialog))
        again = app.run_worker(asker.secret("gpu", "Password:", False), exit_on_error=False)
        await until(pilot, lambda: isinstance(app.screen, SecretDialog))
        await pilot.press(*"pw", "enter")
        assert await again.wait() == "pw"


async def test_a_dialog_that_is_dismissed_before_it_has_its_parts_closes_then() -> None:
    app, _ = room(scene("connecting"))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.main.furnished)
        dialog = SecretDialog("gpu", "Password:", False)
        app.push_screen(dialog)
        dialog.dismiss(None)
        await until(pilot, lambda: dialog.is_mounted and not isinstance(app.screen, SecretDialog) and app.main.furnished)


# -- themes ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["dark", "light", "16", "16-light"])
async def test_every_state_in_every_theme(theme: str) -> None:
    app, session = room(scene("connecting"), Settings(ui=UiSettings(theme=theme)))
    async with app.run_test(size=(120, 35)) as pilot:
        assert app.theme == f"readyroom-{theme}"
        for name in scenes.SCENES:
            session.set(scene(name))
            await shows(pilot, CHIPS[name])
        await pilot.press("escape", "ctrl+t")
        await until(pilot, lambda: app.theme != f"readyroom-{theme}")


async def test_plain_ascii_uses_no_other_character_in_figures() -> None:
    app, _ = room(scene("loading"), Settings(ui=UiSettings(ascii=True, theme="16")))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "14 of 64", "8 x 14,951 MiB", "14/64 [")
        assert not [char for char in screen(pilot) if not char.isascii()]


async def test_the_bars_stand_where_the_gpus_are() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING", "14/64 [")
        assert app.main.query_one("#gpus-pane", GpuPanel).size.width == 44
        assert app.main.query_one(LogView).size.height == 8


async def test_a_silent_warm_up_says_what_happens_and_what_is_normal() -> None:
    app, _ = room(scene("warming"))
    async with app.run_test(size=(80, 24)) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await shows(pilot, "warming up kernels", "silent for 1:", "normal up to 2 min", "ready in about")
            assert "100.0 %" not in screen(pilot)


async def test_without_an_earlier_load_the_shards_are_counted_down() -> None:
    app, _ = room(replace(scene("loading"), history=(), forecast=replace(scene("loading").forecast, ready_eta_s=None)))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "shards done in about", "so far", "14 of 64")


async def test_what_the_configuration_expects_of_the_gpus_is_shown_and_alarmed() -> None:
    state = replace(scene("ready"), expected=Expected(gpus=16, headroom_mib=2048, tokens_per_s=80))
    app, _ = room(state)
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "8 GPUs, 16 expected", "▲ 2,048 expected")
        await pilot.resize_terminal(80, 24)
        await shows(pilot, "▲ 2,048 MiB expected")


@pytest.mark.parametrize("count", [2, 4, 8])
async def test_gpus_of_several_hosts_stand_in_groups(count: int) -> None:
    app, _ = room(scenes.hosts(time.monotonic(), count))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "gpu-8x", f"{8 * count} × RTX PRO 6000 on {count} hosts", "3 keepalives")
        if count > 2:
            await shows(pilot, "gpu-1")
        await until(pilot, lambda: app.main.tab == "chat")
        await pilot.press("escape", "4")
        await shows(pilot, f"gpu-{count - 1}", "lost" if count > 2 else "○")
        await pilot.press(*["down"] * 9, "enter")
        await until(pilot, lambda: isinstance(app.screen, GpuDialog))
        await pilot.press("escape")
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await shows(pilot, "gpu-8x", f"gpu-{count - 1}")


@pytest.mark.parametrize("size", SIZES)
async def test_gpus_of_several_hosts_are_sorted_picked_and_opened(size: tuple[int, int]) -> None:
    app, _ = room(scenes.hosts(time.monotonic(), 8))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.main.tab == "chat")
        await pilot.press("escape", "4")
        panel = app.main.query_one("#tab-gpus", GpuPanel)
        await shows(pilot, *(f"gpu-{n}" for n in range(1, 8)), "s sort", "o only")
        await pilot.press("s", "s", "s", "s")
        await shows(pilot, "by power")
        listed = panel._listed()
        assert len(listed) == 64
        assert [gpu.index for host, gpu in listed if host == "gpu-2"] == [7, 6, 5, 4, 3, 2, 1, 0]
        await pilot.press("o", "o")
        await shows(pilot, "by power, only those with findings", "gpu-1", "odd: 3", "no answer to 3 keepalives")
        assert [(host, gpu.index) for host, gpu in panel._listed()] == [("gpu-1", 3)]
        assert "gpu-2" not in screen(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, GpuDialog) and app.screen.gpu.error == "GPU is lost")


async def test_gpus_are_sorted_and_picked() -> None:
    sample = scenes.gpus(8, odd=3, mono=time.monotonic())
    app, _ = room(replace(scene("loading"), gpus=sample))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("4", "s")
        await shows(pilot, "by memory", "s sort", "o only")
        panel = app.main.query_one("#tab-gpus", GpuPanel)
        assert panel._listed()[0][1].index == 3
        await pilot.press("s", "s", "s")
        await shows(pilot, "by power")
        assert [gpu.index for _, gpu in panel._listed()] == [7, 6, 5, 4, 3, 2, 1, 0]
        await pilot.press("o", "o")
        await shows(pilot, "only those with findings", "▒")
        assert [gpu.index for _, gpu in panel._listed()] == [3]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, GpuDialog) and app.screen.gpu.index == 3)
        await shows(pilot, "GPU-00000003", "41877", "MB/s over PCIe")

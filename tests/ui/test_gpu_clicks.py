"""A click opens the GPU that is drawn there, and nothing if none is; headroom is on the screen wherever there is room for it."""

import re
import time

import pytest
import scenes
from msgspec.structs import replace
from pane_host import PaneHost, text, until
from room import room, screen
from room import until as until_there
from textual.pilot import Pilot

from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, MigInstance
from tui.messages import GpuOpened
from tui.screens.dialogs import GpuDialog
from tui.settings import Settings, UiSettings
from tui.widgets.canvas import Moment
from tui.widgets.gpu_panel import GpuPanel
from tui.widgets.gpu_strip import strip

pytestmark = pytest.mark.slow

PANE, WIDE_PANE, SMALL_TAB, TAB, LARGE_TAB = (44, 15), (60, 23), (78, 20), (116, 31), (196, 56)
"""The panel's own size at 120×35 and 200×60, and as a tab at 80×24, 120×35, 200×60."""
PLACES = [(PANE, False), (WIDE_PANE, False), (SMALL_TAB, True), (TAB, True), (LARGE_TAB, True)]
DRAWN = re.compile(r"(?<![\w.%,])(\d+)[ ▾▸✗]{0,3}(?=[▆╌])|(?<![\w.%,])(\d+)[ ]{1,3}(?=✗ GPU)")
"""A GPU's number before its bar, or before what is wrong with it."""


class Panel(PaneHost):
    """The panel by itself, which says what it opened."""

    def __init__(self, state: DeploymentState, *, full: bool = False) -> None:
        self.panel = GpuPanel(full=full)
        self.panel.set_reactive(GpuPanel.state, state)
        super().__init__(self.panel)

    def on_gpu_opened(self, opened: GpuOpened) -> None:
        self.posted.append(opened)

    def opened(self) -> list[tuple[int, str]]:
        return [(message.index, message.host) for message in self.posted if isinstance(message, GpuOpened)]


def served(count: int, used: float = 96733.0, **more: int) -> DeploymentState:
    """Return a server over this many GPUs, also by its log."""
    mono = time.monotonic()
    state = scenes.ready(mono, gpus=scenes.gpus(count, used, busy=61.0, mono=mono, **more), trends=scenes.trends(count))
    assert state.load is not None
    return replace(state, load=replace(state.load, tensor_parallel=count))


def divided(count: int, each: int) -> DeploymentState:
    """GPUs of that many MIG instances each, the last of the last one nearly full."""
    state = served(count, 21000.0)
    assert state.gpus is not None
    gpus = [
        replace(
            gpu, mig=tuple(MigInstance("NVIDIA H100 NVL MIG 1g.12gb", f"MIG-{gpu.index}-{n}", 12.0, 12000.0) for n in range(each))
        )
        for gpu in state.gpus.gpus
    ]
    last = gpus[-1]
    full = MigInstance("NVIDIA H100 NVL MIG 3g.47gb", "MIG-full", 44000.0, 47000.0)
    gpus[-1] = replace(last, mig=(*last.mig[:-1], full))
    return replace(state, gpus=replace(state.gpus, gpus=tuple(gpus)))


def drawn(shown: str) -> list[tuple[int, int, int]]:
    """Column, line and number of each GPU on the screen."""
    return [
        (match.start(1) if match[1] else match.start(2), y, int(match[1] or match[2]))
        for y, line in enumerate(shown.splitlines())
        for match in DRAWN.finditer(line)
    ]


async def opens(pilot: Pilot[None], app: Panel, x: int, y: int) -> list[tuple[int, str]]:
    before = len(app.posted)
    await pilot.click(offset=(x, y))
    await pilot.pause()
    return app.opened()[before:]


@pytest.mark.parametrize(("size", "full"), PLACES)
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 64])
async def test_a_click_opens_the_gpu_that_is_drawn_there(count: int, size: tuple[int, int], full: bool) -> None:
    app = Panel(served(count), full=full)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "▆" in text(app))
        spots = drawn(text(app))
        assert sorted(number for _, _, number in spots) == list(range(count))
        host = app.panel.state.target
        for x, y, number in {*spots[:: max(1, len(spots) // 4)], spots[-1]}:
            assert await opens(pilot, app, x, y) == [(number, host)]
            assert await opens(pilot, app, x + len(str(number)) + 1, y) == [(number, host)], "on its bar"
        shown = text(app).splitlines()
        others = [y for y, line in enumerate(shown) if y not in {y for _, y, _ in spots} and "ECC" not in line]
        for y in [y for y in others if any(words in shown[y] for words in ("headroom", "MiB free", "of 95.6", "even"))]:
            assert await opens(pilot, app, 2, y) == [], shown[y]


@pytest.mark.parametrize("size", [(60, 40), (60, 36)])
async def test_both_lines_of_a_gpu_are_its_own(size: tuple[int, int]) -> None:
    app = Panel(served(8))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "ECC ✓" in text(app))
        for x, y, number in drawn(text(app)):
            assert await opens(pilot, app, x, y + 1) == [(number, app.panel.state.target)]


async def test_after_sorting_and_picking_too() -> None:
    app = Panel(served(8, 26733.0, odd=3, lost=5), full=True)
    async with app.run_test(size=SMALL_TAB) as pilot:
        await until(pilot, lambda: "▆" in text(app))
        for _ in range(4):
            app.panel.next_order()
        await until(pilot, lambda: [number for _, _, number in drawn(text(app))] == [7, 6, 4, 3, 2, 1, 0, 5])
        for x, y, number in drawn(text(app)):
            assert await opens(pilot, app, x, y) == [(number, app.panel.state.target)]
        for _ in range(2):
            app.panel.next_kind()
        await until(pilot, lambda: [number for _, _, number in drawn(text(app))] == [3, 5])
        for x, y, number in drawn(text(app)):
            assert await opens(pilot, app, x, y) == [(number, app.panel.state.target)]
        assert await opens(pilot, app, 2, 0) == [], "the titles"


@pytest.mark.parametrize(("size", "full"), PLACES)
@pytest.mark.parametrize("count", [2, 4, 8])
async def test_the_same_of_several_hosts(count: int, size: tuple[int, int], full: bool) -> None:
    app = Panel(scenes.hosts(time.monotonic(), count), full=full)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "gpu-1" in text(app))
        lines = text(app).splitlines()
        hosts = ["gpu-8x", *(f"gpu-{n}" for n in range(1, count))]
        found = 0
        for y, line in enumerate(lines):
            if any(line.startswith(f"{host} ") for host in hosts):
                assert await opens(pilot, app, 1, y) == [], "a host's name"
        for x, y, number in drawn(text(app))[:: max(1, 2 * count)]:
            host = next(line.split()[0] for line in reversed(lines[:y]) if line.split()[:1] and line.split()[0] in hosts)
            assert await opens(pilot, app, x, y) == [(number, host)]
            found += 1
        for y, line in enumerate(lines):
            if re.match(r"  [█✗\d]{8}", line):  # a column a GPU
                host = next(above.split()[0] for above in reversed(lines[:y]) if above.split()[:1] and above.split()[0] in hosts)
                assert await opens(pilot, app, 2 + 5, y) == [(5, host)]
                assert await opens(pilot, app, 2 + 8, y) == []
                found += 1
        assert found or (count, size) == (8, PANE), "there are only names in 15 lines"


async def test_the_gpu_clicked_on_is_the_one_that_is_shown() -> None:
    app, _ = room(served(8), Settings(ui=UiSettings(theme="dark")))
    async with app.run_test(size=(120, 35)) as pilot:
        await until_there(pilot, lambda: "MiB free on each" in screen(pilot))
        await pilot.click(offset=(4, 3))
        lines = screen(pilot).splitlines()
        y = next(y for y, line in enumerate(lines) if line.startswith("│ 5 "))
        await pilot.click(offset=(10, y))
        await until_there(pilot, lambda: isinstance(app.screen, GpuDialog))
        assert isinstance(app.screen, GpuDialog)
        assert app.screen.gpu.index == 5


# -- headroom ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "full"), PLACES)
@pytest.mark.parametrize("count", [1, 8, 16, 64])
@pytest.mark.parametrize("lost", [False, True])
async def test_headroom_is_there_with_any_number_of_gpus(count: int, size: tuple[int, int], full: bool, lost: bool) -> None:
    state = served(count, lost=0) if lost and count > 2 else served(count)
    app = Panel(state, full=full)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "▆" in text(app))
        shown = text(app)
        assert "headroom" in shown
        assert "1,154 MiB free" in shown
        assert ("✗ odd" if state.gpus and state.gpus.gpus[0].error else "✓ even" if count > 1 else "▆") in shown


@pytest.mark.parametrize(
    ("count", "width", "ends"),
    [
        (1, 78, "1.2 % headroom   1,154 MiB free   61 %  41 °C"),
        (8, 78, "8 × 94.47 GiB  ✓ even   1.2 % headroom   1,154 MiB free"),
        (16, 78, "16 × 94.47 GiB  ✓ even   1,154 MiB free"),
        (64, 78, "64 × 94.47 GiB  ✓ even             1,154 MiB free"),
        (64, 44, "✓ even   1,154 MiB free"),
    ],
)
def test_the_strip_gives_way_before_headroom_does(count: int, width: int, ends: str) -> None:
    shown = strip(served(count), width, Moment()).plain
    assert shown.endswith(ends)
    assert len(shown) == width


@pytest.mark.parametrize("count", [4, 8, 16, 64])
def test_the_strip_says_what_is_held_by_others_and_what_is_free(count: int) -> None:
    shown = strip(served(count, 26733.0, odd=3), 78, Moment()).plain
    assert "52.29" in shown
    assert "18.0 %" in shown


# -- MIG ---------------------------------------------------------------------------------------------------------------------------


async def test_mig_instances_are_rows_below_their_gpu() -> None:
    app = Panel(divided(2, 2), full=True)
    async with app.run_test(size=SMALL_TAB) as pilot:
        await until(pilot, lambda: "3g.47gb" in text(app))
        lines = text(app).splitlines()
        assert re.match(r" *▌0▾ ▆+ +20\.51", lines[1])
        assert re.match(r" +1g\.12gb +▆+ +0\.01 +11\.71 *$", lines[2])
        assert re.match(r"1▾ +▆+ +20\.51", lines[4])
        assert re.match(r" +3g\.47gb +▆+ +42\.97 +2\.93 *$", lines[6])
        assert "6.4 % headroom   3,000 MiB free on GPU 1, 3g.47gb" in text(app)
        for y, number in ((1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1)):
            assert await opens(pilot, app, 30, y) == [(number, app.panel.state.target)]


async def test_where_not_all_instances_have_room_the_selected_gpu_shows_its_own() -> None:
    app = Panel(divided(8, 7), full=True)
    async with app.run_test(size=SMALL_TAB) as pilot:
        await until(pilot, lambda: "0▾" in text(app))
        assert text(app).count("1g.12gb") == 7
        app.panel.focus()
        await pilot.press("up")
        await until(pilot, lambda: "7▾" in text(app))
        assert "0▸" in text(app)
        assert [number for _, _, number in drawn(text(app))] == list(range(8))
        assert "3,000 MiB free on GPU 7, 3g.47gb" in text(app)


async def test_what_is_not_known_of_an_instance_is_a_dash() -> None:
    gpu = Gpu(index=0, memory_used_mib=500.0, memory_total_mib=80000.0, mig=(MigInstance("", "MIG-1"),))
    state = served(1)
    assert state.gpus is not None
    app = Panel(replace(state, gpus=replace(state.gpus, gpus=(gpu,))), full=True)
    async with app.run_test(size=SMALL_TAB) as pilot:
        await until(pilot, lambda: "MIG " in text(app))
        row = next(line for line in text(app).splitlines() if line.strip().startswith("MIG"))
        assert re.match(r" +MIG +╌+ +— +— *$", row)

"""A driver that does not answer: every view greys the last sample, says how old it is, and claims nothing of now."""

import re
import time

import pytest
import scenes
from msgspec.structs import replace
from room import Room, room, screen, shows, until

from tui.cli.status import status_lines
from tui.core.deployment import DeploymentState, GpusSampled, HostSeen, fold
from tui.core.gpu import GpuSample
from tui.core.snapshot import snapshot
from tui.widgets.canvas import Moment
from tui.widgets.draw import QUIET, TRACK, bar, line
from tui.widgets.fleet_view import gpu_lines
from tui.widgets.gpu_rows import SELECTED, greyed
from tui.widgets.gpu_strip import strip

NOTE = "the NVIDIA driver has not answered for 25 s (GPU 0 was asked); these are its last values"


def silent(now: float) -> GpuSample:
    """Return the sample of 25 s ago once more."""
    return replace(scenes.gpus(8, 96733.0, busy=61.0, mono=now - 25.0), late=True, note=NOTE)


def claims(told: str) -> list[str]:
    """Return what is said as if it held now."""
    return re.findall(r"✓ even|✓ steady|[\d,]+ MiB free|(?<!was )\b\d\.\d % free|headroom  |%  \d\d °C", told)


@pytest.mark.parametrize(
    ("width", "words"),
    [(78, "8 × 94.47 GiB  ○ 25 s old"), (78, "silent, 1.2 % was free"), (110, "the driver does not answer, 1.2 % was free")],
)
def test_the_strip(width: int, words: str) -> None:
    told = strip(scenes.ready(100.0, gpus=silent(100.0)), width, Moment(mono=100.0))
    assert words in told.plain
    assert not claims(told.plain)
    assert "$primary" not in {span.style for span in told.spans}


@pytest.mark.parametrize("others", [0, 1])
def test_the_strip_of_several_hosts(others: int) -> None:
    """Wherever the silent one is among them."""
    hosts = (silent(100.0), scenes.gpus(8, 96733.0, mono=100.0))
    state = scenes.ready(100.0, gpus=hosts[others], others=(HostSeen("gpu-b", scenes.ONLINE, hosts[1 - others]),))
    told = strip(state, 78, Moment(mono=100.0)).plain
    assert "○ " in told
    assert " old" in told
    assert "✓ even" not in told


def test_the_overview() -> None:
    cells, below = gpu_lines(scenes.ready(100.0, gpus=silent(100.0)), Moment(mono=100.0))
    assert "$primary" not in {span.style for span in cells.spans}
    assert below.plain == "○ 25 s old"


def test_a_greyed_line_keeps_where_its_bar_ends_and_what_is_selected() -> None:
    told = greyed(line(("7", SELECTED), " ", bar(0.52, 10), ("  1.13", "bold")))
    assert told.plain == "7 ▆▆▆▆▆▆▆▆▆▆  1.13"
    assert [(told.plain[span.start : span.end], span.style) for span in told.spans] == [
        ("7", SELECTED),
        (" ", QUIET),
        ("▆▆▆▆▆", QUIET),
        ("▆", TRACK),
        ("▆▆▆▆", TRACK),
        ("  1.13", QUIET),
    ]


def test_a_silent_driver_adds_nothing_to_the_trends() -> None:
    state = fold(DeploymentState("kimi", "gpu-8x"), GpusSampled(scenes.gpus(8, 96733.0)))
    assert len(state.trends.gpu_memory) == 1
    after = fold(state, GpusSampled(silent(100.0)))
    assert after.trends == state.trends
    assert after.gpus is not None
    assert after.gpus.late


def test_status_says_how_old_it_is() -> None:
    state = scenes.ready(100.0, gpus=silent(100.0), others=(HostSeen("gpu-b", scenes.ONLINE, silent(100.0)),))
    told = "\n".join(status_lines(state, 100.0))
    assert told.count("the driver does not answer: these are its last values, 25 s old") == 2
    assert told.count("least free then: GPU 0, 1,154 MiB") == 2
    document = snapshot(state, 100.0)
    for source in (document["gpu_source"], document["others"][0]["gpu_source"]):
        assert (source["late"], source["age_s"]) == (True, 25.0)


async def ages(pilot: Room, words: str) -> int:
    """Wait for these words and return the age in seconds that follows them."""
    await until(pilot, lambda: re.search(rf"{words}\d+ s old", screen(pilot)) is not None)
    found = re.search(rf"{words}(\d+) s old", screen(pilot))
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_the_screen(size: tuple[int, int]) -> None:
    """Pane, strip, the tab of its own and the details of one; the age goes on."""
    app, _ = room(scenes.ready(time.monotonic(), gpus=silent(time.monotonic())))
    async with app.run_test(size=size) as pilot:
        await shows(pilot, "READY")
        first = await ages(pilot, "○ ")
        assert first >= 25
        assert "✓ even" not in screen(pilot)
        await pilot.press("escape", "4")
        await ages(pilot, "the driver does not answer: last known values, ")
        assert "✓ even" not in screen(pilot)
        await until(pilot, lambda: f"○ {first + 2} s old" in screen(pilot))
        await pilot.press("enter")
        assert await ages(pilot, "last known values, ") >= first + 2
        assert "unchanged for" not in screen(pilot)

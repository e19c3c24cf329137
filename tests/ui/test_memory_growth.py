"""Growth of memory on the screen: calm if it is none, in words and with a sign if a GPU will be full."""

import time
from collections.abc import Callable

import pytest
import scenes
from room import room, screen, shows, until

from tui.core.deployment import DeploymentState, HostSeen
from tui.core.trends import MemoryCourse, followed
from tui.widgets.canvas import Moment
from tui.widgets.gpu_strip import strip


def after_an_hour(used_at: Callable[[float], float], now: float, others: int = 0) -> DeploymentState:
    """Return a server that has been ready for an hour, with this course of memory use."""
    course: MemoryCourse | None = None
    sample = scenes.gpus(8, used_at(0.0))
    for n in range(361):
        sample = scenes.gpus(8, used_at(n * 10.0), busy=61.0, mono=now - 3600.0 + n * 10.0)
        course = followed(course, sample)
    further = tuple(HostSeen(f"gpu-{n}", scenes.ONLINE, sample, course) for n in range(1, others + 1))
    return scenes.ready(now, gpus=sample, ready_memory=course, others=further)


def leak(at: float) -> float:
    return 95_833.0 + 900.0 * at / 3600.0


@pytest.mark.parametrize(
    ("used_at", "words"),
    [
        (leak, ("peak 96,733 MiB", "of 97,887 MiB  +900/h", "▲ full in 77 min")),
        (lambda at: 96_733.0, ("peak 96,733 MiB", "✓ steady")),
        (lambda at: 90_000.0 + 120.0 * at / 3600.0, ("peak 90,120 MiB", "+120 MiB/h")),
    ],
)
async def test_beside_the_headroom(used_at: Callable[[float], float], words: tuple[str, ...]) -> None:
    app, _ = room(after_an_hour(used_at, time.monotonic()))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, *words)
        assert ("▲" in screen(pilot)) == ("▲" in "".join(words))


async def test_in_words_in_the_tab_of_its_own() -> None:
    app, _ = room(after_an_hour(leak, time.monotonic(), 1))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.main.tab == "chat")
        await pilot.press("escape", "4")
        await shows(pilot, "▲ GPU 0: grows by 900 MiB an hour, at this pace full in 77 min")


def test_in_one_line() -> None:
    assert "1.2 % headroom  ▲ full in 77 min" in strip(after_an_hour(leak, 9000.0), 78, Moment(mono=9000.0)).plain
    told = strip(after_an_hour(leak, 9000.0, 1), 90, Moment(mono=9000.0)).plain
    assert "▲ 2, full in 77 min" in told
    assert "▲" not in strip(after_an_hour(lambda at: 96_733.0, 9000.0), 78, Moment(mono=9000.0)).plain

"""What is wrong on one of several hosts: in words if there is room, counted if not, the first host like the others."""

import re
import time

import pytest
import scenes
from msgspec.structs import replace
from room import room, screen, shows, until

from tui.cli.status import status_lines
from tui.core.deployment import DeploymentState, HostSeen
from tui.core.expectations import Expected
from tui.core.gpu import GpuSample, Xid
from tui.core.gpu_findings import hosts_of
from tui.screens.dialogs import GpuDialog
from tui.screens.layout import News
from tui.widgets.canvas import Moment
from tui.widgets.gpu_hosts import compact, groups_of, head
from tui.widgets.gpu_strip import strip

NOTE = "the NVIDIA driver has not answered for 40 s (GPU 0 was asked); these are its last values"


def well(now: float, used: float = 96733.0) -> GpuSample:
    return scenes.gpus(8, used, busy=61.0, mono=now)


def silent(now: float) -> GpuSample:
    return replace(well(now - 40.0), late=True, note=NOTE)


def faulty(now: float) -> GpuSample:
    """Return a sample with an XID and ECC errors on GPU 3."""
    sample = well(now)
    gpus = tuple(replace(gpu, ecc_uncorrected=2) if gpu.index == 3 else gpu for gpu in sample.gpus)
    return replace(sample, wall=5000.0, xids=(Xid(3, 94, 4995.0, "contained uncorrectable memory error"),), gpus=gpus)


def over(now: float, *samples: GpuSample) -> DeploymentState:
    """Return a ready deployment over hosts with these samples."""
    others = tuple(HostSeen(f"gpu-{n}", scenes.ONLINE, sample) for n, sample in enumerate(samples[1:], 1))
    return scenes.ready(now, gpus=samples[0], others=others)


@pytest.mark.parametrize("faulty_one", [0, 1, 2])
@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_in_words_where_there_is_room(size: tuple[int, int], faulty_one: int) -> None:
    now = time.monotonic()
    samples = [silent(now), well(now)]
    samples.insert(faulty_one, faulty(now))
    app, _ = room(over(now, *samples))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.main.tab == "chat")
        await pilot.press("escape", "4")
        await shows(pilot, "▲ GPU 3: XID 94, contained uncorrectable memory error", "▲ GPU 3: 2 uncorrectable ECC errors")
        await shows(pilot, "▲ the NVIDIA driver has not answered for 40 s", "headroom  1.2 %")
        assert screen(pilot).count("✓ even") == 2
        await pilot.press(*["down"] * (8 * faulty_one + 3), "enter")
        await until(pilot, lambda: isinstance(app.screen, GpuDialog))
        await shows(pilot, "▲ XID 94, contained uncorrectable memory error", "▲ 2 uncorrectable ECC errors")


def test_counted_in_the_head_where_there_is_not() -> None:
    groups = groups_of(over(100.0, silent(100.0), faulty(100.0)), moment=Moment(mono=100.0))
    assert re.sub(" +", " ", head(groups[0], 78).plain) == "gpu-8x ○ 40 s old ▲ 1 8 × 94.47 GiB 1.2 % was free"
    assert re.sub(" +", " ", head(groups[1], 78).plain) == "gpu-1 ✓ even ▲ 2 8 × 94.47 GiB 1.2 % free"
    assert "1.2 % free" in head(groups[1], 40).plain
    assert "▲ GPU 3: XID 94, contained" in compact(groups[1], 60)[1].text.plain


@pytest.mark.parametrize(
    ("hosts", "width", "words"),
    [
        (2, 78, ("███✗████", "16 on 2 hosts", "○ 1 away", "✗ 1 odd", "▲ 1", "1.2 % free")),
        (4, 78, ("○ 1 away", "✗ 1 odd", "▲ 1", "1.2 % free")),
        (8, 78, ("██ ✗█ ██", "○ no link to gpu-7", "✗ 1 odd", "▲ 1", "1.2 % free")),
        (8, 118, ("████████ ███✗████", "○ 1 away", "✗ 1 odd", "▲ 1", "1.2 % free")),
    ],
)
def test_the_strip_keeps_what_is_wrong(hosts: int, width: int, words: tuple[str, ...]) -> None:
    state = scenes.hosts(100.0, hosts + 1 if hosts == 2 else hosts)
    if hosts == 2:
        away = replace(state.others[1].connection)
        state = replace(state, connection=away, others=state.others[:1])
    told = strip(state, width, Moment(mono=100.0))
    assert told.cell_length <= width
    assert [word for word in words if word not in told.plain] == []


@pytest.mark.parametrize("hosts", range(2, 9))
@pytest.mark.parametrize("width", [60, 78, 118])
def test_the_strip_has_room_for_all_hosts(hosts: int, width: int) -> None:
    """Everything at once, up to eight hosts: nothing is cut."""
    state = scenes.hosts(100.0, hosts)
    state = replace(state, gpus=silent(100.0))
    told = strip(state, width, Moment(mono=100.0))
    assert told.cell_length <= width
    for sign in ("○ ", " old", "▲ "):
        assert sign in told.plain


def test_all_well_is_said_of_all_hosts() -> None:
    told = strip(over(100.0, well(100.0), well(100.0, 95000.0)), 78, Moment(mono=100.0)).plain
    assert told == "GPUs  ████████ ████████ 16 on 2 hosts                   ✓ even  1.2 % headroom"


def test_headroom_is_looked_at_on_all_hosts() -> None:
    state = replace(over(100.0, well(100.0, 90000.0), well(100.0)), expected=Expected(gpus=16, headroom_mib=2048))
    assert [host.wrong for host in hosts_of(state)] == [(), ("GPU 0: 1,154 MiB free, 2,048 expected",)]
    assert "▲ 1" in strip(state, 78, Moment(mono=100.0)).plain
    assert "GPU 0: 1,154 MiB free, 2,048 expected" in "\n".join(status_lines(state))


def test_news_of_each_host() -> None:
    news = News()
    news.take(over(100.0, well(100.0)))
    news.take(over(100.0, well(100.0), faulty(100.0)))
    assert news.count("gpus") == 0  # a host that was not known so far
    news.take(over(100.0, well(100.0), silent(100.0)))
    news.take(over(100.0, faulty(100.0), faulty(100.0)))
    assert news.count("gpus") == 3
    news.see("gpus")
    news.take(over(100.0, well(100.0), faulty(100.0)))
    assert news.count("gpus") == 0

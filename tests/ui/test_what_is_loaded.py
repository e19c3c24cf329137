"""What a bar over the weights counts is said in its own words wherever it is told: shards, tensors, or bytes in GB."""

import time

import pytest
import scenes
from msgspec.structs import replace
from room import room, screen, shows, until
from test_overview import fleet_room

from tui.cli.status import status_lines, table
from tui.cli.wait import where
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import not_ready_reason
from tui.core.logs.load_state import Loader
from tui.core.presentation import gigabytes_s, how_far
from tui.widgets.phase_view import shards


def loading(unit: str, done: float, total: float) -> DeploymentState:
    """Return a load of which only the progress is known: bytes have no steps."""
    state = scenes.SCENES["loading"](time.monotonic())
    assert state.load is not None
    assert state.load.shards is not None
    shown = state.load.shards
    began = shown.started_at or 0.0
    bar = Loader("model", done, total, unit, began, () if unit == "bytes" else shown.step_seconds, began + 2.3)
    step = None if unit == "bytes" else state.forecast.s_per_shard
    load = replace(state.load, shards=bar, loaders=(bar,))
    return replace(state, load=load, forecast=replace(state.forecast, s_per_shard=step), history=())


def bytes_loading() -> DeploymentState:
    return loading("bytes", 2_790_000_000, 8_380_000_000)


def test_bars_in_words() -> None:
    assert how_far(Loader("model", 14, 64)) == "14 of 64 shards"
    assert how_far(Loader("model", 150, 1311, "tensors")) == "150 of 1,311 tensors"
    assert how_far(Loader("model", 2.79e9, 8.38e9, "bytes")) == "2.8 of 8.4 GB"
    assert gigabytes_s(Loader("model", 2.79e9, 8.38e9, "bytes", 10.0, (), 12.0)) == pytest.approx(1.395)
    assert gigabytes_s(Loader("model", 2.79e9, 8.38e9, "bytes", 10.0, (), 10.0)) is None
    assert gigabytes_s(Loader("model", 14, 64, "shards", 10.0, (), 12.0)) is None


def test_everywhere_in_bytes() -> None:
    state = bytes_loading()
    assert state.load is not None
    assert state.load.shards is not None
    drawn = "\n".join(shard.plain for shard in shards(state, state.load.shards, 74, 8, True))
    assert "loaded 2.8 of 8.4 GB   at 1.21 GB/s" in drawn
    assert drawn.endswith("8.4 GB")
    assert not any(word in drawn for word in ("byte", "in hand", "000", "e+"))
    assert not_ready_reason(state) == "the model is not up yet: 2.8 of 8.4 GB"
    assert "2.8/8.4 GB" in where(state)
    told = "\n".join(status_lines(state))
    assert "2.8 of 8.4 GB at 1.21 GB/s" in told
    assert "loading 2.8/8.4 GB," in told
    assert "2.8/8.4 GB" in "\n".join(table([state]))


@pytest.mark.parametrize("size", [(200, 60), (120, 35), (80, 24), (40, 10)])
async def test_the_screen_in_bytes(size: tuple[int, int]) -> None:
    app, _ = room(bytes_loading())
    async with app.run_test(size=size) as pilot:
        await shows(pilot, "8.4 GB")
        if size[0] >= 80:
            await shows(pilot, "33.3 %", "1.21", "GB/s")
        assert not any(word in screen(pilot) for word in ("s/byte", "s/shard", "2,790,000,000", "2790000000"))


async def test_all_deployments_in_bytes() -> None:
    app = fleet_room(own=[replace(bytes_loading(), name="a"), replace(loading("tensors", 150, 311), name="b")])
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "2.8 of 8.4 GB, 1.21 GB/s", "150 of 311, ", "s/tensor")


async def test_a_total_that_is_no_count_is_drawn_at_once() -> None:
    app, _ = room(loading("shards", 3, 999_999_999_999))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: "999,999,999,999" in screen(pilot), 5.0)

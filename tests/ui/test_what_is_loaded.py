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
from tui.widgets.load_panel import hero_facts, summary
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
    assert how_far(Loader("model", 41e6, 412e6, "bytes")) == "41 of 412 MB"
    assert how_far(Loader("model", 200e9, 547.3e9, "bytes")) == "200 of 547 GB"
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


def panel(state: DeploymentState) -> str:
    return "\n".join(row.plain for row in hero_facts(state, 48))


@pytest.mark.parametrize(
    ("gib", "read", "expected"),
    [
        (509.4, 200_000_000_000, "200 of 547 GB"),
        (2.3, 400_000_000, "0.4 of 2.5 GB"),
        (0.25, 110_000_000, "110 of 268 MB"),
        (0.02, 1_100_000_000, "read     0 MB/s"),  # its libraries, too: that is no share of the weights
    ],
)
def test_what_is_read_of_the_weights(gib: float, read: int, expected: str) -> None:
    state = scenes.SCENES["loading"](time.monotonic())
    assert state.load is not None
    assert state.machine is not None
    machine = replace(state.machine, engine_read_bytes=read, engine_read_mb_s=0.0)
    told = panel(replace(state, load=replace(state.load, checkpoint_gib=gib), machine=machine))
    assert expected in told
    assert "of 0" not in told


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"gib_per_gpu": 71.2, "model_load_s": 83.0}, "71.2 GiB a GPU, in 1:23"),
        ({"gib_per_gpu": None, "model_load_s": None, "load_s": 77.0}, "loaded in 1:17"),
        ({"gib_per_gpu": None, "model_load_s": None, "load_s": None}, "weights   —"),
    ],
)
def test_a_summary_says_of_the_weights_what_is_known(facts: dict[str, float | None], expected: str) -> None:
    state = scenes.SCENES["ready"](time.monotonic())
    assert state.load is not None
    known = replace(state.load, **facts)
    told = "\n".join(row.plain for row in summary(replace(state, load=known), 90))
    assert expected in told
    assert "— GiB" not in told

"""What a benchmark does before and after its measuring is told while it lasts: preparing, summing up, collecting, writing."""

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator
from contextlib import redirect_stderr
from typing import Any

import pytest

from tui.cli.bench_tables import LiveView, status
from tui.core.bench_documents import SLICE, is_much, json_pieces, plain, recorded
from tui.core.bench_plan import Step
from tui.core.bench_result import BenchProgress, Plan, Point, Result, Vantage
from tui.probe.load import Heartbeat, frames, pieces
from tui.services.bench_generator import LoadGenerator, Measurement
from tui.services.bench_point import progress_of
from tui.widgets.bench_pane import progress_line
from tui.wire.request_record import COMPLETED, RequestRecord
from tui.wire.summary import ARRAYS

WORK = "summing up 5,000 requests"


class Sink:
    """A link to a client that takes what it is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.came = threading.Event()

    def outlet_blocked(self) -> bool:
        return False

    def send(self, frame: dict[str, Any]) -> None:
        self.sent.append(frame)
        self.came.set()


def test_long_work_is_told_each_second_and_no_more_at_its_end() -> None:
    sink = Sink()
    with Heartbeat(sink, 3, "summing up", WORK) as telling:  # type: ignore[arg-type]
        assert sink.came.wait(20)
        telling.end()
        count = len(sink.sent)
        telling.end()
    assert len(sink.sent) == count
    frame = sink.sent[0]
    assert frame["elapsed_s"] >= 1.0
    progress = progress_of(frame, 3, 9, Step(64, None, {"requests": 8}))
    assert (progress.stage, progress.work, progress.waiting_s) == ("summing up", WORK, None)


@pytest.mark.parametrize(
    ("elapsed", "done", "left"),
    [
        (5.0, 0, 15.0),
        (25.0, 0, None),  # nothing has ended: nobody knows
        (25.0, 10, 75.0),  # 40 at least
        (5.0, 39, 15.0),
        (19.0, 45, 1.0),
        (21.0, 45, None),  # what is in flight
        (170.0, 10, 10.0),  # it ends after 180 s, whatever is done
        (181.0, 10, None),
    ],
)
def test_how_long_a_point_takes_that_has_no_set_end(elapsed: float, done: int, left: float | None) -> None:
    order = {"at_least": 40, "at_least_s": 20.0, "at_most_s": 180.0}
    progress = progress_of({"stage": "measuring", "elapsed_s": elapsed, "done": done, "chunks": 9}, 0, 1, Step(10, None, order))
    assert progress.left_s == left
    shown = progress_line(progress, 100).plain
    assert ("left" in shown) == (left is not None)
    assert "0:00" not in shown


def test_short_work_is_not_told() -> None:
    sink = Sink()
    with Heartbeat(sink, 3, "summing up", WORK):  # type: ignore[arg-type]
        pass
    assert sink.sent == []


class SlowProbe:
    """A load generator that has measured, and whose records come when it is let."""

    def __init__(self, records: list[RequestRecord]) -> None:
        self.go = asyncio.Event()
        self.records = records

    async def send(self, message: dict[str, Any]) -> None:
        assert message["do"] == "point"

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        cut = [self.records[:1], self.records[1:]]
        assert len(pieces(self.records)) == 1  # cut here by hand
        figures = {"num_prompts": len(self.records)}
        empty: dict[str, Any] = {"client": {}, "before": [], "after": [], "peaks": {}, "stopped": "", "begin": 1.0}
        yield {"f": "point", "id": 0, "figures": figures, "pieces": len(cut), **empty}
        await self.go.wait()
        for frame in frames(cut, 0, False):
            yield frame


async def test_records_that_take_long_are_told_of() -> None:
    records = []
    for index in range(3):
        record = RequestRecord(index, 2)
        record.start, record.state, record.n_out = 1.0, COMPLETED, 2
        record.chunks.extend([2.0, 3.5])
        records.append(record)
    probe = SlowProbe(records)
    source = LoadGenerator(probe, Vantage.HOST)  # type: ignore[arg-type]
    told = []
    measured = None
    step = Step(1, None, {"requests": 3})
    async for item in source.measure(0, step, limits={}, arrays=ARRAYS, workers=1):
        if isinstance(item, Measurement):
            measured = item
        else:
            told.append(progress_of(item, 0, 1, step))
            probe.go.set()
    assert [(progress.stage, progress.work) for progress in told] == [("collecting", "collecting the records of 3 requests, 0 %")]
    assert measured is not None
    assert measured.detail is not None
    assert measured.detail["itls"] == [[1.5]] * 3
    assert measured.lost == ""


@pytest.mark.parametrize("width", [40, 76, 120])
def test_its_words(width: int) -> None:
    progress = BenchProgress(1, 3, 64, "summing up", elapsed_s=12.4, work=WORK)
    assert status(progress) == "point 2/3 · 64 streams · summing up 5,000 requests · 12 s"
    line = progress_line(progress, width)
    assert line.cell_length == width
    assert line.plain.endswith("0:12")
    assert WORK[:16] in line.plain
    assert "in flight" not in status(progress)


def test_without_a_terminal_it_is_told_after_a_while_and_then_now_and_again() -> None:
    said = io.StringIO()
    with redirect_stderr(said), LiveView(Plan(), live=False, quiet=False) as view:
        for at in (1.0, 2.1, 3.1, 11.0, 12.2):
            view.progress(BenchProgress(0, 1, 64, "summing up", elapsed_s=at, work=WORK))
        view.progress(BenchProgress(0, 1, 64, "measuring"))
        view.progress(BenchProgress(0, 1, 64, "summing up", elapsed_s=1.5, work=WORK))
    assert [line.rpartition(" · ")[2] for line in said.getvalue().splitlines()] == ["2 s", "12 s"]
    with redirect_stderr(said := io.StringIO()), LiveView(Plan(), live=False, quiet=True) as view:
        view.progress(BenchProgress(0, 1, 64, "summing up", elapsed_s=9.0, work=WORK))
    assert said.getvalue() == ""


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        {"a": [], "b": {"c": 1.5, "d": None}, 'e"\n': "ü"},
        {"itls": [[0.1 * i, 1e-9] for i in range(2 * SLICE + 1)], "errors": [""] * SLICE, "n": list(range(SLICE + 1))},
        ({"points": ({"detail": {"texts": ["x"] * 200}}, {})}, "mixed", [1, {"a": (1, 2)}]),
    ],
)
def test_pieces_of_json_make_what_the_whole_is(value: Any) -> None:
    assert "".join(json_pieces(value)) == json.dumps(value)


def test_a_result_as_plain_objects_shares_its_arrays() -> None:
    detail: dict[str, list[Any]] = {"latencies": [0.3, 0.4], "itls": [[0.1], [0.2]]}
    result = Result("e", "m", Vantage.HOST, Plan(), (Point(1, {"completed": 2}, detail), Point(2, {})))
    kept = plain(result)
    assert kept["points"][0] == {"concurrency": 1, "figures": {"completed": 2}, "detail": detail}
    assert kept["points"][0]["detail"] is detail
    assert kept["plan"]["concurrency"] == (1,)
    assert plain(result, detailed=False)["points"][0]["detail"] is None
    assert (recorded(result), is_much(result)) == (2, False)

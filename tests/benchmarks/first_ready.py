"""Judge the estimate of a very first start, and make the table of recorded starts that it rests on.

    python tests/benchmarks/first_ready.py [FOLDER …]          each start estimated from all the others
    python tests/benchmarks/first_ready.py --table [FOLDER …]  the table of tui/core/logs/recorded_starts.py

A folder holds logs of starts that became ready; without one, all of tests/data/logs is read. A log is replayed by its own clock.
At each share of the time that the start took, the middle of the range is compared with the truth; the start itself,
and in the second table all starts of the same machine, are left out of what it is estimated from.
"""

import argparse
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

from tui.core.logs.forecast import make_forecast, typical_step
from tui.core.logs.load_state import Loader, LoadState, Phase
from tui.core.logs.log_reader import LogReader
from tui.core.logs.ready_estimate import release_of
from tui.core.logs.recorded_starts import PHASES, RecordedStart

DATA = Path(__file__).parent.parent / "data" / "logs"
SHARES = (0.10, 0.25, 0.50, 0.75)
NAME = 26
"""Characters of a log's name in the table, enough to find it."""
HEADER = "source engine rel dev eager graphs cached backend ranks GiB start load post prof comp kv capt warm"
SHORTEST_S = 5.0
"""A start of fewer seconds says nothing in a clock of whole ones."""


class Replayed(Struct, frozen=True):
    """A start that became ready: its states as they became known, and the row that it makes."""

    row: RecordedStart
    began: float
    took: float
    states: tuple[tuple[float, LoadState], ...]


def replay(path: Path, name: str) -> Replayed | None:
    """Read a log by its own clock; None if it holds no whole start with times."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    reader = LogReader(year=2026)
    states: list[tuple[float, LoadState]] = []
    for text in raw.decode("utf-8", "replace").splitlines():
        reader.feed(text)
        state = reader.state
        if state.last_line_at is not None:
            states.append((state.last_line_at, state))
        if state.ready:
            row = recorded(state, name)
            if row is None or state.started_at is None or state.ready_at is None:
                return None
            return Replayed(row, state.started_at, state.ready_at - state.started_at, tuple(states))
    return None


def recorded(load: LoadState, source: str) -> RecordedStart | None:
    """Return the row of a start that is ready; None if it was not seen whole."""
    if load.started_at is None or load.ready_at is None or load.ready_at - load.started_at < SHORTEST_S:
        return None
    phases: dict[Phase, float] = {}
    for span in load.phases:
        if span.seconds is not None:
            phases[span.name] = round(phases.get(span.name, 0.0) + span.seconds, 1)
    if load.shards is None and not phases.get(Phase.LOADING):
        return None
    split = (load.tensor_parallel or 1) * (load.pipeline_parallel or 1)
    gib = load.gib_per_gpu if load.gib_per_gpu is not None else load.checkpoint_gib / split if load.checkpoint_gib else None
    return RecordedStart(
        source=source,
        engine=load.engine or "",
        release=release_of(load.version),
        device=load.device or ("cuda" if load.gib_per_gpu is not None else None),
        eager=load.eager,
        graph_sizes=load.graph_sizes,
        compile_cached=load.compile_cached,
        backend=load.attention_backend,
        ranks=split * (load.data_parallel or 1),
        gib=None if gib is None else float(f"{gib:.3g}"),
        phases=phases,
    )


def starts(folders: Sequence[Path]) -> Iterator[Replayed]:
    """Yield the starts of all logs, each once: some fixtures go on where another one ends, or dress it up."""
    seen = set()
    for folder in folders:
        for path in sorted(folder.rglob("*.log*"), key=lambda path: (path.parent.name == "made", path)):
            if path.name.endswith((".jsonl", ".jsonl.gz")):
                continue
            name = f"{path.parent.name}/{path.name.partition('.log')[0]}"
            found = replay(path, name)
            if found is None:
                continue
            same = (found.row.engine, found.row.gib, *found.row.phases.items())
            if same not in seen:
                seen.add(same)
                yield found


def at_moment(start: Replayed, now: float) -> LoadState:
    return max(((at, state) for at, state in start.states if at <= now), key=lambda pair: pair[0], default=start.states[0])[1]


def table(found: Sequence[Replayed]) -> Iterator[str]:
    """Yield the lines of the table, in columns."""
    rows = [HEADER.split()]
    for start in found:
        row = start.row
        release = None if row.release is None else "{}.{}".format(*row.release)
        backend = row.backend and row.backend.replace(" ", "_")
        facts = (
            row.source[:NAME],
            row.engine,
            release,
            row.device,
            row.eager,
            row.graph_sizes,
            row.compile_cached,
            backend,
            row.ranks,
        )
        rows.append([_cell(value) for value in (*facts, row.gib, *map(row.phases.get, PHASES))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        yield " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def judge(found: Sequence[Replayed], apart: bool) -> Iterator[str]:
    """Yield the rows of a table: the error of each start, then the medians and how often the truth lay inside."""
    errors: dict[float, list[float]] = {share: [] for share in SHARES}
    wholes: dict[float, list[float]] = {share: [] for share in SHARES}
    inside: dict[float, list[bool]] = {share: [] for share in SHARES}
    for start in found:
        kin = _group(start)
        others = [other.row for other in found if other is not start and not (apart and _group(other) == kin)]
        cells = []
        for share in SHARES:
            now = start.began + share * start.took
            load = at_moment(start, now)
            bar = load.shards
            if load.phase is Phase.LOADING and bar is not None and bar.done < bar.total and _is_cut(bar, now):
                cells.append("cut")
                continue
            forecast = make_forecast(load, now, recorded=others, gpus=start.row.device == "cuda")
            truth = start.took * (1 - share)
            if forecast.ready_eta_s is None or forecast.ready_low_s is None or forecast.ready_high_s is None:
                cells.append("—")
                continue
            errors[share].append(abs(forecast.ready_eta_s - truth) / truth)
            wholes[share].append(abs(forecast.ready_eta_s - truth) / start.took)
            # A clock of whole seconds tells both ends of what is left only to the second.
            inside[share].append(forecast.ready_low_s - 1 <= truth <= forecast.ready_high_s + 1)
            sign = "" if inside[share][-1] else " ✗"
            cells.append(f"{forecast.ready_low_s:.0f} … {forecast.ready_high_s:.0f} ({truth:.0f}){sign}")
        yield f"| {start.row.source} | {start.took:.0f} s | " + " | ".join(cells) + " |"
    yield _row("median error, of what was left", [f"{100 * median(errors[share]):.0f} %" for share in SHARES])
    yield _row("median error, of the whole start", [f"{100 * median(wholes[share]):.0f} %" for share in SHARES])
    yield _row("truth inside", [f"{sum(inside[share])} of {len(inside[share])}" for share in SHARES])


def _is_cut(bar: Loader, now: float) -> bool:
    """Tell whether the log leaves out the shards' lines around a moment, as excerpts do: no server is silent for so long."""
    usual = max(typical_step(bar) or 0.0, *bar.step_seconds[:1], 1.0)
    return bar.last_at is not None and now - bar.last_at > 3 * usual


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | | " + " | ".join(cells) + " |"


def _group(start: Replayed) -> str:
    """Return the machine that a start was recorded on, as far as it can be told; re-created logs have one each."""
    row = start.row
    if row.device == "cpu":
        return row.source.partition("/")[0]
    return "h200" if row.source.startswith("h200/") else row.source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    found = list(starts(options.folders or [DATA]))
    if options.table:
        print("\n".join(table(found)))
        return
    for apart in (False, True):
        print("\nwithout the machine's other starts\n" if apart else "\nwithout the start itself\n")
        print("| start | took | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |")
        print("| --- | ---: | " + " | ".join("---:" for _ in SHARES) + " |")
        print("\n".join(judge(found, apart)))


if __name__ == "__main__":
    main()

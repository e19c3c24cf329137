"""Replays timed captures of real loads and prints how far off the estimates were, and whether the stall verdict kept quiet.

    python tests/benchmarks/replay_loads.py [CAPTURE …]

A capture is a file of JSON lines: `[seconds, base64]` or `{"t": seconds, "b": base64}`; `.gz` is unpacked.
"""

import base64
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tui.core.logs.forecast import make_forecast
from tui.core.logs.load_state import Phase, Verdict
from tui.core.logs.log_reader import LogReader
from tui.core.text import LineSplitter

DATA = Path(__file__).parent.parent / "data" / "logs"
START = 1_796_000_000.0
"""Some moment: captures count from 0."""


def chunks(path: Path) -> Iterator[tuple[float, bytes]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for line in raw.splitlines():
        record = json.loads(line)
        at, data = (record["t"], record["b"]) if isinstance(record, dict) else record
        yield START + at, base64.b64decode(data)


def replay(path: Path, judge_every: float = 0.25) -> dict[str, object]:
    """Feed the capture at its own pace and judge at each step of a virtual clock."""
    reader, splitter = LogReader(), LineSplitter()
    estimates: dict[int, tuple[float, float]] = {}
    last_shard = None
    stalls: list[tuple[float, str]] = []
    now = None
    for at, data in chunks(path):
        while now is not None and now + judge_every < at:
            now += judge_every
            forecast = make_forecast(reader.state, now)
            if forecast.verdict is Verdict.STALLED:
                stalls.append((now - START, forecast.reason))
        now = at
        for line in splitter.feed(data):
            before = reader.state.shards.done if reader.state.shards else 0
            reader.feed(line, at)
            bar = reader.state.shards
            if bar is None or bar.done == before:
                continue
            if bar.done >= bar.total:
                last_shard = last_shard or at
            for share in (25, 50, 75):
                if share not in estimates and bar.done >= share / 100 * bar.total and bar.done < bar.total:
                    eta = make_forecast(reader.state, at).shards_eta_s
                    if eta is not None:
                        estimates[share] = (at, eta)
    errors = {}
    if last_shard is not None:
        for share, (at, eta) in estimates.items():
            truth = last_shard - at
            errors[share] = (eta - truth, truth)
    return {"errors": errors, "stalls": stalls, "phase": reader.state.phase}


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or [
        *sorted((DATA / "h200").glob("*.ts")),
        *sorted((DATA / "cpu").glob("*.jsonl.gz")),
    ]
    for path in paths:
        found = replay(path)
        errors, stalls, phase = found["errors"], found["stalls"], found["phase"]
        assert isinstance(errors, dict)
        assert isinstance(stalls, list)
        assert isinstance(phase, Phase)
        parts = [
            f"{share} %: {error:+6.2f} s of {truth:6.2f} ({100 * error / truth:+.0f} %)" for share, (error, truth) in errors.items()
        ]
        quiet = "never stalled" if not stalls else f"stalled {len(stalls)}x, first at {stalls[0][0]:.1f} s: {stalls[0][1]}"
        print(f"{path.name:34} {phase.value:9} {' · '.join(parts) or 'no estimate'} · {quiet}")


if __name__ == "__main__":
    main()

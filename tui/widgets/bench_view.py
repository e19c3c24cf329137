"""What the benchmark pane draws, as pure functions of its values and its size."""

import re
from collections.abc import Sequence

from textual.content import Content

from tui.core.benchmark import Plan, Point, Progress, Result, Vantage
from tui.core.benchmark_knee import knee_words
from tui.core.benchmark_open import asked_rate
from tui.core.benchmark_report import what_was_sent
from tui.core.benchmark_soak import decays, soak_words
from tui.core.comparison import change_of, drift
from tui.core.counted import counted
from tui.core.text import clean
from tui.widgets.figures import BE, BP, B, E, G, Part, W, big, fit, label, line, meter, spread
from tui.widgets.numbers import change, clock, three, whole
from tui.widgets.sweep import TTFT_LIMIT_MS

VANTAGES = {Vantage.HOST: "on the host", Vantage.DIRECT: "from here", Vantage.TUNNEL: "from here, through the link"}
WAITING_S = 2.0
"""A first reply that takes longer is waited for in words."""

SPREAD = (
    ("TTFT ms", "ttft_ms"),
    ("TPOT ms", "tpot_ms"),
    ("ITL ms", "itl_ms"),
    ("E2EL ms", "e2el_ms"),
    ("answer ms", "first_answer_ms"),
)


def how(plan: Plan | None, result: Result | None) -> Content:
    """How it was measured: `on the host · 512 in, 256 out · unique prompts · vLLM definitions`."""
    plan = result.plan if result is not None else plan
    if plan is None:
        return Content("")
    vantage = result.vantage if result is not None else plan.vantage
    parts = [VANTAGES[vantage]] if vantage is not None else []
    return line(label(" · ".join([*parts, *what_was_sent(plan), "vLLM definitions"])))


def measured(points: Sequence[Point]) -> list[Point]:
    """The points without the repetitions of the first one, and without one that was cut before its end."""
    return [point for point in points if not point.figures.get("repeat") and not point.figures.get("cut")]


def single_of(points: Sequence[Point]) -> Point | None:
    return next((point for point in measured(points) if point.concurrency == 1), None)


def hero(points: Sequence[Point], previous: Result | None, running: bool, width: int, *, several: bool = True) -> list[Content]:
    """Five lines: peak, single stream with its change, the most streams within the TTFT limit. `several`: points are planned."""
    known = [(rate, point) for point in measured(points) if (rate := point.get("output_throughput")) is not None]
    cells: list[tuple[str, str, Content, str]] = []
    if len(known) > 1 or (several and not (known and known[0][1].concurrency == 1)):
        most, at = max(known, key=lambda one: one[0]) if known else (None, None)
        streams = " stream" if at is not None and at.concurrency == 1 else " streams"
        foot = line(label("tok/s at "), (str(at.concurrency), B), label(streams)) if at is not None else line(label("tok/s"))
        cells.append(("peak so far" if running else "peak", _figure(most), foot, BP))
    single = single_of(points)
    rate = single.get("output_throughput") if single else None
    cells.append(("single stream", _figure(rate), _single_foot(single, previous, width // 3 - 1), B))
    if len(known) > 1:
        within = [(p.concurrency, r) for r, p in known if (wait := p.get("p99_ttft_ms")) is not None and wait <= TTFT_LIMIT_MS]
        best = max(within, default=None)
        foot = line(label("streams, "), (three(best[1]), B), label(" tok/s")) if best else line(label("streams"))
        cells.append(("TTFT p99 under 2 s", str(best[0]) if best else "0", foot, B))
    elif single is not None:
        cells.append(("TTFT p50", _figure(single.get("median_ttft_ms")), line(label("ms")), B))
        cells.append(("TPOT p50", _figure(single.get("median_tpot_ms")), line(label("ms a token")), B))
    each = max(1, width // len(cells))
    rows: list[list[Part]] = [[] for _ in range(5)]
    for title, text, foot, style in cells:
        for row, one in enumerate([line(label(title)), *big(text, style), foot]):
            shown = one.truncate(each - 1, ellipsis=True) if one.cell_length >= each else one
            rows[row] += [shown, " " * (each - shown.cell_length)]
    return [line(*row) for row in rows]


def _figure(value: float | None) -> str:
    return three(value)


def _single_foot(single: Point | None, previous: Result | None, room: int) -> Content:
    before = single_of(previous.points) if previous is not None else None
    if single is None or before is None:
        return line(label("tok/s"))
    found = change_of("output_throughput", before, single)
    if found.share is None or found.before is None:
        return line(label("tok/s"))
    words = f"{change(found.after, found.before)} {found.sign}".rstrip()
    told: Part = label(words) if found.better is None else (words, G if found.better else W)
    full = line(label("tok/s "), told, label(" on the run before"))
    return full if full.cell_length <= room else line(label("tok/s "), told, label(" on last"))


def progress_line(progress: Progress, width: int) -> Content:
    """`◐ 128 streams  312 of 512 requests  3,598 tok/s   ▊▊▊▌▏▏  1:10 left`."""
    left: list[Part] = [("◐ ", BP), (counted(progress.concurrency, "stream"), B)]
    if progress.work:
        since = line(label(clock(progress.elapsed_s)))
        told = line(*left, label(f"  {progress.work}"))
        return spread(width, told.truncate(max(1, width - since.cell_length - 2), ellipsis=True), since)
    if progress.stage and progress.stage != "measuring":
        left.append(label(f"  {progress.stage}"))
    if progress.waiting_s is not None and progress.waiting_s >= WAITING_S:
        if progress.failed:
            left.append((f"  ✗ {progress.failed:,} failed", BE))
        told = line(*left, label(f"  waiting for the first reply, {clock(progress.waiting_s)}"))
        return told if told.cell_length <= width else line(*left, label(f"  no reply, {clock(progress.waiting_s)}"))
    done = f"{progress.done:,} of {counted(progress.planned, 'request')}" if progress.planned else counted(progress.done, "request")
    left.append(label(f"  {done}"))
    if progress.failed:
        left.append((f"  ✗ {progress.failed:,} failed", BE))
    rate: list[Part] = (
        [label("  "), (three(progress.tokens_s), B), label(" tok/s")]
        if progress.tokens_s is not None and progress.waiting_s is None
        else []
    )
    after = f"  {clock(progress.left_s)} left" if progress.left_s is not None else f"  {clock(progress.elapsed_s)}"
    share = _share(progress)
    bar = meter(round(share * 20), 20, 20) if share is not None else Content("")
    end = line(label(after.strip()))
    whole_right = line(bar, label(after))
    full = line(*left, *rate)
    if full.cell_length + whole_right.cell_length + 2 <= width:
        return spread(width, full, whole_right)
    return spread(width, full if full.cell_length + end.cell_length + 2 <= width else line(*left), end)


def _share(progress: Progress) -> float | None:
    if progress.stage in ("preparing", "warm-up"):
        return None
    if progress.left_s is not None and progress.elapsed_s + progress.left_s > 0:
        return progress.elapsed_s / (progress.elapsed_s + progress.left_s)
    # its time is over, and nobody knows when the rest has come: the bar stays where it stands
    return progress.done / progress.planned if progress.planned else 1.0


def one_point(point: Point, width: int, height: int) -> list[Content]:
    """A single point has no curve: its spread instead."""
    cell = min(12, max(8, (width - 14) // 5))
    heads = ("mean", "p50", "p90", "p99", "std")
    shown = [name for name in heads if 14 + cell * (heads.index(name) + 1) <= width]
    out = [line(label(fit("", 14)), *((f"{name:>{cell}}", B) for name in shown))]
    known = [one for one in SPREAD if one[1] != "first_answer_ms" or point.get("median_first_answer_ms") is not None]
    for title, key in known:
        names = {"mean": f"mean_{key}", "p50": f"median_{key}", "p90": f"p90_{key}", "p99": f"p99_{key}", "std": f"std_{key}"}
        values = [point.get(names[name]) for name in shown]
        out.append(line(label(fit(title, 14)), *(f"{three(value):>{cell}}" for value in values)))
    failed = point.get("failed")
    out += [
        Content(""),
        line(
            label(fit("requests", 14)),
            (whole(point.get("completed")), B),
            label(" completed"),
            (f", ✗ {whole(failed)} failed", BE) if failed else label(", 0 failed" if failed is not None else ""),
            label("  in "),
            clock(point.get("duration")),
            label(f", {three(good)} good/s" if (good := point.get("request_goodput")) is not None else ""),
        ),
        line(
            label(fit("tokens", 14)),
            (whole(point.get("total_input_tokens")), B),
            label(" in, "),
            (whole(point.get("total_output_tokens")), B),
            label(" out"),
            label(f", {three(point.get('tokens_per_chunk'))} a chunk" if point.get("tokens_per_chunk") else ""),
        ),
    ]
    return out[:height]


def remarks(result: Result | None, points: Sequence[Point], problem: str | None) -> list[Content]:
    """What must be known beside the figures: why it ended early, warnings, failures with their first words, drift, conclusions."""
    out: list[Content] = []
    if problem:
        out.append(line(("✗ ", BE), (problem, E)))
    if result is not None and result.stopped:
        cut = [_name(point) for point in points if point.figures.get("cut")]
        told = f" (▲{', '.join(cut)} was cut: on no curve)" if cut else ""
        out.append(line(("▲ ", W), f"incomplete: {result.stopped}{told}"))
    if result is not None and (moved := drift(result)) is not None and moved.better is not None:
        sign = "+" if moved.better else "−"
        share = abs(moved.share or 0.0) * 100
        out.append(line(("▲ ", W), f"the server drifted: the first point again at the end {sign}{share:.0f} %"))
    for point in points:
        examples = point.figures.get("error_examples")
        if point.get("failed") and isinstance(examples, list) and examples and isinstance(examples[0], dict):
            out.append(
                line(("✗ ", BE), (f"{_name(point)}: ", B), clean(str(examples[0].get("message") or examples[0].get("kind"))))
            )
    out += _warnings(points)
    if result is not None and result.plan.kind == "soak" and result.points:
        out.append(line(("▲ ", W) if decays(result) else label("· "), soak_words(result)))
    if result is not None and (knee := knee_words(result)) is not None:
        out.append(line(label("· "), knee))
    return out


def _name(point: Point) -> str:
    """What stands above its column."""
    rate = asked_rate(point)
    return str(point.concurrency) if rate is None else f"{rate:g}/s"


def _warnings(points: Sequence[Point]) -> list[Content]:
    """The points' warnings, those of one kind in one line: `▲ 1, 2, 4: too short for its p99`."""
    at: dict[str, list[Point]] = {}
    first: dict[str, str] = {}
    for point in points:
        warnings = point.figures.get("warnings")
        for one in warnings if isinstance(warnings, list) else ():
            words = clean(str(one))
            kind = re.sub(r"\b\d[\d,.]*\s+", "", words.partition(":")[0]).strip() or words
            at.setdefault(kind, []).append(point)
            first.setdefault(kind, words)
    out = []
    for kind, where in at.items():
        # the first point comes again at the end, for drift
        ordered = list(dict.fromkeys(_name(point) for point in sorted(where, key=lambda one: one.concurrency)))
        shown = ", ".join(ordered) if len(ordered) < 4 else f"{ordered[0]} to {ordered[-1]}"
        out.append(line(("▲ ", W), (f"{shown}: ", B), first[kind] if len(where) == 1 else kind))
    return out

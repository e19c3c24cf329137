"""The `log` document, and the report that a person reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from tui.core.logs.load_state import Forecast, LoadState, Phase, PhaseSpan, Verdict
from tui.core.presentation import counted, doing_briefly, duration, how_far, name_of
from tui.engines.registry import title_of

BAR_CELLS = 20
_PARTS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text. `role` is one of title, good, warn, bad, label, value, dim."""

    text: str
    role: str = "value"


Row = tuple[Span, ...]

_HEADS: dict[Phase, tuple[str, str, str]] = {
    Phase.READY: ("✓", "good", "ready"),
    Phase.FAILED: ("✗", "bad", "failed"),
    Phase.STOPPED: ("■", "dim", "stopped cleanly"),
}


def lines(
    load: LoadState,
    forecast: Forecast,
    *,
    context: Sequence[tuple[int, str]] = (),
    source: str = "",
    ascii_bars: bool = False,
    zone: tzinfo = UTC,
    advice: Sequence[str] | None = None,
) -> tuple[Row, ...]:
    """Return the report. `context` are numbered, cleaned lines around the cause; `source` is named in the first row.

    `zone` writes the times: UTC leaves the clock of a saved log as it is. `advice` is what to do about the failure, where more is
    known than the log tells.
    """
    rows: list[Row] = [_headline(load, forecast, source)]
    rows += _cause(load, context, advice)
    rows += _timeline(load, forecast, ascii_bars, zone)
    rows += _facts(load, forecast)
    rows += _remarks(load)
    return tuple(rows)


def plain(rows: Sequence[Row]) -> str:
    """Return the report without colours."""
    return "\n".join("".join(span.text for span in row).rstrip() for row in rows)


# -- the verdict -------------------------------------------------------------------------------------------------------------------


def _headline(load: LoadState, forecast: Forecast, source: str) -> Row:
    mark, role, word = _HEADS.get(load.phase, ("●", "warn", name_of(load.phase)))
    if load.phase is Phase.READY and forecast.verdict is Verdict.HUNG:
        mark, role, word = "▲", "bad", "ready, but hung"
    if forecast.verdict is Verdict.UNKNOWN and load.foreign:
        mark, role, word = "—", "warn", "no server log"
    spans = [Span(f"{mark} {word}", role)]
    if load.phase is Phase.FAILED and load.failure is not None:
        spans.append(Span(f" while {doing_briefly(load.failure.phase)}: {load.failure.kind.replace('_', ' ')}", role))
    elif load.phase is Phase.READY and forecast.ready_s is not None:
        spans.append(Span(f" after {duration(forecast.ready_s)}"))
    elif load.phase is Phase.STOPPED:
        spans.append(Span(", had been ready" if load.was_ready else ", before it was ready", "dim"))
    elif forecast.reason and load.phase is not Phase.FAILED:
        spans.append(Span(f": {forecast.reason.removeprefix(f'{word}: ')}"))
    if forecast.ends:
        spans.append(Span(f" · {forecast.ends}", "warn"))
    if load.restarts:
        spans.append(Span(f" · start {load.restarts + 1} in this log", "dim"))
    if source:
        spans.append(Span(f"   {source}", "dim"))
    return tuple(spans)


def _cause(load: LoadState, context: Sequence[tuple[int, str]], advice: Sequence[str] | None) -> list[Row]:
    failure = load.failure
    if failure is None:
        return []
    where = " · ".join(part for part in (failure.process or "", f"line {failure.line:,}" if failure.line else "") if part)
    rows: list[Row] = [
        (),
        (Span("Cause", "title"), Span(f"   {where}" if where else "", "dim")),
        (Span(f"  {failure.cause}", "bad"),),
    ]
    steps = advice if advice is not None else [failure.advice] if failure.advice else []
    if steps:
        rows += [(Span("Advice", "title"),), *((Span(f"  {step}", "good"),) for step in steps)]
    if context:
        width = len(f"{context[-1][0]}")
        rows += [(Span("Lines", "title"),)]
        rows += [
            (
                Span(f"  {number:>{width}} ", "dim"),
                Span("▶ " if number == failure.line else "  ", "bad"),
                Span(text, "value" if number == failure.line else "dim"),
            )
            for number, text in context
        ]
    return rows


# -- the time line -----------------------------------------------------------------------------------------------------------------


def _timeline(load: LoadState, forecast: Forecast, ascii_bars: bool, zone: tzinfo) -> list[Row]:
    spans = _merged(load.phases)
    if not spans:
        return []
    dated = load.started_at is not None and load.started_at >= UNDATED_S
    began = f"   from {when(load.started_at, zone)}" if load.started_at is not None and dated else ""
    rows: list[Row] = [(), (Span("Time line", "title"), Span(began, "dim"))]
    before = [span for span in spans if span.name not in (Phase.READY, Phase.STOPPED, Phase.FAILED)]
    end = load.last_line_at
    lasting = [end - span.started_at for span in before if end is not None and span.seconds is None and span.started_at is not None]
    longest = max((*(span.seconds or 0.0 for span in before), *lasting), default=0.0)
    for span in spans:
        seconds = span.seconds
        running = seconds is None and span.name not in (Phase.STOPPED, Phase.FAILED)
        if running and span.started_at is not None and load.last_line_at is not None:
            seconds = max(0.0, load.last_line_at - span.started_at)
        share = (seconds or 0.0) / longest if longest and span in before else 0.0
        took = _took(seconds) if seconds is not None else "—" if running else ""
        rows.append(
            (
                Span(f"  {name_of(span.name):<13}", "label"),
                Span(f"{took:>11}{'…' if running else ' '} "),
                Span(f"{_bar(min(share, 1.0), ascii_bars):<{BAR_CELLS}} ", "good"),
                Span(_detail(load, forecast, span), "dim"),
            )
        )
    if load.silences:
        words = ", ".join(
            f"{duration(item.seconds)} in {name_of(item.phase)} (to line {item.line:,})" for item in load.silences[:3]
        )
        rows.append((Span("  longest silences: ", "label"), Span(words, "dim")))
    return rows


def _took(seconds: float) -> str:
    """Return a duration no finer than the log's clock, which mostly tells whole seconds."""
    return f"{seconds:.0f} s" if seconds < 10 and seconds == round(seconds) else duration(seconds)


def _merged(spans: Sequence[PhaseSpan]) -> list[PhaseSpan]:
    """Leave out stretches without length between others, which only say that two lines came together."""
    return [span for span in spans if span.seconds is None or span.seconds >= 0.05 or len(spans) <= 2]


def _detail(load: LoadState, forecast: Forecast, span: PhaseSpan) -> str:
    match span.name:
        case Phase.LOADING if load.shards is not None:
            parts = [how_far(load.shards)]
            if forecast.s_per_shard is not None and load.shards.unit == "shards":
                parts.append(f"{forecast.s_per_shard:.2g} s a shard")
            if load.checkpoint_gib and load.load_s:
                parts.append(f"{load.checkpoint_gib / load.load_s:.2g} GiB/s")
            if forecast.shards_eta_s and load.phase is Phase.LOADING:
                parts.append(f"{duration(forecast.shards_eta_s)} to go")
            return ", ".join(parts)
        case Phase.CAPTURING if load.capture is not None:
            return f"{load.capture.done:.0f} of {counted(load.capture.total, 'graph')}"
        case Phase.WARMING_UP if (span.seconds or 0.0) > 30:
            return "kernel warm-up, silent"
        case Phase.READY if load.serving is not None and load.serving.generation_tokens_s is not None:
            return f"last {load.serving.generation_tokens_s:,.0f} tok/s, {load.serving.running or 0} running"
        case _:
            return ""


def _bar(share: float, ascii_only: bool) -> str:
    cells = share * BAR_CELLS
    if ascii_only:
        return "#" * max(round(cells), 1 if share > 0 else 0)
    whole = int(cells)
    part = _PARTS[int((cells - whole) * 8)]
    return "█" * whole + (part if part != " " else ("▏" if share > 0 and not whole else ""))


# -- facts -------------------------------------------------------------------------------------------------------------------------


def _facts(load: LoadState, forecast: Forecast) -> list[Row]:
    facts: list[tuple[str, str]] = []
    engine = title_of(load.engine) if load.engine else ""
    if engine or load.model:
        served = [name for name in load.served_names if name != load.model]
        text = " ".join(part for part in (engine, load.version or "") if part)
        facts.append(("server", " · ".join(part for part in (text, load.model or "") if part)))
        if served:
            facts.append(("served as", ", ".join(served)))
    parallel = [
        f"{name} {size}"
        for name, size in (("tensor", load.tensor_parallel), ("pipeline", load.pipeline_parallel), ("data", load.data_parallel))
        if size is not None
    ]
    if parallel:
        facts.append(("parallel", " · ".join(parallel)))
    model = []
    if load.max_model_len is not None:
        model.append(f"{load.max_model_len:,} tokens at most")
    if load.quantization:
        model.append(f"quantised {load.quantization}")
    if load.attention_backend:
        model.append(f"attention {load.attention_backend}")
    if model:
        facts.append(("model", " · ".join(model)))
    weights = []
    if load.gib_per_gpu is not None:
        weights.append(f"{load.gib_per_gpu:.2f} GiB a GPU")
    if load.load_s is not None:
        weights.append(f"loaded in {duration(load.load_s)}")
    if load.model_load_s is not None:
        weights.append(f"{duration(load.model_load_s)} with what follows")
    if load.download_s is not None:
        weights.append(f"downloaded in {duration(load.download_s)}")
    if load.checkpoint_gib is not None:
        weights.append(f"checkpoint {load.checkpoint_gib:,.2f} GiB")
    if weights:
        facts.append(("weights", " · ".join(weights)))
    cache = []
    if load.kv_tokens is not None:
        cache.append(f"{load.kv_tokens:,} tokens")
    if load.kv_gib_per_gpu is not None:
        cache.append(f"{load.kv_gib_per_gpu:.2f} GiB a GPU")
    if load.max_concurrency is not None:
        cache.append(f"{load.max_concurrency:g}× the longest request")
    if cache:
        facts.append(("KV cache", " · ".join(cache)))
    others = [f"{item.what} {how_far(item)}" for item in load.loaders if item.what != "model"]
    if others:
        facts.append(("also loaded", " · ".join(others)))
    if load.init_engine_s is not None:
        facts.append(("engine", f"initialised in {duration(load.init_engine_s)}"))
    counts = [counted(load.lines, "line"), counted(load.errors, "error"), counted(load.warnings, "warning")]
    if load.restarts:
        counts.append(counted(load.restarts, "restart"))
    facts.append(("log", " · ".join(counts)))
    width = max(len(name) for name, _ in facts) + 2
    return [(), (Span("Facts", "title"),), *[(Span(f"  {name:<{width}}", "label"), Span(text)) for name, text in facts]]


def _remarks(load: LoadState) -> list[Row]:
    if not load.notes:
        return []
    return [(), (Span("Notes", "title"),), *[(Span(f"  {note}", "warn"),) for note in load.notes]]


def when(at: float, zone: tzinfo = UTC) -> str:
    """Return a time of the log's own clock, or of a live one in a zone."""
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S")


SCHEMA = 1
UNDATED_S = 365 * 86400.0
"""Times below this count from when the server's process began: such a log tells no date."""


def document(load: LoadState, forecast: Forecast) -> dict[str, Any]:
    """Return the JSON of `readyroom log --json`, and of the `load` object inside `status --json`."""
    shards = load.shards
    failure = load.failure
    return {
        "schema": SCHEMA,
        "engine": load.engine,
        "version": load.version,
        "model": load.model,
        "served_names": list(load.served_names),
        "phase": load.phase.value,
        "ready": load.ready,
        "was_ready": load.was_ready,
        "verdict": forecast.verdict.value,
        "verdict_reason": forecast.reason or None,
        "shards": None
        if shards is None
        else {
            "done": shards.done,
            "total": shards.total,
            "percent": round(100 * shards.done / shards.total, 1) if shards.total else None,
            "elapsed_s": _rounded(forecast.elapsed_s),
            "s_per_shard": _rounded(forecast.s_per_shard, 3),
            "eta_s": _rounded(forecast.shards_eta_s),
        },
        "loaders": [{"what": item.what, "done": item.done, "total": item.total, "unit": item.unit} for item in load.loaders],
        "weights": {
            "load_s": load.load_s,
            "model_load_s": load.model_load_s,
            "download_s": load.download_s,
            "gib_per_gpu": load.gib_per_gpu,
            "checkpoint_gib": load.checkpoint_gib,
        },
        "kv_cache": {"tokens": load.kv_tokens, "gib_per_gpu": load.kv_gib_per_gpu, "max_concurrency": load.max_concurrency},
        "engines": load.engines,
        "parallel": {"tensor": load.tensor_parallel, "pipeline": load.pipeline_parallel, "data": load.data_parallel},
        "max_model_len": load.max_model_len,
        "quantization": load.quantization,
        "attention_backend": load.attention_backend,
        "init_engine_s": load.init_engine_s,
        "capture": None if load.capture is None else {"done": load.capture.done, "total": load.capture.total},
        "started_at": iso(load.started_at),
        "ready_s": _rounded(forecast.ready_s),
        "ready_eta_s": _rounded(forecast.ready_eta_s),
        "ready_eta_error_s": _rounded(forecast.ready_eta_error_s),
        "ready_low_s": _rounded(forecast.ready_low_s),
        "ready_high_s": _rounded(forecast.ready_high_s),
        "ends": forecast.ends or None,
        "last_line_at": iso(load.last_line_at),
        "silent_s": _rounded(forecast.silent_s),
        "phases": [
            {"name": span.name.value, "started_at": iso(span.started_at), "seconds": _rounded(span.seconds)} for span in load.phases
        ],
        "serving": None
        if load.serving is None
        else {
            "prompt_tokens_s": load.serving.prompt_tokens_s,
            "generation_tokens_s": load.serving.generation_tokens_s,
            "running": load.serving.running,
            "waiting": load.serving.waiting,
            "kv_cache_share": load.serving.kv_cache_share,
            "prefix_hit_share": load.serving.prefix_hit_share,
            "at": iso(load.serving.at),
        },
        "failure": None
        if failure is None
        else {
            "kind": failure.kind,
            "phase": failure.phase.value,
            "cause": failure.cause,
            "process": failure.process,
            "line": failure.line,
            "advice": failure.advice,
        },
        "silences": [
            {"seconds": _rounded(item.seconds), "phase": item.phase.value, "line": item.line, "at": iso(item.at)}
            for item in load.silences
        ],
        "restarts": load.restarts,
        "lines": load.lines,
        "service": load.service,
        "services": list(load.services),
        "notes": list(load.notes),
    }


def exit_code(load: LoadState) -> int:
    """Return 0 if ready, 3 on the way, 4 failed, 7 stopped."""
    if load.phase is Phase.READY:
        return 0
    return {Phase.FAILED: 4, Phase.STOPPED: 7}.get(load.phase, 3)


def iso(at: float | None) -> str | None:
    """Return a time of the log's own clock, without a zone, since it prints none; None if it has no date."""
    if at is None or at < UNDATED_S:
        return None
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def _rounded(number: float | None, digits: int = 1) -> float | None:
    return None if number is None else round(number, digits)

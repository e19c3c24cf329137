"""The load: how long still, how far, how fast, whether that is well; from the time before a start until it serves or fails."""

import time
from statistics import median

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.deployment_status import conflict_of, hang_of
from tui.core.gpu import GIB_MIB
from tui.core.logs.load_state import Forecast, Loader, LoadState, Phase, Verdict
from tui.core.presentation import (
    DASH,
    amounts,
    change,
    clock,
    gigabytes_s,
    name_of,
    one_of,
    percent,
    sizes,
    three,
    verdict_text,
    whole,
)
from tui.widgets.canvas import Canvas, drawn
from tui.widgets.draw import BP, B, P, Part, W, area, big, facts, label, line, rows, spread
from tui.widgets.failure_view import failure_view
from tui.widgets.key_bar import key_of
from tui.widgets.phase_view import before, current_step, last_time, past_loading, phase_line, phase_rows, phase_seconds, shards

VERDICTS = {
    Verdict.PROGRESSING: ("◐", "bold"),
    Verdict.ON_TIME: ("✓", "bold $success"),
    Verdict.SLOW: ("▲", "bold $warning"),
    Verdict.STALLED: ("▲", "bold $error"),
    Verdict.HUNG: ("✗", "bold $error"),
    Verdict.FAILED: ("✗", "bold $error"),
    Verdict.DONE: ("✓", "bold $success"),
}


def bar_of(load: LoadState) -> Loader | None:
    """Return the progress bar that moves now."""
    if load.phase is Phase.CAPTURING and load.capture is not None:
        return load.capture
    if load.phase is Phase.DOWNLOADING:
        download = next((bar for bar in load.loaders if bar.what == "download" and bar.total), None)
        if download is not None:
            return download
    live = [bar for bar in load.loaders if bar.total and bar.done < bar.total and bar.last_at is not None]
    if load.shards is not None and load.shards.total and (load.shards.done < load.shards.total or not live):
        return load.shards
    return max(live, key=lambda bar: bar.last_at or 0.0, default=load.shards)


def verdict(state: DeploymentState, width: int = 99) -> Content:
    """Draw the verdict in its colour; only its sign if there is no room for the word."""
    given = state.forecast.verdict
    if given is Verdict.UNKNOWN:
        return Content(DASH)
    sign, style = VERDICTS[given]
    words = f"{sign} {verdict_text(given)}"
    return line((words if len(words) <= width else sign, style))


def countdown(state: DeploymentState, wall: float) -> tuple[str, str, Content]:
    """Return what stands in big figures: name, figure, foot. `wall` is this machine's clock."""
    load, look = state.load, state.forecast
    if look.verdict in (Verdict.STALLED, Verdict.HUNG):
        return "no estimate", DASH, line(label("nothing moves"))
    if look.ready_eta_s is not None:
        return "ready in about", clock(look.ready_eta_s), _range(look, wall)
    if look.shards_eta_s is not None and load is not None and load.shards and load.shards.done < load.shards.total:
        return "shards done in about", clock(look.shards_eta_s), _at(wall + look.shards_eta_s)
    started = load.started_at if load is not None else None
    since = "since " + time.strftime("%H:%M:%S", time.localtime(started)) if started is not None else ""
    return "so far", clock(so_far(state)), line(label(since))


def so_far(state: DeploymentState) -> float | None:
    """Return the seconds since the start began, or, once it is ready, those that it took."""
    took, started = state.forecast.ready_s, state.load.started_at if state.load is not None else None
    if took is None and started is not None and (now := state.host_now) is not None:
        took = max(0.0, now - started)
    return took


def _at(wall: float, *more: Part) -> Content:
    return line(label("at "), time.strftime("%H:%M:%S", time.localtime(wall)), *more)


def _range(look: Forecast, wall: float) -> Content:
    """Draw how sure the time until ready is: `at 12:30:05 ± 0:40` from history, `1:10 to 4:30` from other servers' starts."""
    eta, low, high = look.ready_eta_s, look.ready_low_s, look.ready_high_s
    if eta is None:
        return line(DASH)
    if look.from_history or low is None or high is None:
        return _at(wall + eta, label(f" ± {clock(look.ready_eta_error_s)}" if look.ready_eta_error_s else ""))
    return line(clock(low), label(" to "), clock(high))


def hero(state: DeploymentState, width: int, wall: float) -> list[Content]:
    """Draw five lines: the big figure at the left, four facts at the right."""
    name, figure, foot = countdown(state, wall)
    left = [line(label(name)), *big(figure, BP), foot]
    start = max(24, max(row.cell_length for row in left) + 3) if width >= 54 else 0
    if not start:
        return [spread(width, left[0], verdict(state)), *left[1:]]
    told = hero_facts(state, min(48, width - start))
    return [line(row, " " * (start - row.cell_length), told[i] if i < len(told) else "") for i, row in enumerate(left)]


def hero_facts(state: DeploymentState, width: int) -> list[Content]:
    """Draw progress, pace, reads, verdict and time so far; at the right edge what to compare with."""
    load, look, past = state.load, state.forecast, last_time(state)
    if load is None:
        return []
    out = []
    current = bar_of(load)
    if past_loading(load) and (current is None or current is load.shards or current.done >= current.total):
        before = dict(past.phases).get(load.phase) if past else None
        out.append(
            spread(
                width,
                line(label("now      "), (name_of(load.phase), B), "  ", (clock(phase_seconds(state)), BP)),
                line(label("last time "), clock(before)) if before is not None else Content(""),
            )
        )
    elif current is not None and current.total:
        done, total = amounts(current)
        share = percent(current.done / current.total)
        title = current.what if current.what not in ("model", "main") and current.unit != "shards" else current.unit
        out.append(spread(width, line(label(f"{title[:8]:<9}"), (done, BP), (f" of {total}", B)), line((share, BP))))
    else:
        out.append(spread(width, line(label("phase    "), (name_of(load.phase), B))))
    usual_step = median(past.step_seconds) if past and past.step_seconds else None
    figure, per = pace_of(state)
    pace = line(label("pace     "), (figure, B), label(f" {per}"))
    out.append(spread(width, pace, line(label("last time "), three(usual_step)) if usual_step else Content("")))
    out.append(_reads(state, load, width))
    usual = line(label("last time "), clock(past.total_s)) if past else Content("")
    out.append(spread(width, line(label("verdict  "), verdict(state)), usual))
    if look.ready_eta_s is not None or look.shards_eta_s:
        out.append(line(label("so far   "), (clock(so_far(state)), B)))
    return out


def pace_of(state: DeploymentState) -> tuple[str, str]:
    """Return figure and unit of the weights' pace: `9.83` and `s/shard`, `1.21` and `GB/s`."""
    bar = state.load.shards if state.load is not None else None
    if bar is not None and bar.unit == "bytes":
        return three(gigabytes_s(bar)), "GB/s"
    return three(state.forecast.s_per_shard), f"s/{one_of(bar)}" if bar is not None else "s/shard"


def _reads(state: DeploymentState, load: LoadState, width: int) -> Content:
    machine = state.machine
    rate = (
        machine.engine_read_mb_s
        if machine and machine.engine_read_mb_s is not None
        else machine.disk_read_mb_s
        if machine
        else None
    )
    bytes_all = load.checkpoint_gib * GIB_MIB**3 if load.checkpoint_gib else None
    read = machine.engine_read_bytes if machine else None
    loaded, size = sizes(float(read or 0), bytes_all) if bytes_all else ("", None)
    shown = line((three(rate), ""), label(" MB/s"))
    bound = ("storage-bound", W) if storage_bound(state) else ""
    if read and bytes_all and read <= bytes_all:  # more than that is of other files, too
        left = line(label("read     "), (loaded, B), label(f" of {size}"))
        if bound and left.cell_length + 27 > width:  # what it waits for is worth more than how far it is, which the shards tell
            return spread(width, line(label("read     "), (three(rate), B), label(" MB/s")), line(bound))
        return spread(width, left, line(bound, "  " if bound else "", shown), shown)
    left = line(label("read     "), (three(rate), B), label(" MB/s"))
    return spread(width, left, line(bound, label("  " + size if size else "")), line(bound or label(size or "")))


def storage_bound(state: DeploymentState) -> bool:
    """Return whether the weights are being read as fast as the storage gives them."""
    return bool(state.machine and state.machine.storage_bound and state.load is not None and state.load.phase is Phase.LOADING)


def numbers(state: DeploymentState, width: int, wall: float) -> list[Content]:
    """Draw the same in big figures side by side, for wide panes."""
    load, look, past = state.load, state.forecast, last_time(state)
    name, figure, foot = countdown(state, wall)
    cells: list[tuple[str, str, Content, str]] = [(name, figure, foot, BP)]
    current = bar_of(load) if load else None
    if load is not None and past_loading(load) and (current is None or current is load.shards or current.done >= current.total):
        cells.append(("now", clock(phase_seconds(state)), line(label("in "), (name_of(load.phase), B)), B))
    elif current is not None and current.total:
        share = percent(current.done / current.total)
        done, total = amounts(current)
        title = "loaded, GB" if current.unit == "bytes" else current.unit
        cells.append((title, done, line(label("of "), (total, B), label(", " + share)), B))
    usual_step = median(past.step_seconds) if past and past.step_seconds else None
    pace, per = pace_of(state)
    compare = line(label(f"{per}, last time "), (three(usual_step), B)) if usual_step else line(label(per))
    cells.append(("pace", pace, compare, B))
    machine = state.machine
    rate = machine.disk_read_mb_s if machine else None
    cells.append(("disk read", three(rate), line(label("MB/s"), (", storage-bound" if storage_bound(state) else "", W)), B))
    if past is not None:
        cells.append(("last time", clock(past.total_s), verdict(state), B))
    else:
        cells.append(("silent for", clock(look.silent_s), verdict(state), B))
    each = width // len(cells)
    lines: list[list[Part]] = [[] for _ in range(5)]
    for title, text, under, style in cells:
        for row, part in enumerate([line(label(title)), *big(text, style), under]):
            lines[row] += [part, " " * max(1, each - part.cell_length)]
    return [line(*parts) for parts in lines]


def disk(state: DeploymentState, width: int, height: int) -> list[Content]:
    """Draw disk reads over time."""
    values = list(state.trends.disk_read_mb_s)[-width:]
    known = [value for value in values if value is not None]
    if height < 2 or not known:
        return []
    machine = state.machine
    more: list[str] = ["storage-bound"] if storage_bound(state) else []
    if machine is not None:
        if machine.page_cache_mib is not None:
            more.append(f"page cache {machine.page_cache_mib / GIB_MIB:,.0f} GiB")
        if machine.iowait_percent is not None:
            more.append(f"iowait {machine.iowait_percent:.0f} %")
    more.append(f"peak {three(max(known))}")
    head = line(label("disk read   "), (three(values[-1]), B), label(" MB/s"))
    padded: list[float | None] = [*(None for _ in range(width - len(values))), *values]
    return [
        spread(width, head, line(label("   ".join(more))), line(label("   ".join((more[0], more[-1])))), line(label(more[-1]))),
        *area(padded, height - 1, P, max(known) * 1.05),
    ]


def reason(state: DeploymentState, width: int) -> list[Content]:
    """Draw why the verdict is what it is, and where log and API disagree."""
    out = []
    if told := current_step(state, width):
        out.append(told)
    if state.forecast.verdict is not Verdict.HUNG and (hang := hang_of(state)):
        out.append(line(("▲ ", W), hang))
    if conflict := conflict_of(state):
        out.append(line(("▲ ", W), conflict))
    if state.log.of is not None:
        out.append(line(label(f"The log is {state.log.of}.")))
    look = state.forecast
    if look.ends:
        out.append(line(("▲ ", W), look.ends))
    if look.verdict in (Verdict.SLOW, Verdict.STALLED, Verdict.HUNG) and look.reason:
        out.append(line(("▲ ", W), look.reason))
    elif look.reason and look.verdict not in (Verdict.PROGRESSING, Verdict.DONE):
        out.append(line(label(look.reason)))
    if state.load:
        out += [line(label(note)) for note in state.load.notes[-2:]]
    return [part for text in out for part in text.wrap(max(8, width))]


def _weights(load: LoadState) -> str:
    """Return how large the weights are on each GPU, and what they took, as far as the log told."""
    size = f"{three(load.gib_per_gpu)} GiB a GPU" if load.gib_per_gpu is not None else ""
    if load.model_load_s is not None:
        took = f"in {clock(load.model_load_s)}"
    else:
        took = f"loaded in {clock(load.load_s)}" if load.load_s is not None else ""
    return ", ".join(part for part in (size, took) if part) or DASH


def _context(load: LoadState) -> str:
    many = f"{three(load.max_concurrency)}× concurrently" if load.max_concurrency is not None else ""
    size = whole(load.max_model_len) if load.max_model_len is not None else ""
    return ", ".join(part for part in (size, many) if part) or DASH


def summary(state: DeploymentState, width: int) -> list[Content]:
    """Draw what a start that is over took, and what it came to."""
    load = state.load
    past = last_time(state)
    took = state.forecast.ready_s
    if took is None and load is not None and load.started_at is not None and load.ready_at is not None:
        took = load.ready_at - load.started_at
    ended = load is not None and load.phase is Phase.STOPPED
    title = "stopped" if ended else "ready after"
    foot = (
        line(label("last time "), (clock(past.total_s), B), label(f"  {change(took, past.total_s)}"))
        if past
        else line(label("no earlier load"))
    )
    left = [line(label(title)), *big(clock(took), "bold $success" if not ended else B), foot]
    if load is None:
        return left
    told = facts(
        max(8, min(56, width - 26)),
        ("weights", _weights(load)),
        ("KV cache", f"{whole(load.kv_tokens)} tokens" if load.kv_tokens is not None else DASH),
        ("context", _context(load)),
        ("engine", f"init {clock(load.init_engine_s)}" if load.init_engine_s is not None else DASH),
        column=10,
    )
    if width < 54:
        return [*left, *told]
    return [line(row, " " * max(1, 26 - row.cell_length), told[i] if i < len(told) else "") for i, row in enumerate(left)]


class LoadPanel(Canvas):
    """The tab Load. Sections give way from below: disk chart, chart of the shards, reasons; never the countdown or the meter."""

    narrow: drawn[bool] = drawn(False)
    """Whether phases and GPUs have no panes of their own beside it."""

    def draw(self, width: int, height: int) -> Content | list[Content]:
        state = self.state
        load = state.load
        if load is not None and load.failure is not None and not state.api.ready:
            return failure_view(state, width, height, key_of(self, "log_there"))
        if load is None or not load.recognised:
            if state.api.ready:
                return rows(
                    line(("The API is ready", "bold $success"), label("; its log can't be read")),
                    *reason(state, width)[: max(0, height - 1)],
                )
            return before(state, width, height)
        inset = 2 if width >= 64 and not self.narrow else 0
        inner = width - 2 * inset
        over = state.api.ready or load.ready or load.phase is Phase.STOPPED
        wide = width >= 120 and height >= 30 and not over
        top = (
            summary(state, inner)
            if over
            else numbers(state, inner, self.moment.wall)
            if wide
            else hero(state, inner, self.moment.wall)
        )
        out: list[Content | str] = [""] if height >= 18 else []
        out += top
        loader = load.shards if over else bar_of(load)
        phases = phase_line(state, inner) if self.narrow else phase_rows(state, min(inner, 60), 10) if over else []
        why = reason(state, inner)
        left = height - len(out)
        meter_rows = 0
        if loader is not None and loader.total:
            below = len(phases) + (1 if phases else 0) + (len(why) + 1 if why and self.narrow else 0)
            meter_rows = min(
                max(2, left - below - 1),
                5 if over else 10 if height >= 26 else 7 if height >= 20 else 5,
            )
        if meter_rows >= 2 and loader is not None:
            gap = left - meter_rows - len(phases) >= 2
            if gap:
                out.append("")
            out += shards(state, loader, inner, meter_rows, self.moment.beat)
        left = height - len(out)
        if phases and left >= len(phases):
            if left > len(phases):
                out.append("")
            out += phases
        left = height - len(out)
        if why and left >= len(why) + 1:
            out += ["", *why]
        elif why and left:
            out += why[:left]
        left = height - len(out)
        if left >= 4 and not over:
            out += ["", *disk(state, inner, min(left - 1, 14))]
        return [line(" " * inset, row) for row in out[:height]]

"""What the screen says of a failed start: the cause in a band, why, the line of the log, what to do next."""

import re
import time

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.deployment_status import UNHEARD, conflict_of
from tui.core.gpu_groups import ABOUT_MEMORY, held_by_others, left_behind, next_steps
from tui.core.logs.load_state import Failure, LoadState, Phase
from tui.core.presentation import NAMES, clock, counted, failure_title, gib, how_far, whole
from tui.widgets.draw import BE, BP, BW, B, E, label, line, meter, rows, short


def _where(state: DeploymentState, load: LoadState, failure: Failure) -> str:
    out = []
    if failure.phase is Phase.READY:
        out.append("while serving")
    elif failure.phase in NAMES:
        shard = load.shards if failure.phase is Phase.LOADING else None
        out.append(
            f"loading shard {min(shard.done + 1, shard.total):.0f} of {shard.total:.0f}"
            if shard and shard.total
            else NAMES[failure.phase]
        )
    if failure.process:
        out.append(failure.process)
    unheard = failure.kind == UNHEARD and load.phases
    end = load.phases[-1].started_at if unheard else load.last_line_at
    if end is not None:
        out.append(time.strftime("%H:%M:%S", time.localtime(end)))
    if end is not None and load.started_at is not None and end > load.started_at:
        out.append("after " + clock(end - load.started_at))
    return " · ".join(out)


def band(state: DeploymentState, width: int, *, airy: bool = True) -> list[Content]:
    """Draw the cause, on a red ground with a red edge."""
    load = state.load
    if load is None or load.failure is None:
        return []
    failure = load.failure
    said = failure_title(failure)
    if failure.kind == "cuda_oom" and (at := re.search(r"\bGPU (\d+)\b", failure.cause)):
        said += f" on GPU {at[1]}"
    inner = [line(("✗ ", BE), (short(said, width - 6), BE)), line(label(short(_where(state, load, failure), width - 4)))]
    lines = [Content(""), *inner, Content("")] if airy else inner
    out = []
    for row in lines:
        text = line(" " * 3, row)
        text = line(text, " " * max(0, width - 1 - text.cell_length)).stylize_before("on $error 14%")
        out.append(line(("▌", E), text))
    return out


def _told(name: str, text: str | Content, width: int, style: str = "") -> list[Content]:
    body = text if isinstance(text, Content) else Content(text)
    wrapped = body.wrap(max(8, width - 12))
    return [line(label(f"{name if i == 0 else '':<12}"), row.stylize(style) if style else row) for i, row in enumerate(wrapped)]


def _because(state: DeploymentState, failure: Failure) -> list[Content]:
    """Draw who holds memory of a GPU: that of somebody else explains a memory failure."""
    if failure.kind not in ABOUT_MEMORY:
        return []
    out = []
    held = held_by_others(state)
    for gpu, mib, holders in held[:2]:
        whose = (
            "of another process:" if len(holders) == 1 else "of other processes:" if holders else "of a process not seen from here"
        )
        out.append(line(f"GPU {gpu.index} holds ", (f"{gib(mib)} GiB", BW), f" {whose}"))
        for holder in holders[:2]:
            idle = label("  left behind") if left_behind(holder, state) else ""
            out.append(line((f"pid {holder.pid}", B), f" {holder.name}", label(f"  {holder.user}" if holder.user else ""), idle))
    if len(held) > 2:
        out.append(line(label(f"and so {'does' if len(held) == 3 else 'do'} {counted(len(held) - 2, 'more GPU')}")))
    return out


def _steps(state: DeploymentState, width: int) -> list[Content]:
    """Draw what to do next, numbered if it is more than one thing."""
    steps = next_steps(state)
    if len(steps) < 2:
        return [part for step in steps for part in _told("next", step, width)]
    out = []
    for number, step in enumerate(steps, 1):
        wrapped = Content(step).wrap(max(8, width - 14))
        for i, row in enumerate(wrapped):
            name = "next" if number == 1 and i == 0 else ""
            out.append(line(label(f"{name:<12}"), (f"{number} " if i == 0 else "  ", BP), row))
    return out


def failure_body(state: DeploymentState, width: int, height: int, key: str) -> list[Content]:
    """Draw what is below the band: cause, log line, next step, consequences, where the load stopped. `key` opens the log line."""
    load = state.load
    if load is None or load.failure is None:
        return []
    failure = load.failure
    blocks: list[list[Content]] = []
    if because := _because(state, failure):
        blocks.append([line(label(f"{'because' if i == 0 else '':<12}"), row) for i, row in enumerate(because)])
    where = f"line {failure.line:,}" if failure.line else "cause"
    blocks.append(_told(where, failure.cause, width))
    if steps := _steps(state, width):
        blocks.append(steps)
    if conflict := conflict_of(state):
        blocks.append(_told("also", conflict, width))
    if load.errors > 1:
        more = counted(load.errors - 1, "more error line")
        blocks.append([line(label(f"{'follows':<12}{more}; press {key} for the line in the log"))])
    if load.restarts:
        blocks.append([line(label(f"{'restarts':<12}{whole(load.restarts)} before this one in the log"))])
    if state.log.of is not None:
        blocks.append(_told("log", state.log.of, width))
    flat = [row for block in blocks for row in block]
    airy = len(flat) + len(blocks) - 1 <= height
    out: list[Content] = []
    for i, block in enumerate(blocks):
        out += ([Content("")] if airy and i else []) + block
    if load.shards and load.shards.total and failure.phase is Phase.LOADING and height - len(out) >= 4:
        done = f"{how_far(load.shards)} loaded"
        out += [Content(""), Content(""), meter(load.shards.done, load.shards.total, width, mark=("✗", BE)), line(label(done))]
    return out[:height]


def failure_view(state: DeploymentState, width: int, height: int, key: str) -> Content:
    """Draw the whole tab after a failure."""
    airy = height >= 12
    top = [*band(state, width, airy=airy), Content("")]
    inset = 2 if width >= 60 else 0
    body = failure_body(state, width - 2 * inset, max(0, height - len(top)), key)
    parts: list[Content] = [line(" " * inset, row) for row in body]
    return rows(*top, *parts)

"""What `readyroom status` tells a person: one fact a line, the verdict first."""

from collections.abc import Iterator

from tui.core.deployment import DeploymentState, Status, silent_so_far, status_of
from tui.core.gpu import Gpu
from tui.core.gpu_findings import HostGpus, hosts_of
from tui.core.gpu_groups import next_steps
from tui.core.gpu_health import headroom
from tui.core.memory_trend import outgrowth, peak_mib
from tui.core.presentation import brief, clock, gigabytes_s, how_far, name_of, some_of
from tui.core.text import clean

UNKNOWN = "—"


def status_lines(state: DeploymentState, now: float | None = None) -> Iterator[str]:
    """The lines, cleaned; `now` is the client's monotonic clock, from which ages are counted."""
    return (clean(line) for line in _lines(state, now))


def _lines(state: DeploymentState, now: float | None) -> Iterator[str]:
    word = status_of(state)
    yield f"{state.name}: {word.upper()}{_headline(state, word)}"
    link = state.connection
    yield _row("host", f"{link.host or state.target}  {link.link.value}{_trip(link.round_trip_ms)}")
    if link.cause:
        yield _row("", link.cause + (f": {link.advice}" if link.advice else ""))
    if link.online:
        yield from _online_lines(state, now)
    for other in hosts_of(state)[1:]:
        yield from _other_lines(other, now)


def _online_lines(state: DeploymentState, now: float | None) -> Iterator[str]:
    yield from _load_lines(state)
    yield from _api_lines(state)
    yield from _gpu_lines(hosts_of(state)[0], now)
    if state.log.problem or state.log.source:
        problem = f": {state.log.problem}" if state.log.problem else ""
        yield _row("log", f"{state.log.source}{problem}" + (f"  ({state.log.note})" if state.log.note else ""))
    if state.supervisor is not None:
        yield _row("by", state.supervisor.says)
    if state.conflict:
        yield _row("note", state.conflict)


def _other_lines(other: HostGpus, now: float | None) -> Iterator[str]:
    """A further host of the deployment: what is known of its connection and its GPUs."""
    link = other.connection
    yield _row("host", f"{other.host}  {link.link.value}{_trip(link.round_trip_ms)}")
    if link.cause:
        yield _row("", link.cause + (f": {link.advice}" if link.advice else ""))
    if link.online:
        yield from _gpu_lines(other, now)


def _headline(state: DeploymentState, word: str) -> str:
    load, forecast = state.load, state.forecast
    if word == Status.FAILED and load is not None and load.failure is not None:
        return f": {load.failure.cause}"
    if word == Status.FAILED and state.conflict is not None:
        return f": {state.conflict.partition(': ')[0]}"
    if word == Status.LOADING and load is not None and load.lines:
        share = ""
        if load.shards is not None:
            share = f" {brief(load.shards)}" + ("" if load.shards.unit == "bytes" else f" {load.shards.unit}")
        eta = f", ready in about {duration(forecast.ready_eta_s)}" if forecast.ready_eta_s is not None else ""
        return f": {name_of(load.phase)}{share}{eta}"
    if word == Status.LOADING and (silent := silent_so_far(state)) is not None:
        return f": {silent}"
    if word == Status.READY and state.api.models:
        return ": " + some_of(model.id for model in state.api.models)
    return ""


def _load_lines(state: DeploymentState) -> Iterator[str]:
    load, forecast = state.load, state.forecast
    if load is None or not load.lines:
        return
    what = " ".join(part for part in (load.engine, load.version, load.model) if part)
    why = f": {forecast.reason}" if forecast.reason else ""
    yield _row("load", f"{what or UNKNOWN}  {name_of(load.phase)}  {forecast.verdict.value}{why}")
    if load.shards is not None and not load.ready:
        eta = f", {duration(forecast.shards_eta_s)} left" if forecast.shards_eta_s is not None else ""
        speed = gigabytes_s(load.shards)
        each = f" at {forecast.s_per_shard:.1f} s each" if forecast.s_per_shard is not None else ""
        rate = f" at {speed:.2f} GB/s" if speed is not None else each
        yield _row("", f"{how_far(load.shards)}{rate}{eta}")
    if forecast.ready_s is not None:
        yield _row("", f"ready after {duration(forecast.ready_s)}")
    if load.kv_tokens is not None:
        yield _row("", f"KV cache {load.kv_tokens:,} tokens")
    if load.failure is not None:
        yield _row("why", load.failure.cause)
        for number, step in enumerate(next_steps(state)):
            yield _row("" if number else "try", step)


def _api_lines(state: DeploymentState) -> Iterator[str]:
    api = state.api
    version = f"  version {api.version}" if api.version else ""
    yield _row("api", f"{api.reach.value}{version}{f'  {api.error}' if api.error else ''}")
    if api.metrics is not None:
        metrics = api.metrics
        parts = [f"{_whole(metrics.running)} running", f"{_whole(metrics.waiting)} waiting"]
        if metrics.kv_cache_share is not None:
            parts.append(f"KV cache {100 * metrics.kv_cache_share:.1f} %")
        yield _row("", ", ".join(parts))


def _gpu_lines(seen: HostGpus, now: float | None) -> Iterator[str]:
    sample = seen.sample
    if sample is None:
        return
    for number, gpu in enumerate(sample.gpus):
        yield _row("gpus" if not number else "", _gpu(gpu))
    if sample.note:
        yield _row("" if sample.gpus else "gpus", sample.note)
    if sample.late:
        old = f", {duration(now - sample.received_at)} old" if now is not None and sample.received_at is not None else ""
        yield _row("", f"the driver does not answer: these are its last values{old}")
    even = seen.judged
    if even.says:
        yield _row("", even.says)
    room = headroom(sample)
    if room is not None:
        then = " then" if sample.late else ""
        yield _row("", f"least free{then}: {room.where}, {room.free_mib:,.0f} MiB ({100 * room.free_share:.1f} %)")
    grown, peak = outgrowth(seen.ready_memory, sample), peak_mib(seen.ready_memory, sample)
    if grown is not None:
        yield _row("", f"since it is ready: peak {_whole(peak)} MiB, growth {grown.growth.mib_per_hour:+,.0f} MiB an hour")
    for finding in seen.found:
        yield _row("", finding)


def _gpu(gpu: Gpu) -> str:
    if gpu.error:
        return f"{gpu.index} {gpu.name}  {gpu.error}"
    used = f"{gpu.memory_used_mib:,.0f}" if gpu.memory_used_mib is not None else UNKNOWN
    total = f"{gpu.memory_total_mib:,.0f}" if gpu.memory_total_mib is not None else UNKNOWN
    share = f" {100 * gpu.memory_share:.1f} %" if gpu.memory_share is not None else ""
    busy = f"{gpu.utilisation:.0f} %" if gpu.utilisation is not None else UNKNOWN
    warm = f"{gpu.temperature_c:.0f} °C" if gpu.temperature_c is not None else UNKNOWN
    return f"{gpu.index} {gpu.name}  {used} of {total} MiB{share}  {busy}  {warm}"


def _row(label: str, text: str) -> str:
    return f"  {label:<5} {text}"


def _trip(milliseconds: float | None) -> str:
    return f"  {milliseconds:.0f} ms" if milliseconds is not None else ""


def _whole(number: float | None) -> str:
    return f"{number:,.0f}" if number is not None else UNKNOWN


def duration(seconds: float | None) -> str:
    """`45 s`, `12:05`, `1:02:03`."""
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else clock(seconds)

"""`readyroom status`: one snapshot of a deployment or of all, as text for a person or as a JSON document."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from tui.cli.context import accept_new_option, config_option, open_record, open_session, port_option, run
from tui.cli.exit_message import ExitCode, Fail
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import (
    UNREACHED,
    Status,
    conflict_of,
    detail_of,
    exit_code_of,
    gravest_exit_code,
    has_settled,
    log_problem,
    may_hang,
    status_of,
)
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_findings import HostGpus, hosts_of
from tui.core.gpu_groups import next_steps
from tui.core.gpu_health import headroom
from tui.core.logs.forecast import HUNG_S
from tui.core.presentation import DASH, about, duration, gigabytes_s, how_far, name_of, percent, ready_text, verdict_text, whole
from tui.core.text import clean
from tui.core.trends import outgrowth, peak_mib
from tui.record.store import RunStore
from tui.settings import Settings

if TYPE_CHECKING:
    from tui.services.deployment_watch import Session

SNAPSHOT_S = 15.0
"""The longest that a snapshot waits, on a host that is connected, for what has not answered yet."""
HANG_S = HUNG_S + 5.0
"""The same, while requests run and no token comes: so long it takes to tell a hang from a pause."""
CONNECT_S = 60.0
"""The longest that a snapshot waits for a connection: an attempt ends by itself, unless something in its way does not."""
AT_ONCE = 16
"""Hosts that are asked at the same time."""


@click.command()
@click.argument("target", required=False)
@click.option("--all", "every", is_flag=True, help="Show every deployment of the configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@port_option
@accept_new_option
@config_option
def status(target: str | None, every: bool, as_json: bool, port: int | None, accept_new: bool, settings: Settings) -> None:
    """Show one snapshot of a TARGET: connection, GPUs, load, API.

    Exit code: 0 ready, 3 loading or starting, 4 failed or hung, 5 unreachable, 7 stopped, 8 refused; with --all the worst of
    them, and 2 if a deployment's configuration does not hold.
    """
    if not every:
        run(_status(settings, target, as_json, accept_new, port))
    if target is not None or port is not None:
        raise Fail(ExitCode.USAGE, "--all means every deployment: give no TARGET or --port with it")
    if not settings.deployments:
        raise Fail(ExitCode.USAGE, "the configuration has no deployments; readyroom init TARGET writes one into it")
    run(_status_of_all(settings, as_json, accept_new))


async def _status(settings: Settings, target: str | None, as_json: bool, accept_new: bool, port: int | None) -> int:
    from tui.cli.login_prompts import terminal_asker

    with closing(open_record()) as record:
        session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new, record=record, port=port)
        async with session:
            state = await settled_state(session, SNAPSHOT_S)
            require_one_server(session)
    now = time.monotonic()
    _print([_document(state, now)] if as_json else status_lines(state, now))
    return exit_code_of(state)


async def _status_of_all(settings: Settings, as_json: bool, accept_new: bool) -> int:
    """Print all and return the gravest exit code. Nobody is asked anything: several logins at once could not be told apart."""
    gate = asyncio.Semaphore(AT_ONCE)
    with closing(open_record()) as record:

        async def state_of(name: str) -> DeploymentState:
            async with gate:
                return await _state(settings, name, accept_new, record)

        states = await asyncio.gather(*map(state_of, settings.deployments))
    _print([_document_of_all(states, time.monotonic())] if as_json else table(states))
    return gravest_exit_code(states)


async def _state(settings: Settings, name: str, accept_new: bool, record: RunStore) -> DeploymentState:
    try:
        # in a thread: the command that prints an API key may take its time
        session = await asyncio.to_thread(open_session, settings, name, accept_new=accept_new, record=record)
    except Fail as error:  # what is wrong with one deployment must not hide the others
        return DeploymentState(name, settings.deployments[name].engines[0].host, misconfigured=error.message)
    async with session:
        return await settled_state(session, SNAPSHOT_S)


def _document(state: DeploymentState, now: float) -> str:
    from tui.core.snapshot import snapshot

    return json.dumps(snapshot(state, now), ensure_ascii=False)


def _document_of_all(states: Sequence[DeploymentState], now: float) -> str:
    from tui.core.snapshot import snapshot

    return json.dumps({"schema": 1, "deployments": [snapshot(state, now) for state in states]}, ensure_ascii=False)


def _print(lines: Iterator[str] | list[str]) -> None:
    for line in lines:
        click.echo(line)


def require_one_server(session: "Session") -> None:
    """Raise Fail if several servers run and nobody said which one is meant."""
    from tui.services.server_choice import choice_text

    if session.state.undecided:
        raise Fail(ExitCode.USAGE, choice_text(session.target, session.servers))


async def settled_state(session: "Session", seconds: float) -> DeploymentState:
    """Return the first settled state, or the one `seconds` after the connection was made; a host out of reach has settled, too."""
    link: LinkState | None = None
    extended = False
    try:
        async with asyncio.timeout(CONNECT_S) as limit:
            async for state in session.states():
                if state.connection.link is not link:
                    link = state.connection.link
                    allowed = {LinkState.ASKING: None, LinkState.ONLINE: seconds}.get(
                        link, CONNECT_S
                    )  # a person takes the time it takes
                    limit.reschedule(None if allowed is None else asyncio.get_running_loop().time() + allowed)
                if link is LinkState.ONLINE and may_hang(state) and not extended:
                    extended = True
                    limit.reschedule(asyncio.get_running_loop().time() + max(seconds, HANG_S))
                if status_of(state) in UNREACHED or (link is LinkState.ONLINE and has_settled(state) and session.settled):
                    break
    except TimeoutError:
        pass
    return _without_answer(session.state)


def _without_answer(state: DeploymentState) -> DeploymentState:
    """Return a host that is still being connected to after all that time as one that does not answer."""
    if state.connection.link not in (LinkState.IDLE, LinkState.CONNECTING):
        return state
    cause = state.connection.cause or f"no answer from {state.connection.host or state.target} within {CONNECT_S:.0f} s"
    advice = state.connection.advice or "is the host up, and its network or VPN reachable?"
    return replace(state, connection=replace(state.connection, link=LinkState.UNREACHABLE, cause=cause, advice=advice))


# -- all deployments ---------------------------------------------------------------------------------------------------------------


def table(states: Sequence[DeploymentState]) -> Iterator[str]:
    """Yield a row a deployment and a row each further host of it, cleaned."""
    rows = [("DEPLOYMENT", "STATE", "HOST", "GPUS", "WHAT")]
    for state in states:
        rows.append((state.name, status_of(state).label, state.target, _gpus(state.gpus), detail_of(state) or DASH))
        for other in state.others:
            link = other.connection
            rows.append(("", link.link.value.upper(), other.host, _gpus(other.gpus), link.cause or ""))
    rows = [(clean(name), clean(word), clean(host), clean(gpus), clean(what)) for name, word, host, gpus, what in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]).rstrip()


def _gpus(sample: GpuSample | None) -> str:
    if sample is None or not sample.gpus:
        return DASH
    shares = [gpu.memory_share for gpu in sample.gpus if gpu.memory_share is not None]
    return f"{len(sample.gpus)}" + (f" at {percent(max(shares), 0)}" if shares else "") + (", old" if sample.late else "")


# -- one deployment ----------------------------------------------------------------------------------------------------------------


def status_lines(state: DeploymentState, now: float | None = None) -> Iterator[str]:
    """Yield one fact a line, the verdict first, cleaned; `now` is the client's monotonic clock, from which ages are counted."""
    return (clean(line) for line in _lines(state, now))


def _lines(state: DeploymentState, now: float | None) -> Iterator[str]:
    word = status_of(state)
    detail = detail_of(state) if word in (Status.FAILED, Status.HUNG, Status.LOADING, Status.READY, Status.MISCONFIGURED) else ""
    yield f"{state.name}: {word.label}{f': {detail}' if detail else ''}"
    link = state.connection
    yield from _host_lines(link.host or state.target, link)
    if link.online:
        yield from _load_lines(state)
        yield from _api_lines(state)
        yield from _gpu_lines(hosts_of(state)[0], now)
        yield from _source_lines(state)
    for other in hosts_of(state)[1:]:
        yield from _host_lines(other.host, other.connection)
        if other.connection.online:
            yield from _gpu_lines(other, now)


def _host_lines(host: str, link: ConnectionState) -> Iterator[str]:
    trip = f"  {link.round_trip_ms:.0f} ms" if link.round_trip_ms is not None else ""
    yield _row("host", f"{host}  {link.link.value}{trip}")
    if link.cause:
        yield _row("", link.cause + (f": {link.advice}" if link.advice else ""))


def _source_lines(state: DeploymentState) -> Iterator[str]:
    """Yield the log and the supervisor, and in what log and API disagree."""
    problem = log_problem(state)
    if problem or state.log.source:
        problem = f": {problem}" if problem else ""
        yield _row("log", f"{state.log.source}{problem}" + (f"  ({state.log.note})" if state.log.note else ""))
    if state.supervisor is not None:
        yield _row("by", state.supervisor.says)
    if conflict := conflict_of(state):
        yield _row("note", conflict)


def _load_lines(state: DeploymentState) -> Iterator[str]:
    load, forecast = state.load, state.forecast
    if load is None or not load.recognised:
        return
    what = " ".join(part for part in (load.engine, load.version, load.model) if part)
    why = f": {forecast.reason}" if forecast.reason else ""
    yield _row("load", f"{what or DASH}  {name_of(load.phase)}  {verdict_text(forecast.verdict)}{why}")
    if load.shards is not None and not load.ready:
        eta = f", about {about(forecast.shards_eta_s)} left" if forecast.shards_eta_s is not None else ""
        speed = gigabytes_s(load.shards)
        each = f" at {forecast.s_per_shard:.1f} s each" if forecast.s_per_shard is not None else ""
        rate = f" at {speed:.2f} GB/s" if speed is not None else each
        yield _row("", f"{how_far(load.shards)}{rate}{eta}")
    if told := ready_text(forecast):
        yield _row("", told)
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
        parts = [f"{whole(metrics.running)} running", f"{whole(metrics.waiting)} waiting"]
        if metrics.kv_cache_share is not None:
            parts.append(f"KV cache {percent(metrics.kv_cache_share)}")
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
        old = f", {about(now - sample.received_at)} old" if now is not None and sample.received_at is not None else ""
        yield _row("", f"{sample.silence}: these are its last values{old}")
    even = seen.judged
    if even.says:
        yield _row("", even.says)
    room = headroom(sample)
    if room is not None:
        then = " then" if sample.late else ""
        yield _row("", f"least free{then}: {room.where}, {whole(room.free_mib)} MiB ({percent(room.free_share)})")
    grown, peak = outgrowth(seen.ready_memory, sample), peak_mib(seen.ready_memory, sample)
    if grown is not None:
        yield _row("", f"since ready: peak {whole(peak)} MiB, growth {grown.growth.mib_per_hour:+,.0f} MiB an hour")
    for finding in seen.found:
        yield _row("", finding)


def _gpu(gpu: Gpu) -> str:
    if gpu.error:
        return f"{gpu.index} {gpu.name}  {gpu.error}"
    share = f" {percent(gpu.memory_share)}" if gpu.memory_share is not None else ""
    used = f"{whole(gpu.memory_used_mib)} of {whole(gpu.memory_total_mib)} MiB{share}"
    return f"{gpu.index} {gpu.name}  {used}  {whole(gpu.utilisation, ' %')}  {whole(gpu.temperature_c, ' °C')}"


def _row(label: str, text: str) -> str:
    return f"  {label:<5} {text}"

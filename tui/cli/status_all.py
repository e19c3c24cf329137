"""`readyroom status --all`: every deployment of the configuration at once, one table or one JSON document."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import click

from tui.cli.context import Exit, Fail, open_record, open_session
from tui.cli.status_text import UNKNOWN, duration
from tui.cli.watching import SNAPSHOT_S, settled_state
from tui.core.deployment import DeploymentState, Status, exit_code_of, silent_so_far, status_of
from tui.core.gpu import GpuSample
from tui.core.how_far import brief
from tui.core.logs.phase_names import name_of
from tui.core.text import clean
from tui.record.store import Record
from tui.settings import Settings

GRAVEST_FIRST = (Exit.FAILED, Exit.USAGE, Exit.REFUSED, Exit.UNREACHABLE, Exit.STOPPED, Exit.LOADING, Exit.OK)
AT_ONCE = 16
"""Hosts that are asked at the same time."""


async def status_of_all(settings: Settings, as_json: bool, accept_new: bool) -> int:
    """Prints all; returns the gravest exit code. Nobody is asked anything: several logins at once could not be told apart."""
    from tui.core.snapshot import snapshot

    gate = asyncio.Semaphore(AT_ONCE)
    with closing(open_record()) as record:

        async def one(name: str) -> DeploymentState:
            async with gate:
                return await _state(settings, name, accept_new, record)

        states = await asyncio.gather(*(one(name) for name in settings.deployments))
    if as_json:
        now = time.monotonic()
        click.echo(json.dumps({"schema": 1, "deployments": [snapshot(state, now) for state in states]}, ensure_ascii=False))
    else:
        for line in table(states):
            click.echo(line)
    codes = {exit_code_of(state) for state in states}
    return next(code for code in GRAVEST_FIRST if code in codes)


async def _state(settings: Settings, name: str, accept_new: bool, record: Record) -> DeploymentState:
    try:
        # in a thread: the command that prints an API key may take its time
        session = await asyncio.to_thread(open_session, settings, name, accept_new=accept_new, record=record)
    except Fail as error:  # what is wrong with one deployment must not hide the others
        return DeploymentState(name, settings.deployments[name].engines[0].host, misconfigured=error.message)
    async with session:
        return await settled_state(session, SNAPSHOT_S)


def table(states: Sequence[DeploymentState]) -> Iterator[str]:
    """The lines, cleaned."""
    rows = [("DEPLOYMENT", "STATE", "HOST", "GPUS", "WHAT")]
    for state in states:
        rows.append((state.name, status_of(state).upper(), state.target, _gpus(state.gpus), _what(state)))
        for other in state.others:
            link = other.connection
            rows.append(("", link.link.value.upper(), other.host, _gpus(other.gpus), link.cause or ""))
    rows = [(clean(name), clean(word), clean(host), clean(gpus), clean(what)) for name, word, host, gpus, what in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]).rstrip()


def _gpus(sample: GpuSample | None) -> str:
    if sample is None or not sample.gpus:
        return UNKNOWN
    shares = [gpu.memory_share for gpu in sample.gpus if gpu.memory_share is not None]
    return f"{len(sample.gpus)}" + (f" at {100 * max(shares):.0f} %" if shares else "") + (", old" if sample.late else "")


def _what(state: DeploymentState) -> str:
    load, outlook = state.load, state.outlook
    word = status_of(state)
    if state.misconfigured is not None:
        return state.misconfigured
    if word == Status.UNREACHABLE:
        return state.connection.cause or UNKNOWN
    if word == Status.READY:
        return ", ".join(model.id for model in state.api.models) or UNKNOWN
    if load is not None and load.failure is not None:
        return load.failure.cause
    if word == Status.FAILED and state.conflict is not None:
        return state.conflict.partition(": ")[0]
    if load is None or not load.lines:
        return state.log.problem or silent_so_far(state) or UNKNOWN
    shards = f" {brief(load.shards)}" if load.shards is not None else ""
    eta = f", ready in about {duration(outlook.ready_eta_s)}" if outlook.ready_eta_s is not None else ""
    return f"{name_of(load.phase)}{shards}{eta}"

"""What `readyroom wait` shows meanwhile: a bar on a terminal, plain lines elsewhere, JSON lines for programs."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from tui.cli.status_text import duration
from tui.core.connection import Link
from tui.core.deployment import DeploymentState, Status, silent_so_far, status_of
from tui.core.gpu_groups import next_steps
from tui.core.presentation import brief, name_of, some_of
from tui.core.text import clean

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_EVERY_S = 30.0
JSON_EVERY_S = 10.0


class Display(Protocol):
    """`show` is called about ten times a second; `note` says something unusual; `end` is last."""

    def show(self, state: DeploymentState, elapsed_s: float) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self, word: str, code: int, state: DeploymentState, why: str) -> None: ...


@contextmanager
def progress_for(as_json: bool) -> Iterator[Display]:
    """JSON lines where asked for, else a bar on a terminal, else plain lines."""
    if as_json:
        yield JsonLines()
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[eta]}", markup=False))
        with Progress(*columns, TimeElapsedColumn(), console=Console(), transient=True) as bar:
            yield Bar(bar)
    else:
        yield PlainLines()


def where(state: DeploymentState) -> str:
    """Where the start has got to, in a few words."""
    load = state.load
    word = status_of(state)
    if state.connection.link is Link.IDLE:
        return "connecting"
    if not state.connection.online:
        return f"{state.connection.link.value}{f' ({state.connection.cause})' if state.connection.cause else ''}"
    if word in (Status.FAILED, Status.STOPPED) and state.log.of is not None:
        return f"waiting for a server to start; the last one {'has failed' if word == Status.FAILED else 'was stopped'}"
    if word in (Status.LOADING, Status.FAILED) and load is not None and load.lines:
        shards = f" {brief(load.shards)}" if load.shards and load.shards.done < load.shards.total else ""
        return f"{name_of(load.phase)}{shards}"
    if word == Status.WAITING:
        return "waiting for a server to start"
    return silent_so_far(state) or word


def _left(state: DeploymentState) -> str:
    forecast = state.forecast
    if forecast.ready_eta_s is not None:
        return f"ready in {duration(forecast.ready_eta_s)}"
    return f"{duration(forecast.shards_eta_s)} of shards" if forecast.shards_eta_s else ""


def _final(word: str, state: DeploymentState, why: str) -> str:
    if word == "ready":
        took = f" after {duration(state.forecast.ready_s)}" if state.forecast.ready_s is not None else ""
        return f"{state.name}: ready{took}: {some_of(model.id for model in state.api.models)}"
    return f"{state.name}: {word.replace('_', ' ')}{f': {why}' if why else ''}"


class Bar:
    """A bar over the shards; it pulses in phases whose length nobody knows."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task("connecting", total=None, eta="")

    def show(self, state: DeploymentState, elapsed_s: float) -> None:
        shards = state.load.shards if state.load is not None else None
        loading = shards is not None and shards.done < shards.total
        self._progress.update(
            self._task,
            description=clean(f"{state.name}: {where(state)}"),
            total=shards.total if shards is not None and loading else None,
            completed=shards.done if shards is not None and loading else 0,
            eta=_left(state),
        )

    def note(self, text: str) -> None:
        self._progress.console.print(clean(text), markup=False, highlight=False)

    def end(self, word: str, code: int, state: DeploymentState, why: str) -> None:
        self._progress.stop()
        click.echo(clean(_final(word, state, why)), err=code != 0)
        _say_advice(state, code)


class PlainLines:
    """A line when the phase changes, at each tenth of the shards, and now and then."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None
        self._at = 0.0
        self._noted = ""

    def show(self, state: DeploymentState, elapsed_s: float) -> None:
        shards = state.load.shards if state.load is not None else None
        tenth = int(10 * shards.done / shards.total) if shards is not None and shards.total else 0
        word = where(state).rstrip("0123456789/.")
        now = time.monotonic()
        if (word, tenth) == self._last and now - self._at < PLAIN_EVERY_S:
            return
        self._last = (word, tenth)
        self._at = now
        left = _left(state)
        click.echo(clean(f"{duration(elapsed_s):>8}  {state.name}: {where(state)}{f', {left}' if left else ''}"))

    def note(self, text: str) -> None:
        if text != self._noted:
            self._noted = text
            click.echo(clean(text), err=True)

    def end(self, word: str, code: int, state: DeploymentState, why: str) -> None:
        click.echo(clean(_final(word, state, why)), err=code != 0)
        _say_advice(state, code)


class JsonLines:
    """One object a line: `progress` when something changed or ten seconds passed, and the outcome last."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] = ()
        self._at = 0.0

    def show(self, state: DeploymentState, elapsed_s: float) -> None:
        load = state.load
        shards = load.shards if load is not None else None
        phase = load.phase.value if load is not None and load.lines else None
        now = time.monotonic()
        seen = (status_of(state), phase, shards.done if shards else None, state.forecast.verdict, state.connection.link)
        if seen == self._last and now - self._at < JSON_EVERY_S:
            return
        self._last = seen
        self._at = now
        self._print(
            {
                "event": "progress",
                "status": status_of(state),
                "phase": phase,
                "shards": {"done": shards.done, "total": shards.total} if shards else None,
                "verdict": state.forecast.verdict.value,
                "verdict_reason": state.forecast.reason or None,
                "ready_eta_s": state.forecast.ready_eta_s,
                "connection": state.connection.link.value,
                "elapsed_s": round(elapsed_s, 1),
            }
        )

    def note(self, text: str) -> None:
        click.echo(clean(text), err=True)

    def end(self, word: str, code: int, state: DeploymentState, why: str) -> None:
        failure = state.load.failure if state.load is not None and word == "failed" else None
        self._print(
            {
                "event": word,
                "exit_code": int(code),
                "why": why or None,
                "ready_s": state.forecast.ready_s,
                "models": [model.id for model in state.api.models],
                "failure": None
                if failure is None
                else {"kind": failure.kind, "cause": failure.cause, "line": failure.line, "advice": failure.advice},
            }
        )

    def _print(self, event: dict[str, Any]) -> None:
        click.echo(json.dumps({"schema": 1, **event}, ensure_ascii=False))


def _say_advice(state: DeploymentState, code: int) -> None:
    steps = next_steps(state)
    if code and steps:
        for step in steps:
            click.echo(clean(step), err=True)
    elif code and state.connection.advice:
        click.echo(clean(state.connection.advice), err=True)

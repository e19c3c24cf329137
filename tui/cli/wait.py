"""`readyroom wait`: block until a server is ready, and show meanwhile how far it is.

A terminal shows a bar, other outputs plain lines, `--json` one JSON object a line.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from tui.cli.context import Duration, accept_new_option, config_option, open_record, open_session, port_option, run
from tui.cli.exit_message import ExitCode
from tui.cli.status import require_one_server
from tui.core.connection import LinkState, retry_delay_s
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, api_problem, detail_of, log_problem, status_of, unheard_text
from tui.core.gpu_groups import next_steps
from tui.core.presentation import about, clock, duration, progress_text, ready_text, some_of
from tui.core.text import clean
from tui.core.wait_rules import Waiting, WaitOutcome, WaitRules
from tui.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tui.services.deployment_watch import Session

SLOWEST_TRY = 5
"""The number of the try, in the table of delays, after which the last token is asked for no more rarely."""
PLAIN_EVERY_S = 30.0
JSON_EVERY_S = 10.0


@click.command()
@click.argument("target", required=False)
@click.option("--new", is_flag=True, help="Only a start newer than this command counts (after `systemctl restart`).")
@click.option("--timeout", "timeout_s", type=Duration(), metavar="T", help="Give up after this long; default: never.")
@click.option(
    "--grace",
    "grace_s",
    type=Duration(zero=True),
    default="60s",
    metavar="T",
    show_default=True,
    help="How long a server may be gone before that is a failure.",
)
@click.option(
    "--restarts", type=click.IntRange(0), default=0, metavar="N", help="How many failed starts a supervisor may recover from."
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines on stdout.")
@port_option
@accept_new_option
@config_option
def wait(
    target: str | None,
    new: bool,
    timeout_s: float | None,
    grace_s: float,
    restarts: int,
    as_json: bool,
    port: int | None,
    accept_new: bool,
    settings: Settings,
) -> None:
    """Block until the server of a TARGET is ready: the API says so, and one real token came.

    A failure that the log already held does not count unless its process stays away for the grace time.

    Exit code: 0 ready, 2 the configured model is not served, 4 failed, 5 unreachable, 6 timed out, 8 refused (login or API key).
    """
    rules = WaitRules(new=new, timeout_s=timeout_s, grace_s=grace_s, restarts=restarts)
    run(_wait(settings, target, rules, as_json, accept_new, port))


async def _wait(settings: Settings, target: str | None, rules: WaitRules, as_json: bool, accept_new: bool, port: int | None) -> int:
    from tui.cli.login_prompts import terminal_asker

    waiting = Waiting(rules, time.monotonic())
    with closing(open_record()) as record, progress_for(as_json) as progress:
        session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new, record=record, port=port)
        token = _LastToken(session)
        async with session:
            while True:
                require_one_server(session)
                outcome = waiting.look(session.state, time.monotonic(), session.settled)
                progress.show(session.state, time.monotonic() - waiting.began)
                if outcome in _ENDS:
                    progress.end(outcome.value, _ENDS[outcome], session.state, waiting.why)
                    return _ENDS[outcome]
                if outcome is WaitOutcome.ANSWERS and token.due:
                    refused = await token.refused(_left(rules, waiting.began))
                    if refused is None:
                        progress.end("ready", ExitCode.OK, session.state, "")
                        return ExitCode.OK
                    if refused.code is not None:
                        progress.end(refused.word, refused.code, session.state, refused.why)
                        return refused.code
                    progress.note(refused.why)
                await session.next_state(1.0)


_ENDS = {
    WaitOutcome.FAILED: ExitCode.FAILED,
    WaitOutcome.UNREACHABLE: ExitCode.UNREACHABLE,
    WaitOutcome.REFUSED: ExitCode.REFUSED,
    WaitOutcome.TIMED_OUT: ExitCode.TIMEOUT,
}


def _left(rules: WaitRules, began: float) -> float | None:
    return None if rules.timeout_s is None else max(0.1, began + rules.timeout_s - time.monotonic())


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why the last token did not come. `code`: waiting longer does not help (a missing key, a model that is not served)."""

    why: str
    word: str = ""
    code: ExitCode | None = None


class _LastToken:
    """Asks for the token at growing intervals: a server that refuses it is busy enough."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._tries = 0
        self._not_before = 0.0

    async def refused(self, seconds: float | None) -> _Refusal | None:
        """Ask for one token, within `seconds`; return None if it came."""
        refusal = await _refused_token(self._session, seconds)
        self._tries += 1
        self._not_before = time.monotonic() + retry_delay_s(min(self._tries + 1, SLOWEST_TRY), 0.5)
        return refusal

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._not_before


async def _refused_token(session: "Session", seconds: float | None) -> _Refusal | None:
    """Ask for one token; return None if it came."""
    from tui.host.api import ApiError
    from tui.services.chat_turn import one_token

    api = session.state.api
    listed = [model.id for model in api.models]
    model = api.asked(session.deployment.model) or ""
    if listed and not api.lists(model):
        return _not_served(model, listed)
    try:
        async with asyncio.timeout(seconds):
            await one_token(session.api, model)
    except ApiError as error:
        match error.kind:
            case "unauthorized":
                return _Refusal(error.message, "refused", ExitCode.REFUSED)
            case "not_served":
                return _not_served(model, listed, error.message)
        return _Refusal(f"no token yet: {error.message}")
    except TimeoutError:
        return _Refusal("no token in time")
    return None


def _not_served(model: str, listed: list[str], said: str = "") -> _Refusal:
    why = f"the server does not serve {model!r}; it serves {some_of(listed) or 'no model'}{f' ({said})' if said else ''}"
    return _Refusal(f"{why}: correct model = … in the configuration", "misconfigured", ExitCode.USAGE)


# -- what is shown meanwhile -------------------------------------------------------------------------------------------------------


class Display(Protocol):
    """`show` is called about ten times a second; `note` says something unusual; `end` is last."""

    def show(self, state: DeploymentState, elapsed_s: float) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self, word: str, code: int, state: DeploymentState, why: str) -> None: ...


@contextmanager
def progress_for(as_json: bool) -> Iterator[Display]:
    """Yield JSON lines if asked for, else a bar on a terminal, else plain lines."""
    if as_json:
        yield JsonLines()
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[eta]}", markup=False))
        with Progress(*columns, TimeElapsedColumn(), console=Console(), transient=True) as bar:
            yield ProgressBar(bar)
    else:
        yield PlainLines()


def where(state: DeploymentState) -> str:
    """Return how far the start is, in a few words."""
    load, status = state.load, status_of(state)
    link = state.connection
    if link.link is not LinkState.IDLE and not link.online:
        return link.link.value + (f" ({link.cause})" if link.cause else "")
    if status in (Status.FAILED, Status.STOPPED) and state.log.of is not None:
        return f"waiting for a server to start; the last one {'has failed' if status is Status.FAILED else 'was stopped'}"
    if status in (Status.LOADING, Status.FAILED) and load is not None and load.recognised:
        return detail_of(state) if load.ready else progress_text(load)
    if status is Status.WAITING:
        why = log_problem(state)
        problems = [f"{state.log.source}: {why}" if why else None, api_problem(state)]
        return "; ".join(["waiting for a server to start", *filter(None, problems)])
    return unheard_text(state) or ": ".join(filter(None, [status.value, api_problem(state)]))


def _left_text(state: DeploymentState) -> str:
    forecast = state.forecast
    return ready_text(forecast) or (f"about {about(forecast.shards_eta_s)} of shards left" if forecast.shards_eta_s else "")


def _final_text(word: str, state: DeploymentState, why: str) -> str:
    if word == "ready":
        took = f" after {duration(state.forecast.ready_s)}" if state.forecast.ready_s is not None else ""
        return f"{state.name}: ready{took}: {some_of(model.id for model in state.api.models)}"
    return f"{state.name}: {word.replace('_', ' ')}{f': {why}' if why else ''}"


class ProgressBar:
    """Draw a bar over the shards; it pulses in phases whose length nobody knows."""

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
            eta=_left_text(state),
        )

    def note(self, text: str) -> None:
        self._progress.console.print(clean(text), markup=False, highlight=False)

    def end(self, word: str, code: int, state: DeploymentState, why: str) -> None:
        self._progress.stop()
        click.echo(clean(_final_text(word, state, why)), err=code != 0)
        _say_advice(state, code)


class PlainLines:
    """Print a line when the phase changes, at each tenth of the shards, and now and then."""

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
        left = _left_text(state)
        click.echo(clean(f"{clock(elapsed_s):>8}  {state.name}: {where(state)}{f', {left}' if left else ''}"))

    def note(self, text: str) -> None:
        if text != self._noted:
            self._noted = text
            click.echo(clean(text), err=True)

    def end(self, word: str, code: int, state: DeploymentState, why: str) -> None:
        click.echo(clean(_final_text(word, state, why)), err=code != 0)
        _say_advice(state, code)


class JsonLines:
    """One object a line: `progress` when something changed or ten seconds passed, and the outcome last."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] = ()
        self._at = 0.0

    def show(self, state: DeploymentState, elapsed_s: float) -> None:
        load = state.load
        shards = load.shards if load is not None else None
        phase = load.phase.value if load is not None and load.recognised else None
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
                "ready_eta_error_s": state.forecast.ready_eta_error_s,
                "ready_low_s": state.forecast.ready_low_s,
                "ready_high_s": state.forecast.ready_high_s,
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

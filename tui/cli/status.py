"""`readyroom status`, one snapshot, and `readyroom wait`, which blocks until a server is ready."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tui.cli.context import Duration, accept_new_option, config_option, open_record, open_session, port_option, run
from tui.cli.exit_message import Exit, Fail
from tui.cli.status_text import UNKNOWN, duration
from tui.core.deployment import DeploymentState, Status, exit_code_of, silent_so_far, status_of
from tui.core.gpu import GpuSample
from tui.core.presentation import brief, name_of
from tui.core.text import clean
from tui.record.store import RunStore
from tui.settings import Settings

if TYPE_CHECKING:
    from tui.core.deployment import HostSeen
    from tui.core.wait_rules import Rules
    from tui.services.deployment_watch import Session


SNAPSHOT_S = 15.0
"""The longest that a snapshot waits, on a host that is connected, for what has not answered yet."""
CONNECT_S = 60.0
"""The longest that a snapshot waits for a connection: an attempt ends by itself, unless something in its way does not."""
SLOWEST_TRY = 5
"""The number of the try, in the table of delays, after which the last token is asked for no more rarely."""


@click.command()
@click.argument("target", required=False)
@click.option("--all", "all_of_them", is_flag=True, help="Every deployment of the configuration, all at once.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@port_option
@accept_new_option
@config_option
def status(target: str | None, all_of_them: bool, as_json: bool, port: int | None, accept_new: bool, settings: Settings) -> None:
    """One snapshot of a TARGET: connection, GPUs, load, API.

    Exit code: 0 ready, 3 loading or starting, 4 failed, 5 unreachable, 7 stopped, 8 refused; with --all the gravest of them, and
    2 where a deployment's configuration does not hold.
    """
    if not all_of_them:
        run(_status(settings, target, as_json, accept_new, port))
    if target is not None or port is not None:
        raise Fail(Exit.USAGE, "--all stands for every deployment: give no TARGET and no --port with it")
    if not settings.deployments:
        raise Fail(Exit.USAGE, "the configuration has no deployments; readyroom init TARGET writes one into it")

    run(status_of_all(settings, as_json, accept_new))


async def _status(settings: Settings, target: str | None, as_json: bool, accept_new: bool, port: int | None) -> int:
    from tui.cli.login_prompts import terminal_asker
    from tui.core.deployment import exit_code_of
    from tui.core.snapshot import snapshot

    with closing(open_record()) as record:
        session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new, record=record, port=port)
        async with session:
            state = await settled_state(session, SNAPSHOT_S)
            _decided(session)
    if as_json:
        click.echo(json.dumps(snapshot(state, time.monotonic()), ensure_ascii=False))
    else:
        from tui.cli.status_text import status_lines

        for line in status_lines(state, time.monotonic()):
            click.echo(line)
    return exit_code_of(state)


def _decided(session: "Session") -> None:
    """Raises Fail where several servers run and nobody said which one is meant."""
    from tui.services.attach import choice_text

    if session.state.undecided:
        raise Fail(Exit.USAGE, choice_text(session.target, session.servers))


async def settled_state(session: "Session", seconds: float) -> "DeploymentState":
    """The first state in which everything has answered, or the one after `seconds`; a host that can't be reached is one, too."""
    from tui.core.connection import Link

    link: Link | None = None
    try:
        async with asyncio.timeout(CONNECT_S) as limit:
            async for state in session.states():
                if state.connection.link is not link:
                    link = state.connection.link
                    allowed = {Link.ASKING: None, Link.ONLINE: seconds}.get(link, CONNECT_S)  # a person takes the time it takes
                    limit.reschedule(None if allowed is None else asyncio.get_running_loop().time() + allowed)
                match link:
                    case Link.UNREACHABLE | Link.REFUSED | Link.LOST:
                        break
                    case Link.ONLINE if _all_known(state) and session.settled:
                        break
    except TimeoutError:
        pass
    return _without_answer(session.state)


def _without_answer(state: "DeploymentState") -> "DeploymentState":
    """A host that is still being connected to after all that time does not answer."""
    from msgspec.structs import replace

    from tui.core.connection import Link

    if state.connection.link not in (Link.IDLE, Link.CONNECTING):
        return state
    cause = state.connection.cause or f"no answer from {state.connection.host or state.target} within {CONNECT_S:.0f} s"
    advice = state.connection.advice or "is the host up, and its network or VPN reachable?"
    return replace(state, connection=replace(state.connection, link=Link.UNREACHABLE, cause=cause, advice=advice))


def _all_known(state: "DeploymentState") -> bool:
    from tui.core.api_status import Reach
    from tui.core.deployment import CLOSED_FOR_SURE

    judged = state.load is None or not state.load.lines or state.forecast != type(state.forecast)()
    if state.load is not None and state.load.ready and state.api.reach is Reach.CLOSED and state.closed_polls < CLOSED_FOR_SURE:
        return False
    seen = state.gpus is not None and state.api.received_at is not None and judged
    return seen and all(_known(other) for other in state.others)


def _known(other: "HostSeen") -> bool:
    """Whether a further host has told of its GPUs, or can't be reached."""
    from tui.core.connection import Link

    return other.gpus is not None or other.connection.link in (Link.UNREACHABLE, Link.REFUSED, Link.LOST)


@click.command()
@click.argument("target", required=False)
@click.option("--new", is_flag=True, help="Only a start newer than this command counts (after `systemctl restart`).")
@click.option("--timeout", "timeout_s", type=Duration(), metavar="T", help="Give up after this time; none unless asked.")
@click.option(
    "--grace",
    "grace_s",
    type=Duration(zero=True),
    default="60s",
    metavar="T",
    show_default=True,
    help="How long a server may be away.",
)
@click.option("--restarts", type=click.IntRange(0), default=0, metavar="N", help="Failed starts that a supervisor may make good.")
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
    """Blocks until the server of a TARGET is ready: the API says so, and one real token came.

    A failure that the log already held does not count unless its process stays away for the grace time.

    Exit code: 0 ready, 2 the configured model is not served, 4 failed, 5 unreachable, 6 timed out, 8 refused (login or API key).
    """
    from tui.core.wait_rules import Rules

    rules = Rules(new=new, timeout_s=timeout_s, grace_s=grace_s, restarts=restarts)
    run(_wait(settings, target, rules, as_json, accept_new, port))


async def _wait(settings: Settings, target: str | None, rules: "Rules", as_json: bool, accept_new: bool, port: int | None) -> int:
    from tui.cli.login_prompts import terminal_asker
    from tui.cli.wait_progress import progress_for
    from tui.core.wait_rules import Outcome, Waiting

    waiting = Waiting(rules, time.monotonic())
    with closing(open_record()) as record, progress_for(as_json) as progress:
        session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new, record=record, port=port)
        token = _LastToken(session)
        async with session:
            while True:
                _decided(session)
                outcome = waiting.look(session.state, time.monotonic(), session.settled)
                progress.show(session.state, time.monotonic() - waiting.began)
                match outcome:
                    case Outcome.ANSWERS if token.due:
                        refused = await token.refused(_left(rules, waiting.began))
                        if refused is None:
                            progress.end("ready", Exit.OK, session.state, "")
                            return Exit.OK
                        if refused.code is not None:
                            progress.end(refused.word, refused.code, session.state, refused.why)
                            return refused.code
                        progress.note(refused.why)
                    case Outcome.FAILED:
                        progress.end("failed", Exit.FAILED, session.state, waiting.why)
                        return Exit.FAILED
                    case Outcome.UNREACHABLE:
                        progress.end("unreachable", Exit.UNREACHABLE, session.state, waiting.why)
                        return Exit.UNREACHABLE
                    case Outcome.REFUSED:
                        progress.end("refused", Exit.REFUSED, session.state, waiting.why)
                        return Exit.REFUSED
                    case Outcome.TIMED_OUT:
                        progress.end("timed_out", Exit.TIMEOUT, session.state, waiting.why)
                        return Exit.TIMEOUT
                await session.next_state(1.0)


def _left(rules: "Rules", began: float) -> float | None:
    return None if rules.timeout_s is None else max(0.1, began + rules.timeout_s - time.monotonic())


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why the last token did not come. `code`: waiting longer does not help (a missing key, a model that is not served)."""

    why: str
    word: str = ""
    code: Exit | None = None


class _LastToken:
    """Asks for the token at growing intervals: a server that refuses it is busy enough."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._tries = 0
        self._not_before = 0.0

    async def refused(self, seconds: float | None) -> _Refusal | None:
        """Asks for one token, within `seconds`; None when it came."""
        from tui.core.connection import retry_delay_s

        refusal = await _refused_token(self._session, seconds)
        self._tries += 1
        self._not_before = time.monotonic() + retry_delay_s(min(self._tries + 1, SLOWEST_TRY), 0.5)
        return refusal

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._not_before


async def _refused_token(session: "Session", seconds: float | None) -> _Refusal | None:
    """Asks for one token; None when it came."""
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
                return _Refusal(error.message, "refused", Exit.REFUSED)
            case "not_served":
                return _not_served(model, listed, error.message)
        return _Refusal(f"no token yet: {error.message}")
    except TimeoutError:
        return _Refusal("no token in time")
    return None


def _not_served(model: str, listed: list[str], said: str = "") -> _Refusal:
    from tui.core.presentation import some_of

    why = f"the server does not serve {model!r}; it serves {some_of(listed) or 'no model'}{f' ({said})' if said else ''}"
    return _Refusal(f"{why}: correct model = … in the configuration", "misconfigured", Exit.USAGE)


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


async def _state(settings: Settings, name: str, accept_new: bool, record: RunStore) -> DeploymentState:
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
    load, forecast = state.load, state.forecast
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
    eta = f", ready in about {duration(forecast.ready_eta_s)}" if forecast.ready_eta_s is not None else ""
    return f"{name_of(load.phase)}{shards}{eta}"

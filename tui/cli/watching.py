"""`readyroom status`, one snapshot, and `readyroom wait`, which blocks until a server is ready."""

import asyncio
import json
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tui.cli.context import Exit, Fail, accept_new_option, config_option, open_record, open_session, port_option, run
from tui.cli.duration import Duration
from tui.settings import Settings

if TYPE_CHECKING:
    from tui.core.deployment import DeploymentState, HostSeen
    from tui.core.waiting import Rules
    from tui.services.session import Session

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
    from tui.cli.status_all import status_of_all

    run(status_of_all(settings, as_json, accept_new))


async def _status(settings: Settings, target: str | None, as_json: bool, accept_new: bool, port: int | None) -> int:
    from tui.cli.asking import terminal_asker
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
    from tui.core.api import Reach
    from tui.core.deployment import CLOSED_FOR_SURE

    judged = state.load is None or not state.load.lines or state.outlook != type(state.outlook)()
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
    from tui.core.waiting import Rules

    rules = Rules(new=new, timeout_s=timeout_s, grace_s=grace_s, restarts=restarts)
    run(_wait(settings, target, rules, as_json, accept_new, port))


async def _wait(settings: Settings, target: str | None, rules: "Rules", as_json: bool, accept_new: bool, port: int | None) -> int:
    from tui.cli.asking import terminal_asker
    from tui.cli.wait_progress import progress_for
    from tui.core.waiting import Outcome, Waiting

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
    from tui.services.first_token import one_token

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
    from tui.core.counted import some_of

    why = f"the server does not serve {model!r}; it serves {some_of(listed) or 'no model'}{f' ({said})' if said else ''}"
    return _Refusal(f"{why}: correct model = … in the configuration", "misconfigured", Exit.USAGE)

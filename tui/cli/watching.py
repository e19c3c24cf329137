"""`readyroom status`, one snapshot, and `readyroom wait`, which blocks until a server is ready."""

import asyncio
import json
import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from tui.cli.context import Exit, Fail, accept_new_option, config_option, open_record, open_session, port_option, run
from tui.settings import Settings

if TYPE_CHECKING:
    from tui.core.deployment import DeploymentState
    from tui.core.waiting import Rules
    from tui.services.session import Session

SNAPSHOT_S = 15.0
"""The longest that a snapshot waits for what has not answered yet."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


class Duration(click.ParamType[float]):
    """Seconds, or `90s`, `45m`, `1h30m`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            self.fail(f"{value!r} is no time: write 90, 90s, 45m or 1h30m", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in parts)


@click.command()
@click.argument("target", required=False)
@click.option("--all", "all_of_them", is_flag=True, help="Every deployment of the configuration, all at once.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@port_option
@accept_new_option
@config_option
def status(target: str | None, all_of_them: bool, as_json: bool, port: int | None, accept_new: bool, settings: Settings) -> None:
    """One snapshot of a TARGET: connection, GPUs, load, API.

    Exit code: 0 ready, 3 loading or starting, 4 failed, 5 unreachable, 7 stopped, 8 refused; with --all the gravest of them.
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

        for line in status_lines(state):
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

    try:
        async with asyncio.timeout(seconds) as limit:
            async for state in session.states():
                match state.connection.link:
                    case Link.UNREACHABLE | Link.REFUSED | Link.LOST:
                        break
                    case Link.ASKING:
                        limit.reschedule(asyncio.get_running_loop().time() + seconds)  # a person takes the time it takes
                    case Link.ONLINE if _all_known(state) and session.settled:
                        break
    except TimeoutError:
        pass
    return session.state


def _all_known(state: "DeploymentState") -> bool:
    from tui.core.api import Reach
    from tui.core.deployment import CLOSED_FOR_SURE

    judged = state.load is None or not state.load.lines or state.outlook != type(state.outlook)()
    if state.load is not None and state.load.ready and state.api.reach is Reach.CLOSED and state.closed_polls < CLOSED_FOR_SURE:
        return False
    return state.gpus is not None and state.api.received_at is not None and judged


@click.command()
@click.argument("target", required=False)
@click.option("--new", is_flag=True, help="Only a start newer than this command counts (after `systemctl restart`).")
@click.option("--timeout", "timeout_s", type=Duration(), metavar="T", help="Give up after this time; none unless asked.")
@click.option(
    "--grace", "grace_s", type=Duration(), default=60.0, metavar="T", show_default="60s", help="How long a server may be away."
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

    Exit code: 0 ready, 4 failed, 5 unreachable, 6 timed out, 8 refused.
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
        async with session:
            while True:
                _decided(session)
                outcome = waiting.look(session.state, time.monotonic(), session.settled)
                progress.show(session.state, time.monotonic() - waiting.began)
                match outcome:
                    case Outcome.ANSWERS:
                        left = _left(rules, waiting.began)
                        refused = await _refused_token(session, left)
                        if refused is None:
                            progress.end("ready", Exit.OK, session.state, "")
                            return Exit.OK
                        if refused.fatal:
                            progress.end("failed", Exit.FAILED, session.state, refused.why)
                            return Exit.FAILED
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


class _Refusal:
    """Why the last token did not come. `fatal`: waiting longer does not help (a missing key)."""

    def __init__(self, why: str, fatal: bool) -> None:
        self.why = why
        self.fatal = fatal


async def _refused_token(session: "Session", seconds: float | None) -> _Refusal | None:
    """Asks for one token; None when it came."""
    from tui.host.api import ApiError
    from tui.services.first_token import one_token

    models = session.state.api.models
    named = session.deployment.model
    model = named or (models[0].id if models else "")
    try:
        async with asyncio.timeout(seconds):
            await one_token(session.api, model)
    except ApiError as error:
        return _Refusal(f"no token yet: {error.message}", error.kind == "unauthorized")
    except TimeoutError:
        return _Refusal("no token in time", False)
    return None

"""What the commands share: settings, TARGET, the API key, a session on a host."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tui.cli.exit_message import ExitCode, Fail, state_directory
from tui.cli.signals import play
from tui.core.presentation import counted
from tui.core.text import clean
from tui.settings import Deployment, EngineSettings, Settings, SettingsError, load_settings, read_within

if TYPE_CHECKING:
    from tui.host.base import Asker
    from tui.record.store import RunStore
    from tui.services.deployment_watch import Session
    from tui.services.other_hosts import OtherHost


__all__ = [
    "api_key",
    "attached",
    "keep",
    "load_settings",
    "open_record",
    "open_session",
    "printing",
    "resolve",
    "run",
    "settings_of",
]

KEY_S = 30.0
"""For a command that prints the API key: it may ask the user for a passphrase."""
LONGEST_KEY = 16_384
CONFIG_HELP = "Use this configuration file (READYROOM_CONFIG)."


def config_option(function: Any) -> Any:
    """Add `--config FILE` to a command; the command receives `settings`."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> Settings:
        if value:
            ctx.with_resource(_used_by_all(value))
        return settings_of(Path(value).expanduser() if value else None)

    return click.option("--config", "settings", metavar="FILE", callback=read, help=CONFIG_HELP)(function)


def config_checked_option(function: Any) -> Any:
    """Add `--config FILE` to a command that needs nothing of it, so that all take it; a bad file is refused as everywhere."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value:
            settings_of(Path(value).expanduser())

    return click.option("--config", metavar="FILE", expose_value=False, callback=read, help=CONFIG_HELP)(function)


@contextmanager
def _used_by_all(file: str) -> Iterator[None]:
    """Make the whole command read and write this configuration: what a key of the screen keeps belongs there, too."""
    before = os.environ.get("READYROOM_CONFIG")
    os.environ["READYROOM_CONFIG"] = file
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("READYROOM_CONFIG", None)
        else:
            os.environ["READYROOM_CONFIG"] = before


def config_path_option(function: Any) -> Any:
    """Add `--config FILE` to a command that reads or writes the file itself; it receives `file`, None for the usual one."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
        return Path(value).expanduser() if value else None

    return click.option("--config", "file", metavar="FILE", callback=read, help=CONFIG_HELP)(function)


def settings_of(file: Path | None) -> Settings:
    """Return the settings of a file, or of the usual one. Raises Fail (usage) with every problem of it."""
    try:
        return load_settings(file)
    except SettingsError as error:
        raise Fail(ExitCode.USAGE, f"the configuration has {counted(len(error.problems), 'problem')}:\n{error}") from None


def port_option(function: Any) -> Any:
    """Add `--port`: the server that is meant if several run on a host."""
    return click.option("--port", type=click.IntRange(1, 65535), help="The server on this port, if several run on the host.")(
        function
    )


def accept_new_option(function: Any) -> Any:
    """Add `--accept-new`: an unknown host key is accepted and remembered; a changed one never."""
    return click.option("--accept-new", is_flag=True, help="Accept and remember an unknown host key.")(function)


def resolve(settings: Settings, target: str | None) -> tuple[str, str, Deployment]:
    """Return name, TARGET and deployment for what the user named, or the default if nothing was named.

    Raises Fail (usage) when it can't be told what is meant.
    """
    if target is None:
        name = settings.default or (next(iter(settings.deployments)) if len(settings.deployments) == 1 else None)
        if name is None:
            known = ", ".join(settings.deployments)
            raise Fail(
                ExitCode.USAGE,
                f"name a target: one of {known}, or user@host" if known else "name a target: user@host, an alias, local, …",
            )
        target = name
    if target not in settings.deployments and clean(target) in settings.deployments:
        target = clean(target)  # as the configuration's own name was
    if target in settings.deployments:
        deployment = settings.deployments[target]
        return target, deployment.engines[0].host, deployment
    return target, target, Deployment(engines=(EngineSettings(host=target),))


def api_key(deployment: Deployment, *, base_url: bool = False) -> str | None:
    """Return the API key of the configured command or variable, or of VLLM_API_KEY; of OPENAI_API_KEY only for a bare URL.

    Raises Fail if the command fails or the named variable is unset.
    """
    if deployment.api_key_command:
        return _sendable(_printed_key(deployment.api_key_command), "api_key_command")
    if deployment.api_key_env:
        value = os.environ.get(deployment.api_key_env)
        if value is None and deployment.api_key_env != "VLLM_API_KEY":
            raise Fail(ExitCode.USAGE, f"api_key_env names {deployment.api_key_env}, but it is not set in the environment")
        return _sendable(value, deployment.api_key_env)
    for name in ("VLLM_API_KEY", "OPENAI_API_KEY") if base_url else ("VLLM_API_KEY",):
        if os.environ.get(name):
            return _sendable(os.environ[name], name)
    return None


def _printed_key(command: str) -> str:
    """Return what the command prints. Raises Fail if it fails, takes longer than KEY_S, or prints more than any key has.

    No message repeats the command or what it prints: either may hold the key.
    """
    try:
        with subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                printed = read_within(process.stdout.fileno() if process.stdout else -1, LONGEST_KEY + 1, KEY_S)
                status = process.wait(KEY_S) if len(printed) <= LONGEST_KEY else None
            finally:
                process.kill()
        why = f"exit {status}" if status else "it printed nothing" if not printed.strip() else ""
        if status is None:
            why = f"it printed more than {LONGEST_KEY:,} bytes"
    except (TimeoutError, subprocess.TimeoutExpired):
        why = f"it did not end within {KEY_S:.0f} s"
    except (OSError, ValueError):
        why = "it can't be run"
    if why:
        raise Fail(ExitCode.USAGE, f"api_key_command failed ({why}): run it by hand to see why")
    return printed.decode(errors="replace").strip()


def _sendable(key: str | None, where: str) -> str | None:
    """Return the key if a header can carry it. Raises Fail naming where the key came from, never the key itself."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise Fail(ExitCode.USAGE, f"the API key of {where} has characters that no HTTP header can carry: set it again")
    return key


def open_record() -> "RunStore":
    """Open the record in the state directory; it is made when first used."""
    from tui.record.store import RunStore

    return RunStore(state_directory() / "record.sqlite")


@contextmanager
def printing(kept: str | None) -> Iterator[None]:
    """If writing output fails within the block, add `kept` to the error: it says where the result is stored."""
    try:
        yield
    except OSError as error:
        if kept:
            error.add_note(kept)
        raise


def keep(save: "Callable[[RunStore], int | None]") -> str | None:
    """Keep a run and return where it is stored. If that fails, stderr says why, and the exit code stays the run's own.

    Before its results are printed: whoever reads them may close the pipe.
    """
    from tui.record.store import RecordError

    with closing(open_record()) as record:
        try:
            number = save(record)
        except RecordError as error:
            click.echo(f"readyroom: this run could not be recorded: {error}", err=True)
            return None
        if record.problem:
            click.echo(f"readyroom: {record.problem}", err=True)
    return None if number is None else f"it is kept in the record: readyroom report {number}"


async def attached(session: "Session") -> None:
    """Make the session's API ask the server found on its connected host if nobody said at which address it is.

    Raises Fail (usage) if several run and none was named.
    """
    from tui.host.base import ProbeFailed
    from tui.services.server_choice import Undecided

    try:
        await session.attach()
    except Undecided as error:
        raise Fail(ExitCode.USAGE, str(error)) from None
    except (ProbeFailed, TimeoutError):
        return  # without a probe nothing is found; the usual address is asked


def open_session(
    settings: Settings,
    target: str | None,
    *,
    asker: "Asker | None" = None,
    accept_new: bool = False,
    record: "RunStore | None" = None,
    port: int | None = None,
    resembles: str | None = None,
) -> "Session":
    """Return a session, disconnected, on what the user named: `async with open_session(…) as session`.

    `resembles`: the command that the target may be a misspelling of, which is said if no host of that name is known. Raises
    Fail (usage) for a TARGET that can't be understood.
    """
    from tui.host.open import open_host
    from tui.services.deployment_watch import Session

    name, host_target, deployment = resolve(settings, target)
    try:
        host = open_host(host_target, name=name, asker=asker, accept_new=accept_new)
    except ValueError as error:
        raise Fail(ExitCode.USAGE, str(error)) from None
    key = api_key(deployment)
    others = _other_hosts(settings, deployment, asker, accept_new)
    return Session(
        name, host_target, deployment, settings, host, record, api_key=key, port=port, others=others, resembles=resembles
    )


def _other_hosts(settings: Settings, deployment: Deployment, asker: "Asker | None", accept_new: bool) -> "list[OtherHost]":
    """Return the further hosts of a deployment, each once, whichever of its GPUs its engines have."""
    from tui.core.gpu_findings import together
    from tui.host.open import open_host
    from tui.services.other_hosts import OtherHost

    first, *further = deployment.engines
    out = []
    for target in dict.fromkeys(engine.host for engine in further if engine.host != first.host):
        engines = [engine for engine in further if engine.host == target]
        try:
            host = open_host(target, name=target, asker=asker, accept_new=accept_new)
        except ValueError as error:
            raise Fail(ExitCode.USAGE, str(error)) from None
        become = shlex.split(next((engine.become for engine in engines if engine.become), ""))
        wanted = together(engine.gpus for engine in engines)
        out.append(OtherHost(host, target, wanted, hz=settings.ui.gpu_hz, become=become))
    return out


def run(main: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a command's coroutine and leave with its exit code; ctrl+c, SIGTERM and SIGHUP end it in order."""
    raise SystemExit(int(play(main)))


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
LONGEST_S = 1e7


class Duration(click.ParamType[float]):
    """Seconds, or `300ms`, `90s`, `45m`, `1h30m`, `2d`; above 0 unless `zero` is allowed, 1e7 s at most."""

    name = "time"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        parts = re.findall(r"(\d+(?:\.\d*)?|\.\d+)(ms|[smhd]?)", text, re.ASCII)
        if not parts or "".join(number + unit for number, unit in parts) != text or any(not unit for _, unit in parts[:-1]):
            self.fail(f"{value!r} is not a duration: write 90, 90s, 45m or 1h30m", param, ctx)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if seconds > LONGEST_S or not (seconds or self._zero):
            self.fail(
                f"{value!r} must be {'' if self._zero else 'above 0 and '}no longer than {LONGEST_S / 86400:.0f} days", param, ctx
            )
        return seconds

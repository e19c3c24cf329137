"""The command `readyroom`: lazily imported commands, and one place where errors become exit codes."""

import gc
import importlib
import io
import os
import signal
import sys
from typing import NoReturn

import click

from tui import __version__
from tui.cli.exit_message import ExitCode, Fail, last_words, no_room, nobody_listens, open_closed_streams

PIPE_BROKEN = 141
"""As a shell tells of what SIGPIPE ended."""

# command -> (module, attribute, one line of help): a module is imported only when its command runs
COMMANDS = {
    "room": ("tui.cli.room", "room", "The control room (the default: `readyroom TARGET`)."),
    "demo": ("tui.cli.demo", "demo", "The control room on a simulated GPU host."),
    "status": ("tui.cli.status", "status", "One snapshot: connection, GPUs, load, API."),
    "wait": ("tui.cli.wait", "wait", "Block until the server is ready, or has failed."),
    "smoke": ("tui.cli.smoke", "smoke", "Prompts with known answers, and a verdict on each."),
    "bench": ("tui.cli.bench", "bench", "Benchmark a server: single stream, sweep, soak."),
    "log": ("tui.cli.log", "log", "Read a saved log: phases, facts, root cause."),
    "runs": ("tui.cli.runs", "runs", "The record of loads, smoke runs and benchmarks."),
    "compare": ("tui.cli.runs", "compare", "Two stored benchmarks, point by point."),
    "report": ("tui.cli.runs", "report", "One stored run as Markdown."),
    "doctor": ("tui.cli.doctor", "doctor", "Check host, login, probe, log and API; each with a fix."),
    "init": ("tui.cli.config", "init", "Add the server that runs on a host to the configuration."),
    "config": ("tui.cli.config", "config", "Check, show or locate the configuration."),
}


class Commands(click.Group):
    """A group whose commands are imported when they are used, and whose default command takes a TARGET."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name != "room"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        gc.disable()  # what is imported stays: to look for garbage in it takes a tenth of the start
        try:
            command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.enable()
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`readyroom`, `readyroom TARGET` and `readyroom --theme X TARGET` mean `readyroom room …`."""
        own = {"-h", "--help", "-V", "--version"}
        if not args or (args[0] not in COMMANDS and args[0] not in own):
            args = ["room", *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # the one-liners above: asking each command for its help would import them all
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=False,
    subcommand_metavar="[TARGET] | COMMAND …",
)
@click.version_option(__version__, "-V", "--version", message="readyroom %(version)s")
def cli() -> None:
    """Watch and test a large-model deployment from the terminal.

    `readyroom TARGET` opens the screen. TARGET is a deployment's name from the configuration, user@host[:port], an alias of
    ~/.ssh/config, `local`, or exec:COMMAND (a prefix that reaches the host, such as "exec:docker exec -i vllm").
    """


def main() -> NoReturn:
    """Run the command line; never print a traceback for an error that the user can mend."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # where Unicode can't be shown there are question marks, not a traceback
    for name in ("COLUMNS", "LINES"):
        said = os.environ.get(name, "")
        if said and not (said.isdecimal() and int(said)):
            del os.environ[name]  # some shells of CI export 0: a table of no width would be no table
    signal.signal(signal.SIGTERM, _terminated)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
        signal.signal(signal.SIGHUP, _terminated)
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # before, it ended the imports
        code, message = _ended()
    except KeyboardInterrupt:  # one more, while the first was answered
        code, message = ExitCode.INTERRUPTED, "readyroom: interrupted"
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) in (_terminated, signal.default_int_handler):
            signal.signal(number, signal.SIG_DFL)  # they end it, whatever the end of the interpreter may wait for
    last_words(message)
    sys.exit(code)


def _ended() -> tuple[int, str]:
    """Run the command and return its exit code and what is to be said on stderr."""
    try:
        try:
            code = cli.main(standalone_mode=False, prog_name="readyroom")
        finally:
            if sys.stdout is not None and sys.exc_info()[0] in (None, SystemExit):
                sys.stdout.flush()  # here, where its error has an exit code
    except SystemExit as error:
        return (error.code, "") if isinstance(error.code, int) else (int(bool(error.code)), str(error.code or ""))
    except Fail as error:
        return error.code, f"readyroom: {error.message}"
    except click.UsageError as error:
        hint = f"\nTry '{error.ctx.command_path} --help'." if error.ctx else ""
        return ExitCode.USAGE, f"readyroom: {error.format_message()}{hint}"
    except click.ClickException as error:
        return error.exit_code, f"readyroom: {error.format_message()}"
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED, "readyroom: interrupted"
    except BaseException as error:
        if nobody_listens(error):
            # the reader of a pipe went away (`readyroom log FILE | head`), or the terminal: no error of ours
            piped = isinstance(error, BrokenPipeError) and not isinstance(error.__context__, KeyboardInterrupt)
            return (PIPE_BROKEN if piped else ExitCode.INTERRUPTED), ""
        if (why := no_room(error)) is not None:
            return ExitCode.NOT_SAVED, f"readyroom: {why}"
        from tui.cli.exit_message import explain

        return explain(error)
    return (int(code) if isinstance(code, int) else ExitCode.OK), ""


def _terminated(number: int, frame: object) -> None:
    raise KeyboardInterrupt

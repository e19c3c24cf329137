"""`readyroom smoke`: the smoke prompts with a verdict on each."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tui.cli.context import accept_new_option, attached, config_option, keep, open_session, port_option, printing, run
from tui.cli.exit_message import ExitCode, Fail
from tui.core.presentation import some_of
from tui.core.smoke_prompts import Outcome, SmokeResult, SmokeRun
from tui.core.text import clean
from tui.settings import Settings
from tui.wire.urls import askable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tui.host.api import ApiClient, ApiError

MARKS = {Outcome.PASSED: ("✓", "green"), Outcome.FAILED: ("✗", "red"), Outcome.INCONCLUSIVE: ("▲", "yellow")}


@click.command()
@click.argument("target", required=False)
@click.option("--model", metavar="M", help="The served model to ask, when there are several.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@port_option
@accept_new_option
@config_option
def smoke(target: str | None, model: str | None, as_json: bool, port: int | None, accept_new: bool, settings: Settings) -> None:
    """Send a handful of prompts with known answers and judge each reply: passed, failed or inconclusive.

    Exit code 0 when all passed, 1 when not, 5 when the server can't be reached.
    """
    run(_smoke(settings, target, model, as_json, accept_new, port))


async def _smoke(
    settings: Settings, target: str | None, model: str | None, as_json: bool, accept_new: bool, port: int | None
) -> int:
    from tui.cli.login_prompts import terminal_asker
    from tui.host.api import ApiError

    # The session is not entered: nothing is to be watched here, only its host and its API are used.
    session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new, port=port)
    async with session.host, aclosing_api(session.api) as api:
        await session.host.connect()
        await attached(session)
        try:
            chosen = await choose_model(api, model or session.deployment.model)
            done = await _ask(api, chosen, settings, as_json)
        except ApiError as error:
            raise _no_answer(session.name, error) from None
    with printing(keep(lambda record: record.save_smoke(session.name, done))):
        if as_json:
            print(json.dumps(document(done), ensure_ascii=False), flush=True)
        else:
            from rich.console import Console

            report(done, Console())
    return ExitCode.OK if done.passed else ExitCode.NEGATIVE


@asynccontextmanager
async def aclosing_api(api: "ApiClient") -> AsyncIterator["ApiClient"]:
    """Yield the API client; close it at the end."""
    try:
        yield api
    finally:
        await api.close()


async def _ask(api: "ApiClient", model: str, settings: Settings, as_json: bool) -> SmokeRun:
    from rich.console import Console
    from rich.live import Live

    from tui.services.smoke_run import run_smoke

    last: SmokeRun | None = None
    async with aclosing(run_smoke(api, model=model, settings=settings.smoke)) as states:
        if as_json or not sys.stdout.isatty():
            async for last in states:  # noqa: B007 the last one counts
                pass
        else:
            with Live(console=Console(), transient=True, auto_refresh=False) as live:
                async for last in states:
                    live.update(table(last), refresh=True)
    assert last is not None
    return last


async def choose_model(api: "ApiClient", wanted: str | None) -> str:
    """Return the model to ask: the named one, or the only one served (adapters of it stand behind the first).

    Raises Fail (usage) when the server has no such model, or none at all; ApiError when it does not answer.
    """
    entries, refused = askable((await api.get("/v1/models")).get("data"))
    served = [str(entry["id"]) for entry in entries]
    if not served:
        raise Fail(ExitCode.NEGATIVE, refused or "the server lists no model at /v1/models")
    if wanted is None:
        return served[0]
    for name in served:
        if wanted in (name, clean(name)):  # it may have been copied from the screen
            return name
    raise Fail(ExitCode.USAGE, f"the server does not serve {wanted!r}; it serves {some_of(map(clean, served))}")


def _no_answer(name: str, error: "ApiError") -> Fail:
    match error.kind:
        case "closed" | "unreachable" | "timeout" | "not_permitted":
            return Fail(ExitCode.UNREACHABLE, f"{name}: {error.message}\n  is the server ready? See `readyroom status`")
        case "unauthorized":
            return Fail(ExitCode.REFUSED, f"{name}: {error.message}")
    return Fail(ExitCode.NEGATIVE, f"{name}: {error.message}")


def document(run: SmokeRun) -> dict[str, Any]:
    """Return the document of `--json`."""
    return {
        "schema": 1,
        "model": run.model,
        "passed": run.passed,
        "counts": {outcome.value: run.count(outcome) for outcome in Outcome},
        "planned": run.planned,
        "results": [asdict(result) for result in run.results],
    }


def table(run: SmokeRun) -> "Table":
    """Return the run as it stands, for people."""
    from rich.table import Table
    from rich.text import Text

    out = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    out.add_column(no_wrap=True)
    out.add_column(no_wrap=True)
    out.add_column(overflow="fold")
    out.add_column(justify="right", no_wrap=True)
    for result in run.results:
        sign, colour = MARKS[result.outcome]
        took = f"{result.seconds:.1f} s" if result.seconds is not None else "—"
        out.add_row(Text(sign, colour), Text(result.name), Text(result.says), Text(took))
    if not run.finished:
        out.add_row(Text("◐", "cyan"), Text(f"{len(run.results) + 1} of {run.planned}"), Text(""), Text(""))
    return out


def report(run: SmokeRun, console: "Console") -> None:
    """Return the verdicts, the replies of what did not pass, and the sum."""
    from rich.text import Text

    console.print(Text.assemble((run.model, "bold")))
    console.print(table(run))
    for result in run.results:
        if result.outcome is not Outcome.PASSED and (result.reply or result.reasoning):
            console.print(Text(f"\n{result.name}: the reply was", "bold"))
            console.print(Text(_short(result)))
    sums = [f"{run.count(outcome)} {outcome.value}" for outcome in Outcome if run.count(outcome)]
    missing = run.planned - len(run.results)
    console.print(Text(f"\n{', '.join(sums)}{f', {missing} not asked' if missing else ''}"))


def _short(result: SmokeResult, limit: int = 600) -> str:
    text = result.reply or f"(reasoning) {result.reasoning}"
    return text if len(text) <= limit else f"{text[: limit // 2]}\n…\n{text[-limit // 2 :]}"

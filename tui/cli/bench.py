"""`readyroom bench`: benchmarks of a server, through its host or by its URL."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tui import __version__
from tui.cli.bench_files import STDOUT, require_writable, save
from tui.cli.bench_flags import Numbers, Positive, ca_file, plan_of, positive, streams, tokens
from tui.cli.bench_help import GroupedHelp
from tui.cli.bench_prompts import read_prompts
from tui.cli.bench_refusal import refusal
from tui.cli.context import (
    Exit,
    Fail,
    accept_new_option,
    api_key,
    attached,
    config_option,
    keep,
    open_session,
    port_option,
    printing,
    resolve,
    run,
)
from tui.cli.duration import Duration
from tui.cli.interrupts import first_signal
from tui.core.address import SOCKET, shown_url, socket_of
from tui.core.bench_limits import MOST_TOKENS
from tui.core.benchmark import REFUSED, STOPPED_BY_USER, Plan, Point, Progress, Result, Vantage
from tui.core.benchmark_csv import csv_of
from tui.core.benchmark_json import is_much, recorded
from tui.core.benchmark_plan import steps_of
from tui.core.benchmark_report import document, too_few
from tui.core.counted import counted
from tui.core.text import clean
from tui.settings import Deployment, Settings

if TYPE_CHECKING:
    from tui.cli.bench_consent import Consent
    from tui.host.api import ApiClient
    from tui.services.benchmark import Benchmarks
    from tui.services.session import Session

GATE = "With --request-rate the most in flight (vLLM's --max-concurrency)."
PROMPTS = "JSONL, or ShareGPT's JSON; - reads standard input. An entry's output_tokens go before --output-tokens."
LENGTH = "Default: 20s, and for a closed loop 4 requests a stream at least."


@click.command(cls=GroupedHelp)
@click.argument("target", required=False)
@click.option("--base-url", metavar="URL", help="Bench this endpoint from here, with no host: http(s)://… or unix:/path.")
@click.option("--concurrency", type=Numbers(), help=f"Streams of each point: 1,8,64; default 1. {GATE}")
@click.option("--sweep", metavar="TOP", type=streams, help="1, 2, 4 … TOP streams until the knee, the first again at the end.")
@click.option("--requests", type=positive, metavar="N", help="Exactly N requests a point; one stream sends 5 by default.")
@click.option("--duration", type=Duration(), help=f"Measure each point for so long; what is in flight then is incomplete. {LENGTH}")
@click.option("--request-rate", type=Positive(), metavar="R", help="Open loop: R requests a second.")
@click.option("--burstiness", type=Positive(), default=1.0, help="1 is Poisson; less comes in bursts.")
@click.option("--soak", type=Duration(), help="Keep the load up for so long and say what was observed.")
@click.option("--input-tokens", type=tokens, metavar="N", help="Tokens of each prompt; default 512.")
@click.option("--output-tokens", type=tokens, metavar="N", help="Tokens of each reply; default 512.")
@click.option(
    "--shared-prefix", type=click.IntRange(0, MOST_TOKENS), default=0, metavar="N", help="N tokens more that all prompts share."
)
@click.option("--token-ids", is_flag=True, help="Prompts are token ids (completions only) instead of natural text.")
@click.option("--prompts", metavar="FILE", help=PROMPTS)
@click.option("--model", metavar="M", help="The served model, when there are several.")
@click.option("--endpoint", type=click.Choice(["chat", "completions"]), help="Default: chat.")
@click.option("--extra-body", metavar="JSON", help="Fields added to each request.")
@click.option("--header", "headers", multiple=True, metavar="K=V", help="A header of each request.")
@click.option("--goodput", multiple=True, metavar="M:MS", help="Count requests within limits: ttft:500 tpot:50 e2el:9000.")
@click.option("--vantage", type=click.Choice([str(v) for v in Vantage]), help="Where the load comes from. Default: the host.")
@click.option("--thorough", is_flag=True, help="60 s a point, each one twice.")
@click.option("--stagger", type=Duration(), help="Spread the first requests instead of sending them in one burst.")
@click.option("--no-ignore-eos", is_flag=True, help="Let replies end by themselves.")
@click.option("--stall", type=Duration(), default=120.0, help="A reply without a byte for so long has failed. Default: 120s.")
@click.option("--workers", type=click.IntRange(min=0), default=0, help="Processes of the load generator; 0 lets it choose.")
@click.option("--seed", type=int, help="Of the prompts; default: new ones each run, so that no prefix cache can help.")
@click.option("--ca-file", metavar="FILE", callback=ca_file, help="Trust this PEM file's authorities, too, with --base-url.")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("--max-failures", type=click.IntRange(min=0), default=0, metavar="N", help="Exit code 1 above N failed requests.")
@click.option("--save", type=click.Path(file_okay=False), metavar="DIR", help="A file a point, as `vllm bench serve` writes it.")
@click.option("--save-detailed", is_flag=True, help="With every request's arrays in the saved files.")
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="One row a point; the columns are stable, new ones come last. A file of them gets more rows; - is standard output.",
)
@click.option("--definitions", is_flag=True, help="Say what the figures mean, and how they are taken.")
@click.option("--yes", is_flag=True, help="Don't ask when the server is serving others or does not say.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@port_option
@accept_new_option
@config_option
def bench(target: str | None, base_url: str | None, settings: Settings, accept_new: bool, **options: Any) -> None:
    """Benchmarks a server: one stream by default, several with --concurrency or --sweep.

    TTFT, TPOT, ITL, E2EL and throughput are defined as `vllm bench serve` defines them. [bench] in the configuration sets other
    defaults of lengths and endpoint. Exit code 0, 1 when more requests failed than allowed, 5 when the server can't be reached, 73
    when --save, --csv or stdout could not be written in the end.
    """
    if target is not None and target.startswith(("http://", "https://", SOCKET)):
        raise click.UsageError(f"a TARGET is a host; a server is benchmarked by its URL with --base-url {shown_url(target)}")
    if base_url is not None and target is not None:
        raise click.UsageError("name either a TARGET or --base-url, not both")
    if base_url is not None and options["port"] is not None:
        raise click.UsageError("--port means a server of a TARGET; with --base-url the URL says the port")
    if options["as_json"] and options["csv_file"] == STDOUT:
        raise click.UsageError("--json and --csv - both write standard output: name a file for --csv")
    if base_url is None and options["ca_file"] is not None:
        raise click.UsageError("--ca-file goes with --base-url; of a TARGET it is ca_file in the configuration")
    plan = plan_of(settings, options)
    prompts = None
    if (given := read_prompts(options["prompts"], plan.endpoint)) is not None:
        out = given.out(plan.output_tokens)
        prompts, plan = given.prompts, replace(plan, prompts_notes=given.notes, prompts_out=out)
    run(_bench(settings, target, base_url, plan, prompts, accept_new, options))


# -- running -----------------------------------------------------------------------------------------------------------------------


async def _bench(
    settings: Settings,
    target: str | None,
    base_url: str | None,
    plan: Plan,
    prompts: list[dict[str, Any]] | None,
    accept_new: bool,
    options: dict[str, Any],
) -> int:
    from tui.cli.bench_consent import Consent
    from tui.services.benchmark import BenchmarkRefused, BenchmarkRunning

    try:
        steps_of(plan)
    except ValueError as error:
        raise Fail(Exit.USAGE, f"readyroom: {error}") from None
    require_writable(options["save"], options["csv_file"])
    if base_url is not None:
        opened = _by_url(base_url, plan, options["ca_file"])
    else:
        opened = _by_target(settings, target, plan, accept_new, options["port"])
    async with opened as (name, benchmarks, api):
        try:
            consent = None if options["yes"] else Consent(name, plan)
            if consent is not None:
                await consent.look(api)
            if (fewer := too_few(plan)) is not None:
                click.echo(f"readyroom: {fewer}", err=True)
            result = await _show(benchmarks, plan, prompts, options["as_json"], consent)
        except BenchmarkRunning as error:
            raise Fail(Exit.NEGATIVE, str(error)) from None
        except BenchmarkRefused as error:
            raise refusal(name, error, base_url is not None) from None
        except ValueError as error:
            raise Fail(Exit.USAGE, str(error)) from None
    if options["save_detailed"] and is_much(result):
        click.echo(f"readyroom: writing the records of {counted(recorded(result), 'request')} to {options['save']} …", err=True)
    saved = save(result, options["save"], options["csv_file"])
    kept = keep(lambda record: record.save_benchmark(name, result))
    with printing(f"the result lies in {result.path}" if result.path else kept):
        if options["as_json"]:
            print(json.dumps(document(result, saved.paths), ensure_ascii=False), flush=True)
        else:
            from tui.cli.bench_view import report

            if rows := options["csv_file"] == STDOUT:
                print(csv_of(result), end="", flush=True)
            report(result, saved.paths, definitions=options["definitions"], to_stderr=rows)
    for problem in saved.problems:
        click.echo(f"readyroom: {clean(problem)}", err=True)
    code = exit_code(result)
    return Exit.NOT_SAVED if saved.problems and code == Exit.OK else code


def exit_code(result: Result) -> int:
    """1 when more failed than allowed, nothing completed, or a point was refused; 130 when it was interrupted; 5 when the link was
    lost."""
    failed = sum(int(point.figures.get("failed") or 0) for point in result.points)
    if result.stopped == STOPPED_BY_USER:
        return Exit.INTERRUPTED
    if failed > result.plan.max_failures or not any(point.figures.get("completed") for point in result.points):
        return Exit.NEGATIVE
    if result.stopped is not None and result.stopped.startswith(REFUSED):
        return Exit.NEGATIVE
    return Exit.UNREACHABLE if result.stopped else Exit.OK


@asynccontextmanager
async def _by_url(url: str, plan: Plan, ca_file: str | None) -> AsyncIterator[tuple[str, "Benchmarks", "ApiClient"]]:
    from tui.host.api import ApiClient
    from tui.host.open import open_host
    from tui.host.tunnel import DirectTransport
    from tui.probe.load_http import target_of
    from tui.services.benchmark import Benchmarks, Server
    from tui.wire.headers import authorized

    try:
        target = target_of(url)
    except ValueError as error:
        raise Fail(Exit.USAGE, f"--base-url: {error}") from None
    key = api_key(Deployment(), base_url=True)
    headers = authorized(url, key, {})
    name = target.unix or target.host_header
    server = Server(url, headers, ca_file)
    benchmarks = Benchmarks(name, server, host=None, open_local=lambda: open_host("local"), version=__version__)
    transport = DirectTransport(verify=plan.verify_tls and (ca_file or True), uds=socket_of(url))
    api = ApiClient(url, transport, api_key=key, headers=plan.headers)
    try:
        yield name, benchmarks, api
    finally:
        await api.close()


@asynccontextmanager
async def _by_target(
    settings: Settings, target: str | None, plan: Plan, accept_new: bool, port: int | None
) -> AsyncIterator[tuple[str, "Benchmarks", "ApiClient"]]:
    from tui.cli.asking import terminal_asker
    from tui.host.open import open_host
    from tui.services.benchmark import Benchmarks

    name, _, deployment = resolve(settings, target)
    if not deployment.allow_bench:
        raise Fail(Exit.USAGE, f"{name}: the configuration says allow_bench = false: this server is not to be benchmarked")
    # The session is not entered: nothing is to be watched here, only its host and its API are used.
    session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new, port=port)
    async with session.host:
        await session.host.connect()
        await attached(session)
        benchmarks = Benchmarks.of_session(session, lambda: open_host("local"), __version__)
        try:
            async with _looking(session, plan) as api:
                yield name, benchmarks, api
        finally:
            await session.api.close()


@asynccontextmanager
async def _looking(session: "Session", plan: Plan) -> AsyncIterator["ApiClient"]:
    """The client of a deployment's API that asks as the load will: with the plan's headers, and certificates checked or not."""
    from tui.host.api import ApiClient
    from tui.host.tunnel import DirectTransport
    from tui.wire.headers import merged

    deployment = session.deployment
    transport = DirectTransport if deployment.direct else session.host.transport
    made = transport(verify=plan.verify_tls and (deployment.ca_file or True), uds=socket_of(deployment.api))
    headers = merged(deployment.headers, plan.headers)
    api = ApiClient(deployment.api, made, api_key=session.api_key, headers=headers)
    try:
        yield api
    finally:
        await api.close()


async def _show(
    benchmarks: "Benchmarks", plan: Plan, prompts: list[dict[str, Any]] | None, as_json: bool, consent: "Consent | None"
) -> Result:
    """Runs it with live progress on stderr's terminal; the first ctrl+c or SIGTERM ends it in order, with what there is."""
    from tui.cli.bench_view import LiveView

    async def ready(busy: int | None) -> None:
        assert consent is not None
        with view.aside():
            await consent.ready(busy)

    stops: list[asyncio.Task[None]] = []
    result: Result | None = None
    try:
        with (
            first_signal(lambda: stops.append(asyncio.create_task(benchmarks.stop()))),
            LiveView(plan, live=sys.stderr.isatty(), quiet=as_json) as view,
        ):
            async with aclosing(benchmarks.run(plan, prompts, None if consent is None else ready)) as news:
                async for item in news:
                    match item:
                        case Progress():
                            view.progress(item)
                        case Point():
                            view.point(item)
                        case Result():
                            result = item
    finally:
        for task in stops:
            await task
    assert result is not None
    return result

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
from tui.cli.bench_files import STDOUT, Saving, require_writable_soon
from tui.cli.bench_options import GroupedHelp, Numbers, Positive, ca_file, plan_of, positive, read_prompts, streams, tokens
from tui.cli.context import (
    Duration,
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
from tui.cli.exit_message import ExitCode, Fail
from tui.cli.login_prompts import confirm
from tui.cli.signals import first_signal
from tui.core.bench_documents import csv_of, document, is_much, recorded, too_few
from tui.core.bench_limits import MOST_TOKENS
from tui.core.bench_plan import estimate, steps_of
from tui.core.bench_result import REFUSED, STOPPED_BY_USER, BenchProgress, Plan, Point, Result, Vantage
from tui.core.presentation import about, counted
from tui.core.text import clean
from tui.host.api import ApiClient
from tui.settings import Deployment, Settings
from tui.wire.urls import SOCKET, shown_url, socket_of

if TYPE_CHECKING:
    from tui.services.bench_run import BenchmarkRefused, Benchmarks
    from tui.services.deployment_watch import Session


KEY_WANTED = ("http_401", "http_403")
NOT_NOW = ("http_429", "http_502", "http_503", "http_504")
"""Kinds of refusal that another time, and not another request, would change: the server's, or those of what stands before it."""


def refusal(name: str, error: "BenchmarkRefused", by_url: bool) -> Fail:
    """Return how the command ends if the server `name` refused the benchmark: an exit code, the cause, and what to do."""
    if error.kind == "tls":
        return Fail(ExitCode.UNREACHABLE, f"{name}: {error.cause}\n  {_trust(error.cause, by_url)}")
    if error.unreachable:
        step = "is the server up, and is this its address?" if by_url else f"is the server ready? See `readyroom status {name}`"
        return Fail(ExitCode.UNREACHABLE, f"{name}: {error.cause}\n  {step}")
    if error.kind in KEY_WANTED:
        given = "set VLLM_API_KEY or OPENAI_API_KEY" if by_url else "set VLLM_API_KEY, or api_key_env in the configuration"
        return Fail(ExitCode.REFUSED, f"{name}: an API key is missing, or is not the right one: {error.cause}\n  {given}")
    if error.kind == "too_long":
        step = "ask for less with --input-tokens or --output-tokens"
        return Fail(ExitCode.USAGE, f"{name}: {error.cause}: nothing was sent\n  {step}")
    if error.kind in NOT_NOW:
        step = "try again when it is up or less busy" if by_url else f"`readyroom status {name}` tells which"
        return Fail(ExitCode.NEGATIVE, f"{name}: the server is not ready, or full ({error.kind}): {error.cause}\n  {step}")
    if error.kind.startswith("http_5"):
        step = "its own log says more" if by_url else f"see `readyroom status {name}` and the server's log"
        return Fail(ExitCode.NEGATIVE, f"{name}: the server failed ({error.kind}): {error.cause}\n  {step}")
    return Fail(ExitCode.NEGATIVE, f"{name}: the server rejects such a request ({error.kind}): {error.cause}")


def _trust(cause: str, by_url: bool) -> str:
    if "certificate" not in cause.lower():
        return "does it speak TLS? If not, its address begins with http://"
    named = "--ca-file FILE, or SSL_CERT_FILE in the environment," if by_url else "ca_file in the configuration"
    return f"{named} names the authority to trust; --insecure trusts whoever answers"


GATE = "With --request-rate the most in flight (vLLM's --max-concurrency)."
PROMPTS = "JSONL, or ShareGPT's JSON; - reads standard input. An entry's output_tokens override --output-tokens."
LENGTH = "Default: 20s, and for a closed loop 4 requests a stream at least."


@click.command(cls=GroupedHelp)
@click.argument("target", required=False)
@click.option("--base-url", metavar="URL", help="Benchmark this endpoint from here, without a host: http(s)://… or unix:/path.")
@click.option("--concurrency", type=Numbers(), help=f"Streams of each point: 1,8,64; default 1. {GATE}")
@click.option("--sweep", metavar="TOP", type=streams, help="1, 2, 4 … TOP streams until the knee, the first again at the end.")
@click.option("--requests", type=positive, metavar="N", help="Exactly N requests a point; one stream sends 5 by default.")
@click.option(
    "--duration",
    type=Duration(),
    help=f"Measure each point for this long; requests still in flight then count as incomplete. {LENGTH}",
)
@click.option("--request-rate", type=Positive(), metavar="R", help="Open loop: R requests a second.")
@click.option("--burstiness", type=Positive(), default=1.0, help="1 is Poisson; less comes in bursts.")
@click.option("--soak", type=Duration(), help="Keep the load up for this long and report what was observed.")
@click.option("--input-tokens", type=tokens, metavar="N", help="Tokens of each prompt; default 512.")
@click.option("--output-tokens", type=tokens, metavar="N", help="Tokens of each reply; default 512.")
@click.option(
    "--shared-prefix",
    type=click.IntRange(0, MOST_TOKENS),
    default=0,
    metavar="N",
    help="Start all prompts with the same N extra tokens.",
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
@click.option("--stall", type=Duration(), default=120.0, help="Fail a request after this long without an event. Default: 120s.")
@click.option("--workers", type=click.IntRange(min=0), default=0, help="Processes of the load generator; 0 lets it choose.")
@click.option("--seed", type=int, help="Seed of the prompts; default: new prompts each run, so that no prefix cache helps.")
@click.option("--ca-file", metavar="FILE", callback=ca_file, help="Also trust this PEM file's authorities, with --base-url.")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option(
    "--max-failures", type=click.IntRange(min=0), default=0, metavar="N", help="Exit with 1 if more than N requests fail."
)
@click.option(
    "--save", type=click.Path(file_okay=False), metavar="DIR", help="Write one file per point, as `vllm bench serve` does."
)
@click.option("--save-detailed", is_flag=True, help="Include every request's arrays in the saved files.")
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write one row per point; columns are stable, new ones come last. An existing file gets more rows; - is stdout.",
)
@click.option("--definitions", is_flag=True, help="Explain what the figures mean and how they are measured.")
@click.option("--yes", is_flag=True, help="Don't ask first if the server is serving others or does not say.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@port_option
@accept_new_option
@config_option
def bench(target: str | None, base_url: str | None, settings: Settings, accept_new: bool, **options: Any) -> None:
    """Benchmark a server: one stream by default, several with --concurrency or --sweep.

    TTFT, TPOT, ITL, E2EL and throughput are defined as `vllm bench serve` defines them. [bench] in the configuration sets other
    default lengths and endpoint. Exit code 0, 1 when more requests failed than allowed, 5 when the server can't be reached, 73
    when --save, --csv or stdout could not be written.
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
    from tui.services.bench_run import BenchmarkRefused, BenchmarkRunning

    try:
        steps_of(plan)
    except ValueError as error:
        raise Fail(ExitCode.USAGE, f"readyroom: {error}") from None
    await require_writable_soon(options["save"], options["csv_file"])
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
            raise Fail(ExitCode.NEGATIVE, str(error)) from None
        except BenchmarkRefused as error:
            raise refusal(name, error, base_url is not None) from None
        except ValueError as error:
            raise Fail(ExitCode.USAGE, str(error)) from None
    if options["save_detailed"] and is_much(result):
        click.echo(f"readyroom: writing the records of {counted(recorded(result), 'request')} to {options['save']} …", err=True)
    kept = keep(lambda record: record.save_benchmark(name, result))  # first: what follows may not work, or be interrupted
    kept = f"the result is in {result.path}" if result.path else kept
    try:
        saved = await Saving(result, options["save"], options["csv_file"]).patiently()
    except asyncio.CancelledError:
        click.echo(f"readyroom: {kept}", err=True)
        raise
    with printing(kept):
        if options["as_json"]:
            print(json.dumps(document(result, saved.paths), ensure_ascii=False), flush=True)
        else:
            from tui.cli.bench_tables import report

            if rows := options["csv_file"] == STDOUT:
                print(csv_of(result), end="", flush=True)
            report(result, saved.paths, definitions=options["definitions"], to_stderr=rows)
    for problem in saved.problems:
        click.echo(f"readyroom: {clean(problem)}", err=True)
    code = exit_code(result)
    return ExitCode.NOT_SAVED if saved.problems and code == ExitCode.OK else code


def exit_code(result: Result) -> int:
    """Return 1 if more requests failed than allowed, none completed, or a point was refused; 130 if it was interrupted; 5 if the
    link was lost.
    """
    failed = sum(int(point.figures.get("failed") or 0) for point in result.points)
    if result.stopped == STOPPED_BY_USER:
        return ExitCode.INTERRUPTED
    if failed > result.plan.max_failures or not any(point.figures.get("completed") for point in result.points):
        return ExitCode.NEGATIVE
    if result.stopped is not None and result.stopped.startswith(REFUSED):
        return ExitCode.NEGATIVE
    return ExitCode.UNREACHABLE if result.stopped else ExitCode.OK


@asynccontextmanager
async def _by_url(url: str, plan: Plan, ca_file: str | None) -> AsyncIterator[tuple[str, "Benchmarks", "ApiClient"]]:
    from tui.host.api import ApiClient
    from tui.host.http_transport import DirectTransport
    from tui.host.open import open_host
    from tui.probe.load_http import target_of
    from tui.services.bench_run import Benchmarks, BenchmarkTarget
    from tui.wire.urls import authorized

    try:
        target = target_of(url)
    except ValueError as error:
        raise Fail(ExitCode.USAGE, f"--base-url: {error}") from None
    key = api_key(Deployment(), base_url=True)
    headers = authorized(url, key, {})
    name = target.unix or target.host_header
    server = BenchmarkTarget(url, headers, ca_file)
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
    from tui.cli.login_prompts import terminal_asker
    from tui.host.open import open_host
    from tui.services.bench_run import Benchmarks

    name, _, deployment = resolve(settings, target)
    if not deployment.allow_bench:
        raise Fail(ExitCode.USAGE, f"{name}: the configuration says allow_bench = false: this server must not be benchmarked")
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
    """Open a client of a deployment's API that asks as the load will: with the plan's headers, and its check of certificates."""
    from tui.host.api import ApiClient
    from tui.host.http_transport import DirectTransport
    from tui.wire.urls import merged

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
    """Run the benchmark with live progress on stderr; the first ctrl+c or SIGTERM ends it in order, with the points so far."""
    from tui.cli.bench_tables import LiveView

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
                        case BenchProgress():
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


class Consent:
    """Ask once a benchmark whether to load a server that serves others.

    The question comes before the server gets anything from us if its metrics can be read from here, otherwise when the source of
    the load knows the server. If nobody can be asked, a server that serves others is refused.
    """

    def __init__(self, name: str, plan: Plan) -> None:
        self._name = name
        self._plan = plan
        self.given = False

    async def look(self, api: ApiClient) -> None:
        """Ask if the server is seen to serve others. Raises Fail or click.Abort.

        If that cannot be seen nothing is asked yet: the benchmark will say what is wrong, or `ready` asks.
        """
        metrics = (await api.poll()).metrics
        if metrics is not None and (metrics.running, metrics.waiting) != (None, None):
            await self._ask(round((metrics.running or 0) + (metrics.waiting or 0)))

    async def ready(self, busy: int | None) -> None:
        """Ask if that could not be seen before. Raises Fail or click.Abort.

        `busy` is the number of other requests; None if the source of the load can't see them, either.
        """
        if not self.given:
            await self._ask(busy)

    async def _ask(self, busy: int | None) -> None:
        if busy == 0:
            self.given = True
            return
        seen = "does not say whether it is serving others" if busy is None else f"is serving {counted(busy, 'request')} from others"
        forecast = estimate(self._plan)
        words = (
            f"{self._name} {seen}. The benchmark will send about {forecast.requests:,} requests ({forecast.tokens:,} tokens) "
            f"in about {about(forecast.seconds)}."
        )
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            if busy is None:  # a script that names a server without metrics has decided
                click.echo(f"readyroom: {self._name} {seen}: their requests distort the figures", err=True)
                self.given = True
                return
            raise Fail(ExitCode.USAGE, f"{words} Pass --yes to run it anyway")
        if not await confirm(words + " Go on?"):
            raise click.Abort
        self.given = True

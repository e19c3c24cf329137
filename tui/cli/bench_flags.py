"""The flags of `readyroom bench`: what they take, and the plan that they ask for together."""

import math
import ssl
from collections.abc import Sequence
from typing import Any

import click

from tui.core import plain_json
from tui.core.bench_limits import MOST_SCHEDULED, MOST_STREAMS, MOST_TOKENS
from tui.core.benchmark import Plan, Vantage
from tui.core.benchmark_plan import powers, single_stream
from tui.settings import Settings
from tui.wire.headers import unsendable


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers above 0, separated by commas."""

    name = "N,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(word) for word in str(value).split(",") if word.strip())
        except ValueError:
            numbers = ()
        if not numbers or min(numbers) < 1:
            self.fail(f"{value!r} is no list of whole numbers above 0, such as 1,8,64", param, ctx)
        if max(numbers) > MOST_STREAMS:
            self.fail(f"{max(numbers)}: {MOST_STREAMS:,} streams at most", param, ctx)
        return numbers


positive = click.IntRange(min=1)
streams = click.IntRange(1, MOST_STREAMS)
tokens = click.IntRange(1, MOST_TOKENS)
EXCLUDE = (
    ("sweep", ("concurrency", "request_rate")),
    ("requests", ("duration",)),
    ("soak", ("sweep", "request_rate", "requests", "duration", "thorough")),
    ("request_rate", ("thorough", "stagger")),
    ("prompts", ("input_tokens", "shared_prefix", "token_ids")),
)
"""Flags of which one would be ignored beside the other."""
FRAMING = frozenset({"content-length", "transfer-encoding", "host", "connection", "content-type"})


class Positive(click.FloatRange):
    """A number above 0: no infinity, and nothing that is no number."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number to count with", param, ctx)
        return number


def ca_file(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """A file of `--ca-file`, tried. Raises click.UsageError for what holds no certificates."""
    if path is None:
        return None
    try:
        with open(path, encoding="ascii") as file:
            ssl.create_default_context(cadata=file.read() or " ")
    except OSError as error:  # ssl.SSLError is one
        why = "holds no certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise click.UsageError(f"--ca-file {path}: {why}") from None
    except ValueError:
        raise click.UsageError(f"--ca-file {path}: holds no certificate in PEM") from None
    return path


def plan_of(settings: Settings, options: dict[str, Any]) -> Plan:
    """The plan that the flags ask for. Raises click.UsageError for flags that contradict each other."""
    _require_heeded(options)
    if options["save_detailed"] and not options["save"]:
        raise click.UsageError("--save-detailed needs --save DIR")
    endpoint = options["endpoint"] or ("completions" if options["token_ids"] else settings.bench.endpoint)
    if options["token_ids"] and endpoint != "completions":
        raise click.UsageError("--token-ids needs --endpoint completions")
    fields: dict[str, Any] = {
        "input_tokens": options["input_tokens"] or settings.bench.input_tokens,
        "output_tokens": options["output_tokens"] or settings.bench.output_tokens,
        "endpoint": endpoint,
        "model": options["model"],
        "extra_body": _object(options["extra_body"]),
        "headers": _headers(options["headers"]),
        "vantage": Vantage(options["vantage"]) if options["vantage"] else None,
        "thorough": options["thorough"],
        "max_failures": options["max_failures"],
        "goodput": _limits(options["goodput"]),
        "shared_prefix_tokens": options["shared_prefix"],
        "prompts_file": options["prompts"],
        "seed": options["seed"],
        "token_ids": options["token_ids"],
        "ignore_eos": not options["no_ignore_eos"],
        "min_seconds": None if options["thorough"] else settings.bench.min_seconds,
        "stagger_s": options["stagger"] or 0.0,
        "stall_s": options["stall"],
        "workers": options["workers"],
        "save": options["save"] is not None,
        "save_detailed": options["save_detailed"],
        "verify_tls": not options["insecure"],
        "burstiness": options["burstiness"],
    }
    concurrency = options["concurrency"]
    limits = {"requests": options["requests"], "duration_s": options["duration"]}
    if options["soak"]:
        return Plan(kind="soak", concurrency=concurrency or (16,), duration_s=options["soak"], **fields)
    if options["request_rate"]:
        gate = concurrency[0] if concurrency else None
        return Plan(kind="rate", request_rate=options["request_rate"], max_concurrency=gate, **limits, **fields)
    if options["sweep"]:
        steps = powers(options["sweep"])
        return Plan(kind="sweep", concurrency=steps, stop_at_knee=True, repeat_first=True, **limits, **fields)
    if concurrency:
        return Plan(kind="sweep" if len(concurrency) > 1 else "single", concurrency=concurrency, **limits, **fields)
    if not (options["requests"] or options["duration"] or options["thorough"]):
        limits["requests"] = settings.bench.single_requests
    return single_stream(**{**fields, **limits})


def _require_heeded(options: dict[str, Any]) -> None:
    """Raises click.UsageError for flags of which one would be ignored."""

    def flag(name: str) -> str:
        return "--" + name.replace("_", "-")

    for name, others in EXCLUDE:
        for other in others:
            if options[name] and options[other]:
                raise click.UsageError(f"{flag(name)} and {flag(other)} exclude each other")
    rate = options["request_rate"]
    for name in ("soak", "request_rate"):
        if options[name] and len(options["concurrency"] or ()) > 1:
            raise click.UsageError(f"{flag(name)} takes one number of --concurrency, not {len(options['concurrency'])}")
    if options["burstiness"] != 1.0 and not rate:
        raise click.UsageError("--burstiness needs --request-rate")
    count = options["requests"] or (rate * options["duration"] if rate and options["duration"] else 0)
    if rate and count > MOST_SCHEDULED:
        raise click.UsageError(f"--request-rate with {count:,.0f} requests: {MOST_SCHEDULED:,} at most")


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = plain_json.read(text)
    except ValueError as error:
        raise click.UsageError(f"--extra-body can't be sent as JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.UsageError("--extra-body must be a JSON object")
    return found


def _headers(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--header {word!r}: write NAME=VALUE")
        if name.strip().lower() in FRAMING:
            raise click.UsageError(f"--header {name.strip()}: it frames the request, and is set for each")
        if (wrong := unsendable(name.strip(), value.strip())) is not None:
            raise click.UsageError(f"--header {name.strip()!r}: {wrong}")
        found[name.strip()] = value.strip()
    return found


def _limits(words: Sequence[str]) -> dict[str, float]:
    found = {}
    for word in " ".join(words).replace(",", " ").split():
        name, _, number = word.partition(":")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if name not in ("ttft", "tpot", "e2el") or not 0 < value < math.inf:
            raise click.UsageError(f"--goodput {word!r}: write ttft:MS, tpot:MS or e2el:MS")
        found[name] = value
    return found

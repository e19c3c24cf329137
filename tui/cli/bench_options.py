"""The flags of `readyroom bench`: what they take, and the plan that they ask for together."""

import math
import os
import ssl
import stat
import sys
from collections.abc import Sequence
from typing import Any

import click

from tui.core.bench_limits import MOST_SCHEDULED, MOST_STREAMS, MOST_TOKENS
from tui.core.bench_plan import powers, single_stream
from tui.core.bench_prompts import GivenPrompts, parse_prompts, read_json
from tui.core.bench_result import Plan, Vantage
from tui.settings import Settings
from tui.wire.urls import unsendable


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
            self.fail(f"{value!r} is not a list of whole numbers above 0, such as 1,8,64", param, ctx)
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
    """Take a finite number above 0."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def ca_file(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Check the file of `--ca-file`. Raises click.UsageError if it holds no certificates."""
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
    """Return the plan that the flags ask for. Raises click.UsageError for flags that contradict each other."""
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
    """Raise click.UsageError for flags of which one would be ignored."""

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
        found = read_json(text)
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
            raise click.UsageError(f"--header {name.strip()}: it frames the request and is set automatically")
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


GROUPS = (
    ("Server", ("base-url", "model", "endpoint", "port", "vantage", "accept-new", "ca-file", "insecure", "header", "config")),
    ("Load", ("concurrency", "sweep", "request-rate", "burstiness", "soak", "stagger", "workers")),
    ("Duration", ("requests", "duration", "thorough", "stall")),
    (
        "Requests",
        ("input-tokens", "output-tokens", "shared-prefix", "token-ids", "prompts", "seed", "no-ignore-eos", "extra-body"),
    ),
    ("Results", ("goodput", "max-failures", "definitions", "json", "csv", "save", "save-detailed", "yes", "help")),
)

EXAMPLES = (
    ("readyroom bench gpu-box --sweep 64", "1, 2, 4 … 64 streams until the knee"),
    ("readyroom bench --base-url http://box:8000 --concurrency 16 --duration 60s --json", "one point, for a script"),
    ('readyroom bench --base-url http://box:8000 --request-rate 4 --goodput "ttft:500 tpot:50"', "an open loop, and its goodput"),
)


class GroupedHelp(click.Command):
    """Write a command's help with its options in groups, and examples below them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        told = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
                told[max(param.opts, key=len).lstrip("-")] = record
        for title, names in GROUPS:
            with formatter.section(title):
                formatter.write_dl([told.pop(name) for name in names])
        assert not told, f"in no group: {', '.join(told)}"

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for words, meaning in EXAMPLES:
                formatter.write(f"{'':>{formatter.current_indent}}{words}\n{'':>{formatter.current_indent + 4}}{meaning}\n")


PROMPTS_LIMIT = 64 << 20
"""Bytes of a file of prompts: they travel to the load generator, and stay in its memory."""


def read_prompts(path: str | None, endpoint: str) -> GivenPrompts | None:
    """Return the prompts of a file, or of standard input (`-`). Raises click.UsageError naming the file and the line."""
    if path is None:
        return None
    name = "standard input" if path == "-" else path
    try:
        return parse_prompts(_text(path), endpoint)
    except OSError as error:
        raise click.UsageError(f"--prompts {name}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"--prompts {name}: {error}") from None


def _text(path: str) -> str:
    """Read a file as text. Raises OSError, and ValueError for what is not a regular file, too large, or no UTF-8."""
    if path == "-":
        data = sys.stdin.buffer.read(PROMPTS_LIMIT + 1)
    else:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("is not a regular file; - reads standard input")
        with open(path, "rb") as file:
            data = file.read(PROMPTS_LIMIT + 1)
    if len(data) > PROMPTS_LIMIT:
        part = "take a part of it (of an array: jq -c '.[:1000][]')"
        raise ValueError(f"is larger than {PROMPTS_LIMIT >> 20} MiB, the most that a load generator is sent: {part}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text (byte {error.start})") from None

"""`readyroom bench --help`: what can be asked for by what it is about, and how it is asked for."""

import click

GROUPS = (
    ("Which server", ("base-url", "model", "endpoint", "port", "vantage", "accept-new", "ca-file", "insecure", "header", "config")),
    ("How much load", ("concurrency", "sweep", "request-rate", "burstiness", "soak", "stagger", "workers")),
    ("How long", ("requests", "duration", "thorough", "stall")),
    (
        "What is asked",
        ("input-tokens", "output-tokens", "shared-prefix", "token-ids", "prompts", "seed", "no-ignore-eos", "extra-body"),
    ),
    ("What becomes of it", ("goodput", "max-failures", "definitions", "json", "csv", "save", "save-detailed", "yes", "help")),
)

EXAMPLES = (
    ("readyroom bench gpu-box --sweep 64", "1, 2, 4 … 64 streams until the knee"),
    ("readyroom bench --base-url http://box:8000 --concurrency 16 --duration 60s --json", "one point, for a script"),
    ('readyroom bench --base-url http://box:8000 --request-rate 4 --goodput "ttft:500 tpot:50"', "an open loop, and its goodput"),
)


class GroupedHelp(click.Command):
    """A command whose help has its options in groups, and examples below them."""

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

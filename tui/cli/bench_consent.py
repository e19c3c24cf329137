"""The question before a server that serves others is loaded."""

import sys

import click

from tui.cli.asking import confirm
from tui.cli.exits import Exit, Fail
from tui.core.benchmark import Plan
from tui.core.benchmark_plan import estimate
from tui.core.counted import counted
from tui.host.api import ApiClient


class Consent:
    """Asked once a benchmark: before the server gets anything from us where its metrics can be read from here, otherwise when the
    source of the load knows the server. Where nobody can be asked, a server that serves others is refused."""

    def __init__(self, name: str, plan: Plan) -> None:
        self._name = name
        self._plan = plan
        self.given = False

    async def look(self, api: ApiClient) -> None:
        """Asks where the server is serving others. Where it can't be seen nothing is asked yet: the benchmark will say what is
        wrong, or `ready` asks. Raises Fail or click.Abort."""
        metrics = (await api.poll()).metrics
        if metrics is not None and (metrics.running, metrics.waiting) != (None, None):
            await self._ask(round((metrics.running or 0) + (metrics.waiting or 0)))

    async def ready(self, busy: int | None) -> None:
        """Asks where it was not seen before whether the server is serving others; `busy` are their requests, None where the source
        of the load can't see them, either. Raises Fail or click.Abort."""
        if not self.given:
            await self._ask(busy)

    async def _ask(self, busy: int | None) -> None:
        if busy == 0:
            self.given = True
            return
        seen = "does not say whether it is serving others" if busy is None else f"is serving {counted(busy, 'request')} of others"
        from tui.cli.bench_view import duration

        forecast = estimate(self._plan)
        words = (
            f"{self._name} {seen}. The benchmark will send about {forecast.requests:,} requests ({forecast.tokens:,} tokens) "
            f"in about {duration(forecast.seconds)}."
        )
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            if busy is None:  # a script that names a server without metrics has decided
                click.echo(f"readyroom: {self._name} {seen}: what others asked it meanwhile is in the figures", err=True)
                self.given = True
                return
            raise Fail(Exit.USAGE, f"{words} Say --yes to do it anyway")
        if not await confirm(words + " Go on?"):
            raise click.Abort
        self.given = True

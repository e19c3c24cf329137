"""Two benchmarks side by side, point by point: change in percent, and whether it is for the better."""

from dataclasses import dataclass

from tui.core.benchmark import Result

HIGHER_IS_BETTER = ("output_throughput", "request_throughput", "request_goodput", "steady_output_throughput")
LOWER_IS_BETTER = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "median_itl_ms", "median_e2el_ms", "failed")
NOISE = 0.03
"""Changes below 3 % are not called better or worse: runs of one server differ by so much."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of two runs: `before` and `after` as measured, `share` (after − before)/before, None where it can't be told."""

    name: str
    before: float | None
    after: float | None
    share: float | None
    better: bool | None
    """None: no difference beyond noise, or not comparable."""


@dataclass(frozen=True, slots=True)
class ComparedPoint:
    concurrency: int
    changes: tuple[Change, ...]

    def change(self, name: str) -> Change | None:
        return next((one for one in self.changes if one.name == name), None)


def compare(before: Result, after: Result) -> tuple[ComparedPoint, ...]:
    """The points that both runs measured, by concurrency (the first of each where one was repeated for drift)."""
    earlier = {point.concurrency: point for point in reversed(before.points)}
    later = {point.concurrency: point for point in reversed(after.points)}
    return tuple(
        ComparedPoint(
            concurrency,
            tuple(
                _change(name, earlier[concurrency].get(name), later[concurrency].get(name), name in HIGHER_IS_BETTER)
                for name in (*HIGHER_IS_BETTER, *LOWER_IS_BETTER)
            ),
        )
        for concurrency in sorted(earlier.keys() & later.keys())
    )


def differences(before: Result, after: Result) -> tuple[str, ...]:
    """What makes two runs hard to compare, one line each: other lengths, other vantage, other endpoint."""
    found = []
    for what, one, two in (
        ("input tokens", before.plan.input_tokens, after.plan.input_tokens),
        ("output tokens", before.plan.output_tokens, after.plan.output_tokens),
        ("endpoint", before.plan.endpoint, after.plan.endpoint),
        ("vantage", before.vantage.value, after.vantage.value),
        ("model", before.model, after.model),
    ):
        if one != two:
            found.append(f"{what} differ: {one} and {two}" if what.endswith("tokens") else f"{what} differs: {one} and {two}")
    return tuple(found)


def _change(name: str, before: float | None, after: float | None, higher: bool) -> Change:
    if before is None or after is None or before == 0:
        worse = before == 0 and name == "failed" and bool(after)
        return Change(name, before, after, None, False if worse else None)
    share = (after - before) / before
    better = None if abs(share) < NOISE else (share > 0) == higher
    return Change(name, before, after, share, better)

"""How far a bar is over the weights, in the words of what it counts: shards, tensors, or bytes, which are told in GB."""

from tui.core.logs.state import Loader


def one_of(bar: Loader) -> str:
    """`shard`, `tensor`."""
    return bar.unit.removesuffix("s")


def amounts(bar: Loader) -> tuple[str, str]:
    """Done and total: `14` and `64`, `2.8` and `8.4 GB`."""
    if bar.unit == "bytes":
        return f"{bar.done / 1e9:.1f}", f"{bar.total / 1e9:.1f} GB"
    return f"{bar.done:,.0f}", f"{bar.total:,.0f}"


def how_far(bar: Loader) -> str:
    """`14 of 64 shards`, `2.8 of 8.4 GB`."""
    done, total = amounts(bar)
    return f"{done} of {total}" + ("" if bar.unit == "bytes" else f" {bar.unit}")


def brief(bar: Loader) -> str:
    """`14/64`, `2.8/8.4 GB`."""
    return "/".join(amounts(bar))


def gigabytes_s(bar: Loader) -> float | None:
    """GB a second since a bar of bytes began; None where that is not known."""
    if bar.unit != "bytes" or bar.started_at is None or bar.last_at is None or bar.last_at <= bar.started_at or not bar.done:
        return None
    return bar.done / 1e9 / (bar.last_at - bar.started_at)

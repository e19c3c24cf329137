"""The real load loop, run against a URL in this thread."""

from collections.abc import Callable
from typing import Any

from scripted_server import Exchange, scripted

from tui.probe.load_http import target_of
from tui.probe.load_net import resolve
from tui.probe.load_prompts import uncounted_lengths
from tui.probe.load_schedule import LoadOutcome
from tui.probe.load_workers import LoadShare

FIELDS = {"max_tokens": "$asked", "stream": True}


def load(
    url: str, order: dict[str, Any], *, endpoint: str = "chat", stopping: Callable[[], bool] | None = None, **plan: Any
) -> LoadOutcome:
    """Run the loop against a URL, in this thread."""
    whole = {"url": url, "endpoint": endpoint, "model": "m", "input_tokens": 8, "output_tokens": 3, "seed": "1", **plan}
    address = resolve(target_of(url))[0]
    share = LoadShare(whole, uncounted_lengths().known, FIELDS, order, 0, 1, 0, None, address)
    return share.load(**({"stopping": stopping} if stopping else {})).run()


def run(script: Callable[[Exchange], object], order: dict[str, Any] | None = None, **plan: Any) -> LoadOutcome:
    with scripted(script) as server:
        return load(server.url, order or {"concurrency": 2, "requests": 4}, **plan)


def good(exchange: Exchange) -> object:
    exchange.reply()
    return None

"""What the server does: tokens a second, requests, KV cache; from its metrics, or from its log where those are not to be had."""

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.widgets.figure import Figure
from tui.widgets.figures import BP, BW, B, P, W, area, label, line, lines, rows, sparks, spread
from tui.widgets.numbers import percent, three, whole


def _figures(state: DeploymentState) -> tuple[float | None, float | None, float | None, float | None, float | None, float | None]:
    metrics = state.api.metrics
    logged = state.load.serving if state.load else None
    if metrics is not None:
        return (
            metrics.generation_tokens_s,
            metrics.running,
            metrics.waiting,
            metrics.kv_cache_share,
            metrics.prefix_hit_share,
            metrics.ttft_p50_ms,
        )
    if logged is not None:
        return (logged.generation_tokens_s, logged.running, logged.waiting, logged.kv_cache_share, logged.prefix_hit_share, None)
    return (None,) * 6


def _pad(values: tuple[float | None, ...], width: int) -> list[float | None]:
    recent = list(values)[-width:]
    return [None] * (width - len(recent)) + recent


class Serving(Figure):
    """The pane at the left of a server that is up."""

    def draw(self, width: int, height: int) -> Content | list[Content]:
        state = self.state
        rate, running, waiting, kv, hits, ttft = _figures(state)
        tokens = line((three(rate), BP), label(" tok/s"))
        queue = line((whole(running), B), label(" running   "), (whole(waiting), BW if waiting else B), label(" waiting"))
        first = spread(width, tokens, queue) if width >= tokens.cell_length + queue.cell_length + 2 else tokens
        capacity = state.load.kv_tokens if state.load else None
        second = spread(
            width,
            line((percent(kv), B), label(" of KV cache")),
            line(label(f"{whole(capacity)} tokens")) if capacity else Content(""),
        )
        third = spread(
            width, line((percent(hits), B), label(" prefix hits")), line(label("TTFT p50 "), (three(ttft), B), label(" ms"))
        )
        if height < 6:
            return rows(first, second, third)
        known_rate = [value for value in state.trends.generation_tokens_s if value is not None]
        known_kv = [value for value in state.trends.kv_cache_share if value is not None]
        spare = height - 3 - (2 if height >= 9 else 0)
        upper, lower = (spare + 1) // 2, spare // 2
        out: list[Content | str] = [first]
        out += area(_pad(state.trends.generation_tokens_s, width), upper, P, max(known_rate, default=1.0) * 1.1)
        out += [""] * (height >= 9) + [second]
        out += area(_pad(state.trends.kv_cache_share, width), lower, P, max(0.02, max(known_kv, default=0.0) * 1.1))
        out += [""] * (height >= 9) + [third]
        return lines(out)


class ServingStrip(Figure):
    """The one-line form for narrow screens."""

    DEFAULT_CSS = "ServingStrip { height: 1; }"

    def draw(self, width: int, height: int) -> Content | list[Content]:
        rate, running, waiting, kv, _, _ = _figures(self.state)
        left = line(
            label("serves "),
            (three(rate), BP),
            label(" tok/s  "),
            (whole(running), B),
            label(" running  "),
            (whole(waiting), W if waiting else B),
            label(" waiting"),
        )
        known = [value for value in self.state.trends.kv_cache_share if value is not None]
        trend = sparks(self.state.trends.kv_cache_share, 18, max(0.02, max(known, default=0.0)))
        return spread(width, left, line(label("KV  "), trend, (f"  {percent(kv)}", B)), line(label("KV "), (percent(kv), B)))

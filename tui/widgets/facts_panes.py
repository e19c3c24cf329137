"""Panes of plain facts, for screens with room: the deployment, its host, its earlier loads."""

import time
from statistics import median

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.gpu import GIB_MIB
from tui.core.logs.load_state import LoadState, PastLoad
from tui.core.presentation import DASH, clock, counted, percent, sizes, three, whole
from tui.widgets.canvas import Canvas
from tui.widgets.draw import BP, BW, B, P, Part, W, area, facts, label, line, lines, rows, sparks, spread, stale, table


def _parallel(load: LoadState) -> str:
    parts = [
        f"{name} {size}"
        for name, size in (("TP", load.tensor_parallel), ("PP", load.pipeline_parallel), ("DP", load.data_parallel))
        if size is not None and (size > 1 or name == "TP")
    ]
    if load.engines is not None:
        parts.append("one engine" if load.engines == 1 else f"{load.engines} engines")
    return ", ".join(parts) or DASH


def _weights(load: LoadState) -> str:
    parts = []
    if load.checkpoint_gib is not None:
        parts.append(sizes(0.0, load.checkpoint_gib * GIB_MIB**3)[1])
    if load.shards is not None and load.shards.total:
        parts.append(counted(load.shards.total, "shard"))
    if load.quantization:
        parts.append(load.quantization)
    return ", ".join(parts) or DASH


def _time(at: float | None) -> str:
    return DASH if at is None else time.strftime("%m-%d %H:%M:%S", time.localtime(at))


def deployment_facts(state: DeploymentState, width: int) -> list[Content]:
    """Draw name and value of what is known of the deployment, a line each."""
    load = state.load or LoadState()
    served = next(iter(state.api.models), None)
    context = load.max_model_len or (served.max_model_len if served else None)
    cache = (
        f"{whole(load.kv_tokens)} tokens" + (f", {load.max_concurrency:.1f} × context" if load.max_concurrency else "")
        if load.kv_tokens
        else DASH
    )
    pairs: list[tuple[str, Part]] = [
        ("model", load.model or (served.root if served and served.root else DASH)),
        ("served as", ", ".join(load.served_names) or (served.id if served else DASH)),
        ("weights", _weights(load)),
        ("parallel", _parallel(load)),
        ("context", f"{whole(context)} tokens" if context else DASH),
        ("attention", load.attention_backend or DASH),
        ("KV cache", cache),
        ("started", _time(load.started_at)),
        *([("expected", state.expected.words)] if state.expected.words else []),
        ("log", state.log.source or DASH),
        ("API", state.api.error or str(state.api.reach)),
        ("restarts", whole(load.restarts)),
    ]
    return facts(width, *pairs, column=11)


class DeploymentPane(Canvas):
    def draw(self, width: int, height: int) -> Content | list[Content]:
        return deployment_facts(self.state, width)[:height]


class HostPane(Canvas):
    """Processor, memory, disk and network of the host."""

    def note(self) -> Content | None:
        """Return how old the figures are if they are old ones, for the border."""
        machine = self.state.machine
        return stale(self.moment.since(machine.received_at)) if machine is not None else None

    def draw(self, width: int, height: int) -> Content | list[Content]:
        machine = self.state.machine
        if machine is None:
            return rows(line(label("no sample yet")))
        used = (
            machine.ram_total_mib - machine.ram_available_mib
            if machine.ram_total_mib is not None and machine.ram_available_mib is not None
            else None
        )
        cache = machine.page_cache_mib / GIB_MIB if machine.page_cache_mib is not None else None
        shm = machine.shm_total_mib / GIB_MIB if machine.shm_total_mib is not None else None
        swap = machine.swap_used_mib / GIB_MIB if machine.swap_used_mib is not None else None
        known: list[tuple[str, str, str]] = [
            ("disk read", three(machine.disk_read_mb_s), "MB/s"),
            ("engine reads", three(machine.engine_read_mb_s), "MB/s"),
            ("network in", three(machine.network_rx_mb_s), "MB/s"),
            ("cpu", three(machine.cpu_percent), f"% of {machine.cores or DASH} cores"),
            ("iowait", three(machine.iowait_percent), "%"),
            ("load", three(machine.load_1m), ""),
            (
                "memory",
                three(used / GIB_MIB if used is not None else None),
                f"GiB of {whole(machine.ram_total_mib / GIB_MIB)}" if machine.ram_total_mib else "GiB",
            ),
            ("page cache", three(cache), "GiB"),
            ("swap", three(swap), "GiB"),
            ("/dev/shm", three(shm), "GiB"),
        ]
        out = []
        for i, (name, value, unit) in enumerate(known[:height]):
            row = line(label(f"{name:<13}"), (f"{value:>7}", B), label(f" {unit}"))
            room = width - 42
            trend = (
                sparks(self.state.trends.disk_read_mb_s, room) if i == 0 and room >= 8 and self.state.trends.disk_read_mb_s else ""
            )
            out.append(line(row, " " * max(1, 42 - row.cell_length), trend) if trend else row)
        return out


def past_loads(history: tuple[PastLoad, ...], width: int, height: int) -> Content:
    """Draw earlier starts, the newest first."""
    records: list[tuple[str | tuple[str, str], ...]] = [("when", "version", "total", "s/shard")]
    for past in sorted(history, key=lambda one: -(one.at or 0.0))[: max(0, height - 1)]:
        pace = three(median(past.step_seconds)) if past.step_seconds else DASH
        records.append((_time(past.at), past.version or DASH, (clock(past.total_s), B), pace))
    return table(width, (("<16", "$quiet"), ("<*", "$quiet"), (">9", "$quiet"), (">9", "$quiet")), records)


class PastLoadsPane(Canvas):
    def draw(self, width: int, height: int) -> Content | list[Content]:
        if not self.state.history:
            return rows(line(label("no earlier load in the record")))
        return past_loads(self.state.history, width, height)


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


def _bucket(value: float | None, between: tuple[float, float | None] | None) -> tuple[str, ...]:
    """Return a figure out of a histogram, in full and briefly: what is known are the bounds of a bucket."""
    if value is None:
        return (DASH,)
    if between is None:
        return (f"~{three(value)}",)
    low, high = between
    return (f"{whole(low)}–{whole(high)}", f"~{three(value)}") if high is not None else (f">{whole(low)}",)


class ServingPane(Canvas):
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
        between = state.api.metrics.ttft_p50_between_ms if state.api.metrics is not None else None
        third = spread(
            width,
            line((percent(hits), B), label(" prefix hits")),
            *(line(label("TTFT p50 "), (told, B), label(" ms")) for told in _bucket(ttft, between)),
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


class ServingStrip(Canvas):
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

"""Panes of plain facts, for screens with room: the deployment, its host, its earlier loads."""

import time
from statistics import median

from textual.content import Content

from tui.core.counted import counted
from tui.core.deployment import DeploymentState
from tui.core.logs.state import LoadState, PastLoad
from tui.widgets.figure import Figure
from tui.widgets.figures import B, Part, facts, label, line, rows, sparks, table
from tui.widgets.numbers import DASH, GIB, clock, three, whole


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
        parts.append(f"{load.checkpoint_gib * GIB**3 / 1e9:.0f} GB")
    if load.shards is not None and load.shards.total:
        parts.append(counted(load.shards.total, "shard"))
    if load.quantization:
        parts.append(load.quantization)
    return ", ".join(parts) or DASH


def _time(at: float | None) -> str:
    return DASH if at is None else time.strftime("%m-%d %H:%M:%S", time.localtime(at))


def deployment_facts(state: DeploymentState, width: int) -> list[Content]:
    """Name and value of what is known of the deployment, a line each."""
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


class DeploymentPane(Figure):
    def draw(self, width: int, height: int) -> Content | list[Content]:
        return deployment_facts(self.state, width)[:height]


class HostPane(Figure):
    """Processor, memory, disk and network of the host."""

    def draw(self, width: int, height: int) -> Content | list[Content]:
        machine = self.state.machine
        if machine is None:
            return rows(line(label("no sample yet")))
        used = (
            machine.ram_total_mib - machine.ram_available_mib
            if machine.ram_total_mib is not None and machine.ram_available_mib is not None
            else None
        )
        cache = machine.page_cache_mib / GIB if machine.page_cache_mib is not None else None
        shm = machine.shm_total_mib / GIB if machine.shm_total_mib is not None else None
        swap = machine.swap_used_mib / GIB if machine.swap_used_mib is not None else None
        known: list[tuple[str, str, str]] = [
            ("disk read", three(machine.disk_read_mb_s), "MB/s"),
            ("engine reads", three(machine.engine_read_mb_s), "MB/s"),
            ("network in", three(machine.network_rx_mb_s), "MB/s"),
            ("cpu", three(machine.cpu_percent), f"% of {machine.cores or DASH} cores"),
            ("iowait", three(machine.iowait_percent), "%"),
            ("load", three(machine.load_1m), ""),
            (
                "memory",
                three(used / GIB if used is not None else None),
                f"GiB of {whole(machine.ram_total_mib / GIB)}" if machine.ram_total_mib else "GiB",
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
    """Earlier starts, the newest first."""
    records: list[tuple[str | tuple[str, str], ...]] = [("when", "version", "total", "s/shard")]
    for past in sorted(history, key=lambda one: -(one.at or 0.0))[: max(0, height - 1)]:
        pace = three(median(past.step_seconds)) if past.step_seconds else DASH
        records.append((_time(past.at), past.version or DASH, (clock(past.total_s), B), pace))
    return table(width, (("<16", "$quiet"), ("<*", "$quiet"), (">9", "$quiet"), (">9", "$quiet")), records)


class PastLoadsPane(Figure):
    def draw(self, width: int, height: int) -> Content | list[Content]:
        if not self.state.history:
            return rows(line(label("no earlier load in the record")))
        return past_loads(self.state.history, width, height)

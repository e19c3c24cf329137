"""A deployment's state as the JSON document of `readyroom status --json`."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from tui.core.connection import ConnectionState
from tui.core.deployment import DeploymentState, HostSeen, ServerSeen, status_of
from tui.core.gpu import GpuSample
from tui.core.gpu_engine import Engine, engine_of
from tui.core.gpu_even import uniformity
from tui.core.gpu_health import headroom, health
from tui.core.gpu_others import leftovers
from tui.core.logs.report import document
from tui.core.machine import MachineSample

SCHEMA = 1


def snapshot(state: DeploymentState, now: float) -> dict[str, Any]:
    """`now` is the client's monotonic clock, from which ages are counted. What is not known is null."""
    api, engine = state.api, engine_of(state)
    return {
        "schema": SCHEMA,
        "name": state.name,
        "target": state.target,
        "status": status_of(state),
        "connection": _connection(state.connection),
        **_gpus(state.gpus, engine, now, leftovers(state)),
        "others": [_other(host, engine, now) for host in state.others],
        "machine": None if state.machine is None else _machine(state.machine),
        "load": document(state.load, state.outlook) if state.load is not None and state.load.lines else None,
        "log": {"source": state.log.source or None, "problem": state.log.problem, "note": state.log.note},
        "api": {
            "reach": api.reach.value,
            "ready": api.ready,
            "health": api.health,
            "version": api.version,
            "models": [{"id": one.id, "max_model_len": one.max_model_len, "root": one.root} for one in api.models],
            "metrics": to_builtins(api.metrics) if api.metrics is not None else None,
            "error": api.error,
            "age_s": round(now - api.received_at, 1) if api.received_at is not None else None,
        },
        "server_pid": state.server_pid,
        "orphans": list(state.orphans),
        "servers": [_server(server) for server in state.servers],
        "supervisor": None if state.supervisor is None else {**to_builtins(state.supervisor), "says": state.supervisor.says},
        "conflict": state.conflict,
        "misconfigured": state.misconfigured,
    }


def _connection(link: ConnectionState) -> dict[str, Any]:
    return {
        "link": link.link.value,
        "host": link.host,
        "cause": link.cause,
        "advice": link.advice,
        "round_trip_ms": link.round_trip_ms,
    }


def _gpus(sample: GpuSample | None, engine: Engine, now: float, gone: Collection[int] = ()) -> dict[str, Any]:
    """The GPUs of one host. Of values that are only the last known (`late`), nothing is concluded of evenness now."""
    if sample is None:
        return {"gpus": [], "gpu_source": None, "gpu_health": [], "xids": [], "uniform": None, "odd": [], "headroom": None}
    even, room = uniformity(sample, engine), headroom(sample)
    return {
        "gpus": [to_builtins(gpu) for gpu in sample.gpus],
        "gpu_source": {
            "source": sample.source,
            "note": sample.note,
            "driver": sample.driver,
            "late": sample.late,
            "age_s": round(now - sample.received_at, 1) if sample.received_at is not None else None,
        },
        "gpu_health": list(health(sample, gone, engine)),
        "xids": [{**to_builtins(xid), "at": _iso(xid.at)} for xid in sample.xids],
        "uniform": even.even if not sample.late else None,
        "odd": list(even.odd),
        "headroom": to_builtins(room) if room is not None else None,
    }


def _other(seen: HostSeen, engine: Engine, now: float) -> dict[str, Any]:
    return {"host": seen.host, "connection": _connection(seen.connection), **_gpus(seen.gpus, engine, now)}


def _machine(sample: MachineSample) -> dict[str, Any]:
    return {**_without(to_builtins(sample), "counters", "received_at"), "wall": _iso(sample.wall)}


def _server(seen: ServerSeen) -> dict[str, Any]:
    port, uds = (seen.where, None) if isinstance(seen.where, int) else (None, seen.where)
    return {**_without(to_builtins(seen), "where"), "port": port, "uds": uds, "started_at": _iso(seen.started_at)}


def _iso(at: float | None) -> str | None:
    """A time of the host's wall clock, in UTC."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _without(mapping: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}

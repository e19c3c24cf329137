"""A deployment's state as the JSON document of `readyroom status --json`."""

from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from tui.core.connection import ConnectionState
from tui.core.deployment import DeploymentState, ServerSeen
from tui.core.deployment_status import conflict_of, log_problem, status_of
from tui.core.gpu import GpuSample
from tui.core.gpu_findings import HostGpus, hosts_of
from tui.core.gpu_health import headroom
from tui.core.host_machine import MachineSample
from tui.core.logs.log_report import document
from tui.core.trends import outgrowth, peak_mib

SCHEMA = 1


def snapshot(state: DeploymentState, now: float) -> dict[str, Any]:
    """Return the document. `now` is the client's monotonic clock, from which ages are counted. What is not known is null."""
    first, *further = hosts_of(state)
    api = state.api
    return {
        "schema": SCHEMA,
        "name": state.name,
        "target": state.target,
        "status": status_of(state),
        "connection": _connection(state.connection),
        **_gpus(first, now),
        "others": [_other(seen, now) for seen in further],
        "machine": None if state.machine is None else _machine(state.machine),
        "load": document(state.load, state.forecast) if state.load is not None and state.load.recognised else None,
        "log": {"source": state.log.source or None, "problem": log_problem(state), "note": state.log.note},
        "api": {
            "reach": api.reach.value,
            "ready": api.ready,
            "health": api.health,
            "version": api.version,
            "models": [{"id": model.id, "max_model_len": model.max_model_len, "root": model.root} for model in api.models],
            "metrics": to_builtins(api.metrics) if api.metrics is not None else None,
            "error": api.error,
            "age_s": round(now - api.received_at, 1) if api.received_at is not None else None,
        },
        "server_pid": state.server_pid,
        "orphans": list(state.orphans),
        "servers": [_server(server) for server in state.servers],
        "supervisor": None if state.supervisor is None else {**to_builtins(state.supervisor), "says": state.supervisor.says},
        "conflict": conflict_of(state),
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


def _gpus(seen: HostGpus, now: float) -> dict[str, Any]:
    """Return the GPUs of one host. From values that are only the last known (`late`), no evenness is concluded.

    Growth is that of the GPU that is full first, or grows most, since the server was seen ready; the peak that of the fullest.
    """
    sample, course = seen.sample, seen.ready_memory
    room, grown = headroom(sample) if sample is not None else None, outgrowth(course, sample)
    return {
        "gpus": [to_builtins(gpu) for gpu in sample.gpus] if sample is not None else [],
        "gpu_source": _gpu_source(sample, now),
        "gpu_health": list(seen.found),
        "xids": [{**to_builtins(xid), "at": _iso(xid.at)} for xid in sample.xids] if sample is not None else [],
        "uniform": seen.judged.even if sample is not None and not sample.late else None,
        "odd": list(seen.judged.odd),
        "headroom": to_builtins(room) if room is not None else None,
        "peak_mib": peak_mib(course, sample),
        "growth_mib_per_hour": round(grown.growth.mib_per_hour, 1) if grown is not None else None,
    }


def _gpu_source(sample: GpuSample | None, now: float) -> dict[str, Any] | None:
    """Return the origin of the values. `late`: the driver does not answer, and they are as old as `age_s` says."""
    if sample is None:
        return None
    old = round(now - sample.received_at, 1) if sample.received_at is not None else None
    return {"source": sample.source, "note": sample.note, "driver": sample.driver, "late": sample.late, "age_s": old}


def _other(seen: HostGpus, now: float) -> dict[str, Any]:
    return {"host": seen.host, "connection": _connection(seen.connection), **_gpus(seen, now)}


def _machine(sample: MachineSample) -> dict[str, Any]:
    return {**_without(to_builtins(sample), "counters", "received_at"), "wall": _iso(sample.wall)}


def _server(seen: ServerSeen) -> dict[str, Any]:
    port, uds = (seen.where, None) if isinstance(seen.where, int) else (None, seen.where)
    return {**_without(to_builtins(seen), "where"), "port": port, "uds": uds, "started_at": _iso(seen.started_at)}


def _iso(at: float | None) -> str | None:
    """Return a time of the host's wall clock in UTC."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _without(mapping: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}

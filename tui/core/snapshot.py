"""A deployment's state as the JSON document of `readyroom status --json`."""

from typing import Any

from msgspec import to_builtins

from tui.core.deployment import DeploymentState, status_of
from tui.core.gpu_health import headroom, health, uniformity
from tui.core.logs.report import document

SCHEMA = 1


def snapshot(state: DeploymentState, now: float) -> dict[str, Any]:
    """`now` is the client's monotonic clock, from which ages are counted. What is not known is null."""
    sample = state.gpus
    link = state.connection
    even = uniformity(sample) if sample is not None else None
    room = headroom(sample) if sample is not None else None
    api = state.api
    return {
        "schema": SCHEMA,
        "name": state.name,
        "target": state.target,
        "status": status_of(state),
        "connection": {
            "link": link.link.value,
            "host": link.host,
            "cause": link.cause,
            "advice": link.advice,
            "round_trip_ms": link.round_trip_ms,
        },
        "gpus": [to_builtins(gpu) for gpu in sample.gpus] if sample is not None else [],
        "gpu_source": None if sample is None else {"source": sample.source, "note": sample.note, "driver": sample.driver},
        "gpu_health": list(health(sample)) if sample is not None else [],
        "uniform": even.even if even is not None else None,
        "headroom": to_builtins(room) if room is not None else None,
        "machine": None if state.machine is None else _without(to_builtins(state.machine), "counters", "received_at"),
        "load": document(state.load, state.outlook) if state.load is not None and state.load.lines else None,
        "log": {"source": state.log.source or None, "problem": state.log.problem, "note": state.log.note},
        "api": {
            "reach": api.reach.value,
            "ready": api.ready,
            "health": api.health,
            "version": api.version,
            "models": [to_builtins(model) for model in api.models],
            "metrics": to_builtins(api.metrics) if api.metrics is not None else None,
            "error": api.error,
            "age_s": round(now - api.received_at, 1) if api.received_at is not None else None,
        },
        "server_pid": state.server_pid,
        "orphans": list(state.orphans),
        "servers": [to_builtins(server) for server in state.servers],
        "supervisor": None if state.supervisor is None else {**to_builtins(state.supervisor), "says": state.supervisor.says},
        "conflict": state.conflict,
    }


def _without(mapping: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}

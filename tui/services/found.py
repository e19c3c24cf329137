"""Servers found on a host by the probe's role "find", as typed values."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui.core.address import of_socket
from tui.core.text import clean
from tui.probe.servers import options_of

SERVERS_LIMIT = 500
"""More servers than that run on no host."""
_TOKENS = re.compile(r"([0-9]{1,9})([kK]?)")


@dataclass(frozen=True, slots=True)
class Server:
    """One server process. `source` is its log in the words of `log = …`; None with `why` where its output can't be read."""

    pid: int
    engine: str
    argv: tuple[str, ...] = ()
    user: str | None = None
    started_at: float | None = None
    """The host's wall clock."""
    model: str | None = None
    served_name: str | None = None
    port: int | None = None
    host: str | None = None
    """The address it listens on, as its arguments say."""
    needs_key: bool | None = None
    ready_timeout_s: float | None = None
    """The VLLM_ENGINE_READY_TIMEOUT_S that it was started with; None where it is not set or may not be seen."""
    job_ends_at: float | None = None
    """When its Slurm job's time limit ends it (the host's wall clock); None outside of a job."""
    source: str | None = None
    why: str | None = None
    tls: bool = False
    uds: str | None = None
    """The Unix socket that it listens on instead of a port; not cleaned: it is a path to open."""
    orphan: bool = False
    """An engine whose API server is gone: it serves nobody and keeps its GPU memory."""

    @property
    def where(self) -> str | int | None:
        """What it listens on: its port, or its Unix socket."""
        return self.uds or self.port

    @property
    def batched_tokens(self) -> int | None:
        """The most tokens of prompts that the engine takes into one step, where its arguments say it (`16k` as vLLM reads it)."""
        given = options_of(self.argv)
        match = _TOKENS.fullmatch(given.get("--max-num-batched-tokens") or given.get("--chunked-prefill-size") or "")
        return int(match[1]) * {"": 1, "k": 1000, "K": 1024}[match[2]] if match else None

    @property
    def words(self) -> str:
        """It in a line, cleaned."""
        model = self.served_name or self.model or "model unknown"
        at = f", unix:{clean(self.uds)}" if self.uds else f", port {self.port}" if self.port is not None else ""
        return f"{self.engine} {model}{at}, pid {self.pid}, user {self.user or '—'}"

    @property
    def api(self) -> str | None:
        """The API's address as seen from the host."""
        if self.uds is not None:
            return of_socket(self.uds)
        if self.host is None or self.port is None:
            return None
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"


def servers_from_frame(frame: Mapping[str, Any]) -> tuple[Server, ...]:
    """The servers of a "servers" frame; an entry that makes no sense is left out."""
    found = []
    entries = frame.get("servers")
    for entry in entries[:SERVERS_LIMIT] if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or _whole(entry.get("pid")) is None:
            continue
        argv = entry.get("argv")
        found.append(
            Server(
                pid=entry["pid"],
                engine=clean(str(entry.get("engine") or "")),
                argv=tuple(clean(str(word)) for word in argv) if isinstance(argv, list) else (),
                user=_text(entry.get("user")),
                started_at=_seconds(entry.get("started_at")),
                model=_text(entry.get("model")),
                served_name=_text(entry.get("served_name")),
                port=_whole(entry.get("port"), 65535),
                host=_text(entry.get("host")),
                needs_key=entry["needs_key"] if isinstance(entry.get("needs_key"), bool) else None,
                # Not cleaned: it is a path to open, and is cleaned where it is shown.
                source=str(entry["source"]) if entry.get("source") else None,
                why=_text(entry.get("why")),
                ready_timeout_s=_seconds(entry.get("ready_timeout_s")),
                job_ends_at=_seconds(entry.get("job_ends_at")),
                tls=entry.get("tls") is True,
                uds=str(entry["uds"]) if entry.get("uds") else None,
                orphan=entry.get("orphan") is True,
            )
        )
    return tuple(found)


def best_server(servers: Sequence[Server], where: str | int | None, log: str = "auto") -> Server | None:
    """The one that is meant: on the API's port or socket, else the one that writes the configured log, else (`auto`) youngest."""
    alive = [server for server in servers if not server.orphan]
    chosen = [server for server in alive if server.where == where]
    if not chosen:
        chosen = alive if log == "auto" else [server for server in alive if server.source in (log, f"file:{log}")]
    return max(chosen, key=lambda server: (server.started_at or 0.0, server.pid), default=None)


def _text(value: Any) -> str | None:
    return clean(str(value)) if value not in (None, "") else None


def _whole(value: Any, most: int = 2**31) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most else None


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value) if value else None
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if seconds is not None and math.isfinite(seconds) else None

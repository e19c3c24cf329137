"""Servers found on a host by the probe's role "find", as typed values."""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui.core.deployment import HaltedProcess
from tui.core.text import LineSplitter, clean
from tui.engines.registry import ENGINES, commands, engine_named
from tui.host.base import Host, HostError, ProbeFailed, Unreachable
from tui.probe.server_processes import arguments_of, engine_of, option, options_of
from tui.wire.frames import FIND
from tui.wire.urls import of_socket

SERVERS_LIMIT = 500
"""More servers than that run on no host."""
_TOKENS = re.compile(r"([0-9]{1,9})([kK]?)")


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server process. `source` is its log as a value of `log = …`; None with `why` if its output can't be read."""

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
    """The VLLM_ENGINE_READY_TIMEOUT_S that it was started with; None if it is not set or may not be seen."""
    job_ends_at: float | None = None
    """When its Slurm job's time limit ends it (the host's wall clock); None outside of a job."""
    source: str | None = None
    why: str | None = None
    tls: bool = False
    uds: str | None = None
    """The Unix socket that it listens on instead of a port; not cleaned: it is a path to open."""
    orphan: bool = False
    """An engine whose API server is gone: it serves nobody and keeps its GPU memory."""
    halted: tuple[HaltedProcess, ...] = ()
    own_network: bool = False
    """It listens in a network of its own (a container's), so that the host may reach it at another port."""

    @property
    def where(self) -> str | int | None:
        """Return what it listens on: its port, or its Unix socket."""
        return self.uds or self.port

    @property
    def batched_tokens(self) -> int | None:
        """Return the most tokens of prompts that the engine takes into one step, if its arguments say it (`16k` as vLLM reads
        it)."""
        engine = engine_named(self.engine)
        if engine is None:
            return None
        command = engine.command.as_data(engine.name)
        match = _TOKENS.fullmatch(option("batched_tokens", options_of(self.argv, command), command) or "")
        return int(match[1]) * {"": 1, "k": 1000, "K": 1024}[match[2]] if match else None

    @property
    def words(self) -> str:
        """Describe the server in a line, cleaned."""
        model = self.served_name or self.model or "model unknown"
        at = f", unix:{clean(self.uds)}" if self.uds else f", port {self.port}" if self.port is not None else ""
        return f"{self.engine} {model}{at}, pid {self.pid}, user {self.user or '—'}"

    @property
    def api(self) -> str | None:
        """Return the API's address as seen from the host."""
        if self.uds is not None:
            return of_socket(self.uds)
        if self.host is None or self.port is None:
            return None
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"


def servers_from_frame(frame: Mapping[str, Any]) -> tuple[FoundServer, ...]:
    """Return the servers of a "servers" frame; an entry that makes no sense is left out."""
    found = []
    entries = frame.get("servers")
    for entry in entries[:SERVERS_LIMIT] if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or _whole(entry.get("pid")) is None:
            continue
        argv = entry.get("argv")
        found.append(
            FoundServer(
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
                own_network=entry.get("own_network") is True,
                halted=_halted(entry.get("halted")),
            )
        )
    return tuple(found)


def _halted(value: Any) -> tuple[HaltedProcess, ...]:
    entries = [entry for entry in value if isinstance(entry, list) and len(entry) == 3] if isinstance(value, list) else []
    return tuple(HaltedProcess(pid, clean(str(name)), state == "Z") for pid, name, state in entries if _whole(pid) is not None)


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


SEARCH_S = 20.0
TICKS = 100
"""Clock ticks a second in /proc/PID/stat: the same on every Linux that runs GPUs."""

_MENTIONS = "|".join(f"[{word[0]}]{word[1:]}" for engine in ENGINES for word in engine.command.mentions)
"""What the command line of any server holds; the brackets keep the search from finding itself."""

_SCRIPT = " ".join(
    line.strip()
    for line in """
    own=$(readlink /proc/self/ns/net); boot=$(grep btime /proc/stat);
    for file in $(grep -lE '@MENTIONS' /proc/[0-9]*/cmdline 2>/dev/null); do
        at=${file%/cmdline}; printf 'pid %s\\n' "${at#/proc/}";
        if stat=$(cat $at/stat 2>/dev/null); then printf 'stat %s\\n' "${stat##*) }"; fi;
        echo "boot ${boot#btime }";
        set -- $(ls -ld $at 2>/dev/null); echo "user $3";
        net=$(readlink $at/ns/net); if [ -n "$net" ] && [ "$net" != "$own" ]; then echo "elsewhere $net"; fi;
        for fd in 1 2; do
            target=$(readlink $at/fd/$fd) || continue;
            if [ ! -f $at/fd/$fd ]; then printf 'other%s %s\\n' $fd "$target";
            elif [ $at/fd/$fd -ef "$target" ]; then printf 'file%s %s\\n' $fd "$target";
            else echo "file$fd $at/fd/$fd"; fi;
        done;
        tr '\\n\\0' ' \\n' <$file 2>/dev/null | sed 's/^/word /';
    done; :
    """.strip().splitlines()
).replace("@MENTIONS", _MENTIONS)


async def servers_by_shell(host: Host) -> tuple[FoundServer, ...]:
    """Return the servers that run on a host without Python. Raise NotPermitted or Unreachable; HostError if it takes too long."""
    try:
        done = await host.run(["sh", "-c", _SCRIPT], timeout=SEARCH_S)
    except TimeoutError:
        raise HostError(f"a shell did not find the servers within {SEARCH_S:.0f} s", "it is tried again") from None
    splitter = LineSplitter()
    return servers_of([*splitter.feed(done.stdout), *splitter.flush()])


def servers_of(said: Sequence[str]) -> tuple[FoundServer, ...]:
    """Return the servers in what the shell printed; of several processes with one ancestor among them, the ancestor."""
    found: dict[int, dict[str, Any]] = {}
    facts: dict[str, Any] = {"argv": []}
    for line in said:
        name, _, value = line.partition(" ")
        if name == "pid" and value.isdigit():
            facts = found[int(value)] = {"argv": []}
        elif name == "word":
            facts["argv"].append(value)
        else:
            facts[name] = value
    engines = commands()
    found = {pid: facts for pid, facts in found.items() if engine_of(facts["argv"], engines)}
    parents = {pid: _stat(facts)[1] for pid, facts in found.items()}
    entries = [_entry(pid, facts) for pid, facts in sorted(found.items()) if parents[pid] not in found]
    return servers_from_frame({"servers": entries})


def _stat(facts: dict[str, Any]) -> tuple[float | None, int | None]:
    """Return (start in the host's wall clock, parent) of the fields after the name."""
    fields = str(facts.get("stat", "")).split()
    if len(fields) < 20 or not fields[19].isdigit() or not fields[1].isdigit():
        return None, None
    boot = str(facts.get("boot", ""))
    return int(boot) + int(fields[19]) / TICKS if boot.isdigit() else None, int(fields[1])


def _entry(pid: int, facts: dict[str, Any]) -> dict[str, Any]:
    """Return one server as the probe's role "find" tells it."""
    asked = arguments_of(facts["argv"], commands())
    port, host = asked.pop("asked_port"), asked.pop("asked_host") or asked["engine"]["host"]
    source, why = _output(facts)
    return {
        **asked,
        "pid": pid,
        "engine": asked["engine"]["name"],
        "user": facts.get("user"),
        "started_at": _stat(facts)[0],
        "needs_key": asked["needs_key"] or None,
        "port": port or asked["engine"]["port"],
        # In a network of its own it can't be told from here where it is reached.
        "host": None if "elsewhere" in facts else "127.0.0.1" if host in ("0.0.0.0", "::") else host,
        "own_network": "elsewhere" in facts,
        "orphan": asked["orphan"] and _stat(facts)[1] in (None, 1),
        "source": source,
        "why": why,
    }


def _output(facts: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the log as a source, or why there is none. Progress bars go to stderr, so it counts first."""
    for name in ("file2", "file1"):
        if facts.get(name):
            return f"file:{facts[name]}", None
    other = facts.get("other2") or facts.get("other1")
    if other is None:
        return None, 'not allowed to see where its output goes: log in as its user, or set log = "file:…"'
    return None, f'its output goes to {clean(other)}, and without Python there only files can be followed: set log = "file:…"'


async def find_servers(host: Host, become: Sequence[str] = ()) -> tuple[FoundServer, ...]:
    """Return the servers that run on a connected host; `become` are words before a command that sees more (probe only).

    Raises ProbeFailed, Unreachable or TimeoutError.
    """
    try:
        stream = await host.start_probe(FIND, {"become": list(become), "engines": commands()})
    except ProbeFailed as error:
        return await _without_probe(host, error)
    try:
        async with asyncio.timeout(SEARCH_S):
            async for frame in stream:
                if frame.get("f") == "servers":
                    return servers_from_frame(frame)
    finally:
        await stream.close()
    raise ProbeFailed("the search for servers ended without an answer", "try again; readyroom doctor says what is missing")


async def _without_probe(host: Host, error: ProbeFailed) -> tuple[FoundServer, ...]:
    try:
        return await servers_by_shell(host)
    except Unreachable:
        raise
    except HostError as failed:
        raise ProbeFailed(f"{error.cause}, and {failed.cause}", error.advice) from None

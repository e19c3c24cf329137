"""The servers of a host where the probe can't run: one shell on the leash looks through /proc, again and again."""

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from tui.core.text import LineSplitter, clean
from tui.host.base import Host, HostError
from tui.probe.servers import PORTS, engine_of, model_of, options_of, without_secrets
from tui.services.found import Server, servers_from_frame

EVERY_S = 10
ROUNDS = 4
"""Every so many looks the same processes are looked at closely again: titles and outputs change."""
TICKS = 100
"""Clock ticks a second in /proc/PID/stat: the same on every Linux that runs GPUs."""
_END = "-- all told --"

_SCRIPT = " ".join(
    line.strip()
    for line in """
    own=$(readlink /proc/self/ns/net); boot=$(grep btime /proc/stat); before=none; rounds=0;
    while :; do
        files=$(grep -lE '[v]llm|[V]LLM::[AE]|[s]glang' /proc/[0-9]*/cmdline 2>/dev/null); rounds=$((rounds + 1));
        if [ "$files" = "$before" ] && [ $rounds -lt @ROUNDS ]; then sleep @EVERY; continue; fi;
        before=$files; rounds=0;
        for file in $files; do
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
        done;
        echo '@END'; sleep @EVERY;
    done
    """.strip().splitlines()
).replace("@END", _END).replace("@EVERY", str(EVERY_S)).replace("@ROUNDS", str(ROUNDS))  # fmt: skip


async def servers_without_probe(host: Host, *, seconds: float) -> AsyncGenerator[tuple[Server, ...]]:
    """The servers there, again whenever they change, for about `seconds`; once at least.

    Raises NotPermitted or Unreachable; HostError where the shell there ends.
    """
    ends = time.monotonic() + seconds
    stream = await host.stream(["sh", "-c", _SCRIPT])
    try:
        splitter = LineSplitter()
        said: list[str] = []
        last: tuple[Server, ...] | None = None
        async for data in stream:
            for line in splitter.feed(data):
                if line != _END:
                    said.append(line)
                    continue
                servers, said = servers_of(said), []
                if servers != last:
                    last = servers
                    yield servers
                if time.monotonic() > ends:
                    return
        raise HostError(await stream.how_it_ended(), "it is started again")
    finally:
        await stream.close()


def servers_of(said: Sequence[str]) -> tuple[Server, ...]:
    """The servers in what the shell printed; of several processes with one ancestor among them, the ancestor."""
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
    found = {pid: one for pid, one in found.items() if engine_of(one["argv"])}
    parents = {pid: _stat(one)[1] for pid, one in found.items()}
    entries = [_entry(pid, one) for pid, one in sorted(found.items()) if parents[pid] not in found]
    return servers_from_frame({"servers": entries})


def _stat(facts: dict[str, Any]) -> tuple[float | None, int | None]:
    """(start in the host's wall clock, parent) of the fields after the name."""
    fields = str(facts.get("stat", "")).split()
    if len(fields) < 20 or not fields[19].isdigit() or not fields[1].isdigit():
        return None, None
    boot = str(facts.get("boot", ""))
    return int(boot) + int(fields[19]) / TICKS if boot.isdigit() else None, int(fields[1])


def _entry(pid: int, facts: dict[str, Any]) -> dict[str, Any]:
    """One server as the probe's role "find" tells it."""
    argv = facts["argv"]
    engine = engine_of(argv) or ""
    options = options_of(argv)
    port = options.get("--port", "")
    host = options.get("--host") or "0.0.0.0"
    source, why = _output(facts)
    return {
        "pid": pid,
        "engine": engine,
        "argv": without_secrets(argv),
        "user": facts.get("user"),
        "started_at": _stat(facts)[0],
        "model": model_of(argv, options),
        "served_name": options.get("--served-model-name") or None,
        "needs_key": True if "--api-key" in options else None,
        "port": int(port) if port.isdigit() else PORTS.get(engine),
        # In a network of its own it can't be told from here where it is reached.
        "host": None if "elsewhere" in facts else "127.0.0.1" if host in ("0.0.0.0", "::") else host,
        "tls": "--ssl-certfile" in options,
        "uds": options.get("--uds") or None,
        "orphan": argv[0].startswith("VLLM::EngineCore") and _stat(facts)[1] in (None, 1),
        "source": source,
        "why": why,
    }


def _output(facts: dict[str, Any]) -> tuple[str | None, str | None]:
    """The log as a source, or why there is none. Progress bars go to stderr, so that it counts first."""
    for name in ("file2", "file1"):
        if facts.get(name):
            return f"file:{facts[name]}", None
    other = facts.get("other2") or facts.get("other1")
    if other is None:
        return None, 'not allowed to see where its output goes: log in as its user, or set log = "file:…"'
    return None, f'its output goes to {clean(other)}, and without Python there only files can be followed: set log = "file:…"'

"""The role "find": what serves a model on this host.

Arguments: `every` (seconds between looks, or null for one look), `become` (words before a command that may see more). Frames:

    servers   {"servers": [{"pid", "engine", "argv", "user", "started_at", "model", "served_name", "tensor_parallel", "needs_key",
              "port", "host", "uds", "tls", "interpreter", "source", "why"}], "boot": the id of the host's boot, or null}, youngest
              last; with `every`, again on every change

`source` is in the words of the configuration's `log`; without one, `why` says why. Of an argument that may be a secret only the
name leaves the host. `host` and `port` are where the API is reached from this host.

Python 3.8: this runs on the GPU host.
"""

import os
import time
from typing import Any, Dict, List, Optional

from tui.probe.become import Become
from tui.probe.leash import Link
from tui.probe.listening import listeners_of, reached_by
from tui.probe.outputs import Outputs
from tui.probe.processes import read
from tui.probe.servers import PORTS, Table, facts_of

ANEW_S = 60.0
"""How often every process is looked at anew."""


def play(arguments: Dict[str, Any], link: Link) -> None:
    """Looks once, or until the client ends it."""
    every = arguments.get("every")
    become = Become(arguments, link)
    become.take_over()
    table = Table()
    boot = (read("/proc/sys/kernel/random/boot_id", 64) or b"").decode("ascii", "replace").strip() or None
    last: Optional[List[Dict[str, Any]]] = None
    pids: Optional[List[int]] = None
    anew_at = time.monotonic() + ANEW_S
    while True:
        now = time.monotonic()
        if now > anew_at:
            table.forget()
            anew_at = now + ANEW_S
        found = table.servers()
        # What a young server listens on and writes to settles while it starts.
        if found != pids or last is None or any(server["listens"] is not True for server in last):
            pids = found
            outputs = Outputs(link, become)
            servers = sorted((describe(pid, table, outputs) for pid in found), key=lambda one: one["started_at"] or 0.0)
            if servers != last:
                last = servers
                link.send({"f": "servers", "wall": time.time(), "servers": servers, "boot": boot})
        if not every:
            return
        link.request(float(every))


def describe(pid: int, table: Table, outputs: Outputs) -> Dict[str, Any]:
    """One server."""
    facts = facts_of(pid, table)
    port = facts.pop("asked_port")
    host = facts.pop("asked_host") or "0.0.0.0"
    listeners = listeners_of([pid])
    if listeners:
        ports = [listener[1] for listener in listeners]
        # vLLM listens on ports of its own for its engines, too: the one that was asked for, else the usual one, else the lowest.
        wanted = port or PORTS.get(facts["engine"])
        host, port = listeners[ports.index(wanted)] if wanted in ports else (host, port) if port else listeners[0]
    if facts["uds"]:
        facts["port"] = facts["host"] = None
        facts["listens"] = os.path.exists(facts["uds"])
        return _with_output(facts, outputs)
    facts["port"] = port or PORTS.get(facts["engine"])
    facts["host"] = reached_by(host, pid)
    facts["listens"] = None if listeners is None else any(listener[1] == facts["port"] for listener in listeners)
    return _with_output(facts, outputs)


def _with_output(facts: Dict[str, Any], outputs: Outputs) -> Dict[str, Any]:
    output = outputs.of(facts["pid"])
    facts["source"] = output.source
    facts["why"] = output.why
    return facts

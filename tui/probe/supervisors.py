"""What systemd, docker and Kubernetes say of a server that they run: how often it was started again, and how it ended last.

Each function takes `ask`, which runs a short command and returns what it prints, or None; and returns the facts of a frame
"supervisor" (`by`, `name`, `running`, `restarts`, `exit_code`, `signal`, `oom_killed`, `reason`; unknown ones are absent), or None.

Python 3.8: this runs on the GPU host.
"""

import json
from typing import Any, Callable, Dict, List, Optional, Sequence

Ask = Callable[[Sequence[str]], Optional[str]]

_UNIT = ("NRestarts", "Result", "ExecMainCode", "ExecMainStatus", "ActiveState", "SubState", "OOMPolicy")
CLD_KILLED = ("2", "3")
"""ExecMainCode of a process that a signal ended (with or without a core dump)."""


def systemd(ask: Ask, unit: str, user: bool) -> Optional[Dict[str, Any]]:
    """`Result` is of the last end, also while the unit runs again."""
    properties = [word for name in _UNIT for word in ("-p", name)]
    text = ask(["systemctl", *(["--user"] if user else []), "show", *properties, "--", unit])
    found = dict(line.split("=", 1) for line in (text or "").splitlines() if "=" in line)
    if "ActiveState" not in found:
        return None
    facts: Dict[str, Any] = {
        "by": "systemd",
        "name": unit,
        "running": found["ActiveState"] in ("active", "activating", "reloading"),
    }
    if found.get("NRestarts", "").isdigit():
        facts["restarts"] = int(found["NRestarts"])
    result = found.get("Result", "")
    if result:
        facts["reason"] = result
        facts["oom_killed"] = result == "oom-kill"
    status = found.get("ExecMainStatus", "")
    if status.isdigit() and found.get("ExecMainCode", "0") != "0":
        facts["signal" if found["ExecMainCode"] in CLD_KILLED else "exit_code"] = int(status)
    return facts


def docker(ask: Ask, program: str, container: str) -> Optional[Dict[str, Any]]:
    """Of docker or podman."""
    text = ask([program, "inspect", "--type", "container", "-f", "{{.RestartCount}} {{json .State}}", container])
    count, _, state_text = (text or "").partition(" ")
    state = _object(state_text)
    if state is None:
        return None
    facts: Dict[str, Any] = {
        "by": "docker",
        "name": container,
        "running": bool(state.get("Running")) and not state.get("Restarting"),
        "oom_killed": bool(state.get("OOMKilled")),
    }
    if count.isdigit():
        facts["restarts"] = int(count)
    # Of a container that runs, docker tells the status 0 whatever the end before was.
    if not state.get("Running") or state.get("Restarting"):
        if isinstance(state.get("ExitCode"), int):
            facts["exit_code"] = state["ExitCode"]
        if state.get("Error"):
            facts["reason"] = str(state["Error"])
    return facts


def kubernetes(ask: Ask, namespace: str, pod: str, container: Optional[str]) -> Optional[Dict[str, Any]]:
    """Of the container, the pod's first unless it is named."""
    status = (_object(ask(["kubectl", "get", "pod", "-n", namespace, "-o", "json", "--", pod])) or {}).get("status") or {}
    listed: List[Dict[str, Any]] = [one for one in status.get("containerStatuses") or () if isinstance(one, dict)]
    chosen = [one for one in listed if container is None or one.get("name") == container]
    if not chosen:
        return None
    one = chosen[0]
    now, last = one.get("state") or {}, one.get("lastState") or {}
    facts: Dict[str, Any] = {"by": "kubernetes", "name": "%s/%s" % (namespace, pod), "running": "running" in now}
    if isinstance(one.get("restartCount"), int):
        facts["restarts"] = one["restartCount"]
    ended = now.get("terminated") or last.get("terminated")
    if ended:
        facts["exit_code"] = ended.get("exitCode")
        facts["reason"] = ended.get("reason")
        facts["oom_killed"] = ended.get("reason") == "OOMKilled"
    elif now.get("waiting"):
        facts["reason"] = now["waiting"].get("reason")
    return facts


def _object(text: Optional[str]) -> Optional[Dict[str, Any]]:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

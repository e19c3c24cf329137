"""The processes that share a load, on the leash of a real link: none is left, and none is still on its list when it has ended."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loads import good
from scripted_server import scripted
from shipped import alive, until

ROOT = Path(__file__).parents[2]

ROLE = """if True:
    import contextlib, json, os, subprocess, sys
    url, told, fails = sys.argv[1:]
    from tui.probe import leash
    leash._Guard.SCRIPT = 'cat > "' + told + '"'
    from tui.probe.load_prompts import uncounted_lengths
    from tui.probe.load_http import target_of
    from tui.probe.load_net import resolve
    from tui.probe.load_workers import LoadShare, run_share
    plan = {"url": url, "endpoint": "chat", "model": "m", "input_tokens": 8, "output_tokens": 3, "seed": "1"}
    order = {"concurrency": 3, "requests": 6}
    address = resolve(target_of(url))[0]
    share = LoadShare(plan, uncounted_lengths().known, {"max_tokens": "$asked", "stream": True}, order, 0, 1, 0, None, address)
    link = leash.Link()
    pids = []
    def spawn(argv, **options):
        if len(pids) == 2 and fails == "start":
            raise OSError("no more processes")
        if fails == "run":
            argv = [argv[0], "-c", "import sys; sys.stdin.readline()"]
        child = link.spawn(argv, **options)
        pids.append(child.pid)
        return child
    done, error = 0, ""
    try:
        outcome, busy = run_share(share, 3, spawn, stopping=lambda: False, tick=lambda progress: None, reaped=link.reaped)
        done = sum(record.state == "completed" for record in outcome.records)
    except (OSError, RuntimeError) as failure:
        error = str(failure)
    link.send({"pids": pids, "left": list(link._children), "done": done, "error": error})
"""


def played(url: str, told: Path, fails: str = "") -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", ROLE, url, str(told), fails], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("fails", "started", "done", "error"),
    [
        ("", 3, 6, ""),
        ("start", 2, 0, "no more processes"),
        ("run", 3, 0, "a worker of the load generator ended early"),
    ],
)
def test_a_worker_that_has_ended_is_forgotten(fails: str, started: int, done: int, error: str, tmp_path: Path) -> None:
    """Its number goes to somebody else's process sooner or later, which must outlive the load."""
    with scripted(good) as server:
        found = played(server.url, tmp_path / "told", fails)
    assert (len(found["pids"]), found["done"], found["error"]) == (started, done, error)
    assert found["left"] == []
    assert not any(map(alive, found["pids"]))
    wanted = [[sign, str(pid)] for pid in found["pids"] for sign in "+-"]
    until(lambda: sorted(line.split() for line in (tmp_path / "told").read_text().splitlines()) == sorted(wanted))

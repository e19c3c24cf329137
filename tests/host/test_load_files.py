"""The limit of open files: raised where a load needs it, and no load where it can't be."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loads import good
from scripted_server import Exchange, scripted

from tui.probe.load_files import RESERVE
from tui.probe.load_net import OPEN_FILES
from tui.wire.record import COMPLETED, FAILED

CODE = """
import json, resource, sys
from loads import load
outcome = load(sys.argv[1], json.loads(sys.argv[2]))
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
print(json.dumps([[(r.state, r.kind, r.error) for r in outcome.records], outcome.stopped, limit]))
"""


def limited(url: str, limits: str, order: dict[str, Any]) -> Any:
    """Runs the loop in a process with these limits: its records, why it stopped, and the soft limit at the end."""
    command = f'{limits} && exec "$0" -c "$1" "$2" "$3"'
    words = ["sh", "-c", command, sys.executable, CODE, url, json.dumps(order)]
    there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(words, env=there, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "order",
    [
        {"concurrency": 90, "requests": 90},
        {"schedule": [0.0] * 90},
        {"schedule": [0.0] * 90, "gate": 80},
    ],
    ids=["closed loop", "open loop", "gate"],
)
def test_a_low_soft_limit_is_raised(order: dict[str, Any]) -> None:
    with scripted(good) as server:
        records, stopped, limit = limited(server.url, "ulimit -Sn 48", order)
    assert {state for state, _, _ in records} == {COMPLETED}
    assert (len(records), stopped) == (90, "")
    assert 90 < limit < 90 + 64 + RESERVE


@pytest.mark.parametrize("order", [{"concurrency": 90, "requests": 90}, {"schedule": [0.0] * 90, "gate": 90}])
def test_a_hard_limit_is_told_before_anything_is_sent(order: dict[str, Any]) -> None:
    with scripted(good) as server:
        records, stopped, _ = limited(server.url, "ulimit -n 48", order)
        assert server.connections == 0
    assert records == []
    assert stopped.startswith("90 streams need ")
    assert "may have 48" in stopped
    assert "ulimit -Hn" in stopped


def test_running_out_of_files_is_the_clients_own_failure() -> None:
    """Of an open loop without a gate nobody knows beforehand how many connections it needs."""

    def slow(exchange: Exchange) -> str:
        exchange.wait_closed(3.0)
        return "close"

    with scripted(slow) as server:
        records, _, _ = limited(server.url, "ulimit -n 48", {"schedule": [0.0] * 90, "duration_s": 1.0})
    failed = [(kind, error) for state, kind, error in records if state == FAILED]
    assert {kind for kind, _ in failed} == {OPEN_FILES}
    assert "too many open files on this side" in failed[0][1]


def test_a_benchmark_that_runs_out_of_files_says_so_and_what_to_do(tmp_path: Path) -> None:
    def slow(exchange: Exchange) -> None:
        exchange.wait_closed(1.0)
        exchange.reply()

    with scripted(slow) as server:
        words = [sys.executable, "-m", "tui", "bench", "--base-url", server.url, "--json", "--workers", "1"]
        words += ["--request-rate", "200", "--requests", "160", "--input-tokens", "8", "--output-tokens", "3"]
        there = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
        limited = ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *words]
        done = subprocess.run(limited, env=there, capture_output=True, text=True, timeout=60)
    (figures,) = json.loads(done.stdout)["points"]
    assert figures["completed"] > 0
    assert figures["failed"] == figures["errors_by_kind"][OPEN_FILES] > 0
    assert figures["client_limited"] is True
    assert figures["client_open_files"] == 64
    (told,) = [one for one in figures["warnings"] if "open files" in one]
    assert told.startswith("the load generator ran out of open files (a process may have 64): ")
    assert "ulimit -Hn" in told

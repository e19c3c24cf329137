"""The limit of open files: raised if a load needs it, and no load if it can't be."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loads import good
from scripted_server import Exchange, scripted

from tui.probe.load_connections import RESERVE
from tui.probe.load_net import OPEN_FILES
from tui.wire.request_record import COMPLETED, FAILED

CODE = """
import json, resource, sys
from loads import load
outcome = load(sys.argv[1], json.loads(sys.argv[2]))
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
print(json.dumps([[(r.state, r.kind, r.error) for r in outcome.records], outcome.stopped, limit]))
"""


def limited(url: str, limits: str, order: dict[str, Any]) -> Any:
    """Run the loop in a process with these limits; return its records, why it stopped, and the final soft limit."""
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


def bench(url: str, state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `readyroom bench` with at most 64 open files."""
    whole = [sys.executable, "-m", "tui", "bench", "--base-url", url, "--input-tokens", "8", "--output-tokens", "3", *words]
    there = {**os.environ, "XDG_STATE_HOME": str(state), "XDG_CONFIG_HOME": str(state), "XDG_CACHE_HOME": str(state)}
    return subprocess.run(
        ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *whole], env=there, capture_output=True, text=True, timeout=60
    )


def test_a_benchmark_that_runs_out_of_files_says_so_and_what_to_do(tmp_path: Path) -> None:
    def slow(exchange: Exchange) -> None:
        exchange.wait_closed(1.0)
        exchange.reply()

    with scripted(slow) as server:
        words = ("--workers", "1", "--request-rate", "200", "--requests", "160", "--json")
        done = bench(server.url, tmp_path, *words)
    (figures,) = json.loads(done.stdout)["points"]
    assert figures["completed"] > 0
    assert figures["failed"] == figures["errors_by_kind"][OPEN_FILES] > 0
    assert figures["client_limited"] is True
    assert figures["client_open_files"] == 64
    (told,) = [warning for warning in figures["warnings"] if "open files" in warning]
    assert told.startswith("the load generator ran out of open files (a process may have 64): ")
    assert "ulimit -Hn" in told


def test_a_point_that_is_refused_is_told_in_words_and_is_no_row_of_dashes(tmp_path: Path) -> None:
    with scripted(good) as server:
        done = bench(server.url, tmp_path, "--concurrency", "2,90", "--requests", "90")
    said = " ".join(done.stdout.split())
    assert "▲ partial: refused, nothing was sent: 90 streams need " in said
    assert "ulimit -Hn" in said
    assert "90 streams had 0" not in said
    assert not any(line.split()[:2] == ["90", "—"] for line in done.stdout.splitlines())
    assert "90 streams:" not in done.stderr
    assert done.returncode == 1  # the server was reached


def test_a_benchmark_of_nothing_but_a_refused_point(tmp_path: Path) -> None:
    with scripted(good) as server:
        done = bench(server.url, tmp_path, "--concurrency", "90", "--requests", "90")
        as_json = bench(server.url, tmp_path, "--concurrency", "90", "--requests", "90", "--json")
    assert "✗ nothing was measured: refused, nothing was sent: 90 streams need " in " ".join(done.stdout.split())
    assert "p99" not in done.stdout.partition("TTFT: first")[0]
    document = json.loads(as_json.stdout)
    assert document["points"] == []
    assert document["stopped"].startswith("refused, nothing was sent: 90 streams need ")
    assert (done.returncode, as_json.returncode) == (1, 1)

"""A record that another process holds costs the entry in it alone: results are printed, the exit code stays the run's."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from scripted_server import Exchange, scripted

from tui.record.store import RunStore

NOT_KEPT = "readyroom: this run could not be recorded: "


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the record while another process writes to it."""
    RunStore(path).runs()
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def readyroom(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment = {**kept, "XDG_STATE_HOME": str(folder), "READYROOM_CONFIG": str(folder / "config.toml"), "NO_COLOR": "1"}
    return subprocess.run([sys.executable, "-m", "tui", *arguments], env=environment, capture_output=True, text=True, timeout=60)


def configure(folder: Path, url: str) -> None:
    (folder / "config.toml").write_text(
        f'[deployments.box]\napi = "{url}"\ndirect = true\n[[deployments.box.engines]]\nhost = "local"\nlog = "none"\n'
    )


def test_results_are_printed_and_the_exit_code_stays(tmp_path: Path) -> None:
    record = tmp_path / "readyroom" / "record.sqlite"
    short = ("--requests", "2", "--input-tokens", "16", "--output-tokens", "3", "--json")
    with scripted(Exchange.reply) as server:
        configure(tmp_path, server.url)
        with held(record):
            bench = readyroom(tmp_path, "bench", "--base-url", server.url, *short)
            smoke = readyroom(tmp_path, "smoke", "box", "--json")
            listed = readyroom(tmp_path, "runs")
        assert json.loads(bench.stdout)["points"][0]["completed"] == 2
        assert bench.returncode == 0
        assert json.loads(smoke.stdout)["planned"] >= 4
        assert smoke.returncode == 1  # nonsense was replied: the verdict counts, not the record
        for done in (bench, smoke):
            assert NOT_KEPT in done.stderr
            assert "record.sqlite is locked by another process" in done.stderr
        assert (listed.returncode, listed.stdout) == (1, "")
        again = readyroom(tmp_path, "bench", "--base-url", server.url, *short)
    assert again.stderr == ""
    assert [run.kind for run in RunStore(record).runs()] == ["benchmark"]

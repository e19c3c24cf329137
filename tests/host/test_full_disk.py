"""stdout on a disk that is full: a sentence, an exit code of its own, and where to find what was measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_server import scripted
from test_bench_command import SHORT, environment, good

FULL = Path("/dev/full")
WORDS = "stdout can't be written: No space left on device"
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def command(folder: Path, *arguments: str, to: Path = FULL) -> "subprocess.CompletedProcess[str]":
    with to.open("w") as out:
        words = [sys.executable, "-m", "tui", *arguments]
        return subprocess.run(
            words, env=environment(folder), stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("bench", "--help"),
        ("config", "path"),
        ("config", "show"),
        ("runs",),
        ("runs", "--json"),
        ("log", "LOG"),
        ("log", "LOG", "--json"),
    ],
    ids=" ".join,
)
def test_whatever_prints(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    log = str(Path(__file__).parents[1] / "data" / "logs" / "cpu" / "fail-missing-shard.log")
    done = command(tmp_path, *(log if word == "LOG" else word for word in arguments))
    assert (done.returncode, done.stderr) == (73, f"readyroom: {WORDS}\n")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_benchmark_says_where_its_result_is_all_the_same(tmp_path: Path, more: tuple[str, ...]) -> None:
    with scripted(good) as server:
        done = command(tmp_path, "bench", "--base-url", server.url, *SHORT, *more)
    assert done.returncode == 73
    assert WORDS in done.stderr
    path = Path(done.stderr.rpartition("the result is in ")[2].strip())
    assert len(json.loads(path.read_text())["points"]) == 1
    assert command(tmp_path, "runs", "--json", to=tmp_path / "runs").returncode == 0
    assert len(json.loads((tmp_path / "runs").read_text())["runs"]) == 1

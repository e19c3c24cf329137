"""stdout on a disk that is full, or closed: a sentence, an exit code of its own, and where to find what was measured."""

import json
import os
import signal
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


def closed(folder: Path, streams: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    words = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "tui", *arguments]
    return subprocess.run(words, env=environment(folder), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("config", "path"), ("config", "check"), ("runs",), ("runs", "--json"), ("log", "LOG", "--json")],
    ids=" ".join,
)
@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams(tmp_path: Path, streams: str, arguments: tuple[str, ...]) -> None:
    log = str(Path(__file__).parents[1] / "data" / "logs" / "cpu" / "fail-missing-shard.log")
    words = [log if word == "LOG" else word for word in arguments]
    done = closed(tmp_path, streams, *words)
    if streams.startswith(">"):
        said = "" if "2>&-" in streams else "readyroom: stdout can't be written: it is not open for writing\n"
        assert (done.returncode, done.stdout, done.stderr) == (73, "", said)
    else:
        assert (done.returncode, done.stderr) == (4 if arguments[0] == "log" else 0, "")
        assert done.stdout


@pytest.mark.parametrize(("streams", "code"), [(">&-", 73), ("2>&-", 0), ("<&-", 0), ("2>&- <&-", 0)])
def test_a_benchmark_with_closed_streams(tmp_path: Path, streams: str, code: int) -> None:
    with scripted(good) as server:
        done = closed(tmp_path, streams, "bench", "--base-url", server.url, *SHORT)
    assert done.returncode == code, done.stderr
    assert "a bug" not in done.stderr
    assert ("1 stream" in done.stdout) == (code == 0)
    assert recorded(tmp_path) == 1


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


def test_a_signal_ends_a_benchmark_whose_pipe_nobody_reads(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with scripted(good) as server:
        words = [sys.executable, "-m", "tui", "bench", "--base-url", server.url, *SHORT, "--csv", str(pipe)]
        with subprocess.Popen(
            words, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            while not recorded(tmp_path):
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=8)  # before it gives the pipe up by itself
    assert process.returncode == 130, said
    assert "the result is in " in said


def recorded(folder: Path) -> int:
    """Return how many runs the record holds, as the command tells."""
    command(folder, "runs", "--json", to=folder / "runs")
    return len(json.loads((folder / "runs").read_text())["runs"])

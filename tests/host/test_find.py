"""The role "find" on processes that look like servers: real processes of this machine, named and started as servers are."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tui.engines.registry import commands
from tui.probe.boot import BOOT, opening
from tui.probe.server_processes import engine_of, model_of, option, options_of, without_secrets

SERVER = """
    import socket, sys, time
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
        listener.listen()
        print("up", file=sys.stderr, flush=True)
        time.sleep(120)
"""


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("/usr/bin/python3 /usr/local/bin/vllm serve /models/kimi -tp 8", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("python3.12 -u -X dev -m vllm.entrypoints.cli.main serve m", "vllm"),
        ("python3 -m sglang.launch_server --model-path m", "sglang"),
        ("VLLM::EngineCore_DP0", "vllm"),
        ("/opt/llama/llama-server -m m.gguf --port 8081", "llama.cpp"),
        ("tail -f llama-server.log", None),
        ("sh -c vllm serve m", None),
        ("docker run vllm/vllm-openai vllm serve m", None),
        ("sudo -n vllm serve m", None),
        ("/usr/bin/python3 /usr/local/bin/vllm bench serve", None),
        ("python3 -c from multiprocessing.spawn import spawn_main", None),
        ("vi vllm serve", None),
        ("", None),
    ],
)
def test_engine_of(line: str, engine: str | None) -> None:
    found = engine_of(line.split(), commands())
    assert (found["name"] if found else None) == engine


def test_arguments() -> None:
    line = "python vllm serve /models/kimi --port=8001 -tp 8 --api-key sk-1 --hf-token=hf_2 --max-num-batched-tokens 8192"
    argv = line.split()
    engine = engine_of(argv, commands())
    assert engine is not None
    options = options_of(argv, engine)
    assert model_of(argv, options, engine) == "/models/kimi"
    assert (option("port", options, engine), option("tensor_parallel", options, engine)) == ("8001", "8")
    shown = " ".join(without_secrets(argv))
    assert "sk-1" not in shown
    assert "hf_2" not in shown
    assert "8192" in shown


def find(**arguments: Any) -> list[dict[str, Any]]:
    with subprocess.Popen([sys.executable, "-I", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
        assert probe.stdin is not None
        assert probe.stdout is not None
        probe.stdin.write(opening({"role": "find", "engines": commands(), **arguments}))
        probe.stdin.flush()  # it stays open: its end would pull the leash
        frames = [json.loads(line) for line in probe.stdout]
    assert frames[-1]["ok"], frames[-1]
    return [server for frame in frames if frame["f"] == "servers" for server in frame["servers"]]


@pytest.fixture
def serve(tmp_path: Path, free_port: int) -> Iterator[Callable[..., int]]:
    """Start something that looks like `vllm serve` through a shell command; `%s` in it is the server's own command line."""
    script = tmp_path / "bin" / "vllm"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\n" + textwrap.dedent(SERVER))
    script.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []

    def start(shell: str) -> int:
        line = f"'{script}' serve /models/kimi --port {free_port} --api-key sk-geheim"
        started.append(subprocess.Popen(["/bin/sh", "-c", shell % line], cwd=tmp_path, start_new_session=True))
        return free_port

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until_found(port: int, **arguments: Any) -> dict[str, Any]:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        for server in find(**arguments):
            if server["port"] == port and server["listens"]:
                return server
    raise AssertionError(f"no server on port {port}: {find()}")


@pytest.mark.parametrize(
    "shell", ["exec %s > vllm.log 2>&1", "%s 2>&1 | tee -a vllm.log > /dev/null", "exec nohup %s > vllm.log 2>&1"]
)
def test_a_server_whose_log_is_a_file(serve: Callable[..., int], tmp_path: Path, shell: str) -> None:
    port = serve(shell)
    server = until_found(port)
    assert server["engine"] == "vllm"
    assert server["model"] == "/models/kimi"
    assert server["host"] == "127.0.0.1"
    assert server["needs_key"] is True
    assert server["source"] == f"file:{tmp_path}/vllm.log"
    assert server["why"] is None
    assert "sk-geheim" not in json.dumps(server)
    assert abs(server["started_at"] - time.time()) < 60


@pytest.mark.parametrize(
    ("shell", "why"),
    [("exec %s > /dev/null 2>&1", "/dev/null"), ("%s 2>&1 | sleep 60", "pipe")],
)
def test_a_server_whose_output_cannot_be_read(serve: Callable[..., int], shell: str, why: str) -> None:
    server = until_found(serve(shell))
    assert server["source"] is None
    assert why in server["why"]


def test_a_server_that_was_killed_is_gone_at_once_though_nobody_takes_note(serve: Callable[..., int], tmp_path: Path) -> None:
    server = until_found(serve("exec %s > vllm.log 2>&1"))
    with subprocess.Popen([sys.executable, "-I", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
        assert probe.stdin is not None
        assert probe.stdout is not None
        probe.stdin.write(opening({"role": "find", "engines": commands(), "every": 3600}))
        probe.stdin.flush()
        looks = (json.loads(line) for line in probe.stdout)
        pids = ([server["pid"] for server in look["servers"]] for look in looks if look["f"] == "servers")
        assert server["pid"] in next(pids)
        os.kill(server["pid"], signal.SIGKILL)
        assert server["pid"] not in next(pids)
        assert Path(f"/proc/{server['pid']}").exists()
        probe.stdin.close()


def test_only_stderr_in_a_file(serve: Callable[..., int], tmp_path: Path) -> None:
    server = until_found(serve("exec %s > /dev/null 2> err.log"))
    assert server["source"] == f"file:{tmp_path}/err.log"
    assert "only one of stdout and stderr" in server["why"]


@pytest.mark.tmux
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed")
def test_a_server_in_a_tmux_pane(serve: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)
    port = serve('tmux -f /dev/null new-session -d -s serve "%s"; sleep 60')
    try:
        assert until_found(port)["source"] == "tmux:%0"
    finally:
        subprocess.run(["tmux", "kill-server"], check=False)

"""A real `vllm serve` on the CPU, started and ended by the tests."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class VllmServer:
    """`port` on 127.0.0.1, `log` where stdout and stderr go, `process` the API server's."""

    port: int
    log: Path
    model: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def vllm_folder() -> Path | None:
    """Return the folder that setup.sh made, as READYROOM_VLLM names it; None if unset."""
    named = os.environ.get("READYROOM_VLLM")
    folder = Path(named) if named else None
    return folder if folder and (folder / "venv" / "bin" / "vllm").exists() else None


def serve_command(
    folder: Path, port: int, *options: str, shard_delay: float = 0.0, **environment: str
) -> tuple[list[str], dict[str, str]]:
    """Return the words of `vllm serve` on a port of 127.0.0.1, and the environment that it needs."""
    model = folder / "models" / "tiny"
    variables = {
        **os.environ,
        "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(HERE / "paced_load"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        **({"SHARD_DELAY": str(shard_delay)} if shard_delay else {}),
        **environment,
    }
    program = str(folder / "venv" / "bin" / "vllm")
    named = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny", "--enforce-eager"]
    return [program, "serve", str(model), *named, *options], variables


@contextlib.contextmanager
def serving(folder: Path, log: Path, *options: str, shard_delay: float = 0.0, **environment: str) -> Iterator[VllmServer]:
    """Start `vllm serve` on a free port without waiting for it; end it with all its processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command, variables = serve_command(folder, port, *options, shard_delay=shard_delay, **environment)
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=variables,
            start_new_session=True,
        )
    try:
        yield VllmServer(port, log, folder / "models" / "tiny", process)
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], patience_s: float = 10.0) -> None:
    """End the server and what it started: SIGTERM twice (the first one is lost while it loads), then SIGKILL to its session."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + (patience_s / 2 if number is signal.SIGTERM else patience_s)
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        if process.poll() is not None:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

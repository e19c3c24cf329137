"""A server that answers and does nothing: a single look says so, as the screen does. Real processes, a real API."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sshd import free_port, until

from tui.cli import status as status_command
from tui.cli.status import settled_state, status_lines
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, exit_code_of, status_of
from tui.core.logs import forecast
from tui.host.open import open_host
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings

READY = Path(__file__).parent.parent / "data" / "logs" / "servers" / "26-kimi-k25-8xh200-ep8-ready.log"
SERVER = """
import http.server, json, os, sys, time
engine = os.fork()
if not engine:
    open("/proc/self/comm", "w").write("VLLM::EngineCore")
    if os.environ["ENGINE"] == "zombie":
        os._exit(1)
    time.sleep(600)
began = time.time()
class Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        tokens = 1000 + int((time.time() - began) * float(os.environ["RATE"]))
        figures = "vllm:num_requests_running{engine=\\"0\\"} %s\\nvllm:generation_tokens_total{engine=\\"0\\"} %d\\n"
        body = {
            "/metrics": figures % (os.environ["RUNNING"], tokens),
            "/v1/models": json.dumps({"data": [{"id": "m", "object": "model"}]}),
            "/version": json.dumps({"version": "0.32.0"}),
        }.get(self.path, "").encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[-1])), Api)
sys.stdout.write(open(os.environ["SAYS"]).read())
sys.stdout.flush()
server.serve_forever()
"""


@contextmanager
def serving(folder: Path, engine: str, running: int, rate: float) -> Iterator[tuple[int, Path]]:
    """Run a stand-in for `vllm serve` with an engine process of its own; yield its port and its log."""
    program, log, port = folder / "vllm", folder / "vllm.log", free_port()
    program.write_text(f"#!{sys.executable}\n{SERVER}")
    program.chmod(0o755)
    env = {**os.environ, "ENGINE": engine, "RUNNING": str(running), "RATE": str(rate), "SAYS": str(READY)}
    command = [str(program), "serve", "/models/m", "--port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)
    try:
        until(lambda: log.stat().st_size > 0, what="its first line")
        if engine in ("stopped", "all stopped"):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGSTOP)
        if engine == "all stopped":
            process.send_signal(signal.SIGSTOP)
        yield port, log
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def one_look(port: int, log: Path) -> DeploymentState:
    deployment = Deployment(api=f"http://127.0.0.1:{port}", engines=(EngineSettings(log=f"file:{log}"),))
    async with Session("box", "local", deployment, Settings(), open_host("local")) as session:
        return await settled_state(session, status_command.SNAPSHOT_S)


@pytest.mark.parametrize(
    ("engine", "running", "rate", "status", "says"),
    [
        ("serves", 0, 0.0, Status.READY, "m"),
        ("serves", 2, 50.0, Status.READY, "m"),
        ("serves", 2, 0.0, Status.HUNG, "2 requests are running and no token has come for"),
        ("stopped", 0, 0.0, Status.HUNG, "VLLM::EngineCor (pid "),
        ("all stopped", 0, 0.0, Status.HUNG, "is stopped, as by SIGSTOP: kill -CONT "),
        ("zombie", 0, 0.0, Status.HUNG, "has ended and is a zombie"),
    ],
)
async def test_one_look_tells_that_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, running: int, rate: float, status: Status, says: str
) -> None:
    monkeypatch.setattr(forecast, "HUNG_S", 4.0)  # a minute, but for the test's patience
    monkeypatch.setattr(status_command, "SNAPSHOT_S", 2.0)
    monkeypatch.setattr(status_command, "HANG_S", 20.0)
    with serving(tmp_path, engine, running, rate) as (port, log):
        began = time.monotonic()
        async with asyncio.timeout(60):
            state = await one_look(port, log)
        assert (status_of(state), exit_code_of(state)) == (status, 4 if status is Status.HUNG else 0)
        assert says in next(iter(status_lines(state)))
        if status is Status.READY:
            assert time.monotonic() - began < 15

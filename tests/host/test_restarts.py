"""A server that is started again after its end, and a log whose server is gone: real processes, real files, real clocks."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sshd import free_port
from test_attach import Box, box  # noqa: F401
from test_last_seen import played

from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, conflict_of, status_of
from tui.core.logs.load_state import Phase
from tui.host.open import open_host
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings

LOGS = Path(__file__).parent.parent / "data" / "logs" / "servers"
FAILS = LOGS / "09-cpu-032-kv-too-small.log"
READY = LOGS / "26-kimi-k25-8xh200-ep8-ready.log"
IMPORTS_S = 3.0
"""So long the stand-in is silent, as a server is while it imports; what it has then to say, it reads from a file."""
SERVER = """
import os, sys, time
time.sleep(float(os.environ["SILENT"]))
sys.stdout.write(open(os.environ["SAYS"]).read())
sys.stdout.flush()
time.sleep(float(os.environ["LIVES"]))
"""


class Host:
    """This machine, on which one server is started again and again into the same log."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "vllm.log"
        self.port = free_port()
        self.program = folder / "bin" / "vllm"
        self.program.parent.mkdir()
        self.program.write_text(f"#!{sys.executable}\n{SERVER}")
        self.program.chmod(0o755)

    def start(self, says: Path, *, silent: float = 0.0, lives: float = 600.0, anew: bool = False) -> subprocess.Popen[bytes]:
        with self.log.open("wb" if anew else "ab") as log:
            return subprocess.Popen(
                [str(self.program), "serve", "/models/m", "--port", str(self.port)],
                stdout=log,
                stderr=log,
                env={**os.environ, "SAYS": str(says), "SILENT": str(silent), "LIVES": str(lives)},
            )

    @asynccontextmanager
    async def watched(self, *, found: bool) -> AsyncIterator[Session]:
        """Watch the server: by its port, or by its log."""
        log = "auto" if found else f"file:{self.log}"
        deployment = Deployment(api=f"http://127.0.0.1:{self.port}", engines=(EngineSettings(log=log),))
        async with Session("box", "local", deployment, Settings(), open_host("local")) as session:
            yield session


async def until(session: Session, fits: Callable[[DeploymentState], object], seconds: float = 30.0) -> DeploymentState:
    async with asyncio.timeout(seconds):
        async for state in session.states():
            if fits(state):
                return state
    raise AssertionError("the session ended")


def told(state: DeploymentState, status: Status) -> bool:
    return status_of(state) is status


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("found", [True, False])
async def test_a_new_process_replaces_the_failure_before_its_first_line(tmp_path: Path, found: bool, anew: bool) -> None:
    host = Host(tmp_path)
    failing = host.start(FAILS, silent=IMPORTS_S, lives=0.0)
    async with host.watched(found=found) as session:
        await until(session, lambda state: told(state, Status.FAILED) and state.load and state.load.failure)
        failing.wait()
        again = host.start(READY, silent=600.0, anew=anew)
        try:
            state = await until(session, lambda state: told(state, Status.LOADING))
            assert state.server_pid == again.pid
            assert state.load is not None
            assert state.load.failure is None
            assert state.forecast.reason == ""
            await asyncio.sleep(3.0)  # it stays so
            assert told(session.state, Status.LOADING)
        finally:
            again.kill()
            again.wait()


async def test_a_failure_of_the_process_before_is_not_told_at_attach(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.start(FAILS, lives=0.0).wait()
    await asyncio.sleep(IMPORTS_S)
    again = host.start(READY, silent=600.0)
    try:
        async with host.watched(found=True) as session:
            state = await until(session, lambda state: session.settled and told(state, Status.LOADING))
            assert state.load is None or state.load.failure is None
    finally:
        again.kill()
        again.wait()


@pytest.mark.parametrize("found", [True, False])
async def test_one_that_was_killed_has_failed_and_its_next_start_loads(tmp_path: Path, found: bool) -> None:
    host = Host(tmp_path)
    server = host.start(READY, silent=IMPORTS_S)
    async with host.watched(found=found) as session:
        await until(session, lambda state: state.load and state.load.ready and state.server_pid == server.pid)
        server.send_signal(signal.SIGKILL)
        server.wait()
        state = await until(session, lambda state: told(state, Status.FAILED))
        assert state.load is not None
        assert state.load.failure is not None
        assert "does not say why" in state.load.failure.cause
        again = host.start(READY, silent=600.0)
        try:
            state = await until(session, lambda state: told(state, Status.LOADING))
            assert state.load is not None
            assert (state.load.failure, state.load.ready, conflict_of(state)) == (None, False, None)
        finally:
            again.kill()
            again.wait()


# -- a log that nobody writes any more ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log", "status", "code"), [(READY, "failed", 4), (FAILS, "failed", 4)])
def test_a_log_that_nobody_writes_any_more(box: Box, log: Path, status: str, code: int) -> None:  # noqa: F811
    """A day old, no process has it open, and none of those that its lines name lives."""
    text = log.read_text()
    (box.folder / "old.log").write_text(text)
    half = text.splitlines(keepends=True)
    (box.folder / "half.log").write_text("".join(half[: len(half) // 2]))
    for name in ("old.log", "half.log"):
        os.utime(box.folder / name, (time.time() - 29 * 3600,) * 2)
    (box.folder / "config.toml").write_text(
        "".join(
            f'[deployments.{name}]\n[[deployments.{name}.engines]]\nhost = "local"\nlog = "file:{box.folder}/{name}.log"\n'
            for name in ("old", "half")
        )
    )
    said = played(
        box,
        "r status old --json; r status half --json; sleep 100 >> half.log & r status half --json; kill $!",
        READYROOM_CONFIG=str(box.folder / "config.toml"),
    )
    assert said.codes[:2] == [code, 4]
    assert (said.document(0)["status"], said.document(1)["status"]) == (status, "failed")
    if log is READY:
        assert "its log does not say why" in said.document(1)["load"]["failure"]["cause"]
        assert said.document(2)["load"]["phase"] != Phase.FAILED.value  # somebody holds it open: it may still write

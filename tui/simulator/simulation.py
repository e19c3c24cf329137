"""The client's side of the simulated host: start its process, tell how to reach it, ask it to misbehave."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tui.core.text import clean
from tui.settings import Deployment, EngineSettings
from tui.simulator.scenarios import SCENARIOS, Scenario

_READY_S = 30.0
_END_S = 15.0
_SAID_LIMIT = 1 << 20


class SimulatorFailed(Exception):
    """The simulated host could not start, or refused a request; the words say why."""


class Simulation:
    """A running simulated host, and how to reach it."""

    def __init__(
        self, scenario: Scenario, speed: float, directory: Path, process: asyncio.subprocess.Process, errors: BinaryIO
    ) -> None:
        """`errors` is the file that the process has for its stderr: the terminal belongs to the screen."""
        self.scenario = scenario
        self.speed = speed
        self.directory = directory
        self._process = process
        self._errors = errors
        self._facts: dict[str, Any] = {}
        self._asked = 0
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        """Return what its process has printed on stderr, cleaned: nothing if all is well. Readable after its end, too."""
        if not self._errors.closed:
            self._errors.seek(0)
            self._said = clean(self._errors.read(_SAID_LIMIT).decode("utf-8", "replace"), keep_newlines=True).strip()
        return self._said

    @property
    def target(self) -> str:
        """Return the alias that `ssh_config` explains."""
        return str(self._facts["alias"])

    @property
    def address(self) -> str:
        """Return the same host as user@host:port, for clients that are given key and known hosts otherwise."""
        return f"engineer@127.0.0.1:{self.ssh_port}"

    @property
    def ssh_port(self) -> int:
        return int(self._facts["ssh_port"])

    @property
    def ssh_config(self) -> Path:
        return Path(self._facts["ssh_config"])

    @property
    def known_hosts(self) -> Path:
        return Path(self._facts["known_hosts"])

    @property
    def identity(self) -> Path:
        return Path(self._facts["identity"])

    @property
    def log_path(self) -> str:
        return str(self._facts["log_path"])

    @property
    def api_url(self) -> str:
        """Return the API's address as seen from the host; closed until the server is ready."""
        return f"http://127.0.0.1:{self._facts['api_port']}"

    @property
    def gpu_source(self) -> str:
        """Return what tells of the GPUs there: "nvml", "nvidia-smi" or "none"."""
        return str(self._facts["gpus"])

    @property
    def deployment(self) -> Deployment:
        """Return the deployment as a configuration would describe it."""
        return Deployment(api=self.api_url, engines=(EngineSettings(host=self.target, log=f"file:{self.log_path}"),))

    def user(self, folder: Path) -> dict[str, str]:
        """Return an environment for a user's commands: this host is in the SSH configuration, and its deployment in a configuration
        file, under the host's alias; both are written below `folder`, which is that user's home."""
        quoted = json.dumps  # a JSON string is a TOML string
        (folder / ".ssh").mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / ".ssh" / "config").write_text(f"Include {self.ssh_config}\n")
        engine = self.deployment.engines[0]
        (folder / "readyroom.toml").write_text(
            f"default = {quoted(self.target)}\n\n[deployments.{self.target}]\napi = {quoted(self.api_url)}\n\n"
            f"[[deployments.{self.target}.engines]]\nhost = {quoted(engine.host)}\nlog = {quoted(engine.log)}\n"
        )
        own = {
            f"XDG_{kind}_HOME": str(folder / name) for kind, name in (("CONFIG", "config"), ("STATE", "state"), ("DATA", "data"))
        }
        return {**os.environ, **own, "HOME": str(folder), "READYROOM_CONFIG": str(folder / "readyroom.toml")}

    async def do(self, name: str, **arguments: Any) -> Any:
        """Ask the host to do something: "drop_link", "kill_engine", "rotate_log", "set_gpu" … (see `host.SimulatedHost.do`).

        Raises SimulatorFailed.
        """
        async with self._turn:
            self._asked += 1
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": self._asked, "do": name, **arguments}).encode() + b"\n")
            answer = await self._read()
        if "error" in answer:
            raise SimulatorFailed(f"{name}: {answer['error']}")
        return answer["value"]

    async def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            last = self.said.rpartition("\n")[2]
            raise SimulatorFailed(f"the simulated host ended with status {status}" + (f": {last}" if last else ""))
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    async def _open(self) -> None:
        assert self._process.stdin is not None
        specification = {"scenario": self.scenario, "speed": self.speed}
        self._process.stdin.write(msgspec.json.encode(specification) + b"\n")
        answer = await self._read()
        if "failed" in answer:
            raise SimulatorFailed(answer["failed"])
        self._facts = answer["ready"]

    async def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_S):  # wait_for may swallow a cancellation (Python 3.11)
                await self._process.wait()
        except TimeoutError:
            pass
        finally:  # cancelled meanwhile, too: a process that outlives the event loop is one that nobody waits for
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            with self._errors:
                self._said = self.said
            shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def simulated_host(scenario: str | Scenario = "start", *, speed: float = 1.0, **changes: Any) -> AsyncIterator[Simulation]:
    """Run a simulated host in a process of its own, ended with everything in it at the end of the block.

    `speed` is how many times faster than in reality everything before ready happens; `changes` are fields of the scenario to
    replace. Raises KeyError for an unknown scenario, SimulatorFailed when it can't start.
    """
    chosen = SCENARIOS[scenario] if isinstance(scenario, str) else scenario
    chosen = replace(chosen, **changes)
    directory = Path(tempfile.mkdtemp(prefix="readyroom-host-"))
    errors = (directory / "stderr").open("w+b")
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tui.simulator.simulated_host", str(directory)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,
        )
    except BaseException:
        errors.close()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    simulation = Simulation(chosen, speed, directory, process, errors)
    try:
        async with asyncio.timeout(_READY_S):
            await simulation._open()
        yield simulation
    finally:
        await simulation._close()

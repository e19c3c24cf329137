"""What runs the simulated `vllm serve`, as a unit with Restart=on-failure would, and hears what it does."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from tui.simulator.engine_processes import alive, argument_length, die_with_parent
from tui.simulator.scenarios import Scenario
from tui.simulator.sim_gpus import Load
from tui.simulator.vllm_serve import Serving, command_line

_RESTART_S = 3.0
SERVERS_ENVIRONMENT = {"VLLM_ENGINE_READY_TIMEOUT_S": "3600"}
"""What whoever starts a model of 547 GB has learnt to set: the default ends its start after ten minutes."""


class Supervisor:
    """`load` is what the server does to the GPUs, by its latest report."""

    def __init__(self, scenario: Scenario, speed: float, *, directory: Path, home: Path, log_path: Path, port: int) -> None:
        """`directory` is where the server's order is written, `port` its API's."""
        self._scenario = scenario
        self._speed = speed
        self._order = directory / "serve.json"
        self._home = home
        self._log_path = log_path
        self._port = port
        self._leash = os.pipe()
        """Closed here, it ends every process of the server."""
        self._work: asyncio.Task[None] | None = None
        self.load = Load()
        self.ready = asyncio.Event()
        """Set when the server was ready for the first time."""
        self.server: asyncio.subprocess.Process | None = None
        self.engine = 0
        """The engine's process, 0 before there is one."""
        self.attempt = 0

    @property
    def pid(self) -> int:
        """The server's process, 0 where none runs."""
        return self.server.pid if self.server is not None and self.server.returncode is None else 0

    def start(self) -> None:
        self._work = asyncio.ensure_future(self._supervise())

    async def close(self) -> None:
        await self._stop_work()
        for end in self._leash:
            os.close(end)
        if self.server is not None and self.server.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.server.kill()
            await self.server.wait()

    async def restart(self) -> None:
        """Stops the server if it runs, and starts it anew, logging to the same file."""
        await self._stop_work()
        if self.server is not None and self.server.returncode is None:
            self.server.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await self.server.wait()
            if self.server.returncode is None:
                self.server.kill()
                await self.server.wait()
        if self.engine and alive(self.engine):
            os.kill(self.engine, signal.SIGKILL)
        self.load = Load()
        self.attempt = max(self.attempt, self._scenario.crashes) + 1
        self.start()

    async def _stop_work(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)  # it may be starting the server right now

    async def _supervise(self) -> None:
        """Runs the server, and again after each crash that the scenario has planned."""
        while True:
            await self._serve()
            if self.attempt >= self._scenario.crashes:
                return
            self.attempt += 1
            await asyncio.sleep(max(0.3, _RESTART_S / self._speed))

    async def _serve(self) -> None:
        """Runs it once, from its start to its end."""
        reports = asyncio.StreamReader()
        told, tell = os.pipe()
        with contextlib.ExitStack() as stack:
            with contextlib.ExitStack() as given:  # what the server has of its own once it runs
                given.callback(os.close, tell)
                transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                    lambda: asyncio.StreamReaderProtocol(reports), os.fdopen(told, "rb")
                )
                stack.callback(transport.close)
                log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                given.callback(os.close, log)
                self.server = await asyncio.create_subprocess_exec(
                    *self._command(tell),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(self._leash[0], tell),
                    preexec_fn=die_with_parent,
                    start_new_session=True,
                    cwd=self._home,
                    env={**os.environ, **SERVERS_ENVIRONMENT, "PYTHONPATH": str(Path(__file__).parents[2])},
                )
            while line := await reports.readline():
                self._reported(json.loads(line))
            await self.server.wait()

    def _command(self, tell: int) -> list[str]:
        """Writes the server's order; `tell` is where it reports to."""
        command = command_line(self._scenario, self._port)
        serving = Serving(
            scenario=self._scenario,
            port=self._port,
            speed=self._speed,
            attempt=self.attempt,
            leash=self._leash[0],
            report=tell,
            command=command,
        )
        self._order.write_bytes(msgspec.json.encode(serving))
        arguments = [sys.executable, "-m", "tui.simulator.vllm_serve", str(self._order), ""]
        # The title that the server gives itself is written over its arguments: they must be exactly as long.
        arguments[-1] = "-" * max(0, argument_length(command) - argument_length(arguments))
        return arguments

    def _reported(self, report: dict[str, Any]) -> None:
        self.load.memory_mib = report["memory_mib"]
        self.load.weights_share = report["weights_share"]
        self.load.busy = report["busy"]
        self.load.running = report["running"]
        self.engine = report["engine"]
        self.load.workers = tuple(report["workers"]) or ((self.engine,) if self.engine else ())
        if report["phase"] == "ready":
            self.ready.set()

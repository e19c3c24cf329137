"""The simulated `vllm serve`, and the supervisor that runs it as a unit with Restart=on-failure would."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from tui.simulator import failure_logs
from tui.simulator.endpoint import SimulatedEndpoint
from tui.simulator.engine_processes import EngineProcesses, alive, argument_length, die_with_parent, set_title, start_engine
from tui.simulator.failure_logs import flood, hostile_lines
from tui.simulator.scenarios import Scenario
from tui.simulator.server_log import PlayedClock, ServerLog
from tui.simulator.simulated_machine import EngineLoad
from tui.simulator.startup import Start, StartFailed, StartProgress

_UP_SINCE_S = 1260.0
_STATS_S = 10.0
_SICK_S = 3.0
"""After its engine's death the API server says 503 for about this long, then exits."""


@dataclass(frozen=True, slots=True)
class ServeOrder:
    """What the host tells the server when it starts it."""

    scenario: Scenario
    port: int
    speed: float
    attempt: int
    leash: int
    report: int
    command: list[str]


def command_line(scenario: Scenario, port: int) -> list[str]:
    """Return how somebody would have started this server."""
    model = scenario.model
    tensor = ["--tensor-parallel-size", str(scenario.machine.gpus)] if scenario.machine.gpus > 1 else []
    key = ["--api-key", "********"] if scenario.api_key else []
    return [
        *("/opt/vllm/bin/python3", "/opt/vllm/bin/vllm", "serve", model.path, "--served-model-name", model.name),
        *("--host", "127.0.0.1", "--port", str(port), *tensor, "--max-model-len", str(model.max_model_len)),
        *("--gpu-memory-utilization", "0.97", "--kv-cache-dtype", "fp8", *key),
    ]


class _Server:
    def __init__(self, serving: ServeOrder) -> None:
        self._serving = serving
        self._pid = os.getpid()
        self._log = ServerLog()
        self._engine = EngineProcesses(0, ())
        self._progress = StartProgress()
        self._endpoint = SimulatedEndpoint(serving.scenario, self._access)
        self._stopping = asyncio.Event()
        self._engine_gone = asyncio.Event()

    @property
    def _api(self) -> str:
        return f"APIServer pid={self._pid}"

    async def run(self) -> int:
        """Serve until the end; return the exit status."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: None)  # while loading, vLLM loses it
        loop.add_signal_handler(signal.SIGINT, self._stopping.set)
        scenario = self._serving.scenario
        past = scenario.already_up and self._serving.attempt == 0
        ago = scenario.start_s + _UP_SINCE_S if past else scenario.under_way_s if self._serving.attempt == 0 else 0.0
        clock = PlayedClock(self._serving.speed, ago)
        self._log.wall = clock.wall
        start = Start(scenario, self._log, self._serving.port, self._pid, clock, self._fork, self._report, self._serving.attempt)
        if not past:
            if scenario.log_lines_per_s:
                flood(self._serving.leash, scenario.log_lines_per_s)
            if scenario.garbage:
                self._hostile = asyncio.ensure_future(hostile_lines(self._log))
        playing = asyncio.ensure_future(start.run())
        stopped = asyncio.ensure_future(self._stopping.wait())
        gone = asyncio.ensure_future(self._engine_gone.wait())
        try:
            await asyncio.wait({playing, stopped, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                playing.cancel()
                if gone.done():
                    failure_logs.engine_killed(start)
                self._end_engine()
                return 1 if gone.done() else 130
            await playing
        except StartFailed as failed:
            self._end_engine()
            return failed.status
        finally:
            stopped.cancel()
            gone.cancel()
        loop.add_signal_handler(signal.SIGTERM, self._stopping.set)
        batching = asyncio.ensure_future(self._endpoint.engine.run())
        await self._endpoint.open(self._serving.port)
        start.open_api()
        self._log.wall = time.time
        statistics = asyncio.ensure_future(self._statistics())
        try:
            return await self._serve()
        finally:
            batching.cancel()
            statistics.cancel()
            self._endpoint.close()

    async def _serve(self) -> int:
        waits = [asyncio.ensure_future(self._stopping.wait()), asyncio.ensure_future(self._engine_gone.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._engine_gone.is_set():
            streaming = self._endpoint.engine.running > 0
            self._endpoint.engine.die()
            failure_logs.engine_died(self._log, self._api, streaming=streaming)
            await asyncio.sleep(_SICK_S)
        else:
            await self._endpoint.engine.drained()
        self._endpoint.close()
        self._end_engine()
        failure_logs.ordered_stop(self._log, self._api, self._pid)
        return 0

    # -- the engine's processes --------------------------------------------------------------------------------------------------

    def _fork(self) -> EngineProcesses:
        self._engine = start_engine(self._serving.leash, self._serving.scenario.machine.gpus)
        gone = os.pidfd_open(self._engine.engine)

        def ended() -> None:
            asyncio.get_running_loop().remove_reader(gone)
            os.close(gone)
            os.waitpid(self._engine.engine, 0)
            self._engine_gone.set()

        asyncio.get_running_loop().add_reader(gone, ended)
        return self._engine

    def _end_engine(self) -> None:
        if self._engine.engine and not self._engine_gone.is_set():
            os.kill(self._engine.engine, signal.SIGKILL)

    # -- what it tells -----------------------------------------------------------------------------------------------------------

    def _report(self, progress: StartProgress) -> None:
        self._progress = progress
        self._send()

    def _send(self) -> None:
        engine = self._endpoint.engine
        report = {
            **asdict(self._progress),
            "running": engine.running,
            "engine": self._engine.engine,
            "workers": self._engine.workers,
        }
        try:
            os.write(self._serving.report, json.dumps(report).encode() + b"\n")
        except (BrokenPipeError, BlockingIOError):
            return

    def _access(self, client: str, request: str, status: int) -> None:
        self._log.line(f'({self._api}) INFO:     {client} - "{request}" {status} {HTTPStatus(status).phrase}')

    async def _statistics(self) -> None:
        """Log a line every 10 s while there is traffic, and one of zeros after it; the GPUs' load is told four times a second."""
        metrics, engine = self._endpoint.metrics, self._endpoint.engine
        due, prompt, generated, silent = time.monotonic() + _STATS_S, 0, 0, True
        told = -1
        while True:
            await asyncio.sleep(0.25)
            if engine.running != told:
                told = engine.running
                self._send()
            if time.monotonic() < due:
                continue
            due += _STATS_S
            new_prompt, new_generated = metrics.prompt_tokens - prompt, metrics.generation_tokens - generated
            prompt, generated = metrics.prompt_tokens, metrics.generation_tokens
            quiet = not (new_prompt or new_generated or engine.running)
            if quiet and silent:
                continue
            silent = quiet
            hits = metrics.hit / metrics.queried * 100 if metrics.queried else 0.0
            self._log.record(
                self._api,
                f"Engine 000: Avg prompt throughput: {new_prompt / _STATS_S:.1f} tokens/s, Avg generation throughput: "
                f"{new_generated / _STATS_S:.1f} tokens/s, Running: {engine.running} reqs, Waiting: {engine.waiting} reqs, "
                f"GPU KV cache usage: {engine.kv_share * 100:.1f}%, Prefix cache hit rate: {hits:.1f}%",
                source="loggers.py:273",
            )


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        serving = msgspec.json.decode(file.read(), type=ServeOrder)
    set_title(serving.command, "vllm")
    os.set_blocking(serving.report, False)
    sys.exit(asyncio.run(_Server(serving).run()))


if __name__ == "__main__":
    main()


_RESTART_S = 3.0
SERVERS_ENVIRONMENT = {"VLLM_ENGINE_READY_TIMEOUT_S": "3600"}
"""What whoever starts a model of 547 GB has learnt to set: the default ends its start after ten minutes."""


class ServerSupervisor:
    """`load` is what the server does to the GPUs, by its latest report."""

    def __init__(self, scenario: Scenario, speed: float, *, directory: Path, home: Path, log_path: Path, port: int) -> None:
        """Set up the supervisor. The server's order is written to `directory`; `port` is its API's."""
        self._scenario = scenario
        self._speed = speed
        self._order = directory / "serve.json"
        self._home = home
        self._log_path = log_path
        self._port = port
        self._leash = os.pipe()
        """Closed here, it ends every process of the server."""
        self._work: asyncio.Task[None] | None = None
        self.load = EngineLoad()
        self.ready = asyncio.Event()
        """Set when the server was ready for the first time."""
        self.server: asyncio.subprocess.Process | None = None
        self.engine = 0
        """The engine's process, 0 before there is one."""
        self.attempt = 0

    @property
    def pid(self) -> int:
        """Return the server's process, 0 if none runs."""
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
        """Stop the server if it runs, and start it anew, logging to the same file."""
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
        self.load = EngineLoad()
        self.attempt = max(self.attempt, self._scenario.crashes) + 1
        self.start()

    async def _stop_work(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)  # it may be starting the server right now

    async def _supervise(self) -> None:
        """Run the server, and again after each crash that the scenario has planned."""
        while True:
            await self._serve()
            if self.attempt >= self._scenario.crashes:
                return
            self.attempt += 1
            await asyncio.sleep(max(0.3, _RESTART_S / self._speed))

    async def _serve(self) -> None:
        """Run it once, from its start to its end."""
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
        """Write the server's order; `tell` is the port that it reports to."""
        command = command_line(self._scenario, self._port)
        serving = ServeOrder(
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

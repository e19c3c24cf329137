"""The process that is the simulated host: SSH server, link, GPUs, and the supervisor of the simulated `vllm serve`.

Started with its directory on argv[1]; the first line of stdin is the specification, every later one a request of a test or of
the demo ({"id", "do", ...}), answered on stdout. When stdin ends, or the parent process does, the host ends with all that it
started and removes its directory.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import msgspec

from tui.simulator import simulated_machine
from tui.simulator.engine_processes import adopt_orphans, alive, die_with_parent, end_descendants
from tui.simulator.installed import Machinery, hide_python
from tui.simulator.scenarios import Scenario
from tui.simulator.simulated_machine import Counters, Gpus
from tui.simulator.ssh_server import ALIAS, Shell, SimulatedLink, listen, make_keys, write_client_files
from tui.simulator.vllm_serve import ServerSupervisor

_SAMPLE_S = 0.2


@dataclass(frozen=True, slots=True)
class Specification:
    scenario: Scenario
    speed: float = 1.0


class SimulatedHost:
    """`facts()` is what the parent is told once all listens."""

    def __init__(self, directory: Path, specification: Specification) -> None:
        self._directory = directory
        self._scenario = specification.scenario
        self._home = directory / "home"
        self.log_path = directory / "var" / "log" / "vllm" / "kimi.log"
        self._machinery = Machinery(directory, self._scenario)
        self._counters = Counters(directory / "proc", 0 if self._scenario.cached else self._scenario.model.size_bytes)
        self._gpus = Gpus(self._scenario.machine)
        self._foreign: asyncio.subprocess.Process | None = None
        self._logins: set[asyncssh.SSHServerConnection] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        self._frozen_once = False
        self.shell: Shell | None = None
        self.link = SimulatedLink()
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._reserved = _reserved_port()
        self.api_port = int(self._reserved.getsockname()[1])
        self._supervisor = ServerSupervisor(
            self._scenario,
            specification.speed,
            directory=directory / "server",
            home=self._home,
            log_path=self.log_path,
            port=self.api_port,
        )

    # -- life --------------------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        for folder in (self._home, self.log_path.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.log_path.touch()
        if self._counters.lay():
            simulated_machine.lay(self._directory / "hardware", self._scenario.machine)
        await asyncio.to_thread(self._machinery.build)
        if self._scenario.machine.foreign:
            self._foreign = await asyncio.create_subprocess_exec(
                *("/bin/sleep", "infinity"), preexec_fn=die_with_parent, start_new_session=True
            )
            self._gpus.foreign_pid = self._foreign.pid
        prefix = () if self._scenario.python else hide_python()
        self.shell = Shell(self._home, self._machinery.environment(self._home), prefix)
        host_key, authorized = make_keys(self._directory)
        self._acceptor = await listen(self._home, self.shell, self._logins, host_key, authorized)
        self.link.on_connect = self._connected
        await self.link.open(self._acceptor.get_port())
        write_client_files(self._directory, host_key, self.link.port)
        self._sample()
        self._tasks += [asyncio.ensure_future(self._sampling()), asyncio.ensure_future(self._when_ready())]
        if self._scenario.drop_every_s:
            self._tasks.append(asyncio.ensure_future(self._dropping(self._scenario.drop_every_s)))
        self._supervisor.start()
        if self._scenario.already_up:
            await self._supervisor.ready.wait()
            self._sample()  # with the memory of a server that is up

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.link.close()
        self._reserved.close()
        if self._acceptor is not None:
            self._acceptor.close()
        if self.shell is not None:
            await self.shell.end()
        logins = tuple(self._logins)
        for login in logins:
            login.abort()
        for login in logins:
            await login.wait_closed()
        await self._supervisor.close()
        if self._foreign is not None and self._foreign.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._foreign.kill()
            await self._foreign.wait()

    def facts(self) -> dict[str, Any]:
        return {
            "alias": ALIAS,
            "ssh_port": self.link.port,
            "api_port": self.api_port,
            "log_path": str(self.log_path),
            "ssh_config": str(self._directory / "client" / "config"),
            "known_hosts": str(self._directory / "client" / "known_hosts"),
            "identity": str(self._directory / "client" / "id_ed25519"),
            "gpus": self._machinery.how,
        }

    # -- what goes on ------------------------------------------------------------------------------------------------------------

    async def _when_ready(self) -> None:
        """Play what the scenario has happen once the server is ready for the first time."""
        await self._supervisor.ready.wait()
        if self._scenario.kill_engine_after_s is not None:
            await asyncio.sleep(self._scenario.kill_engine_after_s)
            await self.do("kill_engine", {})
        if self._scenario.machine.lost is not None:
            await asyncio.sleep(10.0)
            self._lose(self._scenario.machine.lost)
        began = time.monotonic()
        for event in self._scenario.machine.events:
            await asyncio.sleep(max(0.0, began + event.after_s - time.monotonic()))
            self._change(event.gpu, event.change)

    async def _sampling(self) -> None:
        while True:
            self._sample()
            await asyncio.sleep(_SAMPLE_S)

    def _sample(self) -> None:
        load = self._supervisor.load
        living = tuple(pid for pid in load.workers if alive(pid))
        if living != load.workers:
            load.workers = living
            load.running, load.busy = 0, 0.0
        self._counters.engine(load.workers)
        self._counters.update(load.weights_share, working=bool(load.running or load.busy))
        self._machinery.write(self._gpus.rows(load))

    def _lose(self, gpu: int) -> None:
        """Let the GPU fall off the bus, with the XID that the driver reports for it."""
        self._gpus.lost.add(gpu)
        self._machinery.xids.append((len(self._machinery.xids) + 1, gpu, 79))
        self._sample()

    def _change(self, gpu: int | None, fields: dict[str, Any]) -> None:
        """Something happens to a GPU, or to the driver as a whole."""
        if gpu is None:
            self._machinery.change(fields)
        else:
            self._gpus.change(gpu, fields)
        self._sample()

    async def _dropping(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self.link.cut()

    def _connected(self) -> None:
        if self._scenario.freeze_after_s is not None and not self._frozen_once:
            self._frozen_once = True
            self._tasks.append(asyncio.ensure_future(self._freezing(self._scenario.freeze_after_s, self._scenario.freeze_s)))

    async def _freezing(self, after_s: float, for_s: float) -> None:
        await asyncio.sleep(after_s)
        self.link.freeze()
        await asyncio.sleep(for_s)
        self.link.thaw()

    # -- requests ----------------------------------------------------------------------------------------------------------------

    async def do(self, name: str, asked: dict[str, Any]) -> Any:
        """Carry out a request. Raises ValueError for what is no request, or can't be done now."""
        match name:
            case "drop_link":
                self.link.cut()
            case "refuse_link":
                self.link.refusing = bool(asked.get("on", True))
                self.link.cut()
            case "freeze_link":
                self.link.freeze()
            case "thaw_link":
                self.link.thaw()
            case "delay_link":
                self.link.delay_s = float(asked["seconds"])
            case "kill_engine":
                self._signal(self._supervisor.engine, signal.SIGKILL)
            case "kill_worker":
                self._signal(self._supervisor.load.workers[int(asked.get("rank", 0))], signal.SIGKILL)
            case "kill_server":
                self._signal(self._supervisor.pid, signal.SIGKILL)
            case "stop_server":
                self._signal(self._supervisor.pid, signal.SIGTERM)
            case "restart_server":
                await self._supervisor.restart()
            case "rotate_log":
                self.log_path.rename(self.log_path.with_suffix(".log.1"))
                self.log_path.touch()
            case "truncate_log":
                os.truncate(self.log_path, 0)
            case "remove_log":
                self.log_path.unlink()
            case "write_log":
                with self.log_path.open("ab") as file:
                    file.write(str(asked["text"]).encode("utf-8", "surrogateescape"))
            case "set_gpu":
                self._change(int(asked["gpu"]), asked["fields"])
            case "set_driver":
                self._change(None, asked["fields"])
            case "lose_gpu":
                self._lose(int(asked["gpu"]))
            case "state":
                return self._state()
            case _:
                raise ValueError(f"there is no request {name!r}")
        return None

    def _signal(self, pid: int, number: int) -> None:
        if pid <= 0 or not alive(pid):
            raise ValueError("that process isn't running")
        os.kill(pid, number)

    def _state(self) -> dict[str, Any]:
        server = self._supervisor.server
        return {
            "server": self._supervisor.pid or None,
            "exit_status": server.returncode if server is not None else None,
            "engine": self._supervisor.engine,
            "workers": self._supervisor.load.workers,
            "memory_mib": self._supervisor.load.memory_mib,
            "logins": len(self._logins),
            "attempt": self._supervisor.attempt,
            "time": time.time(),
        }


def _reserved_port() -> socket.socket:
    """Return a free port, bound but not listened at: the server may take it again and again, and nobody else is given it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


async def _run(directory: Path) -> None:
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=2**20)
    stdin, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin.buffer)
    with contextlib.closing(stdin):
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, ended.set)
        specification = msgspec.json.decode(await requests.readline(), type=Specification)
        host = SimulatedHost(directory, specification)
        answering = asyncio.ensure_future(_answer(host, requests))
        ending = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            answering.cancel()
            ending.cancel()
            await asyncio.gather(answering, ending, return_exceptions=True)
            await host.close()


async def _answer(host: SimulatedHost, requests: asyncio.StreamReader) -> None:
    try:
        await host.open()
    except (OSError, RuntimeError) as error:
        _tell({"failed": str(error)})
        return
    _tell({"ready": host.facts()})
    while line := await requests.readline():
        asked = json.loads(line)
        try:
            _tell({"id": asked["id"], "value": await host.do(asked["do"], asked)})
        except (ValueError, KeyError, OSError, IndexError) as error:
            _tell({"id": asked.get("id"), "error": str(error)})


def _tell(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def main() -> None:
    directory = Path(sys.argv[1])
    adopt_orphans()
    try:
        asyncio.run(_run(directory))
    finally:
        end_descendants()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()

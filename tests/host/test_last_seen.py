"""A server that ended while nobody watched: its log is read where it was last seen, with no configuration; real processes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from needs import allowed
from test_attach import ALONE, HERE, Box, box  # noqa: F401
from test_locked_record import held
from test_session import Cuttable
from test_simulated_host import stopped

from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, status_of
from tui.core.logs.load_state import Phase
from tui.core.server_end import LastServer
from tui.host.base import Host, Unreachable
from tui.host.open import open_host
from tui.record.store import RunStore
from tui.services.deployment_watch import Session
from tui.services.server_choice import LastSeen, Wanted
from tui.services.server_search import FoundServer
from tui.settings import Deployment, EngineSettings, Settings
from tui.simulator.simulation import Simulation, simulated_host

LOGS = Path(__file__).parent.parent / "data" / "logs" / "servers"
KV = LOGS / "09-cpu-032-kv-too-small.log"

# Each `r` is one run of the command: its exit code and what it said, in files by its number.
PRELUDE = """
ip link set lo up
n=0
r() { ( cd '{here}' && '{python}' -m tui "$@" ) > out.$n 2> err.$n; echo $? > code.$n; n=$((n + 1)); }
serve() { log=$1; shift; '{program}' serve /models/m --served-model-name m --port 8123 "$@" > $log 2>&1 & pid=$!; until [ -s $log ]; do sleep 0.1; done; }
end() { kill -9 $pid; wait $pid 2>/dev/null; true; }
"""  # noqa: E501


class Said:
    """What the runs of the command in a script said, in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.codes = [int((folder / f"code.{number}").read_text()) for number in range(len(list(folder.glob("code.*"))))]

    def out(self, number: int) -> str:
        return (self._folder / f"out.{number}").read_text() + (self._folder / f"err.{number}").read_text()

    def document(self, number: int) -> dict[str, Any]:
        document = json.loads((self._folder / f"out.{number}").read_text())
        assert isinstance(document, dict)
        return document


def played(box: Box, script: str, **more: str) -> Said:  # noqa: F811
    """Run a script as if on its own machine, with processes and ports of its own."""
    allowed(subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0, "namespaces can't be made here (unshare)")
    prelude = PRELUDE.replace("{here}", str(HERE)).replace("{python}", sys.executable).replace("{program}", str(box.program))
    done = subprocess.run(
        [*ALONE, "sh", "-c", prelude + script], cwd=box.folder, env={**box.env, **more}, capture_output=True, timeout=110
    )
    assert done.returncode == 0, done.stderr.decode()
    return Said(box.folder)


@pytest.mark.parametrize(
    ("log", "code", "status", "says"),
    [
        (LOGS / "26-kimi-k25-8xh200-ep8-ready.log", 4, "failed", "the server's process is gone and its log does not say why"),
        (KV, 4, "failed", "KV cache"),
    ],
)
def test_how_it_ended_is_told_after_its_end(box: Box, log: Path, code: int, status: str, says: str) -> None:  # noqa: F811
    said = played(
        box,
        "serve a.log; r status local --json; end; r status local --json; r status local; r status local --port 8123 --json\n"
        "r status local --port 9000 --json; r doctor local --json; r wait local --grace 1s",
        RECORDED=str(log),
    )
    before, after, on_port, elsewhere = (said.document(number) for number in (0, 1, 3, 4))
    assert (before["log"]["source"], before["log"]["note"]) == (str(box.folder / "a.log"), None)
    assert (said.codes[1], after["status"], after["log"]["source"]) == (code, status, before["log"]["source"])
    assert f"of the last server seen here, pid {before['server_pid']}, 20" in after["log"]["note"]
    assert says in said.out(2).splitlines()[0]
    assert "the last server seen here" in said.out(2)
    assert on_port["status"] == status
    assert (elsewhere["status"], elsewhere["log"]["source"]) == ("waiting", "auto")
    (check,) = [entry for entry in said.document(5)["checks"] if entry["name"] == "log"]
    assert (check["grade"], "a.log, of the last server seen here" in check["says"]) == ("warn", True)
    assert (says if status == "failed" and "KV" in says else "does not say why") in check["says"]
    assert said.codes[6] == 4
    assert "the last server seen here" in said.out(6)


def test_where_nothing_is_left_of_it_one_is_waited_for(box: Box) -> None:  # noqa: F811
    said = played(
        box,
        "serve a.log; r status local; end; rm a.log; r status local --json; r doctor local --json\n"
        "serve b.log; rm b.log; r status local; end; r status local --json\n"  # a deleted log goes with the process
        "serve c.log; r doctor local; end; r status local --json",
    )
    gone, deleted, seen_by_doctor = (said.document(number) for number in (1, 4, 6))
    assert (said.codes[1], gone["status"], gone["log"]["source"]) == (3, "waiting", "auto")
    assert gone["log"]["problem"].startswith("no server process on this host yet: waiting for one; ")
    assert "a.log, the log of the last server seen here" in gone["log"]["problem"]
    assert gone["log"]["problem"].endswith("no longer exists")
    (check,) = [entry for entry in said.document(2)["checks"] if entry["name"] == "log"]
    assert (check["grade"], "no longer exists" in check["says"]) == ("skipped", True)
    assert deleted["status"] == "waiting"
    assert "wrote to something that can no longer be read" in deleted["log"]["problem"]
    assert (seen_by_doctor["status"], seen_by_doctor["log"]["source"]) == ("failed", str(box.folder / "c.log"))


@pytest.mark.parametrize("log", ["a.log", "b.log"])
def test_a_wait_that_begins_before_the_next_server(box: Box, log: str) -> None:  # noqa: F811
    """The old crash is the baseline, even if the new server writes into the same file."""
    said = played(
        box,
        f"RECORDED='{KV}' serve a.log; r status local; end; r status local\n"
        "( cd '" + str(HERE) + "' && exec '" + sys.executable + "' -m tui wait local --new --timeout 60s ) > wait.out 2>&1 & w=$!\n"
        "until grep -q 'the last one has failed' wait.out; do sleep 0.1; done\n"
        f"serve {log}; wait $w; echo $? > wait.code; end",
    )
    assert said.codes[1] == 4
    text = (box.folder / "wait.out").read_text()
    assert (box.folder / "wait.code").read_text() == "0\n", text
    assert "local: ready" in text


# -- one that is watched -----------------------------------------------------------------------------------------------------------


async def until(session: Session, predicate: Callable[[DeploymentState], object]) -> DeploymentState:
    try:
        async with asyncio.timeout(40):
            async for state in session.states():
                if predicate(state):
                    return state
    except TimeoutError:
        raise AssertionError(f"never happened; the last state: {session.state}") from None
    raise AssertionError("the session ended")


def session_on(sim: Simulation, host: Host, record: RunStore | None) -> Session:
    """Open a session on one port only: other servers may run on this machine."""
    port = int(sim.api_url.rpartition(":")[2])
    return Session(
        sim.target, sim.target, Deployment(engines=(EngineSettings(host=sim.target),)), Settings(), host, record, port=port
    )


@pytest.mark.parametrize("request_", ["kill_server", "stop_server"])
async def test_over_ssh_until_a_new_one_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: str) -> None:
    async with simulated_host("fast", already_up=True, speed=100) as sim:
        monkeypatch.setenv("HOME", sim.user(tmp_path)["HOME"])
        record = RunStore(tmp_path / "record.sqlite")
        async with session_on(sim, open_host(sim.target), record) as session:
            state = await until(session, lambda s: s.api.ready and s.load and s.load.ready and s.server_pid)
            assert state.log.of is None
            pid = state.server_pid
        await sim.do(request_)
        if request_ == "kill_server":
            await sim.do("kill_engine")
        await stopped(sim)
        async with session_on(sim, open_host(sim.target), record) as session:
            ended = {"kill_server": Status.FAILED, "stop_server": Status.STOPPED}[request_]
            state = await until(session, lambda s: s.log.of and session.settled and status_of(s) == ended)
            assert state.log.source == sim.log_path
            assert f"the last server seen here, pid {pid}," in (state.log.of or "")
            assert state.load is not None
            assert (state.load.failure is not None) == (ended == Status.FAILED)
            await sim.do("restart_server")
            state = await until(session, lambda s: s.log.of is None and s.server_pid and s.load and s.load.lines)
            assert state.server_pid != pid
            await until(session, lambda s: status_of(s) == Status.READY)
        record.close()


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        ("file:{folder}/there.log", Status.FAILED, None),
        ("file:{folder}/gone.log", Status.WAITING, "gone.log, the log of the last server seen here"),
        ("docker:no-such-container", Status.WAITING, "can't be read: docker:no-such-container"),
        (None, Status.WAITING, "wrote to something that can no longer be read"),
    ],
)
@pytest.mark.parametrize("without_python", [False, True])
async def test_a_link_that_is_lost_meanwhile(
    tmp_path: Path, source: str | None, status: str, says: str | None, without_python: bool, unused_tcp_port: int
) -> None:
    (tmp_path / "there.log").write_text(KV.read_text())
    record = RunStore(tmp_path / "record.sqlite")
    last = LastServer(1, 1e9, source and source.format(folder=tmp_path), boot="an earlier one", port=unused_tcp_port)
    record.save_last_server("box", "local", unused_tcp_port, last)
    host = Cuttable()
    host.without_python = without_python
    deployment = Deployment(engines=(EngineSettings(host="local"),))
    async with Session("box", "local", deployment, Settings(), host, record, port=unused_tcp_port) as session:

        def told(state: DeploymentState) -> bool:
            return session.settled and status_of(state) == status and (says is None or says in (state.log.problem or ""))

        state = await until(session, told)
        assert session.api.base_url == f"http://127.0.0.1:{unused_tcp_port}"
        if status == Status.FAILED:
            assert state.load is not None
            assert state.load.phase is Phase.FAILED
            assert ("restarted or replaced since" in (state.log.note or "")) != without_python
            assert ("a shell reads it" in (state.log.note or "")) == without_python
        lines = [line.text for line in state.log.lines]
        await host.cut(Unreachable("the cable was cut", "plug it in"))
        await until(session, lambda s: s.connection.link is LinkState.LOST)
        session.retry()
        state = await until(session, lambda s: s.connection.online and told(s) and (s.machine or without_python))
        assert [line.text for line in state.log.lines] == lines
    record.close()


async def test_a_record_that_is_held_stops_nobody(tmp_path: Path, unused_tcp_port: int) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    with held(tmp_path / "record.sqlite"):
        deployment = Deployment(engines=(EngineSettings(host="local"),))
        async with Session("box", "local", deployment, Settings(), Cuttable(), record, port=unused_tcp_port) as session:
            session.choice.last.see(FoundServer(7, "vllm", source="file:/srv/vllm.log"))
            await until(session, lambda s: s.log.source and session.settled)
            assert session.choice.last.server is not None
    record.close()


# -- what is remembered ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "source"),
    [
        ([{"source": "file:/a.log"}], "file:/a.log"),
        ([{"source": "file:/a.log"}, {"source": None}], "file:/a.log"),  # it is ending: its output is closed already
        ([{"source": "file:/a.log"}, {"source": "file:/proc/7/fd/1"}], None),  # deleted meanwhile: it goes with the process
        ([{"source": "file:/a.log"}, {"source": None, "pid": 8}], None),
        ([{"source": None}, {"source": "tmux:%3"}], "tmux:%3"),
    ],
)
async def test_which_source_is_kept(tmp_path: Path, seen: list[Mapping[str, Any]], source: str | None) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    last = LastSeen("box", "local", Wanted(), record)
    for facts in seen:
        last.see(FoundServer(**{"pid": 7, "engine": "vllm", **facts}))
        await last.keep()
    kept = record.last_server("box", "local", None)
    assert kept is not None
    assert kept.source == source
    record.close()


async def test_a_log_that_is_configured_is_not_remembered(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    last = LastSeen("box", "local", Wanted(log="file:/a.log"), record)
    last.see(FoundServer(7, "vllm", source="file:/a.log"))
    await last.keep(leaving=True)
    assert record.last_server("box", "local", None) is None
    record.close()


@pytest.mark.parametrize("named", ["local", "kimi"])
def test_another_server_does_not_take_the_place_of_one_that_was_killed(box: Box, named: str) -> None:  # noqa: F811
    (box.folder / "config.toml").write_text('[deployments.kimi]\n[[deployments.kimi.engines]]\nhost = "local"\n')
    other = "'{program}' serve /models/o --served-model-name o --port 8124 > o.log 2>&1 & until [ -s o.log ]; do sleep 0.1; done; "
    said = played(
        box,
        f"serve a.log; r status {named} --json; {other.replace('{program}', str(box.program))}"
        f"r wait {named} --port 8123 --json; r status {named} --port 8123 --json; end; r status {named} --port 8123 --json;"
        f"r status {named} --port 8124 --json; serve a.log; r status {named} --port 8123 --json",
        READYROOM_CONFIG=str(box.folder / "config.toml"),
    )
    assert said.codes == [0, 0, 0, 4, 0, 0]
    after, other_one, again = (said.document(number) for number in (3, 4, 5))
    assert (after["status"], after["server_pid"]) == ("failed", None)
    assert "another server runs on port 8124" in after["conflict"]
    assert other_one["api"]["models"][0]["id"] == "o"
    assert again["api"]["models"][0]["id"] == "m"


def test_what_runs_beside_a_direct_api_is_not_its_server(box: Box) -> None:  # noqa: F811
    (box.folder / "config.toml").write_text('[deployments.far]\napi = "http://192.0.2.1:8123"\ndirect = true\n')
    said = played(box, "serve a.log; r status far --json; end", READYROOM_CONFIG=str(box.folder / "config.toml"))
    document = said.document(0)
    assert (document["load"], document["server_pid"], document["api"]["version"]) == (None, None, None)
    assert document["status"] != "ready"

"""The server that was last seen: what the record keeps of it, in which words it is told, and what a wait makes of its log."""

import sqlite3
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tui.cli.status import status_lines
from tui.cli.wait import where
from tui.core.api_status import ApiStatus, Reach, ServedModel
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState, LogTail
from tui.core.deployment_status import Status, status_of
from tui.core.logs.load_state import Failure, LoadState, Phase, SignsOfLife
from tui.core.server_end import LastServer, how_it_ended
from tui.core.wait_rules import Waiting, WaitOutcome, WaitRules
from tui.record.store import RunStore

NOON = time.mktime((2026, 11, 30, 12, 0, 0, 0, 0, -1))
LAST = LastServer(4711, NOON, "file:/srv/vllm.log", boot="b1", host="127.0.0.1", port=8123)
SEEN = "the last server seen here, pid 4711, 2026-11-30 12:00"
FAILED = LoadState(phase=Phase.FAILED, lines=20, failure=Failure("cuda_oom", Phase.LOADING, "CUDA out of memory"))
LOADING = LoadState(phase=Phase.LOADING, lines=10)
READY = LoadState(phase=Phase.READY, ready=True, was_ready=True, lines=20)
RECALLED = LogTail(source="/srv/vllm.log", note=f"of {SEEN}", of=f"of {SEEN}")
NONE_RUNS = DeploymentState(
    "gpu-box",
    "gpu-box",
    connection=ConnectionState(LinkState.ONLINE),
    api=ApiStatus(Reach.CLOSED),
    signs=SignsOfLife(process_alive=False),
    log=RECALLED,
)


# -- the record --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "asked", "found"),
    [
        ([("box", None, LAST)], ("box", "box", None), 4711),
        ([("box", None, LAST)], ("box", "box", 8123), 4711),  # watched unasked, and it was the one on that port
        ([("box", None, LAST)], ("box", "box", 9000), None),
        ([("box", 8123, LAST)], ("box", "box", None), None),  # one of several was named: none is guessed
        ([("box", 8123, LAST), ("box", 9000, replace(LAST, pid=5, port=9000))], ("box", "box", 9000), 5),
        ([("box", None, LAST), ("box", None, replace(LAST, pid=6, seen_at=NOON + 1))], ("box", "box", None), 6),
        ([("box", None, LAST), ("box", 8123, replace(LAST, pid=7, seen_at=NOON + 1))], ("box", "box", 8123), 7),
        ([("box", None, LAST)], ("kimi", "box", None), None),
        ([("box", None, LAST)], ("box", "other-box", None), None),  # the deployment was moved to another host
        ([], ("box", "box", None), None),
    ],
)
def test_the_record_knows_the_one_last_watched(
    tmp_path: Path,
    kept: list[tuple[str, int | None, LastServer]],
    asked: tuple[str, str, int | None],
    found: int | None,
) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    for name, port, server in kept:
        record.save_last_server(name, "box", port, server)
    record.close()
    last = RunStore(tmp_path / "record.sqlite").last_server(*asked)
    assert (last.pid if last is not None else None) == found


def test_a_record_of_before_and_one_that_makes_no_sense(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    assert record.runs() == ()
    assert record.last_server("box", "box", None) is None  # its table is made when it is first written
    record.save_last_server("box", "box", None, LAST)
    assert record.last_server("box", "box", None) == LAST
    record.close()
    db = sqlite3.connect(tmp_path / "record.sqlite")
    with db:
        db.execute('UPDATE last_server SET document = \'{"pid": "x"}\'')
    db.close()
    assert RunStore(tmp_path / "record.sqlite").last_server("box", "box", None) is None


# -- words -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "boot", "says"),
    [
        (LAST, "b1", f"of {SEEN}"),
        (LAST, None, f"of {SEEN}"),
        (replace(LAST, boot=None), "b2", f"of {SEEN}"),
        (LAST, "b2", f"of {SEEN}; the host was restarted or replaced since"),
    ],
)
def test_whose_log_it_is(last: LastServer, boot: str | None, says: str) -> None:
    assert last.of(boot) == says


@pytest.mark.parametrize(
    ("source", "why", "says"),
    [
        ("file:/srv/vllm.log", "there is no such file yet; waiting for it", f"/srv/vllm.log, the log of {SEEN}, no longer exists"),
        ("docker:vllm", "No such container: vllm", f"the log of {SEEN}, can't be read: docker:vllm: No such container: vllm"),
        (None, None, f"{SEEN}, wrote to something that can no longer be read"),
    ],
)
def test_why_there_is_nothing_to_read(source: str | None, why: str | None, says: str) -> None:
    assert replace(LAST, source=source).unread(why) == says


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (FAILED, "it failed: CUDA out of memory"),
        (LoadState(phase=Phase.STOPPED, lines=20), "it was stopped cleanly"),
        (LOADING, "it ends at loading, and does not say why"),
        (LoadState(), "it is empty"),
    ],
)
def test_how_it_ended(load: LoadState, says: str) -> None:
    assert how_it_ended(load) == says


def test_status_and_screen_say_the_same() -> None:
    failed = list(status_lines(replace(NONE_RUNS, load=FAILED)))
    assert failed[0] == "gpu-box: FAILED: CUDA out of memory"
    assert f"  log   /srv/vllm.log  (of {SEEN})" in failed
    gone = replace(NONE_RUNS, load=READY)
    assert next(status_lines(gone)) == "gpu-box: FAILED: the server's process is gone and its log does not say why"
    assert status_of(gone) == status_of(replace(NONE_RUNS, load=FAILED)) == Status.FAILED
    assert where(gone) == "waiting for a server to start; the last one has failed"


# -- waiting -----------------------------------------------------------------------------------------------------------------------


def test_an_old_crash_is_the_baseline_of_a_wait() -> None:
    wait = Waiting(WaitRules(grace_s=60), 0.0)
    assert wait.look(replace(NONE_RUNS, load=FAILED), 0, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(NONE_RUNS, load=FAILED), 59, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(NONE_RUNS, load=FAILED), 61, True) is WaitOutcome.FAILED
    assert wait.why == f"CUDA out of memory (the log is of {SEEN})"


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("old", [FAILED, READY, LOADING])
def test_a_server_that_comes_while_an_old_log_is_read(old: LoadState, new: bool) -> None:
    """It may write into the same file, which is then read anew: what stands there of the old one is no failure of the new one."""
    wait = Waiting(WaitRules(grace_s=60, new=new), 0.0)
    runs = replace(NONE_RUNS, server_pid=7, signs=SignsOfLife(process_alive=True), log=LogTail(source="/srv/vllm.log"))
    assert wait.look(replace(NONE_RUNS, load=old), 0, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(runs, load=LoadState()), 30, False) is WaitOutcome.GOES_ON
    assert wait.look(replace(runs, load=replace(old, ready=False)), 500, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(runs, load=LOADING), 501, True) is WaitOutcome.GOES_ON
    up = ApiStatus(Reach.UP, 200, (ServedModel("kimi"),))
    assert wait.look(replace(runs, load=READY, api=up), 502, True) is WaitOutcome.ANSWERS

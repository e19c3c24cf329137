"""The record: every load, smoke run and benchmark of every deployment, and the server last seen on each, in one SQLite file.

A file that is corrupt is set aside (renamed, never deleted) and a new one begun; if the state directory can't be written, the
record lives in memory and `problem` says so.
"""

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import to_builtins

from tui.core.gpu import GIB_MIB
from tui.core.logs.load_state import LoadState, PastLoad, Phase, ServerStart
from tui.core.presentation import about, clock
from tui.core.server_end import LastServer

if TYPE_CHECKING:
    from tui.core.bench_result import Result
    from tui.core.smoke_prompts import SmokeRun

MIGRATIONS = (
    """
    CREATE TABLE run (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('load', 'smoke', 'benchmark')),
        deployment TEXT NOT NULL,
        at REAL NOT NULL,
        title TEXT NOT NULL,
        document TEXT NOT NULL
    );
    CREATE INDEX run_of_deployment ON run (deployment, kind, at);
    """,
    """
    ALTER TABLE run ADD COLUMN host TEXT;
    ALTER TABLE run ADD COLUMN port;
    CREATE INDEX run_of_server ON run (host, port, kind, at);
    """,
)
"""Each makes a record of the schema before it one of its own; `port` holds a number, or the path of a Unix socket."""
SCHEMA = len(MIGRATIONS)
READABLE = """
CREATE TEMP VIEW run AS SELECT id, kind, deployment, at, title, document, NULL AS host, NULL AS port FROM main.run
"""
"""Stands for the table of schema 1 in a file that may only be read."""
LAST_SERVER = """
CREATE TABLE IF NOT EXISTS last_server (
    deployment TEXT NOT NULL,
    target TEXT NOT NULL,
    port INTEGER NOT NULL,
    listens INTEGER,
    at REAL NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (deployment, target, port)
)
"""
"""Made when it is first written: a record from before it, or one that may only be read, is as good without."""
COLUMNS = "id, kind, deployment, at, title, document"
PAST_LOADS = 20
LOADS_READ = 200
CLOCK_S = 5.0
"""Two readings of one time agree to so many seconds: logs tell whole ones."""
PROCESS_S = 2.0
"""The same for the start of a process, which /proc tells."""
LONG_AGO_S = 10 * 365 * 86400.0
LOCK_S = 2.0
"""How long a call waits for another process that writes."""


@dataclass(frozen=True, slots=True)
class Run:
    """One stored run. `at` is wall clock; `document` is what was measured, as JSON values."""

    id: int
    kind: str
    deployment: str
    at: float
    title: str
    document: dict[str, Any]


class RecordError(Exception):
    """The record can't be read or written; the message says why."""


class RunStore:
    """Opens lazily, so that making it costs nothing before the first paint.

    Calls take milliseconds, but up to LOCK_S if another process holds the file: a screen makes them in threads, whichever they
    are. Every call raises RecordError when the file can't be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self._db: sqlite3.Connection | None = None
        self._one_at_a_time = threading.RLock()

    # -- loads -------------------------------------------------------------------------------------------------------------------

    def save_load(
        self, start: ServerStart, load: LoadState, at: float | None = None, *, page_cache_mib: float | None = None
    ) -> int | None:
        """Store a start that reached ready or failed, and return its number; None if it has no times.

        `page_cache_mib` is what the host's page cache held when it began.
        A start that is stored already is brought up to date: it may have died since it was ready.
        """
        if load.started_at is None or (load.ready_at is None and load.failure is None):
            return None
        document = {**_load_document(start, load), "page_cache_mib": page_cache_mib}
        with self._open() as db, db:
            db.execute("BEGIN IMMEDIATE")  # another process may be about to store the same start
            known = next((run for run in self._loads(db, start) if _same_start(run.document, document)), None)
            if known is None:
                return self._store(db, "load", start, at if at is not None else _ended_at(load), _load_title(document), document)
            if _told(known.document) >= _told(document):
                return known.id  # what was read first, maybe as it happened, is told best
            if known.document.get("total_s") is not None and known.document.get("outcome") is not None:
                died = {key: document[key] for key in ("outcome", "served_s", "failure")}
                document = {**known.document, **died}
            values = (start.host, start.port, _load_title(document), json.dumps(document, ensure_ascii=False), known.id)
            db.execute("UPDATE run SET host = ?, port = ?, title = ?, document = ? WHERE id = ?", values)
            return known.id

    def loads(self, start: ServerStart, before: float | None = None) -> tuple[PastLoad, ...]:
        """Return the starts of the same server and model that reached ready, newest first.

        `before` leaves out what started then or later: the present start, which may be stored already.
        """
        found: list[PastLoad] = []
        began: list[float] = []
        with self._open() as db:
            runs = self._loads(db, start)
        for run in runs:
            document = run.document
            model, started_at = document.get("model"), document.get("started_at")
            if document.get("total_s") is None or (start.models and model is not None and model not in start.models):
                continue
            if started_at is not None and before is not None and started_at > before - CLOCK_S:
                continue
            first = document.get("first_line_at") or started_at
            if first is not None:
                if any(abs(first - other) < CLOCK_S for other in began):
                    continue  # stored twice by the first version
                began.append(first)
            phases = tuple((Phase(name), float(seconds)) for name, seconds in document.get("phases", ()) if name in set(Phase))
            steps = tuple(float(step) for step in document.get("step_seconds", ()))
            size, cache = document.get("checkpoint_gib"), document.get("page_cache_mib")
            cold = cache < size * GIB_MIB if size is not None and cache is not None else None
            found.append(PastLoad(float(document["total_s"]), phases, steps, run.at, document.get("version"), size, cold))
            if len(found) == PAST_LOADS:
                break
        return tuple(found)

    def process_start(self, start: ServerStart, first_line_at: float) -> float | None:
        """Return when the process began that wrote a log's first line then, if a session saw it run; None else."""
        with self._open() as db:
            runs = self._loads(db, start)
        for run in runs:
            first, began = run.document.get("first_line_at"), run.document.get("process_started_at")
            if first is not None and began is not None and abs(first - first_line_at) < CLOCK_S:
                return float(began)
        return None

    def _loads(self, db: sqlite3.Connection, start: ServerStart) -> list[Run]:
        """Return the starts on the same host and port, newest first; of those without either, the ones under the same name."""
        query = f"""SELECT {COLUMNS} FROM run WHERE kind = 'load' AND
            ((host = :host AND port IS :port) OR (host IS NULL AND deployment IN (:deployment, :host)))
            ORDER BY at DESC, id DESC LIMIT :limit"""
        values = {"host": start.host, "port": start.port, "deployment": start.deployment, "limit": LOADS_READ}
        return [_run(row) for row in db.execute(query, values)]

    # -- benchmarks and smoke runs -----------------------------------------------------------------------------------------------

    def save_benchmark(self, deployment: str, result: "Result") -> int | None:
        """Store a benchmark, a partial one too (it says why it ended)."""
        if not result.points:
            return None
        whole = [point for point in result.points if not point.figures.get("cut")]
        rates = [rate for point in whole if (rate := point.get("output_throughput")) is not None]
        what = result.plan.kind
        if what == "single":
            what = "single stream" if result.plan.concurrency == (1,) else f"{result.plan.concurrency[0]:,} streams"
        if rates:
            title = f"{what}: {max(rates):,.{1 if max(rates) < 100 else 0}f} tok/s"
        else:
            title = f"{what}: no request was completed" if whole else f"{what}: no whole point"
        if result.stopped:
            title += f" ({result.stopped})"
        from tui.core.bench_documents import plain

        # without the arrays of its requests: they are in the file beside, and may be a hundred megabytes
        return self._insert("benchmark", deployment, result.started_at, title, plain(result, detailed=False))

    def save_smoke(self, deployment: str, smoke: "SmokeRun") -> int | None:
        from tui.core.smoke_prompts import Outcome

        passed = sum(result.outcome is Outcome.PASSED for result in smoke.results)
        return self._insert("smoke", deployment, smoke.started_at, f"{passed} of {smoke.planned} passed", asdict(smoke))

    def runs(self, *, kind: str | None = None, deployment: str | None = None, limit: int = 500) -> tuple[Run, ...]:
        """Return the runs of a kind and a deployment, newest first."""
        wanted = [name for name, value in (("kind", kind), ("deployment", deployment)) if value is not None]
        where = "WHERE " + " AND ".join(f"{name} = :{name}" for name in wanted) if wanted else ""
        query = f"SELECT {COLUMNS} FROM run {where} ORDER BY at DESC, id DESC LIMIT :limit"
        with self._open() as db:
            rows = db.execute(query, {"kind": kind, "deployment": deployment, "limit": limit}).fetchall()
        return tuple(_run(row) for row in rows)

    def run(self, id: int) -> Run | None:
        with self._open() as db:
            row = db.execute(f"SELECT {COLUMNS} FROM run WHERE id = ?", (id,)).fetchone()
        return _run(row) if row else None

    # -- the server last seen ------------------------------------------------------------------------------------------------------

    def save_last_server(self, deployment: str, target: str, port: int | None, last: LastServer) -> None:
        """Store the server that was last watched there, in place of the one before. `port`: the one asked for, if any."""
        values = (deployment, target, port or 0, last.port, last.seen_at, msgspec.json.encode(last).decode())
        with self._open() as db, db:
            db.execute(LAST_SERVER)
            db.execute("INSERT OR REPLACE INTO last_server VALUES (?, ?, ?, ?, ?, ?)", values)

    def last_server(self, deployment: str, target: str, port: int | None) -> LastServer | None:
        """Return the server that was last watched there; for a port also one that was watched unasked, never one of several."""
        where = "deployment = :deployment AND target = :target AND (port = :port OR (:port > 0 AND listens = :port))"
        query = f"SELECT document FROM last_server WHERE {where} ORDER BY at DESC LIMIT 1"
        with self._open() as db:
            try:
                row = db.execute(query, {"deployment": deployment, "target": target, "port": port or 0}).fetchone()
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return None
                raise
        try:
            return msgspec.json.decode(row[0], type=LastServer) if row else None
        except msgspec.DecodeError:
            return None  # written by a newer or a broken program: nothing is known then

    def close(self) -> None:
        with self._one_at_a_time:
            if self._db is not None:
                self._db.close()
                self._db = None

    # -- the file ----------------------------------------------------------------------------------------------------------------

    def _insert(self, kind: str, deployment: str, at: float | None, title: str, document: dict[str, Any]) -> int | None:
        with self._open() as db, db:
            return self._store(db, kind, ServerStart(deployment, ""), at, title, document)

    def _store(
        self, db: sqlite3.Connection, kind: str, start: ServerStart, at: float | None, title: str, document: dict[str, Any]
    ) -> int | None:
        at = time.time() if at is None else at
        values = (kind, start.deployment, start.host or None, start.port, at, title, json.dumps(document, ensure_ascii=False))
        columns = "kind, deployment, host, port, at, title, document"
        return db.execute(f"INSERT INTO run ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values).lastrowid

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._one_at_a_time:
            if self._db is None:
                self._db = self._connect()
            try:
                yield self._db
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise RecordError(f"{self.path} is locked by another process; nothing was stored, try again") from error
                if any(word in str(error) for word in ("readonly", "full", "is a view")):
                    raise RecordError(f"{self.path} can't be written ({error}); free space or make it writable") from error
                raise RecordError(f"{self.path}: {error}") from error
            except sqlite3.DatabaseError as error:
                raise RecordError(f"{self.path} is damaged ({error}); it is set aside at the next start") from error

    def _connect(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self.path.exists():
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            db = self._prepared(sqlite3.connect(self.path, timeout=LOCK_S, check_same_thread=False))
            db.execute("PRAGMA quick_check(1)").fetchone()
            return db
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise RecordError(f"{self.path} is locked by another process; try again") from error
            self.problem = f"{self.path} can't be used ({error}): runs of this session are not kept"
        except sqlite3.DatabaseError as error:
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
            try:
                self.path.rename(aside)
            except OSError:
                self.problem = f"{self.path} is damaged ({error}) and can't be set aside: runs of this session are not kept"
            else:
                self.problem = f"{self.path} was damaged ({error}); it was set aside as {aside.name} and a new record begun"
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
                return self._prepared(sqlite3.connect(self.path, timeout=LOCK_S, check_same_thread=False))
        except OSError as error:
            self.problem = f"{self.path} can't be written ({error.strerror}): runs of this session are not kept"
        return self._prepared(sqlite3.connect(":memory:", check_same_thread=False))

    def _prepared(self, db: sqlite3.Connection) -> sqlite3.Connection:
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version < SCHEMA:
                self._migrate(db, version)
            elif version > SCHEMA:
                raise RecordError(f"{self.path} was written by a newer readyroom (schema {version}); update readyroom to read it")
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection, version: int) -> None:
        try:
            with db:
                db.execute("BEGIN IMMEDIATE")
                (version,) = db.execute("PRAGMA user_version").fetchone()  # another process may have done it meanwhile
                for migration in MIGRATIONS[version:]:
                    for statement in filter(str.strip, migration.split(";")):
                        db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA}")
        except sqlite3.OperationalError as error:
            if version == 0 or not any(words in str(error) for words in ("readonly", "unable to open")):
                raise
            db.execute(READABLE)


def _run(row: tuple[int, str, str, float, str, str]) -> Run:
    id, kind, deployment, at, title, document = row
    return Run(id, kind, deployment, at, title, json.loads(document))


def _load_document(start: ServerStart, load: LoadState) -> dict[str, Any]:
    assert load.started_at is not None
    total_s = load.ready_at - load.started_at if load.ready_at is not None else None
    died = load.failure is not None and total_s is not None
    end = load.phases[-1].started_at if load.phases and load.phases[-1].name is Phase.FAILED else None
    return {
        "engine": load.engine,
        "version": load.version,
        "model": load.model or next(iter(start.models), None),
        "host": start.host,
        "port": start.port,
        "boot": start.boot,
        "process_started_at": start.process_started_at,
        "first_line_at": load.first_line_at,
        "started_at": load.started_at,
        "outcome": "died" if died else "failed" if load.failure is not None else "ready",
        "total_s": total_s,
        "served_s": max(0.0, end - load.ready_at) if died and end is not None and load.ready_at is not None else None,
        "failed_after_s": max(0.0, end - load.started_at) if total_s is None and end is not None else None,
        "phases": [
            [span.name.value, span.seconds] for span in load.phases if span.seconds is not None and span.name != Phase.READY
        ],
        "step_seconds": list(load.shards.step_seconds) if load.shards else [],
        "shards": [load.shards.done, load.shards.total] if load.shards else None,
        "gib_per_gpu": load.gib_per_gpu,
        "checkpoint_gib": load.checkpoint_gib,
        "kv_tokens": load.kv_tokens,
        "max_concurrency": load.max_concurrency,
        "max_model_len": load.max_model_len,
        "tensor_parallel": load.tensor_parallel,
        "failure": to_builtins(load.failure) if load.failure else None,
    }


def _load_title(document: dict[str, Any]) -> str:
    failure = document["failure"]
    kind = str(failure["kind"]).replace("_", " ") if failure else ""
    if document["outcome"] == "failed":
        return f"failed to start: {kind}"
    ready = f"ready after {clock(document['total_s'])}"
    if document["outcome"] == "ready":
        return ready
    served = f" after {about(document['served_s'])}" if document["served_s"] is not None else ""
    return f"{ready}, died{served}: {kind}"


def _ended_at(load: LoadState) -> float:
    """Return when a start ended, by its host's clock if that tells a date, else now."""
    now = time.time()
    ends = [load.ready_at, *(span.started_at for span in load.phases if span.name is Phase.FAILED)]
    at = next((at for at in ends if at is not None), now)
    return at if now - LONG_AGO_S < at < now else now


def _told(document: dict[str, Any]) -> int:
    """Return how much of a start's course is known: its process, that it was ready, and that it died then."""
    ready = document.get("total_s") is not None
    return 4 * (ready and document.get("failure") is not None) + 2 * ready + (document.get("host") is not None)


def _same_start(known: dict[str, Any], new: dict[str, Any]) -> bool:
    """Tell whether two documents, of the same host and port, are of one start."""
    boot, process, first = known.get("boot"), known.get("process_started_at"), known.get("first_line_at")
    if None not in (boot, new["boot"]) and boot != new["boot"]:
        return False
    if process is not None and new["process_started_at"] is not None:
        return abs(float(process) - float(new["process_started_at"])) < PROCESS_S
    if first is None:  # the first version stored the first line's time as the start
        first = known.get("started_at")
    now = new["first_line_at"] if new["first_line_at"] is not None else new["started_at"]
    return first is not None and abs(float(first) - float(now)) < CLOCK_S


def benchmark_of(run: Run) -> "Result":
    """Return the Result that a stored benchmark holds.

    Raises RecordError if the run is no benchmark, or was changed by hand into something else.
    """
    from tui.core.bench_result import Plan, Point, Result, Vantage

    if run.kind != "benchmark":
        raise RecordError(f"run {run.id} is a {run.kind}, not a benchmark")
    document = run.document
    try:
        plan = dict(document["plan"])
        plan["concurrency"] = tuple(plan["concurrency"])
        plan["prompts_notes"] = tuple(plan.get("prompts_notes", ()))
        plan["vantage"] = Vantage(plan["vantage"]) if plan.get("vantage") else None
        points = tuple(Point(point["concurrency"], point["figures"]) for point in document["points"])
        known = {name: value for name, value in plan.items() if name in Plan.__dataclass_fields__}
        return Result(
            document["endpoint"],
            document["model"],
            Vantage(document["vantage"]),
            Plan(**known),
            points,
            tuple(document.get("deviations", ())),
            document.get("stopped"),
            document.get("started_at"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"run {run.id} can't be read: {error}") from error

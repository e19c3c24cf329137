"""Recorded logs with their right answers: what each says at its end, and that how it is cut up makes no difference."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tui.core.logs.forecast import make_forecast
from tui.core.logs.load_state import LoadState, Phase
from tui.core.logs.log_reader import LogReader
from tui.core.logs.log_report import document
from tui.core.text import LineSplitter

DATA = Path(__file__).parent.parent / "data" / "logs"
FOLDERS = ("servers", "h200", "cpu", "made", "wild", "reported", "hardware", "llama_cpp")
PLACES = {
    "phase": ("phase",),
    "failed_in": ("failure", "phase"),
    "ready": ("ready",),
    "was_ready": ("was_ready",),
    "gib_per_gpu": ("weights", "gib_per_gpu"),
    "load_seconds": ("weights", "load_s"),
    "model_loading_seconds": ("weights", "model_load_s"),
    "init_engine_seconds": ("init_engine_s",),
    "kv_tokens": ("kv_cache", "tokens"),
    "max_concurrency": ("kv_cache", "max_concurrency"),
    "max_model_len": ("max_model_len",),
    "version": ("version",),
    "engine": ("engine",),
    "tensor": ("parallel", "tensor"),
    "pipeline": ("parallel", "pipeline"),
    "data": ("parallel", "data"),
    "engines": ("engines",),
    "restarts": ("restarts",),
}


def logs() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for folder in FOLDERS:
        answers = json.loads((DATA / folder / "answers.json").read_text())
        assert answers, folder
        found += [(f"{folder}/{name}", answer) for name, answer in answers.items()]
    return found


def content(name: str) -> bytes:
    path = DATA / name
    return path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())


def lines_of(data: bytes) -> list[str]:
    splitter = LineSplitter()
    return splitter.feed(data) + splitter.flush()


def read(data: bytes) -> LoadState:
    reader = LogReader(2026)
    for line in lines_of(data):
        reader.feed(line)
    return reader.state


def dig(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def same(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(got, bool):
        return wanted is got
    if isinstance(wanted, float) and isinstance(got, int | float):
        return abs(got - wanted) <= 0.01 * abs(wanted) + 1e-9
    return bool(wanted == got)


def test_every_log_has_its_answer() -> None:
    for folder in FOLDERS:
        found = {path.name.removesuffix(".gz") for path in (DATA / folder).iterdir() if path.name.endswith((".log", ".log.gz"))}
        assert found == {name.removeprefix(f"{folder}/") for name, _ in logs() if name.startswith(f"{folder}/")}


@pytest.mark.parametrize(("name", "answer"), logs(), ids=[name for name, _ in logs()])
def test_right_answers(name: str, answer: dict[str, Any]) -> None:
    load = read(content(name))
    now = load.last_line_at if load.last_line_at is not None else 0.0
    got = json.loads(json.dumps(document(load, make_forecast(load, now))))
    wrong: dict[str, tuple[Any, Any]] = {}
    for field, path in PLACES.items():
        wanted, value = answer.get(field), dig(got, path)
        if field in answer.get("absent", ()):
            if value is not None:
                wrong[field] = (None, value)
        elif wanted is not None:
            right = list(wanted) if isinstance(wanted, list) else [wanted]
            if field == "kv_tokens" and answer.get("kv_tokens_total") is not None:
                right.append(answer["kv_tokens_total"])
            if not any(same(answer, value) for answer in right):
                wrong[field] = (right, value)
    shards = answer.get("shards")
    if "shards" in answer.get("absent", ()):
        assert got["shards"] is None
    elif shards is not None:
        pairs = shards.get("alternatives") or [[shards["done"], shards["total"]]]
        if [dig(got, ("shards", "done")), dig(got, ("shards", "total"))] not in pairs:
            wrong["shards"] = (pairs, got["shards"])
    wanted, failure = answer.get("failure"), got["failure"]
    if wanted is None:
        if failure is not None:
            wrong["failure"] = (None, failure)
    elif failure is None:
        if not wanted.get("optional"):
            wrong["failure"] = (wanted, None)
    else:
        cause = failure["cause"].lower()
        if (
            failure["kind"] not in wanted["kinds"]
            or len(cause) > 200
            or not all(any(word in cause for word in words.split("|")) for words in wanted.get("cause_all", ()))
            or any(word in cause for word in wanted.get("not", ()))
        ):
            wrong["failure"] = (wanted, failure)
        advice = failure["advice"].lower()
        assert advice, "a failure comes with advice"
        if not all(any(word in advice for word in words.split("|")) for words in wanted.get("advice_any", ())) or any(
            word in advice for word in wanted.get("advice_not", ())
        ):
            wrong["advice"] = (wanted, advice)
        assert failure["line"] is not None
    if answer.get("verdict") and got["verdict"] not in answer["verdict"]:
        wrong["verdict"] = (answer["verdict"], got["verdict"])
    reason = got["verdict_reason"].lower()
    if not all(any(word in reason for word in words.split("|")) for words in answer.get("reason_any", ())):
        wrong["reason"] = (answer["reason_any"], reason)
    assert not wrong


@pytest.mark.parametrize("name", [name for name, _ in logs()])
def test_cut_off_anywhere_and_in_any_chunks_it_reads_the_same_and_never_goes_back(name: str) -> None:
    data = content(name)
    dice = random.Random(name)
    cuts = sorted(dice.sample(range(1, len(data)), min(20, len(data) - 1))) if len(data) > 1 else []
    chunked, splitter = LogReader(2026), LineSplitter()
    position = 0
    before: LoadState | None = None
    for cut in [*cuts, len(data)]:
        while position < cut:
            size = min(dice.choice((1, 7, 80, 4096, 65536)), cut - position)
            for line in splitter.feed(data[position : position + size]):
                chunked.feed(line)
                if dice.random() < 0.02 or len(data) < 60_000:
                    before = followed(before, chunked.state)
            position += size
    for line in splitter.flush():
        chunked.feed(line)
    assert chunked.state == read(data)
    for cut in dice.sample(cuts, min(4, len(cuts))):
        whole = LogReader(2026)
        for line in lines_of(data[:cut]):
            whole.feed(line)
        assert whole.state == read(data[:cut])


def _stamp(second: int) -> str:
    return f"2026-06-02T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.{second % 1000:03}456789Z"


WRAPPERS: dict[str, Callable[[int, str], str]] = {
    "docker --timestamps": lambda n, line: f"{_stamp(n)} {line}",
    "compose": lambda n, line: f"vllm-server-1  | {line}",
    "compose in colour": lambda n, line: f"\x1b[36mvllm-1  |\x1b[0m {line}",
    "kubectl --prefix": lambda n, line: f"[pod/vllm-0/server] {line}",
    "kubectl --prefix --timestamps": lambda n, line: f"[pod/vllm-0/server] {_stamp(n)} {line}",
    "CRI": lambda n, line: f"{_stamp(n)} stdout F {line}",
    "json-file": lambda n, line: json.dumps({"log": line + "\n", "stream": "stdout", "time": _stamp(n)}),
    "journal -o json": lambda n, line: json.dumps(
        {"MESSAGE": list(line.encode()) if set(line) & {"\r", "\x1b"} else line, "__REALTIME_TIMESTAMP": f"{1780000000 + n}000000"}
    ),
    "syslog": lambda n, line: f"Jun  2 14:{n // 60 % 60:02}:{n % 60:02} gpu7 vllm[2210]: {line}",
    "srun --label": lambda n, line: f"0: {line}",
    "a store with tabs": lambda n, line: f"{_stamp(n)}\t{line}",
    "a terminal": lambda n, line: line + "\r",
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapped_in_anything_a_log_says_the_same(wrapper: str) -> None:
    for name, _ in logs():
        if "compose" in name or "pasted" in name or (DATA / name).suffix != ".log" or not (DATA / name).exists():
            continue
        data = content(name)
        if len(data) > 16_000:
            continue
        lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
        wrapped = "".join(WRAPPERS[wrapper](n, line) + "\n" for n, line in enumerate(lines))
        plain, same = facts(read(data)), facts(read(wrapped.encode()))
        assert same == plain, name
        assert "\x1b" not in repr(same), name


def facts(load: LoadState) -> tuple[Any, ...]:
    """Return what does not depend on the wrapper's own clock."""
    failure = load.failure
    return (
        *(load.phase, load.ready, load.was_ready, load.kv_tokens, load.gib_per_gpu, load.version, load.tensor_parallel),
        *(load.engines, load.restarts, load.shards and (load.shards.done, load.shards.total)),
        failure and (failure.kind, failure.cause[:60], failure.process),
    )


def followed(before: LoadState | None, after: LoadState) -> LoadState:
    if before is not None and after.restarts == before.restarts and before.started_at == after.started_at:
        if before.phase is Phase.FAILED:
            assert after.phase is Phase.FAILED
        if before.was_ready:
            assert after.was_ready
        if before.phase is Phase.READY:
            assert after.phase in (Phase.READY, Phase.FAILED, Phase.STOPPED)
    return after

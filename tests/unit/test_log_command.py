"""`readyroom log`, and the report that it prints."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from writing import Log, bar

from tui.core.logs.forecast import make_forecast
from tui.core.logs.log_reader import LogReader
from tui.core.logs.log_report import lines, plain
from tui.core.presentation import duration
from tui.core.text import LineSplitter

DATA = Path(__file__).parent.parent / "data" / "logs"


def run(*arguments: str, data: bytes | None = None, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tui", "log", *arguments],
        input=data,
        stdin=None if data is not None else subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
        timeout=60,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("servers/26-kimi-k25-8xh200-ep8-ready.log", 0),
        ("servers/25-kimi-k2-thinking-mi300x-midload.log", 3),
        ("cpu/fail-truncated-shard.log", 4),
        ("cpu/sigterm-streaming.log", 7),
    ],
)
def test_exit_codes_and_one_document(name: str, code: int) -> None:
    status, out, errors = run(str(DATA / name), "--json")
    assert status == code, errors
    assert errors == ""
    document = json.loads(out)
    assert document["schema"] == 1
    assert out.count("\n") == 1


def test_a_file_that_is_not_there() -> None:
    status, out, errors = run("/no/such.log")
    assert status == 2
    assert out == ""
    assert "/no/such.log" in errors
    assert "No such file" in errors


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    status, _, errors = run(str(tmp_path))
    assert status == 2
    assert "directory" in errors


def test_an_empty_log() -> None:
    status, out, _ = run("-", "--json", data=b"")
    assert status == 3
    document = json.loads(out)
    assert document["phase"] == "starting"
    assert document["verdict"] == "unknown"
    assert document["shards"] is None


def test_standard_input_shows_the_lines_around_the_cause() -> None:
    status, out, _ = run("-", data=(DATA / "servers/23-gpt-oss-120b-kv-too-small.log").read_bytes())
    assert status == 4
    assert out.startswith("✗ failed while allocating the KV cache: kv cache too small")
    assert "lower --max-model-len to 29,328" in out
    marked = [line for line in out.splitlines() if "▶" in line]
    assert len(marked) == 1
    assert "ValueError: To serve at least one request" in marked[0]


def test_the_line_number_is_an_editor_s() -> None:
    """Pieces between carriage returns are one line to `sed -n 3p` and to an editor."""
    data = (
        b"one\nbar 1\rbar 2\rbar 3\nOSError: x\n"
        + str(Log().starts().raises("OSError: [Errno 98] Address already in use")).encode()
    )
    status, out, _ = run("-", "--json", data=data)
    assert status == 4
    line = json.loads(out)["failure"]["line"]
    assert data.split(b"\n")[line - 1] == b"OSError: [Errno 98] Address already in use"


def test_a_log_that_begins_with_a_hole(tmp_path: Path) -> None:
    """It was emptied under a writer that does not append: the hole is not read, and a copy of it in a pipe is passed over."""
    path = tmp_path / "vllm.log"
    saved = (DATA / "cpu/fail-port-in-use.log").read_bytes()
    status, out, _ = run(str(DATA / "cpu/fail-port-in-use.log"), "--json")
    with path.open("wb") as file:
        file.seek((1 << 40) + 77)
        file.write(saved)
    os.utime(path, (file_time := (DATA / "cpu/fail-port-in-use.log").stat().st_mtime, file_time))
    assert run(str(path), "--json")[:2] == (status, out)
    assert json.loads(run("-", "--json", data=bytes(3 << 20) + saved)[1])["failure"] == json.loads(out)["failure"]


def test_nothing_in_a_log_reaches_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07[bold red]x[/]\x1b[2J\u202e"
    log = Log().starts().raises(f"RuntimeError: {hostile} operator torchvision::nms does not exist")
    for arguments in (("-",), ("-", "--json")):
        _, out, _ = run(*arguments, data=str(log).encode(), FORCE_COLOR="1")
        assert "\x1b]" not in out
        assert "\x1b[2J" not in out
        assert "\u202e" not in out
        assert "[bold red]x" in out


def test_colours_only_where_wanted() -> None:
    path = str(DATA / "cpu/fail-port-in-use.log")
    assert "\x1b" not in run(path)[1]
    assert "\x1b[" in run(path, FORCE_COLOR="1", TERM="xterm-256color")[1]
    assert "\x1b[3" not in run(path, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color")[1]


def test_a_terminal_without_unicode() -> None:
    status, out, errors = run(str(DATA / "cpu/fail-port-in-use.log"), PYTHONIOENCODING="ascii")
    assert status == 4, errors
    assert out.isascii()
    assert "###" in out or "failed" in out


def test_the_turn_of_the_year(tmp_path: Path) -> None:
    path = tmp_path / "serve.log"
    path.write_text(
        "INFO 12-31 23:59:50 [a.py:1] vLLM API server version 0.13.0\n"
        "INFO 01-01 00:00:10 [a.py:1] Starting to load model org/m...\n"
    )
    os.utime(path, (1_798_761_700, 1_798_761_700))  # 2027-01-01
    _, out, _ = run(str(path), "--json")
    document = json.loads(out)
    assert document["started_at"] == "2026-12-31T23:59:50"
    assert document["last_line_at"] == "2027-01-01T00:00:10"
    assert document["phases"][0]["seconds"] == 20.0


def report(text: str) -> str:
    reader, splitter = LogReader(2026), LineSplitter()
    for line in splitter.feed(text.encode()) + splitter.flush():
        reader.feed(line)
    load = reader.state
    return plain(lines(load, make_forecast(load, load.last_line_at or 0.0)))


def test_the_report_says_the_verdict_first_and_what_took_how_long() -> None:
    text = report((DATA / "servers/26-kimi-k25-8xh200-ep8-ready.log").read_text(encoding="utf-8"))
    first, *rest = text.splitlines()
    assert first == "✓ ready after 11 min 44 s"
    assert any("loading" in row and "8 min 10 s" in row and "64 of 64 shards" in row for row in rest)
    assert any("longest silences" in row and "61 s in post-load" in row for row in rest)
    assert any("vLLM 0.32.0 · moonshotai/Kimi-K2.5" in row for row in rest)


def test_what_is_not_known_is_left_out() -> None:
    text = report(str(Log().say("Worker_TP0 pid=20", "Starting to load model org/m...").raw(bar(1, 64))))
    assert "None" not in text
    assert "KV cache" not in text
    assert text.startswith("● loading")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "—"), (0.43, "0.43 s"), (5.0, "5.0 s"), (61.4, "61 s"), (245.0, "4 min 05 s"), (3725.0, "1 h 02 min")],
)
def test_durations(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_a_packed_log_is_read_as_it_is(tmp_path: Path) -> None:
    plain_log = DATA / "h200" / "kv-too-small-tp1.log"
    packed = tmp_path / "vllm.log.1.gz"
    packed.write_bytes(gzip.compress(plain_log.read_bytes()))
    assert run(str(packed), "--json") == run(str(plain_log), "--json")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello\n", "no line of it looks like a vLLM, SGLang or llama.cpp server's log"),
        (bytes(range(256)) * 20, "no line of it looks like a vLLM, SGLang or llama.cpp server's log"),
        (b"#!/bin/sh\nset -e\nexec python -m http.server\n", "no line of it looks like a vLLM, SGLang or llama.cpp server's log"),
        (b"", "it is empty"),
    ],
)
def test_what_is_no_servers_log_is_said(data: bytes, reason: str) -> None:
    status, out, errors = run("-", data=data)
    assert status == 3
    assert f"no server log: {reason}" in errors
    assert out.splitlines()[0] == f"— no server log: {reason}"
    document = json.loads(run("-", "--json", data=data)[1])
    assert (document["verdict"], document["verdict_reason"]) == ("unknown", f"no server log: {reason}")


def test_a_name_that_is_empty_is_missing() -> None:
    status, out, errors = run("")
    assert (status, out) == (2, "")
    assert "the name of a file is missing" in errors

"""`readyroom bench` as a command: one document, exit codes, files that scripts for vLLM read, interruptions that keep the rest."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_server import SSE, Exchange, scripted
from sshd import running, until

COMMAND = [sys.executable, "-m", "tui", "bench"]


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"), "NO_COLOR": "1", **more}


def bench(folder: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], env=environment(folder, **more), capture_output=True, text=True, timeout=60)


SHORT = ("--requests", "4", "--input-tokens", "16", "--output-tokens", "3")


def good(exchange: Exchange) -> None:
    exchange.reply()


def test_json_is_one_document(tmp_path: Path) -> None:
    with scripted(good) as server:
        done = bench(tmp_path, "--base-url", server.url, "--concurrency", "1,2", *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert document["vantage"] == "direct"
    assert document["model"] == "scripted"
    assert [point["max_concurrency"] for point in document["points"]] == [1, 2]
    for point in document["points"]:
        assert point["completed"] == 4
        assert point["incomplete"] == 0
        assert point["errors_by_kind"] == {}
        for metric in ("ttft", "tpot", "itl", "e2el"):
            for statistic in ("mean", "median", "std", "p50", "p90", "p99"):
                assert point[f"{statistic}_{metric}_ms"] is not None


VLLM_KEYS = (
    "date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration completed "
    "failed total_input_tokens total_output_tokens request_throughput request_goodput output_throughput total_token_throughput "
    "max_output_tokens_per_s max_concurrent_requests rtfx mean_ttft_ms p99_itl_ms"
)
DETAIL_KEYS = "input_lens output_lens start_times ttfts itls generated_texts errors latencies queue_times"


def test_saved_files_have_vllms_names_and_shapes(tmp_path: Path) -> None:
    with scripted(good) as server:
        target = ("--base-url", server.url, "--concurrency", "2", *SHORT, "--header", "X-Key=hush")
        done = bench(tmp_path, *target, "--save", str(tmp_path / "out"), "--save-detailed", "--csv", str(tmp_path / "points.csv"))
    assert done.returncode == 0, done.stderr
    (saved,) = (tmp_path / "out").iterdir()
    assert saved.name.startswith("openai-chat-infqps-concurrency2-scripted-")
    found = json.loads(saved.read_text())
    assert set(VLLM_KEYS.split()) <= set(found)
    assert set(DETAIL_KEYS.split()) <= set(found)
    assert found["output_lens"] == [3] * 4
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"hush" not in file.read_bytes(), file
    assert len(found["itls"][0]) == 2
    heads, _ = (tmp_path / "points.csv").read_text().splitlines()
    numbers = {name for name, value in found.items() if not isinstance(value, list | dict)}
    assert numbers - set(heads.split(",")) - {"gpu"} <= {name for name in numbers if name.endswith("_ci95")}
    assert "TTFT: first token-bearing chunk" not in done.stdout


DELETED = "input_lens output_lens start_times ttfts itls generated_texts errors"
"""What `vllm bench serve --save-result` takes out of its files without `--save-detailed`."""


def test_a_plain_saved_file_has_the_arrays_that_vllm_leaves_in(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        if exchange.number == 3:  # the warm-up has two
            exchange.plain("503 Service Unavailable", b"{}")
        else:
            exchange.reply()

    plain, full = tmp_path / "plain", tmp_path / "full"
    for where, more in ((plain, ()), (full, ("--save-detailed",))):
        with scripted(script) as server:
            bench(tmp_path, "--base-url", server.url, "--concurrency", "2", *SHORT, "--save", str(where), *more)
    (short,), (whole,) = (list(where.iterdir()) for where in (plain, full))
    found = json.loads(short.read_text())
    assert not set(DELETED.split()) & set(found)
    assert sorted(bool(latency) for latency in found["latencies"]) == [False, True, True, True]
    assert found["queue_times"] == [0.0] * 4
    detailed = json.loads(whole.read_text())
    assert set(DELETED.split()) <= set(detailed)
    asked = int(SHORT[SHORT.index("--input-tokens") + 1])
    assert sorted(detailed["input_lens"]) == [5, 5, 5, asked]  # those that were answered as the server counted them


def test_failed_requests_are_exit_code_1_unless_allowed(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        if exchange.number == 2:
            exchange.plain("503 Service Unavailable", b'{"error":{"message":"over\\u001b]0;loaded [/b]"}}')
        else:
            exchange.reply()

    with scripted(script) as server:
        done = bench(tmp_path, "--base-url", server.url, *SHORT)
    assert done.returncode == 1
    assert "http_503" in done.stdout
    assert "\x1b" not in done.stdout
    with scripted(script) as server:
        assert bench(tmp_path, "--base-url", server.url, *SHORT, "--max-failures", "1").returncode == 0


def test_a_closed_port_is_exit_code_5(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    done = bench(tmp_path, "--base-url", f"http://127.0.0.1:{port}", "--json")
    assert done.returncode == 5
    assert done.stdout == ""
    assert str(port) in done.stderr


BAD = [
    (("--base-url", "ftp://x"), "not an http"),
    (("--base-url", "http://x", "local"), "either a TARGET or --base-url"),
    (("--base-url", "http://x", "--concurrency", "0"), "whole numbers above 0"),
    (("--base-url", "http://x", "--requests", "3", "--duration", "3s"), "exclude each other"),
    (("--base-url", "http://x", "--extra-body", "[1]"), "JSON object"),
    (("--base-url", "http://x", "--extra-body", '{"temperature": NaN}'), "NaN and infinity are not JSON"),
    (("--base-url", "http://x", "--extra-body", '{"a": [1e999]}'), "NaN and infinity are not JSON"),
    (("--base-url", "http://x", "--extra-body", '{"a": ' + "[" * 20000 + "]" * 20000 + "}"), "nested more than 64 levels"),
    (("--base-url", "http://x", "--header", "nothing"), "NAME=VALUE"),
    (("--base-url", "http://x", "--header", "A=b\nEvil: yes"), "line break"),
    (("--base-url", "http://x", "--header", "A B=c"), "no name of a header"),
    (("--base-url", "http://x/v1?api_key=hush", "--yes"), "has a query"),
    (("--base-url", "http://x", "--goodput", "speed:3"), "ttft:MS"),
    (("--base-url", "http://x", "--goodput", "ttft:1,5"), "ttft:MS"),
    (("http://me:hush@x/v1",), "with --base-url http://x/v1"),
    (("unix:/run/s",), "with --base-url unix:/run/s"),
    (("--base-url", "http://x", "--token-ids", "--endpoint", "chat"), "completions"),
    (("--base-url", "http://x", "--duration", "soon"), "a duration"),
    (("--base-url", "http://x", "--sweep", "4", "--request-rate", "2"), "--sweep and --request-rate exclude each other"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_wrong_usage_is_exit_code_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = bench(tmp_path, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "hush" not in done.stderr


def test_prompts_that_are_nested_without_end_are_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "deep.jsonl").write_text("[" * 20000 + "]" * 20000)
    done = bench(tmp_path, "--base-url", "http://x", "--prompts", str(tmp_path / "deep.jsonl"))
    assert done.returncode == 2
    assert "deep.jsonl: line 1 begins an array" in done.stderr


def test_one_socket_is_one_deployment_however_it_is_written(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with scripted(good, unix=path):
        for url in (f"unix:{path}", f"unix://{path}"):
            assert bench(tmp_path, "--base-url", url, *SHORT).returncode == 0
    runs = subprocess.run(
        [*COMMAND[:-1], "runs", "--json"], env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=True
    )
    assert [run["deployment"] for run in json.loads(runs.stdout)["runs"]] == [path, path]


def authorized(exchange: Exchange, seen: list[str]) -> None:
    seen.append(exchange.headers.get("authorization", ""))
    exchange.reply()


@pytest.mark.parametrize(
    ("target", "variables", "expected"),
    [
        ("url", {"OPENAI_API_KEY": "sk-open"}, "Bearer sk-open"),
        ("url", {"VLLM_API_KEY": "sk-v", "OPENAI_API_KEY": "sk-open"}, "Bearer sk-v"),
        ("local", {"OPENAI_API_KEY": "sk-open"}, ""),
        ("local", {"VLLM_API_KEY": "sk-v"}, "Bearer sk-v"),
    ],
)
def test_nobodys_openai_key_reaches_a_gpu_box(tmp_path: Path, target: str, variables: dict[str, str], expected: str) -> None:
    seen: list[str] = []
    with scripted(lambda exchange: authorized(exchange, seen)) as server:
        (tmp_path / "config" / "readyroom").mkdir(parents=True)
        config = f'[deployments.box]\napi = "{server.url}"\n[[deployments.box.engines]]\nhost = "local"\nlog = "none"\n'
        (tmp_path / "config" / "readyroom" / "config.toml").write_text(config)
        where = ("--base-url", server.url) if target == "url" else ("box",)
        done = bench(tmp_path, *where, *SHORT, "--yes", **variables)
    assert done.returncode == 0, done.stderr
    assert set(seen) == {expected}
    assert "sk-" not in done.stdout + done.stderr
    for file in (tmp_path / "state").rglob("*"):
        assert file.is_dir() or b"sk-" not in file.read_bytes()


def test_a_deployment_that_is_not_to_be_benched(tmp_path: Path) -> None:
    (tmp_path / "config" / "readyroom").mkdir(parents=True)
    config = '[deployments.box]\nallow_bench = false\n[[deployments.box.engines]]\nhost = "local"\n'
    (tmp_path / "config" / "readyroom" / "config.toml").write_text(config)
    done = bench(tmp_path, "box")
    assert done.returncode == 2
    assert "allow_bench" in done.stderr


def test_an_interruption_keeps_what_there_is(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> object:
        if exchange.number < 6:  # the first point, and the warm-up of the second
            exchange.reply()
            return None
        exchange.send(SSE)
        exchange.token()
        exchange.wait_closed()
        return "close"

    with scripted(script) as server:
        arguments = ["--base-url", server.url, "--concurrency", "1,2", "--requests", "3", "--output-tokens", "3", "--json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with running([*COMMAND, *arguments], env=environment(tmp_path), text=True, **pipes) as process:
            until(lambda: server.served >= 8 or process.poll() is not None, seconds=60, what="the second point")
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=20)
    assert process.returncode == 130, error
    document: dict[str, Any] = json.loads(out)
    assert document["stopped"] == "stopped by the user"
    assert [point["completed"] for point in document["points"]] == [3, 0]
    assert document["points"][1]["incomplete"] == 2


def test_a_busy_server_is_left_alone_without_yes(tmp_path: Path) -> None:
    metrics = b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 1.0\n'
    with scripted(good) as server:
        server.metrics = metrics
        done = bench(tmp_path, "--base-url", server.url, *SHORT)
        assert done.returncode == 2
        assert "serving 4 requests from others" in done.stderr
        assert server.served == 0
        done = bench(tmp_path, "--base-url", server.url, *SHORT, "--yes")
        assert done.returncode == 0
        assert "4 requests from others were running or waiting" in done.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("option", "path", "reason"),
    [
        ("--save", "file/below", "Not a directory"),
        ("--save", "file", ""),
        ("--csv", "missing/points.csv", "No such file or directory"),
        ("--csv", "folder", ""),
        ("--save", "/proc/none", "No such file or directory"),
        ("--csv", "/proc/points.csv", "No such file or directory"),
    ],
)
def test_a_place_that_cant_be_written_is_said_before_the_first_request(tmp_path: Path, option: str, path: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with scripted(good) as server:
        done = bench(tmp_path, "--base-url", server.url, *SHORT, option, str(tmp_path / path))
        assert server.connections == 0
    assert done.returncode == 2, done.stderr
    assert path in done.stderr
    assert reason in done.stderr
    assert done.stdout == ""


def test_what_cant_be_written_in_the_end_costs_no_results(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def script(exchange: Exchange) -> None:
        if out.is_dir():
            out.rmdir()
            out.write_text("a file now")
        exchange.reply()

    with scripted(script) as server:
        done = bench(tmp_path, "--base-url", server.url, *SHORT, "--save", str(out), "--csv", str(tmp_path / "points.csv"))
    assert done.returncode == 73, done.stderr
    assert "streams" in done.stdout
    assert f"{out}/openai-chat" in done.stderr
    assert "Not a directory" in done.stderr
    assert len((tmp_path / "points.csv").read_text().splitlines()) == 2
    runs = subprocess.run(
        [*COMMAND[:-1], "runs", "--json"], env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=True
    )
    assert [run["kind"] for run in json.loads(runs.stdout)["runs"]] == ["benchmark"]


def test_rows_are_added_to_a_csv_and_nothing_else_is_overwritten(tmp_path: Path) -> None:
    csv = tmp_path / "points.csv"
    with scripted(good) as server:
        words = ("--base-url", server.url, *SHORT, "--csv", str(csv))
        assert bench(tmp_path, *words).returncode == 0
        assert bench(tmp_path, *words, "--concurrency", "1,2").returncode == 0
        rows = csv.read_text().splitlines()
        assert rows[0].startswith("date,")
        assert len(rows) == 1 + 1 + 2
        unreachable = bench(tmp_path, "--base-url", "http://127.0.0.1:9", *SHORT, "--csv", str(csv))
        assert unreachable.returncode == 5
        assert csv.read_text().splitlines() == rows
        csv.write_text("before")
        seen = server.connections
        done = bench(tmp_path, *words)
        assert (done.returncode, server.connections) == (2, seen)
    assert "does not hold rows" in done.stderr
    assert csv.read_text() == "before"


def test_csv_goes_to_standard_output(tmp_path: Path) -> None:
    with scripted(good) as server:
        done = bench(tmp_path, "--base-url", server.url, *SHORT, "--csv", "-")
        both = bench(tmp_path, "--base-url", server.url, *SHORT, "--csv", "-", "--json")
    assert done.returncode == 0, done.stderr
    heads, row = done.stdout.splitlines()
    assert heads.startswith("date,endpoint_type,")
    assert len(row.split(",")) >= heads.count(",")
    assert "streams" in done.stderr
    assert both.returncode == 2
    assert not (tmp_path / "-").exists()


def test_paths_are_not_broken_by_a_narrow_terminal(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20)
    with scripted(good) as server:
        done = bench(tmp_path, "--base-url", server.url, *SHORT, "--save", str(folder), COLUMNS="60")
    (saved,) = folder.iterdir()
    assert f"saved: {saved}\n" in done.stdout

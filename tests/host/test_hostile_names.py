"""Models whose names can't be shown as they are: requests say the server's own name, the screen and documents a clean one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Exchange, Scripted, scripted
from sshd import Sshd
from test_bench_command import SHORT, bench, environment

from tui.core.api_status import ApiStatus, Reach, ServedModel
from tui.core.bench_result import Plan, Vantage
from tui.core.text import clean
from tui.host.api import ApiClient
from tui.host.local import LocalHost
from tui.host.ssh import SshHost
from tui.services.bench_run import Benchmarks, BenchmarkTarget, collect
from tui.wire.urls import LONGEST_ID, askable

NAMES = (
    "kimi[red]\x1b[31m\u202e",
    "a\x1b]0;title\x07b",
    "two\nlines",
    "zero\u200bwidth",
    "half \ud83d",
    "n" * 1000,
    "模型" * 600,
)


class Named:
    """Serves one model, and nothing under another name."""

    def __init__(self, server: Scripted, name: str) -> None:
        self.name = name
        self.single = server.single
        self.asked: set[str] = set()
        server.answer = self.answer
        server.script = self.stream

    def answer(self, exchange: Exchange) -> None:
        if exchange.path == "/v1/models":
            exchange.plain("200 OK", json.dumps({"data": [{"id": self.name, "max_model_len": 4096}]}).encode())
        elif "model" in exchange.body and self.refuses(exchange):
            exchange.plain("404 Not Found", b'{"error":{"message":"The model does not exist.","code":404}}')
        else:
            self.single(exchange)

    def stream(self, exchange: Exchange) -> None:
        if self.refuses(exchange):
            exchange.plain("404 Not Found", b'{"error":{"message":"The model does not exist.","code":404}}')
        else:
            exchange.reply()

    def refuses(self, exchange: Exchange) -> bool:
        self.asked.add(exchange.body["model"])
        return bool(exchange.body["model"] != self.name)


def unused(exchange: Exchange) -> None:
    raise AssertionError


@pytest.mark.parametrize("name", NAMES)
async def test_a_request_says_the_servers_own_name(name: str) -> None:
    with scripted(unused) as server:
        named = Named(server, name)
        api = ApiClient(server.url, None)
        try:
            status = await api.poll()
            (model,) = status.models
            assert model.id == clean(name)[:400]
            assert status.ready
            for wanted in (None, model.id, name):
                said = status.asked(wanted)
                assert said == name
                assert status.lists(said)
                [chunk async for chunk in api.stream("/v1/chat/completions", {"model": said, "stream": True})]
                await api.post("/v1/completions", {"model": said, "prompt": "Hello", "max_tokens": 1})
        finally:
            await api.close()
    assert named.asked == {name}


@pytest.mark.parametrize(
    ("ids", "ready", "says"),
    [
        (["a"], True, None),
        (["a", "x" * (LONGEST_ID + 1)], True, None),
        (["x" * (LONGEST_ID + 1)], False, "/v1/models lists a model whose name is longer than 4 KiB, too long to be asked for"),
    ],
)
async def test_a_name_that_is_too_long_is_no_fault_of_a_server_with_others(ids: list[str], ready: bool, says: str | None) -> None:
    listed = json.dumps({"data": [{"id": id_} for id_ in ids]}).encode()

    def answer(exchange: Exchange) -> None:
        if exchange.path == "/v1/models":
            exchange.plain("200 OK", listed)
        else:
            server.single(exchange)

    with scripted(unused) as server:
        server.answer = answer
        api = ApiClient(server.url, None)
        try:
            for _ in range(2):  # and it stays so
                status = await api.poll()
                assert (status.reach, status.ready, status.error) == (Reach.UP, ready, says)
        finally:
            await api.close()


def test_which_model_is_asked() -> None:
    status = ApiStatus(models=(ServedModel("a"), ServedModel("b", called="b\x1b")))
    assert [status.asked(wanted) for wanted in (None, "a", "b", "b\x1b", "c")] == ["a", "a", "b\x1b", "b\x1b", "c"]
    assert [status.lists(name) for name in ("a", "b", "b\x1b", "c")] == [True, False, True, False]
    assert ApiStatus().asked() is None


LONG = "x" * (LONGEST_ID + 1)


@pytest.mark.parametrize(
    ("listed", "names", "says"),
    [
        ([{"id": "x" * LONGEST_ID}], ["x" * LONGEST_ID], ""),
        ([{"id": LONG}], [], "a model whose name is longer than 4 KiB"),
        ([{"id": "é" * 2049}, {"id": "a"}], ["a"], "a model whose name is longer than 4 KiB"),
        ([{"id": LONG}, {"id": LONG}], [], "2 models whose names are longer than 4 KiB"),
        ([{"id": 7}, {"id": ""}, {}, 3, {"id": "a"}], ["a"], ""),
        (None, [], ""),
        ({"id": "a"}, [], ""),
    ],
)
def test_what_can_be_asked_for(listed: Any, names: list[str], says: str) -> None:
    entries, refused = askable(listed)
    assert [entry["id"] for entry in entries] == names
    assert says in refused
    assert bool(says) == bool(refused)


@pytest.mark.parametrize("command", ["bench", "smoke"])
def test_a_name_that_is_too_long_is_refused_with_words(tmp_path: Path, command: str) -> None:
    with scripted(unused) as server:
        Named(server, LONG)
        done = (
            bench(tmp_path, "--base-url", server.url, *SHORT) if command == "bench" else cli(tmp_path, server.url, "smoke", "box")
        )
    assert done.returncode == 1, done.stderr
    assert "longer than 4 KiB" in done.stderr
    assert LONG not in done.stderr


def cli(home: Path, url: str, *words: str) -> "subprocess.CompletedProcess[str]":
    folder = home / "config" / "readyroom"
    folder.mkdir(parents=True, exist_ok=True)
    config = f'[deployments.box]\napi = "{url}"\n[[deployments.box.engines]]\nhost = "local"\nlog = "none"\n'
    (folder / "config.toml").write_text(config)
    done = [sys.executable, "-m", "tui", *words]
    return subprocess.run(done, env=environment(home), capture_output=True, text=True, timeout=60)


def test_every_command_asks_by_the_servers_own_name(tmp_path: Path) -> None:
    name = NAMES[0]
    with scripted(unused) as server:
        named = Named(server, name)
        waited = cli(tmp_path, server.url, "wait", "box", "--timeout", "30s")
        examined = cli(tmp_path, server.url, "doctor", "box", "--json")
        smoked = cli(tmp_path, server.url, "smoke", "box", "--model", clean(name), "--json")
        measured = cli(tmp_path, server.url, "bench", "box", *SHORT, "--json")
        seen = cli(tmp_path, server.url, "status", "box", "--json")
    assert named.asked == {name}
    assert waited.returncode == 0, waited.stderr
    assert measured.returncode == 0, measured.stderr
    checks = {check["name"]: check for check in json.loads(examined.stdout)["checks"]}
    assert checks["model"] == {"name": "model", "grade": "ok", "says": clean(name), "fix": ""}
    assert checks["one token"]["grade"] == "ok"
    assert json.loads(smoked.stdout)["model"] == clean(name)
    assert json.loads(seen.stdout)["api"]["models"] == [{"id": clean(name), "max_model_len": 4096, "root": None}]
    for done in (waited, examined, smoked, measured, seen):
        assert "\x1b" not in done.stdout + done.stderr
        assert "\u202e" not in done.stdout + done.stderr
        assert "\\u001b" not in done.stdout


@pytest.mark.sshd
@pytest.mark.parametrize("vantage", list(Vantage))
async def test_the_load_asks_by_the_servers_own_name_from_everywhere(sshd: Sshd, tmp_path: Path, vantage: Vantage) -> None:
    name = NAMES[0]
    for model in (None, name):
        plan = Plan(concurrency=(1,), requests=2, input_tokens=16, output_tokens=3, vantage=vantage, model=model)
        with scripted(unused) as server:
            named = Named(server, name)
            async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
                await host.connect()
                benchmarks = Benchmarks("box", BenchmarkTarget(server.url, {}), host=host, open_local=LocalHost, state=tmp_path)
                result = await collect(benchmarks, plan)
        assert result.points[0].figures["completed"] == 2
        assert result.model == clean(name)
        assert named.asked == {name}

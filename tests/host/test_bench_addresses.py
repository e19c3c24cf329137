"""Benchmarks of servers whose address holds a password, or is a Unix socket: from every place that the load can come from."""

import json
import subprocess
from pathlib import Path

import pytest
from scripted_server import Exchange, scripted
from sshd import Sshd, free_port
from test_bench_command import bench

from tui.core.bench_result import Plan, Vantage
from tui.host.base import Host
from tui.host.local import LocalHost
from tui.host.ssh import SshHost
from tui.services.bench_run import BenchmarkRefused, Benchmarks, BenchmarkTarget, collect
from tui.wire.urls import authorized, basic_of, merged

SHORT = Plan(concurrency=(1,), requests=2, input_tokens=16, output_tokens=3)


class Door:
    """What a server was asked with."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.heads: list[dict[str, str]] = []

    def reply(self, exchange: Exchange) -> None:
        self.keys.append(exchange.headers.get("authorization", ""))
        self.heads.append(exchange.headers)
        exchange.reply()


@pytest.mark.parametrize(
    ("url", "value"),
    [
        ("http://box", None),
        ("http://me:pass%40word@box", "Basic bWU6cGFzc0B3b3Jk"),
        ("http://me@box", "Basic bWU6"),
        ("http://:only@box", "Basic Om9ubHk="),
        ("http://me:a:b@box", "Basic bWU6YTpi"),
        ("http://me:gr%C3%BCn@box", "Basic bWU6Z3LDvG4="),
        ("unix:/run/a@b.sock", None),
        ("http://me:pw@[::1", None),
    ],
)
def test_what_a_url_asks_for(url: str, value: str | None) -> None:
    assert basic_of(url) == value


def test_one_header_of_a_name() -> None:
    assert merged({"Authorization": "a", "X": "1"}, {"authorization": "b"}) == {"X": "1", "authorization": "b"}
    assert authorized("http://me:pw@box", "key", {"authorization": "mine"}) == {"authorization": "mine"}
    assert authorized("http://me:pw@box", "key", {}) == {"Authorization": "Basic bWU6cHc="}
    assert authorized("http://box", "key", {"X": "1"}) == {"Authorization": "Bearer key", "X": "1"}
    assert authorized("http://box", None, {}) == {}


async def through(url: str, state: Path, host: Host | None, plan: Plan, headers: dict[str, str] | None = None) -> Vantage:
    benchmarks = Benchmarks("box", BenchmarkTarget(url, headers or {}), host=host, open_local=LocalHost, state=state)
    result = await collect(benchmarks, plan)
    assert result.points[0].figures["completed"] == 2
    return result.vantage


@pytest.mark.sshd
@pytest.mark.parametrize("vantage", [Vantage.HOST, Vantage.TUNNEL])
async def test_the_password_of_a_url_opens_from_a_host(sshd: Sshd, tmp_path: Path, vantage: Vantage) -> None:
    door = Door()
    plan = Plan(concurrency=(1,), requests=2, input_tokens=16, output_tokens=3, vantage=vantage)
    with scripted(door.reply) as server:
        async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
            await host.connect()
            assert await through(server.url.replace("//", "//me:pass%40word@"), tmp_path, host, plan) is vantage
    assert set(door.keys) == {"Basic bWU6cGFzc0B3b3Jk"}
    assert all("@" not in head["host"] for head in door.heads)


def test_the_password_of_a_url_opens_and_is_kept_nowhere(tmp_path: Path) -> None:
    door = Door()
    with scripted(door.reply) as server:
        url = server.url.replace("//", "//me:pass%40word@")
        done = bench(tmp_path, "--base-url", url, "--requests", "2", "--output-tokens", "3", "--json", VLLM_API_KEY="another")
    assert done.returncode == 0, done.stderr
    assert set(door.keys) == {"Basic bWU6cGFzc0B3b3Jk"}
    said = (done.stdout + done.stderr).encode() + b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    for secret in (b"pass%40word", b"pass@word", b"bWU6cGFzc0B3b3Jk"):
        assert secret not in said


def test_a_given_header_goes_before_the_password_and_the_key(tmp_path: Path) -> None:
    door = Door()
    with scripted(door.reply) as server:
        url = server.url.replace("//", "//me:word@")
        words = ("--requests", "2", "--output-tokens", "3", "--header", "authorization=Bearer mine", "--json")
        done = bench(tmp_path, "--base-url", url, *words, VLLM_API_KEY="another")
    assert done.returncode == 0, done.stderr
    assert set(door.keys) == {"Bearer mine"}


@pytest.mark.sshd
@pytest.mark.parametrize("vantage", list(Vantage))
async def test_a_unix_socket_is_reached_from_everywhere(sshd: Sshd, tmp_path: Path, vantage: Vantage) -> None:
    plan = Plan(concurrency=(1,), requests=2, input_tokens=16, output_tokens=3, vantage=vantage)
    with scripted(lambda exchange: exchange.reply(), unix=str(tmp_path / "a socket")) as server:
        url = server.url.replace(" ", "%20")
        async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
            await host.connect()
            assert await through(url, tmp_path, host, plan) is vantage


def test_a_deployment_on_a_unix_socket_is_benched(tmp_path: Path) -> None:
    with scripted(lambda exchange: exchange.reply(), unix=str(tmp_path / "s")) as server:
        config = tmp_path / "config.toml"
        config.write_text(f'[deployments.box]\napi = "{server.url}"\n[[deployments.box.engines]]\nhost = "local"\nlog = "none"\n')
        done = bench(tmp_path, "box", "--config", str(config), "--requests", "2", "--output-tokens", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["vantage"] == "host"


def refused(folder: Path, url: str) -> "subprocess.CompletedProcess[str]":
    done = bench(folder, "--base-url", url, "--requests", "1")
    assert done.returncode == 5
    assert "Errno" not in done.stderr
    return done


def test_what_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    port = free_port()
    said = refused(tmp_path, f"http://127.0.0.1:{port}").stderr
    assert f"nothing listens on 127.0.0.1:{port}" in said
    assert "is the server up, and is this its address?" in said
    assert f"there is no socket {tmp_path}/none" in refused(tmp_path, f"unix:{tmp_path}/none").stderr
    assert "the name in no-such-host.invalid:80 can't be resolved" in refused(tmp_path, "http://no-such-host.invalid").stderr


@pytest.mark.sshd
async def test_what_is_not_there_is_said_alike_through_the_connection(sshd: Sshd, tmp_path: Path) -> None:
    plan = Plan(concurrency=(1,), requests=2, vantage=Vantage.TUNNEL)
    port = free_port()
    async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
        await host.connect()
        with pytest.raises(BenchmarkRefused, match=f"nothing listens on 127.0.0.1:{port}"):
            await through(f"http://127.0.0.1:{port}", tmp_path, host, plan)

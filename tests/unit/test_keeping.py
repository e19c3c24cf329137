"""A server that was found, as an entry of the configuration: what is written, and what keeps it from being written."""

from pathlib import Path

import pytest

from tui.services.save_deployment import KeepFailed, found_deployment, keep, name_for
from tui.services.server_search import FoundServer
from tui.settings import load_settings
from tui.wire.urls import socket_of

SERVER = FoundServer(
    377, "vllm", user="root", model="/models/Kimi-K2.5", served_name=None, port=8000, host="0.0.0.0", source="file:/var/log/v.log"
)


@pytest.mark.parametrize(
    ("server", "name"),
    [(SERVER, "kimi-k2-5"), (FoundServer(1, "vllm", served_name="My Model!"), "my-model"), (FoundServer(1, "vllm"), "gpu-8x")],
)
def test_its_name(server: FoundServer, name: str) -> None:
    assert name_for(server, "gpu-8x") == name


def test_it_is_appended_and_what_stood_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('# mine\n[deployments.old]\napi = "http://127.0.0.1:9000"\n')
    assert keep(found_deployment(SERVER, "gpu-8x", "kimi"), path) == path
    settings = load_settings(path)
    assert list(settings.deployments) == ["old", "kimi"]
    kept = settings.deployments["kimi"]
    assert (kept.api, kept.engines[0].host, kept.engines[0].log) == ("http://127.0.0.1:8000", "gpu-8x", "file:/var/log/v.log")
    assert path.read_text().startswith("# mine\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_tls_and_ipv6_make_an_address() -> None:
    found = found_deployment(FoundServer(1, "vllm", port=8443, host="fd00::1", tls=True), "gpu", "x")
    assert found.api == "https://[fd00::1]:8443"


def test_a_name_that_is_taken_and_a_broken_file_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    keep(found_deployment(SERVER, "gpu-8x", "kimi"), path)
    before = path.read_text()
    with pytest.raises(KeepFailed, match="already"):
        keep(found_deployment(SERVER, "gpu-8x", "kimi"), path)
    assert path.read_text() == before
    path.write_text("not = [toml")
    with pytest.raises(KeepFailed, match="can't be read as it is"):
        keep(found_deployment(SERVER, "gpu-8x", "other"), path)
    assert path.read_text() == "not = [toml"


def test_a_server_on_a_socket_is_kept_by_its_path(tmp_path: Path) -> None:
    path = keep(found_deployment(FoundServer(1, "vllm", uds="/run/a socket"), "gpu", "x"), tmp_path / "config.toml")
    api = load_settings(path).deployments["x"].api
    assert (api, socket_of(api)) == ("unix:/run/a%20socket", "/run/a socket")


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        ("vllm serve m --max-num-batched-tokens 8192", 8192),
        ("vllm serve m --max_num_batched_tokens=16384 --port 8000", 16384),
        ("vllm serve m --max-num-batched-tokens 16k", 16000),
        ("vllm serve m --max-num-batched-tokens=16K", 16384),
        ("python -m sglang.launch_server --chunked-prefill-size 4096", 4096),
        ("python -m sglang.launch_server --chunked-prefill-size -1", None),
        ("vllm serve m --max-num-batched-tokens many", None),
        ("vllm serve m --max-num-batched-tokens", None),
        ("vllm serve m", None),
    ],
)
def test_how_much_prefill_a_servers_arguments_allow_at_once(words: str, tokens: int | None) -> None:
    engine = "sglang" if "sglang" in words else "vllm"
    assert FoundServer(1, engine, argv=tuple(words.split())).batched_tokens == tokens

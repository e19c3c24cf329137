"""Logs of docker compose in which several services write: one server's lines are read, and the report says which."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tui.cli.log import log
from tui.core.logs.compose_services import ComposeServices
from tui.core.logs.load_state import Phase
from tui.core.logs.log_reader import LogReader

MADE = Path(__file__).parent.parent / "data" / "logs" / "made"
HEAD = "INFO 08-25 16:34:09 [api_server.py:1896] "


def taken(lines: list[str], wanted: str | None = None) -> tuple[list[str], ComposeServices]:
    services = ComposeServices(wanted)
    return [line for line in lines if services.take(line)], services


def test_the_server_is_read_alone() -> None:
    lines = [
        "Attaching to vllm-1, nginx-1",
        "nginx-1  | started",
        f"vllm-1   | {HEAD}vLLM API server version 0.14.0",
        "nginx-1  | connect() failed",
        "went on after a carriage return",
        "vllm-1   | +----+ a | b",
        "vllm-1   |",
        "and this belongs to it",
    ]
    kept, services = taken(lines)
    assert kept == [*lines[:3], *lines[5:]]
    assert (services.chosen, services.servers, services.seen) == ("vllm-1", ["vllm-1"], ["nginx-1", "vllm-1"])
    assert services.note is not None
    assert "2 services write in this log: only vllm-1, which holds the server" in services.note


def test_a_service_can_be_chosen() -> None:
    lines = [f"a-1  | {HEAD}one", f"b-1  | {HEAD}two", f"a-1  | {HEAD}three"]
    assert taken(lines)[0] == [lines[0], lines[2]]
    kept, services = taken(lines, "b-1")
    assert kept == [lines[1]]
    assert services.note is not None
    assert "b-1 is read; others: a-1" in services.note


@pytest.mark.parametrize(
    "line", [f"{HEAD}a | b", "| GPU | Name |", "model  | dtype", '{"message": "a | b"}', "(Worker_TP0 pid=1) x | y"]
)
def test_a_log_of_one_server_is_never_parted(line: str) -> None:
    lines = [f"{HEAD}vLLM API server version 0.14.0", *[line] * 3, "name | size"]
    kept, services = taken(lines)
    assert kept == lines
    assert services.note is None


def test_one_service_alone_is_no_news() -> None:
    lines = [f"vllm-1  | {HEAD}x", "vllm-1  |   name | size", "vllm-1  | bar"]
    kept, services = taken(lines)
    assert kept == lines
    assert services.note is None


def test_what_others_wrote_before_is_forgotten() -> None:
    reader = LogReader(2026)
    for line in (
        "web-1   | Traceback (most recent call last):",
        "web-1   | torch.OutOfMemoryError: CUDA out of memory.",
        "web-1   | x",
    ):
        reader.feed(line)
    reader.feed(f"vllm-1  | {HEAD}vLLM API server version 0.14.0")
    reader.finish()
    assert (reader.state.phase, reader.state.failure, reader.state.version) == (Phase.STARTING, None, "0.14.0")
    assert (reader.state.service, reader.state.lines) == ("vllm-1", 4)


def test_the_command_says_which_and_how_to_choose() -> None:
    path = str(MADE / "compose-two-servers.log")
    first = CliRunner().invoke(log, [path])
    assert first.exit_code == 4
    assert "2 services hold a server: chat-1 is read; others: embed-1 (readyroom log FILE --service embed-1" in first.output
    other = CliRunner().invoke(log, [path, "--service", "embed-1", "--json"])
    assert other.exit_code == 0
    document = json.loads(other.output)
    assert (document["service"], document["services"], document["phase"]) == ("embed-1", ["embed-1", "chat-1"], "ready")
    wrong = CliRunner().invoke(log, [path, "--service", "nobody"])
    assert wrong.exit_code == 2
    assert "it has: chat-1, embed-1, nginx-1" in wrong.output

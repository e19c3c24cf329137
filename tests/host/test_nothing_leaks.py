"""Nothing that logs, replies, errors or the configuration hold acts on a terminal or gets out: every headless command."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from test_api import IDLE, Replay, reply

SECRET = "sk-very-secret-key-0123456789"
HEADER = "header-secret-9876543210"
HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1m\u202egnp\u2066x\u200b\ufeff\x00\x08[bold red]markup[/][link=file:///etc/passwd]\x7f\r"
)
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
LOGS = Path(__file__).parent.parent / "data" / "logs" / "servers"
LOG = "".join(
    f"{line}{HOSTILE}\n{HOSTILE}{line}\n" for line in (LOGS / "26-kimi-k25-8xh200-ep8-ready.log").read_text().splitlines()
)
FAILED = "".join(f"{line}{HOSTILE}\n" for line in (LOGS / "09-cpu-032-kv-too-small.log").read_text().splitlines())
MODELS = reply("200 OK", json.dumps({"data": [{"id": f"kimi{HOSTILE}", "object": "model", "max_model_len": 4096}]}))
REFUSAL = reply("400 Bad Request", json.dumps({"error": {"message": f"no {HOSTILE} {SECRET} {HEADER}", "code": 400}}))


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


class Commands:
    def __init__(self, folder: Path, server: Replay) -> None:
        self.folder = folder
        self.log = folder / "vllm.log"
        config = folder / "config.toml"
        config.write_text(
            f'[deployments.kimi]\napi = "{server.url}"\nheaders = {{ X-Team = "{HEADER}" }}\n'
            f'[[deployments.kimi.engines]]\nhost = "local"\nlog = "file:{self.log}"\n'
            f'[deployments.by-command]\napi = "http://user:{SECRET}@127.0.0.1:9"\napi_key_command = "echo {SECRET}"\n'
            f'[deployments.far]\n[[deployments.far.engines]]\nhost = "exec:sh {folder}/banner"\n'
        )
        (folder / "banner").write_text("printf '\\033]0;owned\\007banner\\n' >&2; exit 9\n")
        self.env = os.environ | {
            "READYROOM_CONFIG": str(config),
            "XDG_STATE_HOME": str(folder / "state"),
            "VLLM_API_KEY": SECRET,
            "PYTHONUNBUFFERED": "1",
        }
        self.seen: set[str] = set()

    async def run(self, *words: str, data: bytes = b"") -> tuple[int, str, str]:
        """Exit code, stdout, stderr; meanwhile the command lines of all that the command starts are collected."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tui", *words, stdin=pipe, stdout=pipe, stderr=pipe, env=self.env
        )
        look = asyncio.create_task(self._collect(process.pid))
        try:
            out, errors = await asyncio.wait_for(process.communicate(data), 90)
        finally:
            look.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, out.decode(), errors.decode()

    async def _collect(self, root: int) -> None:
        from sshd import descendants

        while True:
            for pid in [root, *descendants(root)]:
                self.seen.add(command_line(pid))
            await asyncio.sleep(0.05)

    def check(self, *texts: str) -> None:
        for text in texts:
            found = ACTS.search(text)
            assert found is None, f"{found.group()!r} in {text[max(0, found.start() - 60) : found.end() + 40]!r}"
            assert SECRET not in text
            assert HEADER not in text
        for line in self.seen:
            assert SECRET not in line
            assert HEADER not in line
        for path in self.folder.joinpath("saved").glob("*"):
            assert SECRET.encode() not in path.read_bytes()
            assert HEADER.encode() not in path.read_bytes()
        for path in self.folder.joinpath("state", "readyroom").rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert SECRET.encode() not in data, path
                assert HEADER.encode() not in data, path
                assert path.stat().st_mode & 0o077 == 0, path
            else:
                assert path.stat().st_mode & 0o077 == 0, path


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[tuple[Commands, Replay]]:
    async with Replay() as server:
        server.answers = IDLE | {"GET /v1/models": MODELS, "GET /version": reply("200 OK", json.dumps({"version": HOSTILE}))}
        yield Commands(tmp_path, server), server


@pytest.mark.parametrize("log", [LOG, FAILED], ids=["ready", "failed"])
@pytest.mark.parametrize(
    "words",
    [
        ["status", "kimi"],
        ["status", "kimi", "--json"],
        ["status", "--all"],
        ["wait", "kimi", "--timeout", "6", "--grace", "1"],
        ["wait", "kimi", "--timeout", "6", "--grace", "1", "--json"],
        ["doctor", "kimi"],
        ["doctor", "kimi", "--json"],
        ["doctor", "by-command"],
        ["status", "by-command"],
    ],
    ids=" ".join,
)
async def test_of_logs_and_replies(commands: tuple[Commands, Replay], words: list[str], log: str) -> None:
    command, server = commands
    command.log.write_text(log, newline="")
    server.answers["POST /v1/completions"] = REFUSAL
    _, out, errors = await command.run(*words)
    assert out
    command.check(out, errors)


@pytest.mark.parametrize("words", [["log", "-"], ["log", "-", "--json"]], ids=" ".join)
async def test_of_a_saved_log(commands: tuple[Commands, Replay], words: list[str]) -> None:
    for log in (LOG, FAILED):
        _, out, errors = await commands[0].run(*words, data=log.encode("utf-8", "replace"))
        assert out
        commands[0].check(out, errors)


async def test_of_smoke_bench_and_the_record(commands: tuple[Commands, Replay]) -> None:
    command, server = commands
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": f"42 {HOSTILE}"}, "finish_reason": "stop"}]})
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
    body = f"data: {event}\n\ndata: {usage}\n\ndata: [DONE]\n\n".encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    refusal = REFUSAL.replace(SECRET.encode(), b"x" * len(SECRET)).replace(HEADER.encode(), b"x" * len(HEADER))
    for answer in (head + body, refusal):
        server.answers["POST /v1/chat/completions"] = answer
        for words in (
            ["smoke", "kimi"],
            ["smoke", "kimi", "--json"],
            ["bench", "kimi", "--requests", "2", "--save", str(command.folder / "saved")],
            ["bench", "kimi", "--requests", "2", "--json"],
        ):
            _, out, errors = await command.run(*words)
            assert out or errors
            command.check(out, errors)
    _, out, errors = await command.run("runs", "--json")
    command.check(out, errors)
    runs = json.loads(out)
    runs = runs["runs"] if isinstance(runs, dict) else runs
    _, out, errors = await command.run("runs")
    command.check(out, errors)
    for entry in runs[:3]:
        _, out, errors = await command.run("report", str(entry["id"]))
        assert out, errors
        command.check(out, errors)


@pytest.mark.parametrize(
    "words", [["status", "far"], ["wait", "far", "--timeout", "3"], ["doctor", "far"], ["smoke", "far"]], ids=" ".join
)
async def test_of_a_hosts_banner(commands: tuple[Commands, Replay], words: list[str]) -> None:
    _, out, errors = await commands[0].run(*words)
    assert "banner" in out + errors
    commands[0].check(out, errors)


async def test_of_the_configuration(commands: tuple[Commands, Replay]) -> None:
    command, _ = commands
    for words in (["config", "show"], ["config", "check"], ["status", "by-command", "--json"]):
        _, out, errors = await command.run(*words)
        assert out or errors
        for text in (out, errors):
            assert SECRET not in text
            assert HEADER not in text


async def test_of_a_crash_report(commands: tuple[Commands, Replay]) -> None:
    """A bug's report has the traceback and no values."""
    command, _ = commands
    site = command.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import tui.cli.context as c\n"
        "def broken(settings, target, **rest):\n"
        "    key = c.api_key(c.resolve(settings, target)[2])\n"
        "    raise RuntimeError('broken on purpose')\n"
        "c.open_session = broken\n"
    )
    command.env["PYTHONPATH"] = str(site)
    code, out, errors = await command.run("status", "kimi")
    assert code == 70, errors
    report = next((command.folder / "state").rglob("*.txt"))
    assert "broken on purpose" in report.read_text()
    command.check(out, errors, report.read_text().replace("\n", " "))

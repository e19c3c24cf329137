"""`doctor` examines what the session would watch: the same server, at the same address, with the same log."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from needs import allowed
from test_attach import Box, alone, box  # noqa: F401
from test_sources import on_path  # noqa: F401

from tui.core.checks import Check, Grade
from tui.host.local import ExecHost
from tui.services.deployment_watch import Session
from tui.services.diagnostics import _log
from tui.services.log_following import TAIL_LINES, follow_arguments
from tui.settings import Deployment, EngineSettings, Settings


def checks(out: str) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(out)["checks"]}


@pytest.mark.parametrize("options", ["--host 127.0.0.1 --port 8123", "--uds 'a socket'"])
def test_the_server_that_runs_is_examined_where_it_listens(box: Box, options: str) -> None:  # noqa: F811
    _, out, errors = alone(box, [options], "doctor local --json")
    found = checks(out)
    grades = {name: found[name]["grade"] for name in ("server", "log", "API", "model", "one token")}
    assert set(grades.values()) == {"ok"}, (found, errors)
    assert "m0.log" in found["log"]["says"]
    assert found["model"]["says"] == "m0"
    if "8123" in options:
        assert "http://127.0.0.1:8123" in found["API"]["says"]


def test_of_several_servers_none_is_guessed(box: Box) -> None:  # noqa: F811
    code, out, _ = alone(box, ["--port 8001", "--port 8000"], "doctor local --json")
    found = checks(out)
    assert code == 1
    assert found["server"]["grade"] == "fail"
    assert "vllm m0, port 8001" in found["server"]["says"]
    assert "vllm m1, port 8000" in found["server"]["says"]
    assert "--port" in found["server"]["fix"]
    assert {found[name]["grade"] for name in ("log", "API")} == {"skipped"}
    assert "one token" not in found


def test_the_port_that_is_named_is_examined(box: Box) -> None:  # noqa: F811
    _, out, _ = alone(box, ["--port 8001", "--port 8000"], "doctor local --port 8001 --json")
    found = checks(out)
    assert found["server"]["grade"] == "ok"
    assert "m0.log" in found["log"]["says"]
    assert (found["model"]["says"], found["one token"]["grade"]) == ("m0", "ok")


def namespaces(prefix: Sequence[str]) -> bool:
    return subprocess.run([*prefix, "true"], capture_output=True).returncode == 0


async def checked(log: str, prefix: Sequence[str] = ("env",)) -> Check:
    deployment = Deployment(engines=(EngineSettings(host="local", log=log),))
    async with ExecHost(prefix) as host:
        await host.connect()
        session = Session("box", "local", deployment, Settings(deployments={"box": deployment}), host)
        return await _log(session, None)


JOURNAL = json.dumps({"__CURSOR": "c1", "__REALTIME_TIMESTAMP": "1795946401000000", "MESSAGE": "vLLM API server version 0.10.1"})
DOCKER = """
    [ "$1" = inspect ] && { echo 2026-11-29T10:00:00.000000000Z; exit; }
    for name; do :; done
    [ "$name" = vllm ] || { echo "Error response from daemon: No such container: $name" >&2; exit 1; }
    echo '2026-11-29T10:00:01.500000000Z vLLM API server version 0.10.1'; exec sleep 60
"""


@pytest.mark.parametrize(
    ("log", "grade", "says"),
    [
        ("docker:vllm", Grade.OK, "docker:vllm"),
        ("docker:gone", Grade.FAIL, "No such container: gone"),
        ("journal:vllm.service", Grade.OK, "journal:vllm.service"),
        ("command:echo vLLM API server version 0.10.1; exec sleep 60", Grade.OK, "command:echo vLLM"),
        ("command:echo ready; exec sleep 60", Grade.WARN, "no line of it is of a vLLM, SGLang or llama.cpp server (1 line read)"),
        ("command:cat /nope", Grade.FAIL, "/nope: No such file or directory"),
        ("command:exec sleep 60", Grade.WARN, "it said nothing within 10 s"),
        ("command:exit 3", Grade.FAIL, "exit status 3"),
        ("command:echo ready", Grade.WARN, "its command has ended"),
        ("file:/no/such/file", Grade.FAIL, "/no/such/file"),
        ("none", Grade.SKIPPED, "none"),
    ],
)
async def test_every_kind_of_log_is_followed_as_the_session_follows_it(
    tmp_path: Path,
    on_path: Callable[[str, str], None],  # noqa: F811
    log: str,
    grade: Grade,
    says: str,
) -> None:
    installed = {program: shutil.which(program) for program in ("docker", "journalctl")}
    on_path("docker", DOCKER)
    on_path("journalctl", f"echo '{JOURNAL}'; exec sleep 60")
    # Where the real program is installed it goes before: there the stand-in is laid over it, in a namespace of its own.
    over = [f"mount --bind '{tmp_path}/bin/{program}' '{path}'" for program, path in installed.items() if path]
    prefix = ["unshare", "--mount", "/bin/sh", "-c", " && ".join([*over, 'exec "$@"']), "sh"]
    allowed(namespaces(prefix), "namespaces can't be made here (unshare)")
    check = await checked(log, prefix)
    assert check.grade is grade, check
    assert says in check.says


async def test_a_file_is_followed_by_its_path(tmp_path: Path) -> None:
    log = tmp_path / "a log.txt"
    log.write_text("vLLM API server version 0.10.1\n")
    check = await checked(f"file:{log}")
    assert (check.grade, check.says) == (Grade.OK, f"file:{log}, 0.0 MB")


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("file:/a:b.log", "file", {"path": "/a:b.log"}),
        ("docker:vllm", "docker", {"name": "vllm"}),
        ("podman:vllm", "podman", {"name": "vllm"}),
        ("journal:user/vllm.service", "journal", {"name": "user/vllm.service"}),
        ("kubectl:ns/pod/c", "kubectl", {"name": "ns/pod/c"}),
        ("tmux:%0", "tmux", {"name": "%0"}),
        ("command:ssh x 'tail -F y: z'", "command", {"name": "ssh x 'tail -F y: z'"}),
    ],
)
def test_what_the_follower_is_asked(source: str, kind: str, name: dict[str, str]) -> None:
    arguments = follow_arguments(source, resume={"offset": 7}, become=["sudo", "-n"])
    wanted = {"source": kind, "from": {"offset": 7}, "tail": TAIL_LINES, "become": ["sudo", "-n"], **name}
    assert {key: arguments[key] for key in arguments if key not in ("start_markers", "important", "noise")} == wanted
    assert arguments["start_markers"]
    assert arguments["important"]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("exec:false", 5),
        ("127.0.0.1:9", 5),
        ("exec:no-such-wrapper exec -i pod", 8),
    ],
)
def test_a_host_that_is_not_reached_has_the_exit_code_of_every_command(tmp_path: Path, target: str, code: int) -> None:
    command = [sys.executable, "-m", "tui", "doctor", "--json", "--no-token", target]
    env = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert checks(done.stdout)["connection"]["grade"] == "fail"
    assert done.returncode == code, done.stderr

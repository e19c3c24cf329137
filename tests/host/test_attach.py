"""Attach with no configuration: the command finds what serves on a host, in whatever way it was started; stand-ins for servers."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import allowed
from sshd import free_port, until

SERVER = """
import http.server, json, os, socket, socketserver, sys
def value(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None
class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        listed = {"data": [{"id": value("--served-model-name"), "object": "model"}]}
        self.reply({"/health": {}, "/v1/models": listed, "/version": {"version": "0.32.0"}}.get(self.path))
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.reply({"choices": [{"index": 0, "text": "x", "finish_reason": "length"}]})
    def reply(self, obj):
        body = json.dumps(obj).encode()
        self.send_response(200 if obj is not None else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self):
        return "client"
class Unix(socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("client", 0)
log = open(os.environ["RECORDED"]).read()
if value("--uds"):
    server = Unix(value("--uds"), Api)
else:
    server = http.server.ThreadingHTTPServer((value("--host") or "0.0.0.0", int(value("--port") or 8000)), Api)
sys.stderr.write(log)
sys.stderr.flush()
server.serve_forever()
"""
RECORDED = Path(__file__).parent.parent / "data" / "logs" / "servers" / "26-kimi-k25-8xh200-ep8-ready.log"
HERE = Path(__file__).parents[2]


class Box:
    """This machine as a host with servers on it, seen by the installed command with an empty configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = folder / "bin" / "vllm"
        script.parent.mkdir()
        script.write_text(f"#!{sys.executable}\n" + textwrap.dedent(SERVER))
        script.chmod(0o755)
        self.program = script
        (folder / "home").mkdir()
        self.env = {
            **os.environ,
            "HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
            "RECORDED": str(RECORDED),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }
        for name in ("READYROOM_CONFIG", "TMUX", "VLLM_API_KEY"):
            self.env.pop(name, None)
        self.started: list[subprocess.Popen[bytes]] = []

    def serve(self, *options: str, shell: str = "exec %s > vllm.log 2>&1", name: str = "kimi") -> subprocess.Popen[bytes]:
        """Start a server through a shell command, `%s` being the server's own; return when it listens."""
        line = " ".join([f"'{self.program}'", "serve", "/models/kimi", "--served-model-name", name, *options])
        process = subprocess.Popen(["/bin/sh", "-c", shell % line], cwd=self.folder, env=self.env, start_new_session=True)
        self.started.append(process)
        if "--port" in options:
            port = int(options[options.index("--port") + 1])
            until(lambda: _listens(port), what=f"port {port} open")
        return process

    def command(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "tui", *words], env=self.env, cwd=HERE, stdin=subprocess.DEVNULL, capture_output=True, timeout=90
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def close(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


ALONE = ["unshare", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--"]
"""In namespaces of their own, so that other servers of this machine are neither seen nor in the way."""


def alone(box: Box, servers: list[str], command: str) -> tuple[int, str, str]:
    """Run servers and then the command, and nothing else, in namespaces of their own."""
    allowed(subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0, "namespaces can't be made here (unshare)")
    lines = ["ip link set lo up"]
    for number, options in enumerate(servers):
        lines.append(f"'{box.program}' serve /models/m{number} --served-model-name m{number} {options} > m{number}.log 2>&1 &")
    lines += [f"until [ -s m{number}.log ]; do sleep 0.1; done" for number in range(len(servers))]
    lines.append(f"cd '{HERE}'; '{sys.executable}' -m tui {command}")
    done = subprocess.run([*ALONE, "sh", "-c", "\n".join(lines)], cwd=box.folder, env=box.env, capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_only_server_is_found_on_its_own_port(box: Box) -> None:
    code, out, errors = alone(box, ["--port 8123"], "status local --json")
    assert code == 0, errors
    document = json.loads(out)
    assert document["api"]["models"][0]["id"] == "m0"
    assert [(server["port"], server["uds"]) for server in document["servers"]] == [(8123, None)]
    assert document["log"]["source"] == str(box.folder / "m0.log")


@pytest.mark.parametrize("command", ["smoke local", "bench local --requests 1"])
def test_a_port_without_a_server_means_no_other_server(box: Box, command: str) -> None:
    code, out, errors = alone(box, ["--port 8000"], f"{command} --port 8002 --json")
    assert (code, out) == (5, ""), errors


def test_init_writes_the_file_that_is_named(box: Box) -> None:
    file = box.folder / "a new one.toml"
    code, out, errors = alone(box, ["--port 8123"], f"init local --name kimi --config '{file}'")
    assert code == 0, errors
    assert "[deployments.kimi]" in file.read_text()
    assert f"readyroom kimi --config '{file}'" in out
    assert not (box.folder / "config" / "readyroom" / "config.toml").exists()


@pytest.mark.parametrize("options", ["--host 127.0.0.1 --port 8124", "--host 0.0.0.0 --port 8125", "--uds 'a socket'"])
def test_wherever_it_listens(box: Box, options: str) -> None:
    code, out, errors = alone(box, [options], "wait local --timeout 60 --json")
    assert code == 0, errors
    assert json.loads(out.splitlines()[-1])["models"] == ["m0"]


@pytest.mark.parametrize("command", ["status local", "wait local", "smoke local", "bench local --requests 1"])
def test_several_servers_are_listed_and_none_is_guessed(box: Box, command: str) -> None:
    code, out, errors = alone(box, ["--port 8001", "--port 8002"], command)
    assert code == 2
    assert "ready" not in out
    assert "2 servers run on local" in errors
    assert "--port 8001  vllm m0" in errors
    assert "--port 8002  vllm m1" in errors
    assert "readyroom init local" in errors


@pytest.mark.parametrize(
    "command", ["status local", "wait local", "smoke local", "bench local --requests 1 --output-tokens 1", "doctor local"]
)
def test_the_port_names_one_of_several_everywhere(box: Box, command: str) -> None:
    code, out, errors = alone(box, ["--port 8001", "--port 8002"], f"{command} --port 8001 --json")
    assert code in (0, 1), errors
    assert "servers run on" not in errors
    if command.startswith("status"):
        assert [model["id"] for model in json.loads(out)["api"]["models"]] == ["m0"]
    else:
        assert "m0" in out
        assert "m1" not in out


def test_one_of_several_is_named(box: Box) -> None:
    code, out, _ = alone(box, ["--port 8001", "--port 8002"], "status local --port 8002 --json")
    document = json.loads(out)
    assert (code, document["api"]["models"][0]["id"]) == (0, "m1")
    assert document["log"]["source"] == str(box.folder / "m1.log")
    assert [server["port"] for server in document["servers"]] == [8001, 8002]


def test_none_is_waited_for(box: Box) -> None:
    code, out, _ = alone(box, [], "status local --json")
    document = json.loads(out)
    assert (code, document["status"], document["api"]["reach"]) == (3, "waiting", "closed")
    assert "no server process on this host yet" in document["log"]["problem"]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.close()


@pytest.mark.parametrize(
    ("shell", "source"),
    [
        ("exec %s > 'a log.txt' 2>&1", "a log.txt"),
        ("exec nohup %s > nohup.out 2>&1", "nohup.out"),
        ("%s 2>&1 | tee -a tee.log > /dev/null", "tee.log"),
        ("%s 2>&1 | tee -a tee.log > other.log", "tee.log"),
        ("%s 2>&1 | sed -u s/a/a/ | tee 'a tee.log' > /dev/null", "a tee.log"),
        ("%s 2>&1 | cat > of-a-reader.log", "of-a-reader.log"),
        ("exec %s > /dev/null 2> errors.log", "errors.log"),
    ],
)
def test_its_log_is_found_however_it_was_started(box: Box, shell: str, source: str) -> None:
    port = free_port()
    box.serve("--port", str(port), shell=shell)
    code, out, errors = box.command("status", "local", "--port", str(port), "--json")
    assert code == 0, errors
    document = json.loads(out)
    assert document["log"]["source"] == str(box.folder / source)
    assert document["load"]["phase"] == "ready"
    assert document["api"]["models"][0]["id"] == "kimi"


@pytest.mark.tmux
def test_its_log_is_found_in_a_pane_of_tmux(box: Box) -> None:
    box.env["TMUX_TMPDIR"] = str(box.folder)
    port = free_port()
    box.serve("--port", str(port), shell='tmux -f /dev/null new-session -d -x 200 -y 50 "%s"; sleep 100')
    try:
        code, out, _ = box.command("status", "local", "--port", str(port), "--json")
    finally:
        subprocess.run(["tmux", "kill-server"], env=box.env, check=False)
    assert (code, json.loads(out)["log"]["source"]) == (0, "tmux:%0")


@pytest.mark.parametrize(
    ("shell", "why"), [("exec %s > /dev/null 2>&1", "/dev/null"), ("%s 2>&1 | sleep 100", "a pipe to sleep (pid ")]
)
def test_where_the_output_cannot_be_read_the_api_still_tells(box: Box, shell: str, why: str) -> None:
    port = free_port()
    box.serve("--port", str(port), shell=shell)
    code, out, _ = box.command("status", "local", "--port", str(port), "--json")
    document = json.loads(out)
    assert (code, document["status"], document["load"]) == (0, "ready", None)
    assert why in document["log"]["problem"]
    assert "the API" in document["log"]["problem"] or "its API" in document["log"]["problem"]

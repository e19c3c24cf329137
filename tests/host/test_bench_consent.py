"""Whether a server that serves others is benchmarked is asked, and if nobody can be asked it is left alone."""

import os
import pty
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from needs import need
from scripted_server import Exchange, Scripted, scripted
from test_bench_command import COMMAND, SHORT, bench, environment, good

SGLANG = b'sglang:num_running_reqs{engine_type="unified"} 3.0\nsglang:num_queue_reqs{engine_type="unified"} 1.0\n'


@contextmanager
def guarded(tmp_path: Path, tls: bool, metrics: bytes) -> Iterator[Scripted]:
    """Serve only requests with the right header, with a self-signed certificate if `tls`."""
    context = None
    if tls:
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout key.pem -out cert.pem"
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with scripted(good, tls=context) as server:

        def answer(exchange: Exchange) -> None:
            if exchange.headers.get("x-key") == "hush":
                server.single(exchange)
            else:
                exchange.plain("401 Unauthorized", b"{}")

        server.metrics, server.answer = metrics, answer
        yield server


@pytest.mark.parametrize(("target", "tls"), [("url", False), ("url", True), ("direct", True), ("host", True), ("tunnel", True)])
def test_a_busy_server_is_asked_about_as_it_is_loaded(tmp_path: Path, target: str, tls: bool) -> None:
    if tls:
        need(shutil.which("openssl"), "openssl isn't installed")
    with guarded(tmp_path, tls, SGLANG) as server:
        (tmp_path / "config" / "readyroom").mkdir(parents=True)
        direct = "direct = true\n" if target == "direct" else ""
        config = f'[deployments.box]\napi = "{server.url}"\n{direct}[[deployments.box.engines]]\nhost = "local"\nlog = "none"\n'
        (tmp_path / "config" / "readyroom" / "config.toml").write_text(config)
        where = ("--base-url", server.url) if target == "url" else ("box", "--vantage", target)
        done = bench(tmp_path, *where, *SHORT, "--header", "X-Key=hush", *(("--insecure",) if tls else ()))
        assert done.returncode == 2, done.stderr
        assert "serving 4 requests from others" in done.stderr
        assert "hush" not in done.stderr
        assert server.served == 0


@pytest.mark.parametrize(
    ("vantage", "metrics"),
    [("direct", b""), ("direct", b"vllm:num_requests_running NaN\n"), ("tunnel", b"python_gc_objects_collected_total 3.0\n")],
    ids=["none", "bad", "others"],
)
def test_a_script_is_told_of_a_server_that_does_not_say_whether_it_is_busy(tmp_path: Path, metrics: bytes, vantage: str) -> None:
    with scripted(good) as server:
        server.metrics = metrics
        (tmp_path / "config" / "readyroom").mkdir(parents=True)
        config = f'[deployments.box]\napi = "{server.url}"\n[[deployments.box.engines]]\nhost = "local"\nlog = "none"\n'
        (tmp_path / "config" / "readyroom" / "config.toml").write_text(config)
        where = ("--base-url", server.url) if vantage == "direct" else ("box", "--vantage", vantage)
        done = bench(tmp_path, *where, *SHORT)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("does not say whether it is serving others") == 1
        quiet = bench(tmp_path, *where, *SHORT, "--yes")
        assert (quiet.returncode, "does not say" in quiet.stderr) == (0, False)


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("code", "typed", "served"), [(0, b"y\n", True), (130, b"n\n", False), (130, b"\x04", False), (130, b"\x03", False)]
)
@pytest.mark.parametrize("metrics", [SGLANG, b""], ids=["seen", "not-seen"])  # asked before anything is begun; in the middle
def test_who_sits_at_a_terminal_is_asked(tmp_path: Path, metrics: bytes, code: int, typed: bytes, served: bool) -> None:
    with scripted(good) as server:
        server.metrics = metrics
        pid, terminal = pty.fork()
        if pid == 0:
            arguments = [*COMMAND, "--base-url", server.url, *SHORT]
            os.execve(arguments[0], arguments, environment(tmp_path, TERM="xterm", COLUMNS="100"))
        seen = b""
        try:
            while b"Go on? [y/N]" not in seen:
                seen += os.read(terminal, 65536)
            assert server.served == 0
            os.write(terminal, typed)
            with suppress(OSError):  # how Linux tells the end of a terminal
                while piece := os.read(terminal, 65536):
                    seen += piece
        finally:
            os.close(terminal)
            _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == code, seen.decode()
    assert (server.served > 0) is served
    words = "is serving 4 requests from others" if metrics else "does not say whether it is serving others"
    assert words in " ".join(seen.decode().split())

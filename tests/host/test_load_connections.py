"""Connections of the load loop: Unix sockets, TLS, large prompts."""

import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from loads import good, load
from scripted_server import Exchange, scripted

from tui.wire.request_record import COMPLETED, FAILED


def test_a_unix_socket(tmp_path: Path) -> None:
    with scripted(good, unix=str(tmp_path / "api.sock")) as server:
        outcome = load(server.url, {"concurrency": 2, "requests": 4})
    assert [r.state for r in outcome.records] == [COMPLETED] * 4


def test_a_unix_socket_whose_queue_is_full_is_asked_again(tmp_path: Path) -> None:
    """The kernel says EAGAIN for a Unix socket, and means that nothing was begun."""
    with scripted(good, unix=str(tmp_path / "api.sock")) as server:
        server.listener.listen(4)
        outcome = load(server.url, {"concurrency": 64, "requests": 128})
    assert [r.state for r in outcome.records] == [COMPLETED] * 128


def test_a_unix_socket_whose_queue_stays_full(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "api.sock"))
        listener.listen(1)
        order = {"concurrency": 6, "requests": 6, "connect_timeout_s": 0.5, "stall_s": 0.5}
        outcome = load(f"unix:{tmp_path / 'api.sock'}", order)
    assert {r.kind for r in outcome.records} == {"connect_timeout", "stalled"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a self-signed certificate for 127.0.0.1, with its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
        *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", str(path) + ".crt"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(str(path) + ".crt").read_bytes())
    return path


def secured(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_tls_keeps_the_kernels_stamps(certificate: Path) -> None:
    with scripted(good, tls=secured(certificate)) as server:
        outcome = load(server.url, {"concurrency": 2, "requests": 6}, ca=Path(str(certificate) + ".crt").read_text())
    assert [r.state for r in outcome.records] == [COMPLETED] * 6
    assert outcome.health.kernel_stamps
    assert all(r.start < r.chunks[0] <= r.end for r in outcome.records)


@pytest.mark.parametrize(
    ("order", "most"),
    [
        ({"schedule": [i / 20 for i in range(40)]}, 8),
        ({"concurrency": 8, "requests": 16, "stagger_s": 1.0}, 8),
    ],
    ids=["open loop", "stagger"],
)
def test_tickets_on_an_idle_tls_connection_do_not_end_it(certificate: Path, order: dict[str, Any], most: int) -> None:
    """TLS 1.3 servers send them right after the handshake, when nothing was asked yet."""
    with scripted(good, tls=secured(certificate)) as server:
        outcome = load(server.url, order, verify=False)
        assert server.connections <= most
    assert {r.state for r in outcome.records} == {COMPLETED}


def test_a_goodbye_of_tls_that_comes_with_the_end_of_the_body(certificate: Path) -> None:
    """The server then waits for the client's goodbye: nothing else arrives."""

    def script(exchange: Exchange) -> str:
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        exchange.send(b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n')
        assert isinstance(exchange.sock, ssl.SSLSocket)
        exchange.sock.settimeout(20.0)
        exchange.sock.unwrap()
        return "close"

    with scripted(script, tls=secured(certificate)) as server:
        outcome = load(server.url, {"concurrency": 2, "requests": 4, "stall_s": 5.0}, verify=False)
    assert [r.state for r in outcome.records] == [COMPLETED] * 4


def test_an_untrusted_certificate_is_refused(certificate: Path) -> None:
    with scripted(good, tls=secured(certificate)) as server:
        outcome = load(server.url, {"concurrency": 1, "requests": 2})
        assert [r.kind for r in outcome.records] == ["tls"] * 2
        assert "certificate" in outcome.records[0].error.lower()
        trusting = load(server.url, {"concurrency": 1, "requests": 2}, verify=False)
    assert [r.state for r in trusting.records] == [COMPLETED] * 2


def test_a_large_prompt_is_sent_in_pieces() -> None:
    with scripted(good) as server:
        outcome = load(server.url, {"concurrency": 2, "requests": 2}, input_tokens=1_000_000)
    assert [r.state for r in outcome.records] == [COMPLETED] * 2


def test_a_slow_upload_is_no_stall() -> None:
    """A prompt of megabytes at 1.6 MB/s: bytes flow all the while, and for longer than a stall."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                got = b""
                while b"\r\n\r\n" not in got:
                    got += sock.recv(65536)
                head, _, body = got.partition(b"\r\n\r\n")
                left = int(head.lower().split(b"content-length:")[1].split()[0]) - len(body)
                while left > 0:
                    threading.Event().wait(0.02)
                    left -= len(sock.recv(32768))
                Exchange(sock, head, {}, 0, 0).reply()

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        order = {"concurrency": 1, "requests": 1, "stall_s": 1.0}
        outcome = load(url, order, prompts=[{"prompt": "z " * 2_000_000}])
        thread.join()
    assert [r.state for r in outcome.records] == [COMPLETED]
    assert outcome.end - outcome.begin > 2.0


def test_a_server_that_refuses_a_prompt_before_it_has_come_is_heard() -> None:
    """As a proxy refuses what is too large: it answers after the head, and closes with the rest unread, so that sending fails."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            for _ in range(3):
                sock, _ = listener.accept()
                with sock:
                    sock.recv(1024)
                    sock.sendall(b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 9\r\n\r\ntoo large")

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        outcome = load(url, {"concurrency": 1, "requests": 3}, input_tokens=2_000_000)
        thread.join()
    assert [(r.state, r.kind, r.error) for r in outcome.records] == [(FAILED, "http_413", "too large")] * 3

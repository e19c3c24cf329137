"""HTTP through a host: over forwards of a real sshd, over the probe's relay, and from this machine."""

import asyncio
import ctypes
import datetime
import ipaddress
import os
import socket
import ssl
from pathlib import Path

import httpx
import pytest
from conftest import MakeSshd
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from endpoint import Endpoint
from needs import allowed
from sshd import Sshd, eventually, free_port

from tui.host.base import Host, HostError, NotPermitted, PortClosed, Unreachable
from tui.host.http_transport import HostTransport
from tui.host.local import LocalHost
from tui.host.open import open_host
from tui.host.ssh import SshHost

PIDFD_GETFD = 438  # the number of the system call, the same on every architecture of Linux
WAYS = ["ssh", "ssh without forwarding", "exec", "local"]


@pytest.fixture(params=[pytest.param(way, marks=pytest.mark.sshd) if "ssh" in way else way for way in WAYS])
def host(request: pytest.FixtureRequest) -> Host:
    """Make a host of each kind, not yet connected."""
    match request.param:
        case "local":
            return LocalHost()
        case "exec":
            return open_host("exec:env READYROOM_TEST=1")
        case way:
            make: MakeSshd = request.getfixturevalue("make_sshd")
            options = ["AllowTcpForwarding no", "AllowStreamLocalForwarding no"] if "without" in way else []
            return SshHost("gpu-box", config_files=[make(*options).client_config])


def client_of(host: Host, **options: object) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=host.transport(**options), timeout=10)  # type: ignore[arg-type]


async def test_requests_and_replies(host: Host) -> None:
    async with Endpoint() as endpoint, host:
        await host.connect()
        async with client_of(host, verify=False) as client:
            assert (await client.get(f"{endpoint.url}/tiny")).text == "ok"
            big = await client.get(f"{endpoint.url}/big?{5 << 20}")
            assert len(big.content) == 5 << 20
            assert (await client.post(f"{endpoint.url}/tiny", content=b"")).status_code == 200
            replies = await asyncio.gather(*(client.get(f"{endpoint.url}/big?{n * 10000}") for n in range(20)))
            assert [len(reply.content) for reply in replies] == [n * 10000 for n in range(20)]
            # One connection is used again, and one that the server closed meanwhile is not.
            before = endpoint.connections
            await client.get(f"{endpoint.url}/tiny")
            assert endpoint.connections == before


async def test_events_stream_and_leaving_reaches_the_server(host: Host) -> None:
    async with Endpoint() as endpoint, host:
        await host.connect()
        async with client_of(host, verify=False) as client:
            async with client.stream("GET", f"{endpoint.url}/events") as reply:
                lines = reply.aiter_lines()
                seen = [line async for line in _first(lines, 6)]
                assert seen[::2] == ['data: {"n": 0}', 'data: {"n": 1}', 'data: {"n": 2}']
            await asyncio.wait_for(endpoint.left.wait(), 5)

            # The same when the task that reads is cancelled.
            endpoint.left.clear()
            started = asyncio.Event()

            async def read() -> None:
                async with client.stream("GET", f"{endpoint.url}/events") as reply:
                    async for _ in reply.aiter_bytes():
                        started.set()

            task = asyncio.create_task(read())
            await asyncio.wait_for(started.wait(), 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(endpoint.left.wait(), 5)


async def _first(lines, count: int):  # type: ignore[no-untyped-def]
    async for line in lines:
        yield line
        count -= 1
        if not count:
            return


async def test_a_closed_port_is_told_apart(host: Host) -> None:
    async with host:
        await host.connect()
        async with client_of(host, verify=False) as client:
            for _ in range(2):
                with pytest.raises(httpx.ConnectError) as caught:
                    await client.get(f"http://127.0.0.1:{free_port()}/")
                assert isinstance(caught.value.__cause__, PortClosed)


async def test_a_unix_socket(host: Host, tmp_path: Path) -> None:
    path = str(tmp_path / "api.sock")
    async with Endpoint(path=path), host:
        await host.connect()
        async with client_of(host, verify=False, uds=path) as client:
            assert (await client.get("http://api/tiny")).text == "ok"
        async with client_of(host, verify=False, uds=str(tmp_path / "missing")) as client:
            with pytest.raises(httpx.ConnectError) as caught:
                await client.get("http://api/tiny")
            assert isinstance(caught.value.__cause__, PortClosed)


async def test_a_read_time_out(host: Host) -> None:
    async with Endpoint(gap=60) as endpoint, host:
        await host.connect()
        async with httpx.AsyncClient(transport=host.transport(verify=False), timeout=httpx.Timeout(10, read=0.5)) as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.get(f"{endpoint.url}/events")


async def test_nothing_listens_here(host: Host) -> None:
    def listeners() -> set[str]:
        found = set()
        for family in ("tcp", "tcp6"):
            inodes = {Path(f"/proc/self/fd/{fd.name}").readlink().name for fd in _descriptors()}
            for line in Path(f"/proc/self/net/{family}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                    found.add(words[1])
        return found

    def _descriptors() -> list[Path]:
        return [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]

    async with Endpoint() as endpoint, host:
        before = listeners()
        assert before  # the endpoint's own: the search works
        await host.connect()
        async with client_of(host, verify=False) as client, client.stream("GET", f"{endpoint.url}/events") as reply:
            await anext(reply.aiter_bytes())
            assert listeners() == before


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Make a server's TLS context for 127.0.0.1, and the file that a client must trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gpu-box")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, private = folder / "ca.pem", folder / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, private)
    return context, pem


async def test_tls_ends_here_and_is_checked(host: Host, tmp_path: Path) -> None:
    context, pem = self_signed(tmp_path)
    async with Endpoint(tls=context) as endpoint, host:
        await host.connect()
        async with client_of(host, verify=ssl.create_default_context(cafile=str(pem))) as client:
            assert (await client.get(f"{endpoint.url}/tiny")).text == "ok"
            assert len((await client.get(f"{endpoint.url}/big?{1 << 20}")).content) == 1 << 20
        async with client_of(host, verify=str(pem)) as client:
            assert (await client.get(f"{endpoint.url}/tiny")).text == "ok"
        with pytest.raises(NotPermitted, match="no-such-file"):
            host.transport(verify="/no-such-file")
        async with client_of(host) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(f"{endpoint.url}/tiny")


# -- SSH alone ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.sshd
async def test_forbidden_and_closed_have_codes_of_their_own(make_sshd: MakeSshd) -> None:
    """The contract with OpenSSH: code 1 is "forbidden", code 2 "nothing listens"."""
    import asyncssh

    for option, expected in (
        ("AllowTcpForwarding no", 1),
        ("AllowTcpForwarding yes", 2),
        (f"PermitOpen 127.0.0.1:{free_port()}", 1),
    ):
        sshd = make_sshd(option)
        async with asyncssh.connect(
            "127.0.0.1", sshd.port, config=[str(sshd.client_config)], known_hosts=str(sshd.known_hosts)
        ) as connection:
            with pytest.raises(asyncssh.ChannelOpenError) as caught:
                await connection.open_connection("127.0.0.1", free_port())
            assert caught.value.code == expected, option


@pytest.mark.sshd
async def test_forbidden_and_no_python_says_both(make_sshd: MakeSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.host.shell.PYTHONS", ("/no/such/python3",))
    sshd = make_sshd("AllowTcpForwarding no")
    async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
        await host.connect()
        async with client_of(host, verify=False) as client:
            with pytest.raises(httpx.ConnectError) as caught:
                await client.get("http://127.0.0.1:8000/")
    error = caught.value.__cause__
    assert isinstance(error, NotPermitted)
    assert "forbids forwarding" in error.cause
    assert "relay" in error.cause
    assert "AllowTcpForwarding" in error.advice


@pytest.mark.sshd
async def test_a_lost_link_ends_a_stream_and_the_transport_serves_the_next_connection(sshd: Sshd) -> None:
    async with Endpoint() as endpoint, SshHost("gpu-box", config_files=[sshd.client_config]) as host:
        await host.connect()
        async with client_of(host, verify=False) as client:
            reading = asyncio.create_task(client.get(f"{endpoint.url}/events"))
            await eventually(lambda: endpoint.requests, what="the request at the server")
            sshd.stop()
            with pytest.raises(httpx.HTTPError):
                await reading
            with pytest.raises(httpx.ConnectError) as caught:
                await client.get(f"{endpoint.url}/tiny")
            assert isinstance(caught.value.__cause__, Unreachable)
            sshd.start()
            await host.connect()
            assert (await client.get(f"{endpoint.url}/tiny")).text == "ok"


def no_delay(sshd: Sshd) -> set[bool]:
    """TCP_NODELAY of the clients' connections that sshd's session processes hold, read from their own sockets."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = set()
    for pid in sshd.sessions():
        handle = os.pidfd_open(pid)
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if not entry.readlink().name.startswith("socket:"):
                continue
            number = libc.syscall(PIDFD_GETFD, handle, int(entry.name), 0)
            allowed(number >= 0, f"the sockets of sshd can't be looked at: {os.strerror(ctypes.get_errno())}")
            with socket.socket(fileno=number) as theirs:
                if theirs.family == socket.AF_INET and theirs.getsockname()[1] == sshd.port:
                    found.add(bool(theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        os.close(handle)
    return found


@pytest.mark.sshd
async def test_a_command_before_the_first_forward_turns_nagle_off(sshd: Sshd) -> None:
    """The contract with OpenSSH: until a session has run a command, it holds small replies back for acknowledgements.

    What that costs is measured in tests/benchmarks.
    """
    import asyncssh

    async with (
        asyncssh.connect("127.0.0.1", sshd.port, config=[str(sshd.client_config)], known_hosts=str(sshd.known_hosts)) as connection,
        Endpoint() as endpoint,
    ):
        _, writer = await connection.open_connection("127.0.0.1", endpoint.port)
        assert no_delay(sshd) == {False}
        writer.close()
    await eventually(lambda: not sshd.sessions(), what="the end of the first session")
    async with Endpoint() as endpoint, SshHost("gpu-box", config_files=[sshd.client_config]) as host:
        await host.connect()
        async with client_of(host, verify=False) as client:
            await client.get(f"{endpoint.url}/tiny")
            assert no_delay(sshd) == {True}


# -- httpx's private name ----------------------------------------------------------------------------------------------------------


def test_the_one_private_name_of_httpx_is_where_the_pool_lies() -> None:
    """httpx is pinned below 0.29 for this: a transport whose `_pool` is replaced must use it for everything."""
    import httpcore

    assert isinstance(httpx.AsyncHTTPTransport()._pool, httpcore.AsyncConnectionPool)
    assert httpx.__version__ < "0.29"


async def test_the_replaced_pool_is_what_connects() -> None:
    dialled = []

    async def dial(host: str, port: int, path: str | None) -> object:
        dialled.append((host, port, path))
        raise HostError("stop here")

    transport = HostTransport(dial, verify=False)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport) as client:
        with pytest.raises(httpx.ConnectError, match="stop here"):
            await client.get("http://gpu:8000/")
    assert dialled == [("gpu", 8000, None)]

"""The SSH adapter over a real sshd: commands, ways to a host, refusals in words, losses."""

import asyncio
import os
import pwd
import signal
import socket
import time
from pathlib import Path

import pytest
from conftest import MakeSshd
from listening import Listening
from needs import allowed
from sshd import Sshd, eventually, free_port, until

from tui.core.connection import LinkState
from tui.host.base import HostError, ProbeFailed, Refused, Unreachable
from tui.host.ssh import STANDING_LIMIT, SshHost

pytestmark = pytest.mark.sshd


def host_of(sshd: Sshd, target: str = "gpu-box") -> SshHost:
    return SshHost(target, config_files=[sshd.client_config])


async def failure(host: SshHost) -> HostError:
    async with host:
        with pytest.raises(HostError) as caught:
            await host.connect()
        assert host.connection.cause == caught.value.cause
    return caught.value


# -- commands ----------------------------------------------------------------------------------------------------------------------

HOSTILE = ["$(id)", "`id`", "a b", "it's", '"', "\\", "new\nline", "*", "-n", "", "ü", "!!", "~root", "a\tb", "%s", "\udcff"]


async def test_words_arrive_as_they_were_given(sshd: Sshd) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        done = await host.run(["printf", "%s\\0", *HOSTILE])
    assert done.status == 0
    assert done.stdout == b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in HOSTILE)


async def test_input_output_and_status(sshd: Sshd) -> None:
    data = bytes(range(256)) * 4096
    async with host_of(sshd) as host:
        await host.connect()
        done = await host.run(["sh", "-c", "cat; echo oops >&2; exit 3"], input=data)
        assert (done.status, done.stdout, done.stderr) == (3, data, b"oops\n")
        missing = await host.run(["no-such-program"])
        assert missing.status == 127
        with pytest.raises(TimeoutError):
            await host.run(["sleep", "60"], timeout=0.3)
        with pytest.raises(HostError, match="more than 16 MiB"):
            await host.run(["yes"])
        with pytest.raises(ValueError, match="NUL"):
            await host.run(["echo", "a\0b"])


async def test_nothing_of_a_command_stands_in_the_remote_command_line(sshd: Sshd) -> None:
    sshd.stop()
    seen = sshd.folder / "seen"
    sshd.options.append(f'ForceCommand echo "$SSH_ORIGINAL_COMMAND" >> {seen}; exec /bin/sh')
    sshd.start()
    async with host_of(sshd) as host:
        await host.connect()
        assert (await host.run(["echo", "a path"])).stdout == b"a path\n"
        await (await host.start_probe("watch", {"paths": ["/a path"]})).close()
    assert set(seen.read_text().splitlines()) == {"exec /bin/sh"}


async def test_noise_of_start_up_files_reaches_no_parser(sshd: Sshd) -> None:
    allowed(pwd.getpwuid(os.getuid()).pw_shell.endswith("bash"), "the login shell here isn't bash")
    ran = sshd.home / "ran"
    (sshd.home / ".bashrc").write_text(
        'printf \'motd \\033]0;title\\007\\n{"f": "hello"}\\nreadyroom:begin\\nno newline\'\n'
        f"echo warning >&2; touch {ran}\nPATH=/nowhere; cd /; alias printf=false\n"
    )
    async with host_of(sshd) as host:
        await host.connect()
        done = await host.run(["sh", "-c", "echo out; echo err >&2"])
        assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
        probe = await host.start_probe("watch", {"hz": 2.0})
        assert probe.hello["role"] == "watch"
        await probe.close()
    assert ran.exists()


NO_SHELL = [
    (
        "ForceCommand echo 'This account is currently not available.'; exit 1",
        "",
        "status 1: This account is currently not available",
    ),
    ("ForceCommand /usr/sbin/nologin", "", "This account is currently not available"),
    ("ForceCommand echo hello", "", "gave no shell: it ended with status 0: hello"),
    ("ForceCommand internal-sftp", "", "gave no shell"),
    ("ForceCommand yes", "", "print without end"),
    ("ForceCommand cat", "", "repeats what it reads"),
    ("MaxSessions 0", "", "session"),
    ("MaxSessions 1", "", "session"),
    ("", "exit 3", "ended with status 3"),
    ("", "exec cat", "repeats what it reads"),
    ("", "echo no entry >&2; exit 4", "ended with status 4: no entry"),
]


@pytest.mark.parametrize(("option", "start_up", "words"), NO_SHELL)
async def test_a_login_that_gives_no_shell_is_refused(sshd: Sshd, option: str, start_up: str, words: str) -> None:
    sshd.stop()
    sshd.options += [option] if option else []
    sshd.start()
    (sshd.home / ".bashrc").write_text(f"{start_up}\n")
    async with host_of(sshd) as host:
        async with asyncio.timeout(9):
            with pytest.raises(Refused) as caught:
                await host.connect()
        assert words in caught.value.cause
        assert caught.value.advice
        assert ("MaxSessions" in caught.value.advice) == option.startswith("MaxSessions")
        assert host.connection.link is LinkState.REFUSED
    await eventually(lambda: not sshd.sessions(), what="the end of all processes")


async def test_a_start_up_file_that_goes_on_is_told_in_time(sshd: Sshd) -> None:
    (sshd.home / ".bashrc").write_text("echo waiting for the token; exec sleep 60\n")
    async with host_of(sshd) as host:
        started = time.monotonic()
        with pytest.raises(Unreachable, match="gave no shell within 10 s: waiting for the token"):
            await host.connect()
        assert time.monotonic() - started < 11
        assert ".bashrc" in (host.connection.advice or "")


async def test_few_standing_channels(sshd: Sshd) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        probes = [await host.start_probe("watch", {}) for _ in range(STANDING_LIMIT)]
        with pytest.raises(ProbeFailed, match="6 probes"):
            await host.start_probe("watch", {})
        assert (await host.run(["echo", "room"])).stdout == b"room\n"
        await probes[0].close()
        await (await host.start_probe("watch", {})).close()


async def test_the_banner_is_cleaned(sshd: Sshd) -> None:
    banner = sshd.folder / "banner"
    banner.write_bytes(b"\x1b]0;owned\x07Welcome\x1b[31m\nto the lab\n")
    sshd.stop()
    sshd.options.append(f"Banner {banner}")
    sshd.start()
    async with host_of(sshd) as host:
        await host.connect()
        assert "Welcome\nto the lab" in host.banner
        assert "\x1b" not in host.banner


# -- ways to a host ----------------------------------------------------------------------------------------------------------------


async def test_through_jumps(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    sshd.write_client_config(
        f"Host first\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}",
        "Host second\n  HostName 127.0.0.1\n  ProxyJump first",
        f"  Port {sshd.port}\n  User {sshd.user}",
        "Host gpu-box\n  ProxyJump second,first",
    )
    async with host_of(sshd) as host:
        await host.connect()
        assert (await host.run(["echo", "far"])).stdout == b"far\n"
    assert sshd.log.read_text().count("Accepted publickey") == 4


async def test_the_key_of_a_jump_is_checked_too(make_sshd: MakeSshd) -> None:
    near, far = make_sshd(), make_sshd()
    far.write_client_config(
        f"Host gpu-box\n  ProxyJump {near.user}@127.0.0.1:{near.port}",
        f"Match host 127.0.0.1 originalhost 127.0.0.1\n  IdentityFile {near.identity}",
    )
    error = await failure(host_of(far))
    assert isinstance(error, Refused)
    assert f"[127.0.0.1]:{near.port}" in error.cause
    far.known_hosts.write_text(far.host_line() + near.host_line())
    async with host_of(far) as host:
        await host.connect()


async def test_a_jump_that_forbids_forwarding(make_sshd: MakeSshd) -> None:
    near, far = make_sshd("AllowTcpForwarding no"), make_sshd()
    far.known_hosts.write_text(far.host_line() + near.host_line())
    far.write_client_config(
        f"Host gpu-box\n  ProxyJump {near.user}@127.0.0.1:{near.port}", f"Host 127.0.0.1\n  IdentityFile {near.identity}"
    )
    error = await failure(host_of(far))
    assert isinstance(error, Refused)
    assert "doesn't forward" in error.cause


async def test_a_jump_that_cannot_reach_the_host(sshd: Sshd) -> None:
    sshd.write_client_config(
        f"Host gpu-box\n  Port {free_port()}\n  ProxyJump jump",
        f"Host jump\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}",
    )
    error = await failure(host_of(sshd))
    assert isinstance(error, Unreachable)
    assert "jump host can't reach" in error.cause


async def test_jumps_in_a_circle(sshd: Sshd) -> None:
    sshd.write_client_config("Host gpu-box\n  ProxyJump other", "Host other\n  ProxyJump gpu-box")
    assert "circle" in (await failure(host_of(sshd))).cause


async def test_through_a_proxy_command_that_talks_on_stderr(sshd: Sshd, tmp_path: Path) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(
        "import os, selectors, socket, sys\n"
        "sys.stderr.write('connecting\\n'); sys.stderr.flush(); os.close(2)\n"
        "far = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "wait = selectors.DefaultSelector()\n"
        "wait.register(0, 1, 1); wait.register(far, 1, 0)\n"
        "while True:\n"
        "    for key, _ in wait.select():\n"
        "        data = os.read(key.fd, 65536)\n"
        "        if not data: sys.exit()\n"
        "        far.sendall(data) if key.data else os.write(1, data)\n"
    )
    sshd.write_client_config(f"ProxyCommand python3 '{relay}' %h %p")
    async with host_of(sshd) as host:
        await host.connect()
        assert (await host.run(["echo", "proxied"])).stdout == b"proxied\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [("echo 'no such tunnel' >&2; exit 1", "no such tunnel"), ("no-such-proxy-program", "not found"), ("true", "ended before")],
)
async def test_a_proxy_command_that_fails_says_why(sshd: Sshd, command: str, words: str) -> None:
    sshd.write_client_config(f"ProxyCommand sh -c {command!r}" if " " in command else f"ProxyCommand {command}")
    error = await failure(host_of(sshd))
    assert isinstance(error, Unreachable)
    assert words in error.cause
    assert "ProxyCommand" in error.cause


async def test_a_system_configuration_as_distributions_ship_it(sshd: Sshd) -> None:
    """Red Hat's: policies in a file that a `Match final` includes; Debian's: what it sends and hashes."""
    policies = sshd.folder / "openssh.config"
    policies.write_text(
        "Ciphers aes256-gcm@openssh.com,aes256-ctr\nMACs hmac-sha2-256-etm@openssh.com,hmac-sha2-256\n"
        "GSSAPIKexAlgorithms gss-curve25519-sha256-\nKexAlgorithms curve25519-sha256,ecdh-sha2-nistp256\n"
        "PubkeyAcceptedAlgorithms ssh-ed25519,rsa-sha2-256\nHostbasedAcceptedAlgorithms ssh-ed25519\n"
        "CASignatureAlgorithms ssh-ed25519,rsa-sha2-256\nRequiredRSASize 2048\n"
    )
    system = sshd.folder / "system"
    system.write_text(
        f"Match final all\n  Include {policies}\n  GSSAPIAuthentication yes\n  ForwardX11Trusted yes\n"
        "Host *\n  SendEnv LANG LC_*\n  SendEnv COLORTERM NO_COLOR\n  HashKnownHosts yes\n  RequestTTY force\n  ForwardAgent yes\n"
        "  ControlMaster auto\n  ControlPath ~/.ssh/%C\n  RemoteCommand tmux attach\n"
    )
    async with SshHost("gpu-box", config_files=[sshd.client_config, system]) as host:
        await host.connect()
        assert (await host.run(["echo", "plain"])).stdout == b"plain\n"


# -- failures in words -------------------------------------------------------------------------------------------------------------


async def test_a_closed_port(sshd: Sshd) -> None:
    sshd.stop()
    error = await failure(host_of(sshd))
    assert isinstance(error, Unreachable)
    assert error.cause == f"127.0.0.1:{sshd.port} refused the connection"


async def test_an_unknown_name(sshd: Sshd) -> None:
    error = await failure(host_of(sshd, "no-such-host.invalid"))
    assert isinstance(error, Unreachable)
    assert "the name no-such-host.invalid isn't known" in error.cause


async def test_a_port_that_does_not_answer(sshd: Sshd) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        sshd.write_client_config(f"Host gpu-box\n  Port {silent.getsockname()[1]}\n  ConnectTimeout 1")
        error = await failure(host_of(sshd))
    assert isinstance(error, Unreachable)
    assert "no answer" in error.cause
    assert "1 s" in error.cause


async def test_a_port_that_speaks_another_protocol(sshd: Sshd) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 2000)

    async with Listening(serve) as server:
        sshd.write_client_config(f"Host gpu-box\n  Port {server.port}")
        error = await failure(host_of(sshd))
    assert isinstance(error, Unreachable)


async def test_a_key_that_is_not_accepted(sshd: Sshd) -> None:
    sshd.authorized_keys.write_text("")
    error = await failure(host_of(sshd))
    assert isinstance(error, Refused)
    assert "publickey" in error.cause
    assert "no key was accepted" in error.cause


async def test_too_many_keys(sshd: Sshd) -> None:
    sshd.stop()
    sshd.options.append("MaxAuthTries 1")
    sshd.start()
    sshd.authorized_keys.write_text("")
    error = await failure(host_of(sshd))
    assert isinstance(error, Refused)


async def test_a_server_that_closes_at_once_points_at_max_startups(sshd: Sshd) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with Listening(serve) as server:
        sshd.write_client_config(f"Host gpu-box\n  Port {server.port}")
        error = await failure(host_of(sshd))
    assert isinstance(error, Unreachable)
    assert "MaxStartups" in error.advice


async def test_too_many_logins_at_once(sshd: Sshd) -> None:
    sshd.stop()
    sshd.options.append("MaxStartups 1")
    sshd.start()
    until(lambda: not sshd.sessions(), what="the end of the connection that looked whether it listens")
    with socket.create_connection((sshd.host, sshd.port)) as other:
        assert other.recv(4) == b"SSH-"  # from now on it counts as one that has not logged in
        error = await failure(host_of(sshd))
    assert isinstance(error, Unreachable)
    assert "MaxStartups" in error.advice


async def test_a_broken_configuration(sshd: Sshd) -> None:
    sshd.client_config.write_text("Port many\n")
    error = await failure(host_of(sshd))
    assert isinstance(error, Refused)
    assert "line 1" in error.cause


# -- losses ------------------------------------------------------------------------------------------------------------------------


async def test_a_lost_connection_is_told_to_everybody_and_can_be_made_again(sshd: Sshd) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        probe = await host.start_probe("watch", {"hz": 2.0})
        watching = asyncio.create_task(anext(aiter(_frames_until_lost(probe))))
        waiting = asyncio.create_task(host.wait_lost())
        sshd.restart()
        error = await asyncio.wait_for(waiting, 10)
        assert isinstance(error, Unreachable)
        assert host.connection.link is LinkState.LOST
        assert host.connection.cause == error.cause
        assert isinstance(await asyncio.wait_for(watching, 5), HostError)
        with pytest.raises(Unreachable):
            await host.run(["true"])
        await host.connect()
        assert host.connection.online
        assert (await host.run(["echo", "back"])).stdout == b"back\n"


async def _frames_until_lost(probe: object):  # type: ignore[no-untyped-def]
    try:
        async for _ in probe:  # type: ignore[attr-defined]
            pass
        yield None
    except HostError as error:
        yield error


async def test_a_frozen_link_is_noticed(sshd: Sshd) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        sshd.signal_sessions(signal.SIGSTOP)
        try:
            error = await asyncio.wait_for(host.wait_lost(), 20)
        finally:
            sshd.signal_sessions(signal.SIGCONT)
        assert "nothing came for 9 s" in error.cause


async def test_the_round_trip_is_measured(sshd: Sshd) -> None:
    """Through one private name of asyncssh's: this holds it to what it does now."""
    async with host_of(sshd) as host:
        await host.connect()
        await eventually(lambda: host.connection.round_trip_ms, what="the first round trip")


async def test_closing_leaves_no_process_on_the_host(sshd: Sshd) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        await host.start_probe("watch", {"hz": 2.0})
        assert sshd.sessions()
    await eventually(lambda: not sshd.sessions(), what="the end of all processes")


NOTHING_IN_COMMON = [
    (
        "KexAlgorithms curve25519-sha256",
        "KexAlgorithms ecdh-sha2-nistp256",
        "No matching key exchange algorithm found, sent curve25519-sha256 and received ecdh-sha2-nistp256",
    ),
    ("Ciphers aes128-ctr", "Ciphers aes256-ctr", "No matching encryption algorithm found, sent aes128-ctr and received aes256-ctr"),
    (
        "Ciphers aes128-ctr\nMACs hmac-sha2-256",
        "MACs hmac-sha2-512",
        "No matching MAC algorithm found, sent hmac-sha2-256 and received hmac-sha2-512",
    ),
    (
        "HostKeyAlgorithms ecdsa-sha2-nistp256",
        "",
        "No matching host key algorithm found, sent ecdsa-sha2-nistp256 and received ssh-ed25519",
    ),
]


@pytest.mark.parametrize(("client", "server", "words"), NOTHING_IN_COMMON)
async def test_no_algorithm_in_common(sshd: Sshd, client: str, server: str, words: str) -> None:
    """Both sides notice, and the server leaves at once: whichever is first, it is told in the same words."""
    sshd.stop()
    sshd.options += [server] if server else []
    sshd.start()
    sshd.write_client_config(client)
    error = await failure(host_of(sshd))
    assert isinstance(error, Refused)
    assert words in error.cause
    assert "KexAlgorithms, Ciphers, MACs or HostKeyAlgorithms" in error.advice


async def test_a_server_that_leaves_over_the_algorithms_is_told_as_it_is(sshd: Sshd) -> None:
    """The server's end in the same moment as its offer, as it comes on a client that is busy."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_connection(sshd.host, sshd.port)
        try:
            writer.write(await far.readline())  # the version; the client answers with its own, and its offer
            to_far.write(await reader.readline())
            to_far.write(await reader.read(65536))
            writer.write(await far.read())
        finally:
            to_far.close()
            await to_far.wait_closed()

    sshd.stop()
    sshd.options.append("KexAlgorithms ecdh-sha2-nistp256")
    sshd.start()
    async with Listening(serve) as near:
        sshd.write_client_config(f"Host gpu-box\n  Port {near.port}\n  KexAlgorithms curve25519-sha256")
        error = await failure(host_of(sshd))
    assert isinstance(error, Refused)
    assert "No matching key exchange algorithm found, sent curve25519-sha256 and received ecdh-sha2-nistp256" in error.cause


async def test_algorithms_that_are_not_spoken_here_are_named(sshd: Sshd) -> None:
    sshd.write_client_config("KexAlgorithms sntrup761x25519-sha512@openssh.com")
    error = await failure(host_of(sshd))
    assert isinstance(error, Refused)
    assert "KexAlgorithms of gpu-box in the ssh configuration names none" in error.cause


async def test_connecting_again_and_again_leaks_nothing(sshd: Sshd) -> None:
    async def once() -> None:
        async with host_of(sshd) as host:
            await host.connect()
            await host.run(["true"])
            await host.start_probe("watch", {})
            await host.connect()

    await once()
    files, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
    for _ in range(5):
        await once()
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks, what="as few tasks as before")
    assert len(os.listdir("/proc/self/fd")) <= files

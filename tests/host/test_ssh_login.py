"""Logins that need a person: passphrases, passwords, codes; and that none of them is repeated unasked.

A real sshd if it can play the part; sshd without PAM can't ask for passwords of accounts that this machine doesn't have, so
asyncssh's server asks for those.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import asyncssh
import pytest
from asker import Person
from conftest import MakeSshd
from needs import need
from sshd import Sshd, until

from tui.core.connection import LinkState
from tui.host.base import Refused, Unreachable
from tui.host.open import AcceptNobody, open_host
from tui.host.ssh import SshHost

pytestmark = pytest.mark.sshd


def host_of(config: Path, asker: Person | None = None) -> SshHost:
    return SshHost("gpu-box", asker=asker, config_files=[config])


async def refusal(host: SshHost) -> Refused:
    with pytest.raises(Refused) as caught:
        await host.connect()
    assert host.connection.link is LinkState.REFUSED
    return caught.value


# -- passphrases -------------------------------------------------------------------------------------------------------------------


def lock(sshd: Sshd, passphrase: str = "open sesame") -> None:
    """Encrypt the key, as ssh-keygen -p does."""
    command = ["ssh-keygen", "-p", "-q", "-f", str(sshd.identity), "-P", "", "-N", passphrase]
    subprocess.run(command, check=True, capture_output=True)


async def test_a_passphrase_is_asked_once_and_serves_the_reconnect(sshd: Sshd) -> None:
    lock(sshd)
    person = Person(secrets=["wrong", "open sesame"])
    async with host_of(sshd.client_config, person) as host:
        await host.connect()
        assert len(person.asked) == 2
        assert str(sshd.identity) in person.asked[0][1]
        assert person.asked[0][2] == "hidden"
        sshd.restart()
        await host.wait_lost()
        await host.connect()
        assert host.connection.online
    assert len(person.asked) == 2


async def test_a_locked_key_without_a_person(sshd: Sshd) -> None:
    lock(sshd)
    async with host_of(sshd.client_config) as host:
        error = await refusal(host)
    assert "nobody can be asked" in error.cause
    assert "ssh-add" in error.advice


async def test_a_person_who_cancels_is_asked_no_more(sshd: Sshd) -> None:
    lock(sshd)
    person = Person(secrets=[None])
    async with host_of(sshd.client_config, person) as host:
        assert "cancelled" in (await refusal(host)).cause
        assert len(person.asked) == 1
        person.secrets = ["open sesame"]
        await host.connect()  # called again only because the person said so
        assert host.connection.online


# -- the agent ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """Run a real ssh-agent and yield its socket."""
    path = str(tmp_path / "agent")
    try:
        process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        need(False, "ssh-agent isn't installed")
        return
    until(lambda: os.path.exists(path), what="the agent's socket")
    yield path
    process.terminate()
    process.wait(5)


async def test_a_key_of_the_agent(sshd: Sshd, agent: str) -> None:
    subprocess.run(["ssh-add", str(sshd.identity)], env={**os.environ, "SSH_AUTH_SOCK": agent}, check=True, capture_output=True)  # noqa: ASYNC221
    sshd.identity.unlink()  # the public half stays: it names the agent's key
    sshd.write_client_config(f"IdentityAgent {agent}")
    async with host_of(sshd.client_config) as host:
        await host.connect()
        assert host.connection.online


async def test_keys_of_the_agent_that_are_not_named_stay_unused_with_identities_only(sshd: Sshd, agent: str) -> None:
    subprocess.run(["ssh-add", str(sshd.identity)], env={**os.environ, "SSH_AUTH_SOCK": agent}, check=True, capture_output=True)  # noqa: ASYNC221
    sshd.write_client_config(f"IdentityAgent {agent}", "Host gpu-box\n  IdentityFile /no/such/key")
    sshd.client_config.write_text(
        sshd.client_config.read_text().replace(f"IdentityFile {sshd.identity}", "IdentityFile /none/either")
    )
    async with host_of(sshd.client_config) as host:
        await refusal(host)


# -- certificates ------------------------------------------------------------------------------------------------------------------


def certify(sshd: Sshd) -> Path:
    """Let the server trust an authority instead of the key; return the file with the key's certificate."""
    authority = asyncssh.generate_private_key("ssh-ed25519")
    certificate = authority.generate_user_certificate(sshd.client_key, "tests", principals=[sshd.user])
    file = sshd.folder / "user-cert.pub"
    certificate.write_certificate(str(file))
    authority.write_public_key(str(sshd.folder / "ca.pub"))
    sshd.stop()
    sshd.options.append(f"TrustedUserCAKeys {sshd.folder / 'ca.pub'}")
    sshd.start()
    sshd.authorized_keys.write_text("")
    return file


async def test_a_user_certificate(sshd: Sshd) -> None:
    broken = sshd.folder / "broken-cert.pub"
    broken.write_text("no certificate\n")
    sshd.write_client_config(f"CertificateFile {certify(sshd)}\nCertificateFile {broken}")
    async with host_of(sshd.client_config) as host:
        await host.connect()
        assert host.connection.online


async def test_a_certificate_in_a_file_for_a_key_of_the_agent(sshd: Sshd, agent: str) -> None:
    subprocess.run(["ssh-add", str(sshd.identity)], env={**os.environ, "SSH_AUTH_SOCK": agent}, check=True, capture_output=True)  # noqa: ASYNC221
    certify(sshd).rename(f"{sshd.identity}-cert.pub")
    sshd.identity.unlink()
    sshd.write_client_config(f"IdentityAgent {agent}")
    async with host_of(sshd.client_config) as host:
        await host.connect()
        assert host.connection.online


# -- passwords and codes -----------------------------------------------------------------------------------------------------------


async def run_shell(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    """Stand in for the shell that a login is checked for: print what `printf` is told to."""
    async for line in process.stdin:
        if line.startswith(b'printf "'):
            process.stdout.write(line.split(b'"')[1].replace(b"\\n", b"\n"))
    process.exit(0)


class AskingServer:
    """An SSH server that asks; `methods` of password, code, both (a key, then a code)."""

    def __init__(self, folder: Path, method: str) -> None:
        self.method = method
        self.folder = folder
        self.attempts = 0
        """Prompts that it sent or passwords that it got: each may be a push to somebody's phone."""
        self.connections: list[asyncssh.SSHServerConnection] = []
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.client_key = asyncssh.generate_private_key("ssh-ed25519")
        self.client_key.write_private_key(str(folder / "id"))
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Path]:
        """Serve, and yield the client configuration."""
        outer = self

        class Server(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                outer.connections.append(conn)

            def begin_auth(self, username: str) -> bool:
                return True

            def public_key_auth_supported(self) -> bool:
                return False

            def password_auth_supported(self) -> bool:
                return outer.method == "password"

            def validate_password(self, username: str, password: str) -> bool:
                outer.attempts += 1
                if password == "old":
                    raise asyncssh.PasswordChangeRequired("Your password has expired, choose another")
                return password == "right"

            def kbdint_auth_supported(self) -> bool:
                return outer.method == "code"

            def get_kbdint_challenge(
                self, username: str, lang: str, submethods: str
            ) -> tuple[str, str, str, list[tuple[str, bool]]]:
                outer.attempts += 1
                return "Duo\x1b[2J", "Approve the\u202epush", "", [("Code: ", True), ("PIN: ", False)]

            def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
                return list(responses) == ["123456", "0000"]

        server = await asyncssh.create_server(
            Server, "127.0.0.1", self.port, server_host_keys=[self.key], process_factory=run_shell, encoding=None
        )
        self.port = server.sockets[0].getsockname()[1]
        words = self.key.export_public_key().decode().split()[:2]
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {' '.join(words)}\n")
        config = self.folder / "config"
        config.write_text(
            f"Host gpu-box\n  HostName 127.0.0.1\n  Port {self.port}\n  User me\n  IdentityFile {self.folder / 'id'}\n"
            f"  IdentityAgent none\n  UserKnownHostsFile {self.folder / 'known'}\n"
        )
        try:
            yield config
        finally:
            for connection in self.connections:
                connection.abort()
            server.close()
            await server.wait_closed()


async def test_a_password_may_be_mistyped_twice(tmp_path: Path) -> None:
    server = AskingServer(tmp_path, "password")
    person = Person(secrets=["wrong", "wrong", "right"])
    async with server.running() as config, host_of(config, person) as host:
        await host.connect()
        assert host.connection.online
    first, again = "Password of me@127.0.0.1:", "Wrong password. Password of me@127.0.0.1:"
    assert person.asked == [("me@127.0.0.1", prompt, "hidden") for prompt in (first, again, again)]


async def test_three_wrong_passwords_end_the_login(tmp_path: Path) -> None:
    server = AskingServer(tmp_path, "password")
    person = Person(secrets=["wrong"] * 9)
    async with server.running() as config, host_of(config, person) as host:
        error = await refusal(host)
    assert server.attempts == 3
    assert "password" in error.cause


async def test_codes_are_asked_with_cleaned_words(tmp_path: Path) -> None:
    server = AskingServer(tmp_path, "code")
    person = Person(secrets=["123456", "0000"])
    async with server.running() as config, host_of(config, person) as host:
        await host.connect()
        assert host.connection.online
    assert person.asked == [
        ("me@127.0.0.1", "Duo Approve thepush Code:", "shown"),
        ("me@127.0.0.1", "Duo Approve thepush PIN:", "hidden"),
    ]


@pytest.mark.parametrize(("method", "secrets"), [("password", ["right"]), ("code", ["123456", "0000"])])
async def test_a_login_that_needed_a_person_is_not_repeated_unasked(tmp_path: Path, method: str, secrets: list[str | None]) -> None:
    server = AskingServer(tmp_path, method)
    person = Person(secrets=list(secrets))
    async with contextlib.AsyncExitStack() as stack:
        host = await stack.enter_async_context(host_of(tmp_path / "config", person))
        async with server.running():
            await host.connect()
        assert isinstance(await asyncio.wait_for(host.wait_lost(), 10), Unreachable)
        with pytest.raises(Unreachable):
            await host.connect()  # nobody there: unattended attempts go on
        async with server.running():
            attempts, asked = server.attempts, len(person.asked)
            error = await refusal(host)
            assert "needs you again" in error.cause
            assert error.advice == "try again to log in"
            assert (server.attempts, len(person.asked)) == (attempts, asked)
            # The person presses r.
            person.secrets = list(secrets)
            await host.connect()
            assert host.connection.online


@pytest.mark.parametrize("method", ["password", "code"])
async def test_nobody_is_asked_where_there_is_nobody(tmp_path: Path, method: str) -> None:
    server = AskingServer(tmp_path, method)
    async with server.running() as config:
        async with host_of(config) as host:
            error = await refusal(host)
        assert server.attempts == 0
        assert "nobody can be asked" in error.cause
        host = open_host("gpu-box", asker=AcceptNobody())  # type: ignore[assignment]
        assert host._asker is None


async def test_asking_is_a_state_and_stops_the_clock(tmp_path: Path) -> None:
    server = AskingServer(tmp_path, "password")
    states: list[LinkState] = []

    class Slow(Person):
        async def secret(self, host_name: str, prompt: str, echo: bool) -> str | None:
            states.append(host.connection.link)
            await asyncio.sleep(1.5)
            return "right"

    async with server.running() as config:
        config.write_text("ConnectTimeout 1\n" + config.read_text())
        host = host_of(config, Slow())
        async with host:
            await host.connect()
            assert host.connection.online
    assert states == [LinkState.ASKING]


async def test_a_key_file_that_is_a_fifo_is_passed_over(sshd: Sshd) -> None:
    fifo = sshd.folder / "fifo"
    os.mkfifo(fifo)
    for name in ("fifo.pub", "fifo-cert.pub"):
        os.mkfifo(sshd.folder / name)
    sshd.write_client_config(f"IdentityFile {fifo}")
    async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
        async with asyncio.timeout(5):
            await host.connect()
        assert host.connection.online


def test_a_hung_key_file_does_not_keep_the_process(sshd: Sshd) -> None:
    """As from a file system that hangs: opening the file never returns."""
    fifo = sshd.folder / "known"
    os.mkfifo(fifo)
    program = (
        "import asyncio, sys\nfrom tui.aio import in_thread\n"
        "async def main():\n    try:\n        async with asyncio.timeout(0.2):\n            await in_thread(open, sys.argv[1])\n"
        "    except TimeoutError:\n        print('given up')\nasyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(fifo)], check=True, capture_output=True, text=True, timeout=10)
    assert done.stdout == "given up\n"


# -- what is missing for a login ---------------------------------------------------------------------------------------------------


async def refused(host: SshHost) -> Refused:
    async with host:
        return await refusal(host)


async def test_the_factor_that_is_missing_is_named(make_sshd: MakeSshd) -> None:
    sshd = make_sshd("AuthenticationMethods publickey,password", "PasswordAuthentication yes")
    error = await refused(SshHost("gpu-box", config_files=[sshd.client_config]))
    assert "accepted the key and wants another factor as well (password)" in error.cause


async def test_an_encrypted_key_is_named_if_nobody_can_be_asked(sshd: Sshd) -> None:
    lock(sshd)
    error = await refused(SshHost("gpu-box", config_files=[sshd.client_config]))
    assert f"the key {sshd.identity} is encrypted" in error.cause
    assert error.advice == f"load it into the agent: ssh-add {sshd.identity}"


async def test_wrong_passphrases_are_told_as_such(sshd: Sshd) -> None:
    lock(sshd)
    person = Person(secrets=["a", "b", "c"])
    error = await refused(SshHost("gpu-box", config_files=[sshd.client_config], asker=person))
    assert error.cause.endswith(f"no passphrase opened {sshd.identity}")
    prompts = [asked[1] for asked in person.asked]
    assert [prompt.startswith("Wrong passphrase. ") for prompt in prompts] == [False, True, True]


async def test_an_expired_password_is_told_with_what_to_do(tmp_path: Path) -> None:
    server = AskingServer(tmp_path, "password")
    async with server.running() as config:
        error = await refused(host_of(config, Person(secrets=["old"])))
    assert "the password of me@127.0.0.1" in error.cause
    assert "has expired: Your password has expired, choose another" in error.cause
    assert error.advice.startswith("change it with: ssh -p ")


async def test_a_question_goes_with_its_connection(make_sshd: MakeSshd) -> None:
    """LoginGraceTime ends the connection while the person is asked: what is typed then would go nowhere."""
    sshd = make_sshd("LoginGraceTime 2", "PubkeyAuthentication no", "PasswordAuthentication yes")
    left = asyncio.Event()

    class Slow(Person):
        async def secret(self, host: str, prompt: str, echo: bool) -> str | None:
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
            return None

    async with SshHost("gpu-box", config_files=[sshd.client_config], asker=Slow()) as host, asyncio.timeout(10):
        with pytest.raises(Unreachable, match="during the login"):
            await host.connect()
        await asyncio.wait_for(left.wait(), 2)
        assert "LoginGraceTime" in (host.connection.advice or "")

"""One login: what asyncssh asks of the client while it connects, answered from files, the agent or the person."""

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh import KeyEncryptionError, KeyImportError, SSHKeyPair

from tui.aio import ended, in_thread, opened
from tui.core.text import clean
from tui.host.base import Asker
from tui.host.ssh_config import Login, default_keys

Passphrase = Callable[[Path], Awaitable[str | None]]
PASSPHRASE_TRIES = 3
AGENT_S = 3.0


class KeyRing:
    """Keys for the logins of one host. A key whose passphrase was typed once stays unlocked in memory until this ends."""

    def __init__(self) -> None:
        self._unlocked: dict[Path, list[SSHKeyPair]] = {}

    async def offers(self, login: Login, agent: "Agent", passphrase: Passphrase) -> AsyncIterator[list[SSHKeyPair]]:
        """Key pairs in batches, the ones that need a person last. `passphrase` returns None if nobody can be asked."""
        files = login.identity_files if login.identity_files is not None else default_keys()
        certificates = await in_thread(_certificates, [*login.certificate_files, *(Path(f"{file}-cert.pub") for file in files)])
        held = await agent.keys(login.agent)
        public = await in_thread(_public_halves, files)
        wanted = set(public.values())
        # Keys of the agent whose certificate lies in a file; the agent is asked again, since such a key then stands for both.
        for certificate in certificates:
            data = certificate.key.public_data
            if any(key.public_data == data for key in held):
                twins = [key for key in await agent.keys(login.agent) if key.public_data == data]
                for key in twins:
                    key.set_certificate(certificate)
                yield twins
        yield [key for key in held if key.public_data in wanted]
        locked: list[Path] = []
        for file in files:
            if file in self._unlocked:
                yield self._unlocked[file]
                continue
            try:
                yield await in_thread(_load, file, certificates, None)
            except (KeyEncryptionError, KeyImportError) as error:
                if _is_locked(error):
                    locked.append(file)
            except (OSError, ValueError):
                continue  # OpenSSH, too, passes over a key file that isn't there or isn't one
        if not login.identities_only:
            yield [key for key in held if key.public_data not in wanted]
        in_agent = {key.public_data for key in held}
        for file in locked:
            if public.get(file) in in_agent:
                continue  # the agent has offered it already
            if pairs := await self._unlock(file, certificates, passphrase):
                yield pairs

    async def _unlock(
        self, file: Path, certificates: Sequence[asyncssh.SSHCertificate], passphrase: Passphrase
    ) -> list[SSHKeyPair]:
        for _ in range(PASSPHRASE_TRIES):
            words = await passphrase(file)
            if words is None:
                break
            try:
                pairs = await in_thread(_load, file, certificates, words)
            except (KeyEncryptionError, KeyImportError):
                continue
            except (OSError, ValueError):
                break
            self._unlocked[file] = pairs
            return self._unlocked[file]
        return []


def _is_locked(error: Exception) -> bool:
    return isinstance(error, KeyEncryptionError) or "assphrase" in str(error)


def _regular(file: Path) -> str:
    """Return a file's path for asyncssh. Raises OSError for what isn't a regular file, such as a FIFO: it may never end."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError(f"{file} is not a regular file")
    return str(file)


def _load(file: Path, certificates: Sequence[asyncssh.SSHCertificate], passphrase: str | None) -> list[SSHKeyPair]:
    return list(asyncssh.load_keypairs(_regular(file), passphrase, certlist=certificates))


def _certificates(files: Sequence[Path]) -> list[asyncssh.SSHCertificate]:
    """Return the certificates in files; those that are missing or can't be read are left out."""
    found = []
    for file in files:
        try:
            found.append(asyncssh.read_certificate(_regular(file)))
        except (OSError, KeyImportError, ValueError):
            continue
    return found


def _public_halves(files: Sequence[Path]) -> dict[Path, bytes]:
    """Return the public halves that lie beside private keys, or are the files themselves, as far as there are any."""
    found: dict[Path, bytes] = {}
    for file in files:
        for candidate in (file.with_name(file.name + ".pub"), file):
            try:
                found.setdefault(file, asyncssh.read_public_key(_regular(candidate)).public_data)
            except (OSError, KeyImportError, ValueError):
                continue
    return found


class Agent:
    """The connection to the user's ssh-agent during one login; its keys sign through it."""

    def __init__(self) -> None:
        self._client: asyncssh.SSHAgentClient | None = None
        self._closed = False

    async def keys(self, path: str | None) -> list[SSHKeyPair]:
        """Return the keys that it holds; none if no agent answers."""
        if not path or path.lower() == "none":
            return []
        try:
            async with asyncio.timeout(AGENT_S):
                if self._client is None:
                    client = await opened(asyncssh.connect_agent(path), lambda made: made.close())
                    if self._closed:  # meanwhile, or before: nobody would close it again
                        client.close()
                        return []
                    self._client = client
                return list(await self._client.get_keys())
        except (OSError, ValueError, asyncssh.Error, TimeoutError):
            return []

    async def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()
            await client.wait_closed()


_KINDS = ("key exchange", "host key", "encryption", "encryption", "MAC", "MAC", "compression", "compression")
"""Of the first lists of a KEXINIT message, in its order: of those that come twice, the second is for what the server sends."""
_COOKIE_END = 17
_BUILT_IN = ("-gcm@openssh.com", "chacha20-poly1305@openssh.com")
"""Ends of the ciphers that bring their own check, so that no MAC is agreed on."""

_NO_ALGORITHMS = ("ext-info-", "kex-strict-")
"""Beginnings of names in the list of key exchanges that say what a side can do."""


def nothing_in_common(client: bytes, server: bytes) -> str | None:
    """Return what keeps two KEXINIT messages from an agreement, in asyncssh's words; None if they agree or can't be read."""
    try:
        pairs = list(zip(_KINDS, _lists(client), _lists(server), strict=True))
    except ValueError:
        return None
    ciphers: list[str] = []
    for kind, ours, theirs in pairs:
        if kind == "MAC" and ciphers.pop(0).endswith(_BUILT_IN):
            continue
        chosen = next((name for name in ours if name in theirs), None)
        if chosen is None:
            sent, received = ",".join(ours) or "<None>", ",".join(theirs) or "<None>"
            return f"No matching {kind} algorithm found, sent {sent} and received {received}"
        if kind == "encryption":
            ciphers.append(chosen)
    return None


def _lists(message: bytes) -> list[list[str]]:
    """Return the lists of a KEXINIT message. Raises ValueError if it is cut off."""
    lists: list[list[str]] = []
    at = _COOKIE_END
    for _ in _KINDS:
        end = at + 4 + int.from_bytes(message[at : at + 4], "big")
        if end > len(message) or at + 4 > len(message):
            raise ValueError("a KEXINIT message that is cut off")
        names = message[at + 4 : end].decode("ascii", "replace").split(",")
        lists.append([name for name in names if name and not name.startswith(_NO_ALGORITHMS)])
        at = end
    return lists


SECRET_TRIES = 3
"""Wrong answers to password prompts before the login is given up, as OpenSSH's NumberOfPasswordPrompts."""
PROMPT_LIMIT = 500
BANNER_LIMIT = 2000


class Person:
    """The person behind one attempt to log in: whether they may be asked, have been, or have given up."""

    def __init__(self, asker: Asker | None, deadline: asyncio.Timeout, seconds: float) -> None:
        self._asker = asker
        self._deadline = deadline
        self._seconds = seconds
        self.asked = False
        self.needed = False
        """A prompt came up that only a person can answer."""
        self.cancelled = False
        self.on_asking: Callable[[bool], None] = lambda asking: None

    @property
    def may_ask(self) -> bool:
        return self._asker is not None and not self.cancelled

    async def secret(self, host: str, prompt: str, lost: "asyncio.Future[Any]", echo: bool = False) -> str | None:
        """Ask the person; return the answer, None if nobody answers or the connection is lost meanwhile, which ends the question.

        The time limit of the login stands still meanwhile.
        """
        self.needed = True
        if self._asker is None or self.cancelled:
            return None
        self.asked = True
        self._deadline.reschedule(None)
        self.on_asking(True)
        try:
            asking = asyncio.ensure_future(self._asker.secret(host, clean(prompt)[:PROMPT_LIMIT], echo))
            try:
                await asyncio.wait({asking, lost}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    return None
                answer = asking.result()
            finally:
                await ended(asking)
        finally:
            self.on_asking(False)
            with contextlib.suppress(RuntimeError):  # the attempt has ended with its connection
                self._deadline.reschedule(asyncio.get_running_loop().time() + self._seconds)
        self.cancelled = answer is None
        return answer


class LoginClient(asyncssh.SSHClient):
    """asyncssh's callbacks for one connection."""

    def __init__(self, login: Login, person: Person, keys: KeyRing) -> None:
        self._login = login
        self._person = person
        self._keys = keys
        self._offers: AsyncIterator[list[SSHKeyPair]] | None = None
        self._agent = Agent()
        self.tries = 0
        self._connection: asyncssh.SSHClientConnection | None = None
        self.methods: list[str] = []
        """Login methods that the host offered, as far as they were seen."""
        self.wanted: list[str] = []
        """Those that it offered last: without `publickey` once it has accepted a key and wants more."""
        self.locked: list[Path] = []
        """Keys whose passphrase was asked for."""
        self.expired: str | None = None
        """The host's words when it wanted the password changed."""
        self.offered_key: asyncssh.SSHKey | None = None
        """The host key that no file vouches for."""
        self.offered_authority: asyncssh.SSHKey | None = None
        self.greeted = False
        """The host's key was accepted, and the login has begun."""
        self.logged_in = False
        self.banner = ""
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    @property
    def where(self) -> str:
        return f"{clean(self._login.user)}@{self._login.host}"

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    @property
    def met(self) -> bool:
        """Return whether the host has said which SSH version it speaks."""
        return self._connection is not None and self._connection.get_extra_info("server_version") is not None

    @property
    def nothing_in_common(self) -> str | None:
        """Return which kind of algorithm the two sides share none of, once both have said what they offer.

        asyncssh says so, too, but one step too late if the host notices and leaves at once: then all it says is that it left.
        """
        # Two private names of asyncssh's; a test holds them to what they are now.
        offers = (getattr(self._connection, "_client_kexinit", b""), getattr(self._connection, "_server_kexinit", b""))
        return nothing_in_common(*offers)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered_key = key
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered_authority = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner = clean(self.banner + msg[:BANNER_LIMIT], keep_newlines=True)[:BANNER_LIMIT]

    def begin_auth(self, username: str) -> None:
        self.greeted = True

    def auth_completed(self) -> None:
        self.logged_in = True

    async def finish(self) -> None:
        """Let go of the agent: the login has ended, one way or the other."""
        await self._agent.close()

    def _note_methods(self) -> None:
        if self._connection is not None:
            self.wanted = list(self._connection.get_server_auth_methods())
            self.methods += [method for method in self.wanted if method not in self.methods]

    @property
    def key_accepted(self) -> bool:
        """Tell whether the host has accepted a key, and wants something else besides."""
        return "publickey" in self.methods and bool(self.wanted) and "publickey" not in self.wanted

    async def public_key_auth_requested(self) -> Sequence[SSHKeyPair] | None:
        self._note_methods()
        if self._offers is None:
            self._offers = self._keys.offers(self._login, self._agent, self._passphrase)
        async for pairs in self._offers:
            if pairs:
                return pairs
        return None

    async def _passphrase(self, file: Path) -> str | None:
        again = "Wrong passphrase. " if file in self.locked else ""
        self.locked.append(file)
        return await self._person.secret(self.where, f"{again}Passphrase of the key {file}:", self.lost)

    async def password_auth_requested(self) -> str | None:
        self._note_methods()
        if self.tries >= SECRET_TRIES:
            return None
        self.tries += 1
        again = "Wrong password. " if self.tries > 1 else ""
        return await self._person.secret(self.where, f"{again}Password of {self.where}:", self.lost)

    def password_change_requested(self, prompt: str, lang: str) -> Any:
        self.expired = clean(prompt)[:PROMPT_LIMIT]
        return NotImplemented

    async def kbdint_auth_requested(self) -> str | None:
        self._note_methods()
        # The request alone may send a push to a phone: so not unasked, and not after the person gave up.
        self._person.needed = True
        if not self._person.may_ask or self.tries >= SECRET_TRIES:
            return None
        self.tries += 1
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        answers: list[str] = []
        preface = " ".join(part for part in (clean(name).strip(), clean(instructions).strip()) if part)
        for prompt, echo in prompts[:16]:
            words = f"{preface} {clean(prompt).strip()}".strip()
            answer = await self._person.secret(self.where, words or "Answer:", self.lost, echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers

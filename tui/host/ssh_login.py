"""One login: what asyncssh asks of the client while it connects, answered from files, the agent or the person."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import asyncssh
from asyncssh import SSHKeyPair

from tui.core.text import clean
from tui.host.base import Asker
from tui.host.ssh_config import Login
from tui.host.ssh_kex import nothing_in_common
from tui.host.ssh_keys import Agent, KeyRing

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

    async def secret(self, host: str, prompt: str, echo: bool = False) -> str | None:
        """The answer, None where nobody answers. The time limit of the login stands still meanwhile."""
        self.needed = True
        if self._asker is None or self.cancelled:
            return None
        self.asked = True
        self._deadline.reschedule(None)
        self.on_asking(True)
        try:
            answer = await self._asker.secret(host, clean(prompt)[:PROMPT_LIMIT], echo)
        finally:
            self.on_asking(False)
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
        self._tries = 0
        self._connection: asyncssh.SSHClientConnection | None = None
        self.methods: list[str] = []
        """Login methods that the host offered, as far as they were seen."""
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
        """The host has said which SSH version it speaks."""
        return self._connection is not None and self._connection.get_extra_info("server_version") is not None

    @property
    def nothing_in_common(self) -> str | None:
        """Which kind of algorithm the two sides share none of, once both have said what they offer.

        asyncssh says so, too, but one step too late where the host notices and leaves at once: then all it says is that it left.
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
        """The login has ended, one way or the other."""
        await self._agent.close()

    def _note_methods(self) -> None:
        if self._connection is not None:
            self.methods += [method for method in self._connection.get_server_auth_methods() if method not in self.methods]

    async def public_key_auth_requested(self) -> Sequence[SSHKeyPair] | None:
        self._note_methods()
        if self._offers is None:
            self._offers = self._keys.offers(self._login, self._agent, self._passphrase)
        async for pairs in self._offers:
            if pairs:
                return pairs
        return None

    async def _passphrase(self, file: Path) -> str | None:
        return await self._person.secret(self.where, f"Passphrase of the key {file}:")

    async def password_auth_requested(self) -> str | None:
        self._note_methods()
        if self._tries >= SECRET_TRIES:
            return None
        self._tries += 1
        return await self._person.secret(self.where, f"Password of {self.where}:")

    async def kbdint_auth_requested(self) -> str | None:
        self._note_methods()
        # The request alone may send a push to a phone: so not unasked, and not after the person gave up.
        self._person.needed = True
        if not self._person.may_ask or self._tries >= SECRET_TRIES:
            return None
        self._tries += 1
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        answers: list[str] = []
        preface = " ".join(part for part in (clean(name).strip(), clean(instructions).strip()) if part)
        for prompt, echo in prompts[:16]:
            words = f"{preface} {clean(prompt).strip()}".strip()
            answer = await self._person.secret(self.where, words or "Answer:", echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers

"""The keys that a login tries, much in OpenSSH's order.

Keys of the agent that the configuration names, key files that need no passphrase, the agent's other keys, then key files behind a
passphrase.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import asyncssh
from asyncssh import KeyEncryptionError, KeyImportError, SSHKeyPair

from tui.host.ssh_config import Login, default_keys
from tui.host.together import opened

Passphrase = Callable[[Path], Awaitable[str | None]]
PASSPHRASE_TRIES = 3
AGENT_S = 3.0


class KeyRing:
    """Keys for the logins of one host. A key whose passphrase was typed once stays unlocked in memory until this ends."""

    def __init__(self) -> None:
        self._unlocked: dict[Path, list[SSHKeyPair]] = {}

    async def offers(self, login: Login, agent: "Agent", passphrase: Passphrase) -> AsyncIterator[list[SSHKeyPair]]:
        """Key pairs in batches, the ones that need a person last. `passphrase` returns None where nobody can be asked."""
        files = login.identity_files if login.identity_files is not None else default_keys()
        certificates = await asyncio.to_thread(
            _certificates, [*login.certificate_files, *(Path(f"{file}-cert.pub") for file in files)]
        )
        held = await agent.keys(login.agent)
        wanted = {data for file in files if (data := _public_data(file)) is not None}
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
                yield list(await asyncio.to_thread(asyncssh.load_keypairs, str(file), certlist=certificates))
            except (KeyEncryptionError, KeyImportError) as error:
                if _is_locked(error):
                    locked.append(file)
            except (OSError, ValueError):
                continue  # OpenSSH, too, passes over a key file that isn't there or isn't one
        if not login.identities_only:
            yield [key for key in held if key.public_data not in wanted]
        in_agent = {key.public_data for key in held}
        for file in locked:
            if _public_data(file) in in_agent:
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
                pairs = await asyncio.to_thread(asyncssh.load_keypairs, str(file), words, certlist=certificates)
            except (KeyEncryptionError, KeyImportError):
                continue
            except (OSError, ValueError):
                break
            self._unlocked[file] = list(pairs)
            return self._unlocked[file]
        return []


def _is_locked(error: Exception) -> bool:
    return isinstance(error, KeyEncryptionError) or "assphrase" in str(error)


def _certificates(files: Sequence[Path]) -> list[asyncssh.SSHCertificate]:
    """The certificates in files; those that are missing or can't be read are left out."""
    found = []
    for file in files:
        try:
            found.append(asyncssh.read_certificate(str(file)))
        except (OSError, KeyImportError, ValueError):
            continue
    return found


def _public_data(file: Path) -> bytes | None:
    """The public half that lies beside a private key (or is the file itself), None where there is none."""
    for candidate in (file.with_name(file.name + ".pub"), file):
        try:
            return asyncssh.read_public_key(str(candidate)).public_data
        except (OSError, KeyImportError, ValueError):
            continue
    return None


class Agent:
    """The connection to the user's ssh-agent during one login; its keys sign through it."""

    def __init__(self) -> None:
        self._client: asyncssh.SSHAgentClient | None = None
        self._closed = False

    async def keys(self, path: str | None) -> list[SSHKeyPair]:
        """The keys that it holds; none where no agent answers."""
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

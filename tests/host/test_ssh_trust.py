"""Host keys over a real sshd: known, unknown, changed, revoked, certified, hashed."""

import stat
import subprocess
from pathlib import Path

import asyncssh
import pytest
from asker import Person
from sshd import Sshd

from tui.core.connection import LinkState
from tui.host.base import Refused
from tui.host.ssh import SshHost

pytestmark = pytest.mark.sshd


def host_of(sshd: Sshd, target: str = "gpu-box", asker: Person | None = None, accept_new: bool = False) -> SshHost:
    return SshHost(target, asker=asker, accept_new=accept_new, config_files=[sshd.client_config])


def shell(command: str) -> int:
    return subprocess.run(command, shell=True, check=False, capture_output=True).returncode


async def refusal(host: SshHost) -> Refused:
    async with host:
        with pytest.raises(Refused) as caught:
            await host.connect()
        assert host.connection.link is LinkState.REFUSED
        assert host.connection.cause == caught.value.cause
    return caught.value


async def test_a_known_key_connects(sshd: Sshd) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        assert host.connection.online
        assert (await host.run(["echo", "a b"])).stdout == b"a b\n"


async def test_an_unknown_key_is_refused_with_the_command_that_adds_it(sshd: Sshd) -> None:
    sshd.known_hosts.unlink()
    error = await refusal(host_of(sshd))
    assert sshd.host_key.get_fingerprint() in error.cause
    command = error.advice.rpartition("or: ")[2]
    assert command == f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> {sshd.known_hosts}"
    assert shell(command) == 0
    async with host_of(sshd) as host:
        await host.connect()


async def test_a_person_may_accept_an_unknown_key_and_is_not_asked_again(sshd: Sshd) -> None:
    sshd.known_hosts.unlink()
    person = Person(trust=True)
    async with host_of(sshd, asker=person) as host:
        await host.connect()
    assert person.asked == [(f"[127.0.0.1]:{sshd.port}", "ED25519", sshd.host_key.get_fingerprint())]
    assert stat.S_IMODE(sshd.known_hosts.stat().st_mode) == 0o600
    assert sshd.known_hosts.read_text() == sshd.host_line()
    async with host_of(sshd) as host:
        await host.connect()


async def test_a_key_that_cannot_be_saved_counts_for_the_session_and_is_told(sshd: Sshd) -> None:
    sshd.write_client_config("UserKnownHostsFile /proc/no/known_hosts")
    async with host_of(sshd, accept_new=True) as host:
        await host.connect()
        assert "could not be saved in /proc/no/known_hosts" in (host.connection.advice or "")
        sshd.stop()
        sshd.new_host_key()
        sshd.start()
        await host.wait_lost()
        with pytest.raises(Refused, match="has changed"):
            await host.connect()


async def test_a_person_may_decline(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    await refusal(host_of(sshd, asker=Person(trust=False)))
    assert sshd.known_hosts.read_text() == ""


async def test_accept_new_hashes_where_the_configuration_says_so(sshd: Sshd) -> None:
    sshd.known_hosts.unlink()
    sshd.write_client_config("HashKnownHosts yes")
    async with host_of(sshd, accept_new=True) as host:
        await host.connect()
    assert "127.0.0.1" not in sshd.known_hosts.read_text()
    assert shell(f"ssh-keygen -F '[127.0.0.1]:{sshd.port}' -f {sshd.known_hosts}") == 0  # OpenSSH finds it, too
    async with host_of(sshd) as host:
        await host.connect()


@pytest.mark.parametrize("strict", ["accept-new", "no"])
async def test_the_configuration_may_accept_unknown_keys(sshd: Sshd, strict: str) -> None:
    sshd.known_hosts.unlink()
    sshd.write_client_config(f"StrictHostKeyChecking {strict}")
    async with host_of(sshd) as host:
        await host.connect()
    assert sshd.known_hosts.read_text() == sshd.host_line()


async def test_strict_checking_asks_nobody(sshd: Sshd) -> None:
    sshd.known_hosts.unlink()
    sshd.write_client_config("StrictHostKeyChecking yes")
    person = Person(trust=True)
    await refusal(host_of(sshd, asker=person))
    assert person.asked == []


@pytest.mark.parametrize("lines", [[], ["StrictHostKeyChecking no"]])
async def test_a_changed_key_is_refused_with_its_line_whatever_anybody_says(sshd: Sshd, lines: list[str]) -> None:
    sshd.write_client_config(*lines)
    sshd.known_hosts.write_text("# mine\n" + sshd.host_line())
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    person = Person(trust=True)
    error = await refusal(host_of(sshd, asker=person, accept_new=True))
    assert error.cause.startswith("WARNING")
    assert f"{sshd.known_hosts}:2" in error.cause
    assert "ssh-keygen" in error.advice
    assert person.asked == []


async def test_a_host_that_shows_another_kind_of_key_has_changed(sshd: Sshd) -> None:
    sshd.stop()
    sshd.new_host_key("ecdsa-sha2-nistp256")
    sshd.start()
    error = await refusal(host_of(sshd, accept_new=True))
    assert "has changed" in error.cause
    assert "ECDSA" in error.cause


async def test_the_known_kind_of_key_is_asked_for_first(make_sshd: object, sshd: Sshd, tmp_path: Path) -> None:
    second = tmp_path / "second"
    key = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    key.write_private_key(str(second))
    second.chmod(0o600)
    sshd.stop()
    sshd.options.append(f"HostKey {second}")
    sshd.start()
    for known in (sshd.host_key, key):
        sshd.known_hosts.write_text(sshd.host_line(known))
        async with host_of(sshd) as host:
            await host.connect()


async def test_a_revoked_key_is_refused(sshd: Sshd) -> None:
    sshd.known_hosts.write_text(sshd.host_line() + sshd.host_line(marker="@revoked"))
    error = await refusal(host_of(sshd, accept_new=True))
    assert "revoked" in error.cause
    assert f"{sshd.known_hosts}:2" in error.cause


async def test_user_known_hosts_none_still_checks(sshd: Sshd) -> None:
    sshd.write_client_config("UserKnownHostsFile none")
    assert "isn't known" in (await refusal(host_of(sshd))).cause


def certify(sshd: Sshd, authority: asyncssh.SSHKey, *, name: str = "127.0.0.1", **options: object) -> None:
    """Give the server a host certificate."""
    certificate = authority.generate_host_certificate(sshd.host_key, "gpu-box", principals=[name], **options)  # type: ignore[arg-type]
    file = sshd.folder / "host_key-cert.pub"
    certificate.write_certificate(str(file))
    sshd.stop()
    sshd.options.append(f"HostCertificate {file}")
    sshd.start()


async def test_a_certified_host_is_trusted_through_its_authority(sshd: Sshd) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    certify(sshd, authority)
    sshd.known_hosts.write_text(sshd.host_line(authority, marker="@cert-authority"))
    async with host_of(sshd) as host:
        await host.connect()
    # Without the authority the plain key counts, as for any host.
    sshd.known_hosts.write_text(sshd.host_line())
    async with host_of(sshd) as host:
        await host.connect()


async def test_a_certificate_of_another_authority_is_refused(sshd: Sshd) -> None:
    certify(sshd, asyncssh.generate_private_key("ssh-ed25519"))
    sshd.known_hosts.write_text(sshd.host_line(asyncssh.generate_private_key("ssh-ed25519"), marker="@cert-authority"))
    error = await refusal(host_of(sshd, accept_new=True))
    assert "authority" in error.cause
    assert f"{sshd.known_hosts}:1" in error.cause


async def test_a_certificate_for_another_host_is_refused(sshd: Sshd) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    certify(sshd, authority, name="elsewhere")
    sshd.known_hosts.write_text(sshd.host_line(authority, marker="@cert-authority"))
    assert "certificate" in (await refusal(host_of(sshd, accept_new=True))).cause


async def test_a_host_key_alias_stands_without_its_port(sshd: Sshd) -> None:
    sshd.write_client_config("HostKeyAlias rack-7")
    sshd.known_hosts.write_text("rack-7 " + sshd.host_line().split(" ", 1)[1])
    async with host_of(sshd) as host:
        await host.connect()

"""What went wrong while connecting, in words, with what to do next."""

import errno
import re
import socket

import asyncssh

from tui.core.text import clean
from tui.host.base import HostError, NotPermitted, PortClosed, Refused, UnknownName, Unreachable
from tui.host.known_hosts import AUTHORITY, SSH_PORT, Known, changed
from tui.host.ssh_config import Login
from tui.host.ssh_login import LoginClient, Person

_ERRNO = re.compile(r"\[Errno (\d+)\]")
_DISCONNECT_AUTH = 14  # SSH_DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE
ADMINISTRATIVELY_PROHIBITED = 1
CONNECT_FAILED = 2
RESOURCE_SHORTAGE = 4


def refused_login(login: Login, client: LoginClient, person: Person, *, unattended: bool) -> Refused:
    """Explain why the host did not accept the login."""
    methods = ", ".join(clean(method) for method in client.methods) or "no method that readyroom knows"
    where = f"{login.user}@{login.place}"
    if client.expired is not None:
        return Refused(f"the password of {where} has expired: {client.expired}", f"change it with: ssh{_port_words(login)} {where}")
    if unattended and person.needed:
        return Refused(f"the login to {where} needs you again: it asks for a password or code", "try again to log in")
    if person.cancelled:
        return Refused(f"the login to {where} was cancelled", "try again to log in")
    if person.needed and not person.asked and client.key_accepted:
        missing = ", ".join(clean(method) for method in client.wanted)
        return Refused(
            f"{where} accepted the key and wants another factor as well ({missing}), and nobody can be asked here",
            "run this in a terminal, or let the host accept a key alone (AuthenticationMethods)",
        )
    if person.needed and not person.asked and client.locked:
        return Refused(
            f"{where} refused the login: the key {client.locked[0]} is encrypted, and nobody can be asked for its passphrase here",
            f"load it into the agent: ssh-add {client.locked[0]}",
        )
    if person.needed and not person.asked:
        return Refused(
            f"{where} refused the login: no key was accepted, and nobody can be asked here ({methods})",
            f"load a key into the agent (ssh-add), or copy one there: ssh-copy-id{_port_words(login)} {login.user}@{login.host}",
        )
    if person.asked and client.locked and not client.tries:
        return Refused(f"{where} refused the login: no passphrase opened {client.locked[-1]}", "try again to log in")
    if person.asked:
        return Refused(
            f"{where} refused the login: wrong answer, or the account is locked (it offers {methods})", "try again to log in"
        )
    return Refused(
        f"{where} refused the login: no key was accepted (it offers {methods})",
        f"check the user and the key with: ssh -v{_port_words(login)} {login.alias}",
    )


def untrusted_key(login: Login, client: LoginClient, known: Known) -> Refused:
    """Explain that the host's key is changed, revoked or unknown."""
    key = client.offered_key
    if client.offered_authority is not None:
        mine = ", ".join(entry.place for entry in known.authorities) or "none is listed"
        return Refused(
            f"the host key of {login.name} is certified by an authority that isn't trusted "
            f"({client.offered_authority.get_fingerprint()}; trusted: {mine})",
            f"if that authority is yours, add it as {AUTHORITY} to {login.known_hosts[0]}",
        )
    if key is None:
        return Refused(f"the host key of {login.name} could not be verified", "")
    words = f"{kind(key)} {key.get_fingerprint()}"
    if (other := changed(known, login.name)) is not None:
        return Refused(
            f"WARNING: the host key of {login.name} has changed, someone may be listening in: it shows {words}, "
            f"but {other.place} names {kind(other.key)} {other.key.get_fingerprint()}",
            f"ask the host's administrator; if it was reinstalled: ssh-keygen -f {other.file} -R '{login.name}'",
        )
    return Refused(
        f"the host key of {login.name} isn't known: {words}",
        f"compare the fingerprint, then accept it with --accept-new or: {_adding(login)}",
    )


def unusable_key(login: Login, known: Known, words: str) -> Refused:
    """Explain a key that is refused whoever would accept it: revoked, or a certificate that doesn't hold."""
    if "revoked" in words:
        places = ", ".join(entry.place for entry in known.revoked)
        return Refused(
            f"WARNING: the host key of {login.name} is revoked ({places})",
            "don't log in there; ask the host's administrator for its new key",
        )
    return Refused(f"the host certificate of {login.name} isn't valid: {clean(words)}", "ask the host's administrator")


def _adding(login: Login) -> str:
    if login.jumps or login.proxy_command or login.key_alias:
        return f"ssh {login.alias} true"
    hashed = "-H " if login.hash_known_hosts else ""
    port = "" if login.port == SSH_PORT else f"-p {login.port} "
    return f"ssh-keyscan {hashed}{port}{login.host} >> {login.known_hosts[0]}"


def kind(key: asyncssh.SSHKey) -> str:
    """Return a key's type as people write it: ED25519, RSA, ECDSA."""
    name = key.get_algorithm().removeprefix("sk-").removeprefix("ssh-").removeprefix("ecdsa-sha2-")
    return "ECDSA" if name.startswith("nistp") else name.partition("@")[0].upper()


def _port_words(login: Login) -> str:
    return "" if login.port == SSH_PORT else f" -p {login.port}"


def _number(error: OSError) -> int | None:
    """Return the errno, also of asyncio's error that sums up several addresses, which has it in its text only."""
    if error.errno is not None:
        return error.errno
    found = {int(number) for number in _ERRNO.findall(str(error))}
    for wanted in (errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH):
        if wanted in found:
            return wanted
    return None


def explain(error: BaseException, login: Login, client: LoginClient | None, seconds: float) -> HostError:
    """Return the HostError for whatever asyncssh or the system raised while connecting (logins and host keys apart)."""
    where = login.place
    match error:
        case HostError():
            return error
        case TimeoutError() if client is not None and client.greeted:
            return Unreachable(
                f"the login to {where} got no answer within {seconds:.0f} s", "is the host overloaded? It is tried again"
            )
        case TimeoutError():
            return Unreachable(
                f"no answer from {where} within {seconds:.0f} s", "is the host up, and its network or VPN reachable?"
            )
        case socket.gaierror():
            return UnknownName(f"the name {login.host} isn't known", "check its spelling, the VPN, or HostName in ~/.ssh/config")
        case asyncssh.ConfigParseError() | asyncssh.IllegalUserName():
            return Refused(f"the ssh configuration can't be used: {clean(str(error))}", "correct it, then try again")
        case asyncssh.KeyExchangeFailed():
            return _nothing_in_common(login, (client and client.nothing_in_common) or str(error))
        case asyncssh.ChannelOpenError():
            return through_jump(error, login)
        case asyncssh.ProtocolNotSupported() | asyncssh.ProtocolError() if client is None or not client.greeted:
            return Unreachable(f"what answers at {where} doesn't speak SSH: {clean(str(error))}", "check host and port")
        case asyncssh.DisconnectError():
            return disconnected(error, login, client)
        case OSError():
            return _system(error, login, client)
        case ValueError():
            return Refused(f"the ssh options for {login.alias} can't be used: {clean(str(error))}", "correct them in ~/.ssh/config")
        case _:
            return Unreachable(f"{where}: {clean(str(error)) or type(error).__name__}")


def _system(error: OSError, login: Login, client: LoginClient | None) -> HostError:
    where = login.place
    match _number(error):
        case errno.ECONNREFUSED:
            return Unreachable(f"{where} refused the connection", "is sshd running there, and is this its port?")
        case errno.ETIMEDOUT:
            return Unreachable(f"no answer from {where}", "is the host up, and its network or VPN reachable?")
        case errno.EHOSTUNREACH | errno.ENETUNREACH:
            return Unreachable(f"no route to {where}", "is the network or VPN up?")
        case errno.ECONNRESET | errno.EPIPE:
            return _closed_early(login, client)
        case _:
            return Unreachable(f"{where}: {clean(error.strerror or str(error))}")


def _nothing_in_common(login: Login, words: str) -> Refused:
    return Refused(
        f"{login.place} and this client have no algorithm in common: {clean(words)}",
        "set KexAlgorithms, Ciphers, MACs or HostKeyAlgorithms for the host in ~/.ssh/config",
    )


def _closed_early(login: Login, client: LoginClient | None) -> HostError:
    if client is not None and (words := client.nothing_in_common) is not None:
        return _nothing_in_common(login, words)
    if client is not None and client.met:
        return Unreachable(
            f"{login.place} closed the connection during the key exchange",
            "its log says why: no algorithm in common, perhaps, or this address is penalised there",
        )
    return Unreachable(
        f"{login.place} closed the connection before the login",
        "too many logins at once (MaxStartups), or this address is blocked there (fail2ban, hosts.deny, sshd's penalties)",
    )


def disconnected(error: asyncssh.DisconnectError, login: Login, client: LoginClient | None) -> HostError:
    """Explain that the host ended the connection with a reason, or without one."""
    words = clean(error.reason)
    if isinstance(error, asyncssh.ConnectionLost):
        if client is not None and client.logged_in:
            return lost(error, login)
        if client is not None and client.greeted:
            return Unreachable(
                f"{login.place} closed the connection during the login", "see sshd's log on the host (LoginGraceTime?)"
            )
        return _closed_early(login, client)
    if "oo many authentication failures" in words:
        return Refused(
            f"{login.place} refused the login: too many keys were tried",
            f"set IdentityFile and 'IdentitiesOnly yes' for {login.alias} in ~/.ssh/config",
        )
    if error.code == _DISCONNECT_AUTH:
        return Refused(f"{login.place} refused the login: {words}", "try again to log in")
    return Unreachable(f"{login.place} ended the connection: {words}", "it is tried again")


def lost(error: Exception | None, login: Login) -> Unreachable:
    """Explain that a connection that was up is gone."""
    words = clean(str(error)) if error is not None else ""
    if "keepalive" in words:
        return Unreachable(f"the link to {login.place} is dead: nothing came for 9 s", "is the network or VPN up?")
    if error is None or words in ("", "Connection lost"):
        return Unreachable(f"{login.place} closed the connection", "it is tried again")
    if isinstance(error, OSError) and error.strerror:
        words = clean(error.strerror)
    return Unreachable(f"the connection to {login.place} was lost: {words}", "it is tried again")


def through_jump(error: asyncssh.ChannelOpenError, login: Login) -> HostError:
    """Explain that a jump host did not open the way to the next host."""
    words = clean(error.reason)
    if error.code == ADMINISTRATIVELY_PROHIBITED:
        return Refused(
            f"the jump host doesn't forward to {login.place}: {words}", "its sshd must allow it (AllowTcpForwarding, PermitOpen)"
        )
    return Unreachable(f"the jump host can't reach {login.place}: {words}", "is that host up, as seen from the jump host?")


def no_session(error: asyncssh.ChannelOpenError, login: Login) -> HostError:
    """Explain that the host opened no session for a command."""
    words = clean(error.reason)
    if error.code in (CONNECT_FAILED, RESOURCE_SHORTAGE, ADMINISTRATIVELY_PROHIBITED):
        return NotPermitted(
            f"{login.place} opens no further session on this connection: {words}",
            "raise MaxSessions in its sshd_config (10 is the default)",
        )
    return Unreachable(f"{login.place} opened no session: {words}")


def no_stream(error: asyncssh.ChannelOpenError, login: Login, to: str) -> HostError:
    """Explain that the host opened no connection to a port or socket; code 1 is "forbidden", 2 "nothing listens there"."""
    words = clean(error.reason)
    if error.code == ADMINISTRATIVELY_PROHIBITED:
        return NotPermitted(
            f"{login.place} forbids forwarding to {to}: {words}", "its sshd must allow it (AllowTcpForwarding, PermitOpen)"
        )
    if error.code == CONNECT_FAILED:
        return PortClosed(f"nothing listens on {to} of {login.place}: {words}", "the server isn't up yet, or listens elsewhere")
    return Unreachable(f"{login.place} opened no connection to {to}: {words}")

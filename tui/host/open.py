"""Open the host that a TARGET names."""

from tui.host.base import Asker, Host
from tui.host.target import EXEC, LOCAL, parse_exec, parse_ssh


class AcceptNobody:
    """The asker if nobody can be asked: no key is trusted, no secret is given."""

    async def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        return False

    async def secret(self, host: str, prompt: str, echo: bool) -> str | None:
        return None


def open_host(target: str, *, name: str = "", asker: Asker | None = None, accept_new: bool = False) -> Host:
    """Return the host that a target names, not yet connected.

    `local`, `exec:COMMAND`, `[user@]host[:port]` or an alias of ~/.ssh/config. `accept_new` accepts unknown host keys, never
    changed ones. Raises ValueError saying what is wrong with the target.
    """
    text = target.strip()
    if not text:
        raise ValueError("the target is empty: write user@host, an alias of ~/.ssh/config, local or exec:COMMAND")
    if text == LOCAL:
        from tui.host.local import LocalHost

        return LocalHost(name or "local")
    if text.startswith(EXEC):
        from tui.host.local import ExecHost

        return ExecHost(parse_exec(text), name=name or text)
    parsed = parse_ssh(text)
    from tui.host.ssh import SshHost

    return SshHost(parsed, name=name or text, asker=None if isinstance(asker, AcceptNobody) else asker, accept_new=accept_new)

"""Who may log in to the simulated host, and what its one user's client needs for that: keys, known hosts, an ssh configuration."""

from pathlib import Path

import asyncssh

ALIAS = "simulated-gpu-box"
"""The host's name in the client's configuration."""


def make_keys(directory: Path) -> tuple[Path, Path]:
    """Makes the host's key and the user's; paths of the host's private and of the user's public one."""
    client, server = directory / "client", directory / "server"
    for folder in (client, server):
        folder.mkdir(mode=0o700)
    for path, comment in ((server / "host_key", "simulated host"), (client / "id_ed25519", "simulated user")):
        key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
        key.write_private_key(str(path))
        key.write_public_key(f"{path}.pub")
        path.chmod(0o600)
    return server / "host_key", client / "id_ed25519.pub"


def write_client_files(directory: Path, host_key: Path, port: int) -> None:
    """Writes what leads the user's client to the host, at a port of this machine, and lets it trust the host's key."""
    client = directory / "client"
    kind, key = host_key.with_name("host_key.pub").read_text().split()[:2]
    (client / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    (client / "config").write_text(
        f"Host {ALIAS}\n  HostName 127.0.0.1\n  Port {port}\n  User engineer\n"
        f"  IdentityFile {client / 'id_ed25519'}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {client / 'known_hosts'}\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n"
    )
    (client / "config").chmod(0o600)

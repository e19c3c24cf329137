"""Ask OpenSSH's client what its configuration says of a host: `ssh -G` evaluates every Include, Match and token itself."""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tui.core.text import clean
from tui.host.base import Refused, Unreachable

Values = dict[str, list[str]]
"""Keyword in lower case -> its values in order, as ssh_config(5) writes them."""

RESOLVE_S = 8.0
"""Seconds for the whole configuration, the commands of `Match exec` included."""
OUTPUT_LIMIT = 1 << 20
_UNKNOWN = re.compile(r"[Bb]ad configuration option: (\S+)")
_UNSUPPORTED = re.compile(r"[Uu]nsupported option \"?([\w-]+)")


@dataclass(frozen=True, slots=True)
class SshConfiguration:
    """Hold what a configuration says of one host, and what of it is passed over."""

    values: Values
    notes: tuple[str, ...] = ()
    home: str = ""
    """What `~` stands for in paths that are already expanded, if that isn't HOME."""
    defaults: Mapping[str, list[str]] = field(default_factory=dict)
    """What OpenSSH says of a host without any configuration; empty if only what a file sets is in `values`."""

    def sets(self, keyword: str) -> bool:
        """Return whether the configuration sets a keyword to something other than its default."""
        return keyword in self.values and self.values[keyword] != self.defaults.get(keyword)


def ask_openssh(alias: str, user: str | None, port: int | None, files: Sequence[Path] | None) -> SshConfiguration | None:
    """Return what `ssh -G` says of a host; None if OpenSSH's client isn't installed here.

    `files` are read instead of the user's and the system's configuration. Blocks for RESOLVE_S at most. Raises Refused with
    OpenSSH's words if it refuses the configuration, Unreachable if a command of `Match exec` doesn't end. The names must have been
    checked (`tui.host.target.require_safe_names`).
    """
    program = shutil.which("ssh")
    if program is None:
        return None
    account_home = pwd.getpwuid(os.getuid()).pw_dir
    until = time.monotonic() + RESOLVE_S
    with _configuration_option(files, account_home) as option:
        target = [*(["-l", user] if user else []), *(["-p", str(port)] if port is not None else []), "--", alias]
        unknown: list[str] = []
        while True:
            ignored = ["-o", f"IgnoreUnknown={','.join(unknown)}"] if unknown else []
            status, output, said = _run([program, "-G", "-T", *option, *ignored, *target], until, alias)
            fresh = [name for name in _UNKNOWN.findall(said) if name.lower() not in unknown and re.fullmatch(r"[\w-]+", name)]
            if status == 0 or not fresh:
                break
            unknown += [name.lower() for name in fresh]
    if status != 0:
        lines = [clean(line).strip().rstrip(".") for line in said.splitlines() if line.strip()]
        numbered = next((number for number, line in enumerate(lines) if re.search(r" line \d+:", line)), 0)
        cause = "; ".join(reversed(lines[: numbered + 1]))[:400] or f"ssh -G ended with status {status}"
        raise Refused(f"the ssh configuration can't be read: {cause}", f"correct that line, then try: ssh -G {alias}")
    unsupported = list(dict.fromkeys(name.lower() for name in _UNSUPPORTED.findall(said)))
    notes = [f"ssh_config: this ssh doesn't know {name}, which is ignored" for name in unknown]
    notes += [f"ssh_config: this ssh doesn't support {name}" for name in unsupported]
    home = account_home if account_home != str(Path.home()) else ""
    return SshConfiguration(parse_values(output), tuple(notes), home, _defaults(program))


def parse_values(output: str) -> Values:
    """Read the lines of `ssh -G`."""
    values: Values = {}
    for line in output.splitlines():
        keyword, _, value = line.partition(" ")
        if keyword:
            values.setdefault(keyword.lower(), []).append(value)
    return values


@lru_cache(maxsize=4)
def _defaults(program: str) -> Values:
    """Return what OpenSSH says without any configuration; asked once a process."""
    status, output, _ = _run([program, "-G", "-T", "-F", "none", "--", "localhost"], time.monotonic() + RESOLVE_S, "localhost")
    return parse_values(output) if status == 0 else {}


@contextmanager
def _configuration_option(files: Sequence[Path] | None, account_home: str) -> Iterator[list[str]]:
    """Give ssh's option for the files to read: OpenSSH takes the home directory from the account, all else here from HOME."""
    if files is None:
        if account_home == str(Path.home()):
            yield []
            return
        files = [Path.home() / ".ssh" / "config", Path("/etc/ssh/ssh_config")]
    existing = [file for file in files if file.is_file() and os.access(file, os.R_OK)]
    if len(existing) < 2:
        yield ["-F", str(existing[0]) if existing else "none"]
        return
    with tempfile.NamedTemporaryFile("w", prefix="readyroom-ssh-") as joined:
        joined.write("".join(f'Match all\nInclude "{file}"\n' for file in existing))
        joined.flush()
        yield ["-F", joined.name]


def _run(argv: Sequence[str], until: float, alias: str) -> tuple[int, str, str]:
    """Run ssh without a shell and without input; return its status, stdout and stderr. What it started ends with it."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise Refused(f"{argv[0]} can't be started: {error.strerror}", "correct the installation of OpenSSH") from error
        try:
            status = process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Unreachable(
                f"the ssh configuration of {alias} takes longer than {RESOLVE_S:.0f} s: a command of Match exec doesn't end",
                f"try it by hand: ssh -G {alias}",
            ) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # it may hang in the kernel
                process.wait(1.0)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read(OUTPUT_LIMIT).decode("utf-8", "surrogateescape"))
    return status, texts[0], texts[1]

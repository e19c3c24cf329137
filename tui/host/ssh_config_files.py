"""Read OpenSSH's configuration files where OpenSSH's client isn't installed: ssh_config(5), as far as a connection needs it.

Forgiving: what isn't known here is a note, never a refusal. Includes, Host and Match are evaluated as OpenSSH does; the first value
of a keyword wins, but IdentityFile, CertificateFile, SendEnv and SetEnv collect.
"""

import fnmatch
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tui.core.text import clean
from tui.host.base import Refused
from tui.host.openssh import RESOLVE_S, SshConfiguration, Values

INCLUDE_DEPTH = 16
FILE_LIMIT = 4 << 20
_COLLECTED = ("identityfile", "certificatefile")
_LISTS = ("sendenv", "setenv")
_REST_OF_LINE = ("proxycommand", "remotecommand", "localcommand", "knownhostscommand")
_LINE = re.compile(r"\s*([A-Za-z0-9-]+)(?:\s*=\s*|\s+)(.*)", re.DOTALL)


def matches(patterns: str, name: str) -> bool:
    """Match a name against patterns with `*`, `?` and `!`, separated by commas or spaces."""
    found = False
    for pattern in re.split(r"[,\s]+", patterns):
        if pattern and fnmatch.fnmatchcase(name.lower(), pattern.removeprefix("!").lower().replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            found = True
    return found


class ConfigurationReader:
    """Read files for one host; `tokens` gives the values of `%` tokens from what is known so far."""

    def __init__(self, alias: str, local_user: str, values: Values, expand: Callable[[Values, str], str]) -> None:
        self.values = values
        self.notes: list[str] = []
        self.final_wanted = False
        self._alias = alias
        self._local_user = local_user
        self._expand = expand
        self._final = False
        self._depth = 0
        self._until = time.monotonic() + RESOLVE_S

    def read(self, files: Sequence[Path]) -> None:
        """Read the files, and once more if a `Match final` is among them. Raises Refused, naming the line."""
        for file in files:
            self._file(file)
        if self.final_wanted:
            self._final = True
            for file in files:
                self._file(file)

    def _refuse(self, file: Path, number: int, why: str) -> Refused:
        return Refused(f"the ssh configuration can't be read: {file} line {number}: {why}", "correct that line, then try again")

    def _file(self, file: Path) -> None:
        try:
            with file.open("rb") as opened:
                data = opened.read(FILE_LIMIT)
        except OSError as error:
            raise Refused(f"the ssh configuration can't be read: {file}: {error.strerror}", "correct its permissions") from error
        matching = True
        for number, line in enumerate(data.decode("utf-8", "surrogateescape").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            found = _LINE.fullmatch(line)
            if found is None:
                raise self._refuse(file, number, f"{clean(line.strip())[:80]} has no value")
            keyword, rest = found[1].lower(), found[2].strip()
            try:
                words = [rest] if keyword in _REST_OF_LINE else shlex.split(rest, comments=True)
            except ValueError as error:
                raise self._refuse(file, number, str(error)) from None
            if not words:
                raise self._refuse(file, number, f"{found[1]} has no value")
            match keyword:
                case "host":
                    matching = matches(" ".join(words), self._alias)
                case "match":
                    matching = self._match(words, file, number)
                case _ if not matching:
                    continue
                case "include":
                    self._include(words, file, number)
                case _:
                    self._set(keyword, words)

    def _set(self, keyword: str, words: list[str]) -> None:
        if keyword in _LISTS:
            self.values.setdefault(keyword, []).extend(words)
        elif keyword in _COLLECTED:
            self.values.setdefault(keyword, []).append(words[0])
        elif keyword == "hostname" and keyword not in self.values:
            self.values[keyword] = [self._expand(self.values, words[0])]
        elif keyword in ("userknownhostsfile", "globalknownhostsfile"):
            self.values.setdefault(keyword, words)
        else:
            self.values.setdefault(keyword, [" ".join(words)])

    def _include(self, patterns: Sequence[str], file: Path, number: int) -> None:
        """Read the files that the patterns name, sorted as OpenSSH's glob does."""
        self._depth += 1
        if self._depth > INCLUDE_DEPTH:
            raise self._refuse(file, number, "Too many nested Includes")
        folder = file.parent if str(file).startswith("/etc/") else Path("~/.ssh").expanduser()
        for pattern in patterns:
            wanted = Path(pattern).expanduser()
            wanted = wanted if wanted.is_absolute() else folder / wanted
            for included in sorted(Path(wanted.anchor).glob(str(wanted.relative_to(wanted.anchor)))):
                if included.is_file() and os.access(included, os.R_OK):
                    self._file(included)
        self._depth -= 1

    def _match(self, words: list[str], file: Path, number: int) -> bool:
        """Evaluate the criteria of a Match line, each only if those before it hold."""
        matching, waiting = True, list(words)
        while waiting:
            criterion, joined, pattern = waiting.pop(0).partition("=")
            negated, name = criterion.startswith("!"), criterion.removeprefix("!").lower()
            if name in ("all", "canonical", "final"):
                self.final_wanted = self.final_wanted or name == "final"
                result = name == "all" or self._final
            else:
                if not joined and not waiting:
                    raise self._refuse(file, number, f"Match {name} needs a pattern")
                pattern = pattern if joined else waiting.pop(0)
                result = matching and self._criterion(name, pattern, file, number)
            matching = matching and result != negated
        return matching

    def _criterion(self, name: str, pattern: str, file: Path, number: int) -> bool:
        value = self.values.get
        match name:
            case "exec":
                return self._exec(self._expand(self.values, pattern))
            case "host":
                return matches(pattern, value("hostname", [self._alias])[0])
            case "originalhost":
                return matches(pattern, self._alias)
            case "user":
                return matches(pattern, value("user", [self._local_user])[0])
            case "localuser":
                return matches(pattern, self._local_user)
            case "tagged":
                return matches(pattern, value("tag", [""])[0])
            case "sessiontype":
                return matches(pattern, "shell")
            case "command":
                return matches(pattern, "")
            case "localnetwork" | "version":
                self.notes.append(f"ssh_config: Match {name} ({file} line {number}) needs OpenSSH's client and is ignored")
                return False
            case _:
                raise self._refuse(file, number, f"Match has no criterion {clean(name)[:40]}")

    def _exec(self, command: str) -> bool:
        """Run the command of `Match exec`; False if it doesn't end in time."""
        quiet = subprocess.DEVNULL
        shell = os.environ.get("SHELL") or "/bin/sh"
        with suppress(OSError):
            process = subprocess.Popen([shell, "-c", command], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
            try:
                return process.wait(max(0.1, self._until - time.monotonic())) == 0
            except subprocess.TimeoutExpired:
                self.notes.append(f"ssh_config: the command of a Match exec doesn't end: {clean(command)[:80]}")
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return False


def read_configuration(
    alias: str, local_user: str, given: Values, files: Sequence[Path], expand: Callable[[Values, str], str]
) -> SshConfiguration:
    """Return what the files say of a host; `given` are values of the target, which win. Raises Refused, naming the line."""
    reader = ConfigurationReader(alias, local_user, given, expand)
    reader.read([file for file in files if file.is_file() and os.access(file, os.R_OK)])
    return SshConfiguration(reader.values, tuple(dict.fromkeys(reader.notes)))

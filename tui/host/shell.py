"""How anything is started on a host: a bare `/bin/sh` whose commands arrive on its stdin.

The remote command line is the constant `exec /bin/sh`, so the login shell (csh, fish, a restricted one) has nothing to quote or to
expand, and no path, unit or model name stands in it. The commands follow on stdin and end by announcing a mark, another each time,
on stdout and stderr; what a start-up file printed before that is dropped. Nothing else may be written before the mark is seen:
some shells read ahead.
"""

import asyncio
import contextlib
import math
import secrets
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tui.aio import together
from tui.core.text import clean
from tui.host.base import Completed, HostError, NotPermitted, ProbeFailed, Unreachable
from tui.probe.boot import BOOT
from tui.probe.leash import SHELL_LEASH

SHELL = "exec /bin/sh"
NO_PYTHON = ":no-python"
SHELL_S = 9.5
"""Seconds until a fresh shell answers, tests of interpreters included; more is a host, or a start-up file, that doesn't."""
PYTHON_TEST_S = 4
"""Seconds for one interpreter to start: one on a file system that hangs never does."""
HUNG_LIMIT = 2
"""Interpreters that hang before no further one is tried, so that the reason is known within SHELL_S."""
BANNER_LIMIT = 1 << 20
"""Bytes that start-up files may print; more is taken for a host that never ends."""
OUTPUT_LIMIT = 16 << 20
"""Bytes of stdout or stderr of one short command."""
ERROR_TAIL = 8192

# Nothing of the host's own start-up files decides which program runs; the user's list comes last, for what lies nowhere else.
SEARCH = (
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cuda/bin:/usr/local/nvidia/bin"
    ":/opt/conda/bin:/opt/venv/bin:/snap/bin:/run/current-system/sw/bin:/usr/lib/wsl/lib"
)
PYTHONS = (
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python3",
    "/opt/venv/bin/python3",
    "/usr/libexec/platform-python",
    "/run/current-system/sw/bin/python3",
    "python3",
    "python",
)


class HostProcess(Protocol):
    """A process on a host, in bytes. Reading or writing raises Unreachable when the connection is lost."""

    async def read(self) -> bytes:
        """Return the next bytes of stdout; empty at its end."""

    async def read_error(self) -> bytes:
        """Return the next bytes of stderr; empty at its end."""

    async def write(self, data: bytes) -> None:
        """Write to stdin and wait while the other side is slow. A process that has ended swallows it."""

    async def write_eof(self) -> None: ...

    async def wait(self) -> int | None:
        """Return the exit status; None if a signal ended it or nobody knows."""

    async def close(self, grace: float = 1.0) -> None:
        """End it, also on the host, and free what it holds; `grace` seconds to end by itself. May be called twice."""


def new_mark() -> str:
    """Return a word that no start-up file can know."""
    return f"readyroom:{secrets.token_hex(8)}"


def _preamble() -> str:
    return f'PATH={SEARCH}:"$PATH"; export PATH\n'


def _announce(mark: str, *, errors: bool = False) -> str:
    return f'printf "\\n{mark}\\n"' + (f'; printf "\\n{mark}\\n" >&2' if errors else "")


def command_script(mark: str, argv: Sequence[str], seconds: float) -> bytes:
    """Return what the shell reads to run one command that ends by itself after `seconds`, even if nobody hears of it any more.

    Raises ValueError if a word holds a NUL, which no process can be given.
    """
    if not argv:
        raise ValueError("a command needs at least one word")
    if any("\0" in word for word in argv):
        raise ValueError("a word of a command can't hold a NUL character")
    words = " ".join(shlex.quote(word) for word in argv)
    limit = max(1, math.ceil(seconds)) + 1
    return (
        _preamble() + "LC_ALL=C; export LC_ALL\n"
        f"if timeout 9 true 2>/dev/null; then set -- timeout -k 1 {limit} {words}; else set -- {words}; fi\n"
        f'{{ {_announce(mark, errors=True)}; exec "$@"; }}\n'
    ).encode("utf-8", "surrogateescape")


def check_script(mark: str) -> bytes:
    """Return what the shell reads to show that it is one; it goes on reading commands."""
    return f"{_announce(mark)}\n".encode()


def probe_script(mark: str) -> bytes:
    """Return what the shell reads to become a Python that waits for the probe. Python 3.8 is the oldest that the probe runs on.

    Each interpreter is started once to see that it works, in a session of its own that is killed with all it started if it hangs.
    """
    test = shlex.quote("import sys; sys.exit(sys.version_info < (3, 8))")
    return (
        _preamble() + "own=; command -v setsid >/dev/null 2>&1 && own=setsid\n"
        f'limit=; timeout 9 true 2>/dev/null && limit="timeout -s KILL {PYTHON_TEST_S}"\n'
        "tried= hung= count=0\n"
        f"for python in {' '.join(PYTHONS)}; do\n"
        'path=$(command -v "$python" 2>/dev/null) || continue\n'
        'case "$tried:" in *":$path:"*) continue;; esac; tried="$tried:$path"\n'
        f'$own $limit "$path" -I -c {test} </dev/null >/dev/null 2>&1 & child=$!\n'
        f'guard=; [ -n "$limit" ] || {{ ( sleep {PYTHON_TEST_S}; kill -9 $child ) >/dev/null 2>&1 </dev/null & guard=$!; }}\n'
        "wait $child 2>/dev/null; status=$?\n"
        '[ -z "$guard" ] || kill $guard 2>/dev/null; [ -z "$own" ] || kill -9 -$child 2>/dev/null\n'
        f'if [ $status = 0 ]; then {_announce(mark)}; exec "$path" -I -c {shlex.quote(BOOT)}; fi\n'
        '[ $status != 137 ] || { hung="$hung $path"; count=$((count+1)); }\n'
        f"[ $count -lt {HUNG_LIMIT} ] || break\n"
        "done\n"
        f'printf "\\n{mark}{NO_PYTHON}%s\\n" "$hung"; exit 127\n'
    ).encode()


def leash_script(mark: str) -> bytes:
    """Return what the shell reads to hold one command on the leash; its words follow (`tui.probe.leash.SHELL_LEASH`)."""
    return (_preamble() + f"{{ {_announce(mark)}\n{SHELL_LEASH}}}\n").encode()


def watch_script(mark: str) -> bytes:
    """Return what the shell reads to send each byte back, and to end after 8 s without one (if the host has `timeout`)."""
    return (
        _preamble() + 'limit=""; if timeout 9 true 2>/dev/null; then limit="timeout 8"; fi\n'
        f"{{ {_announce(mark)}\n"
        'while byte=$($limit head -c 1) && [ -n "$byte" ]; do printf %s "$byte"; done; exit 0; }\n'
    ).encode()


class ErrorTail:
    """Reads stderr to its end in the background, so that it never blocks the process, and keeps the last of it."""

    def __init__(self, process: HostProcess) -> None:
        self._data = b""
        self.task = asyncio.create_task(self._read(process))

    async def _read(self, process: HostProcess) -> None:
        try:
            while data := await process.read_error():
                self._data = (self._data + data)[-ERROR_TAIL:]
        except HostError:
            pass

    async def last_line(self) -> str:
        """Return the last line that says something, cleaned; empty if there is none."""
        await asyncio.wait([self.task], timeout=0.5)
        return last_line(self._data)

    def stop(self) -> None:
        self.task.cancel()


def last_line(data: bytes) -> str:
    """Return the last line of output that says something, cleaned, 300 characters at most.

    Without the full stop at its end, since it stands within a sentence.
    """
    lines = [clean(line).strip() for line in data.decode("utf-8", "replace").splitlines()]
    last = next((line[:300] for line in reversed(lines) if line), "")
    return last if last.endswith("..") else last.removesuffix(".")


async def after_mark(process: HostProcess, mark: str, where: str, seconds: float = SHELL_S) -> bytes:
    """Read stdout up to the mark; return the bytes that came after it.

    Raises ProbeFailed if there is no Python, NotPermitted if no shell was given, Unreachable if the connection is lost or nothing
    answers within `seconds`.
    """
    seen = bytearray(b"\n")
    try:
        async with asyncio.timeout(seconds):
            return await _until_mark(process, mark, where, seen)
    except TimeoutError:
        said = last_line(bytes(seen))
        raise Unreachable(
            f"{where} gave no shell within {seconds:.0f} s" + (f": {said}" if said else ""),
            "is it overloaded, or does a start-up file of the account (~/.bashrc, ~/.profile) start a program that goes on?",
        ) from None


async def _until_mark(process: HostProcess, mark: str, where: str, seen: bytearray) -> bytes:
    begin, no_python, echoed = f"\n{mark}\n".encode(), f"\n{mark}{NO_PYTHON}".encode(), f'printf "\\n{mark}'.encode()
    while True:
        data = await process.read()
        if not data:
            raise _no_shell(await process.wait(), bytes(seen), where)
        start = max(0, len(seen) - len(no_python) - len(echoed))
        seen += data
        if (found := seen.find(begin, start)) >= 0:
            return bytes(seen[found + len(begin) :])
        if (found := seen.find(no_python, start)) >= 0 and (end := seen.find(b"\n", found + 1)) >= 0:
            raise _no_python(where, clean(seen[found + len(no_python) : end].decode("utf-8", "replace")).strip())
        if seen.find(echoed, start) >= 0:
            raise NotPermitted(
                f"{where} gave no shell: a program that repeats what it reads stands in its place",
                "take the exec out of the start-up files of the account (~/.bashrc, ~/.profile), or out of ForceCommand",
            )
        if len(seen) > BANNER_LIMIT:
            raise NotPermitted(
                f"the start-up files of {where} print without end",
                "let ~/.bashrc and the like print nothing when the shell isn't interactive",
            )


def _no_python(where: str, hung: str) -> ProbeFailed:
    if hung:
        return ProbeFailed(
            f"{where} has no Python that starts: {hung} doesn't within {PYTHON_TEST_S} s",
            "does it lie on a file system that hangs, or is it a wrapper that waits? Try it by hand",
        )
    return ProbeFailed(f"{where} has no Python 3.8 or newer", f"install python3 on {where}; looked at {', '.join(PYTHONS)}")


def _no_shell(status: int | None, seen: bytes, where: str) -> HostError:
    said = last_line(seen)
    ended = "was ended by a signal" if status is None else f"ended with status {status}"
    return NotPermitted(
        f"{where} gave no shell: it {ended}" + (f": {said}" if said else ""),
        f"the account on {where} must be allowed to run /bin/sh (login shell, ForceCommand, ChrootDirectory, "
        "command= in authorized_keys, an exit or exec in ~/.bashrc)",
    )


async def run_command(process: HostProcess, argv: Sequence[str], *, input: bytes, timeout: float, where: str) -> Completed:
    """Run one command in a fresh shell and close the process.

    Raises TimeoutError, Unreachable, NotPermitted; HostError when it prints more than OUTPUT_LIMIT.
    """
    output, errors = bytearray(), bytearray()
    mark = new_mark()
    begun, all_said = asyncio.Event(), asyncio.Event()
    status: int | None = None

    async def talk() -> None:
        nonlocal status, output
        await process.write(command_script(mark, argv, timeout))
        try:
            output += await after_mark(process, mark, where)
        except NotPermitted as error:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await all_said.wait()
            said = last_line(bytes(errors))
            raise NotPermitted(f"{error.cause}: {said}" if said else error.cause, error.advice) from None
        begun.set()
        await _collect(process.read, output, argv[0], where)
        status = await process.wait()

    async def listen() -> None:
        await _collect(process.read_error, errors, argv[0], where)
        all_said.set()

    async def feed() -> None:
        await begun.wait()
        await _feed(process, input)

    try:
        async with asyncio.timeout(timeout):
            await together(talk(), listen(), feed())
    finally:
        await process.close(grace=0)
    before, found, after = bytes(errors).partition(f"\n{mark}\n".encode())
    return Completed(status, bytes(output), after if found else before)


async def _feed(process: HostProcess, data: bytes) -> None:
    if data:
        await process.write(data)
    await process.write_eof()


async def _collect(read: Callable[[], Awaitable[bytes]], into: bytearray, program: str, where: str) -> None:
    while data := await read():
        into += data
        if len(into) > OUTPUT_LIMIT:
            raise HostError(f"{clean(program)} on {where} printed more than {OUTPUT_LIMIT >> 20} MiB")

"""The leash: nothing that was started on a host outlives its client there.

The client writes a line at least every BEAT_S. Here, a thread reads them and another one counts the silence: on the end of stdin,
or after SILENCE_S without a line, all children are killed and the process ends with `os._exit`, whatever its main thread is doing
(a driver call that hangs, a write to a link that is frozen). Children run in sessions of their own and are killed as groups.

Role modules get a `Link` and nothing else: they send frames with it, take requests from it and start children with it.
"""

import collections
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Sequence, Set

from tui.wire.frames import SILENCE_S, decode, encode

BEAT = encode({"do": "beat"})
"""What the client writes when it has nothing else to say."""

TICK_S = 0.25
"""How finely silence is counted: the end comes at most so much later than the silence allows."""
MOST_A_TICK_S = 3.0
LINE_LIMIT = 16 << 20


class Link:
    """The client, as a role sees it. Thread-safe."""

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self._silence_s = silence_s
        self._heard = time.monotonic()
        self._requests: Deque[Dict[str, Any]] = collections.deque()
        self._arrived = threading.Condition()
        self._writing = threading.Lock()
        self._children: Set[int] = set()
        self._guard = _Guard()
        self._parent_death = _parent_death_signal()
        self.output = os.dup(1)
        """The descriptor that leads to the client, for a process that takes this one's place."""
        # what prints by accident must not tear a frame apart
        os.dup2(2, 1)
        self.wake_fd, self._waker = os.pipe()
        """Readable while a request waits: for roles with a loop of their own around `select`. Take requests with `request(0)`."""
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._waker, False)

    def start(self) -> None:
        """Put the leash on."""
        for work in (self._read, self._count_silence):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    # -- talking -------------------------------------------------------------------------------------------------------------------

    def send(self, frame: Dict[str, Any]) -> None:
        """Write one frame; block while the link takes no more (the leash ends the process if that lasts)."""
        data = memoryview(encode(frame))
        with self._writing:
            try:
                while data:
                    data = data[os.write(self.output, data) :]
            except OSError:  # nobody reads any more
                self.end(0)

    def error(self, what: str, why: str) -> None:
        """Say that something could not be done; the role goes on."""
        self.send({"f": "error", "what": what, "why": why})

    def request(self, timeout: Optional[float] = None) -> Optional[Dict[str, Any]]:
        """Return the next request of the client; None if none came within `timeout` seconds (None waits for ever, 0 not at all)."""
        with self._arrived:
            if not self._requests:
                self._arrived.wait_for(lambda: bool(self._requests), timeout)
            if not self._requests:
                return None
            request = self._requests.popleft()
            if not self._requests:
                try:
                    while os.read(self.wake_fd, 4096):
                        pass
                except BlockingIOError:
                    pass
            return request

    def outlet_blocked(self) -> bool:
        """Return whether the client takes nothing at the moment: a role that can skip lines should."""
        return not select.select([], [self.output], [], 0)[1]

    # -- children ------------------------------------------------------------------------------------------------------------------

    def spawn(self, argv: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a child on the leash, in a session of its own; options are those of subprocess.Popen.

        Call it from the main thread: the kernel kills the child when the thread that started it ends. Raises OSError if the program
        can't be started.
        """
        self._guard.start(self._children)
        numbers, number = os.pipe()  # which number a child had whose program can't be started, Popen doesn't tell

        def begin() -> None:
            self._guard.watch(os.getpid())
            os.write(number, b"%d" % os.getpid())
            if self._parent_death is not None:
                self._parent_death()

        try:
            child = subprocess.Popen(list(argv), start_new_session=True, preexec_fn=begin, **options)
        except (OSError, ValueError, subprocess.SubprocessError):
            os.set_blocking(numbers, False)
            with contextlib.suppress(OSError):
                self._guard.forget(int(os.read(numbers, 32)))
            raise
        finally:
            os.close(numbers)
            os.close(number)
        self._children.add(child.pid)
        return child

    def kill(self, child: "subprocess.Popen[bytes]") -> None:
        """End a child and all of its group, and collect it."""
        _kill_group(child.pid)
        child.wait()
        self._let_go(child.pid)

    def reaped(self, child: "subprocess.Popen[bytes]") -> None:
        """End what a child that ended by itself has left in its group."""
        _kill_group(child.pid)
        self._let_go(child.pid)

    def abandon(self, child: "subprocess.Popen[bytes]") -> None:
        """End a child that may belong to another user by now: what can't be killed is not waited for."""
        _kill_group(child.pid)
        self._let_go(child.pid)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        child.poll()

    def _let_go(self, pid: int) -> None:
        self._children.discard(pid)
        self._guard.forget(pid)

    # -- the end -------------------------------------------------------------------------------------------------------------------

    def end(self, status: int) -> None:
        """Kill the children and end the process, from any thread."""
        for pid in list(self._children):
            _kill_group(pid)
        os._exit(status)

    def _read(self) -> None:
        stdin = sys.stdin.buffer
        try:
            while True:
                line = stdin.readline(LINE_LIMIT)
                if not line:
                    break
                self._heard = time.monotonic()
                try:
                    message = decode(line)
                except ValueError:
                    continue
                if message.get("do") == "beat":
                    continue
                with self._arrived:
                    self._requests.append(message)
                    with contextlib.suppress(BlockingIOError):
                        os.write(self._waker, b"!")
                    self._arrived.notify_all()
        finally:
            self.end(0)

    def _count_silence(self) -> None:
        # Silence is counted in this thread's own ticks: a machine that was suspended wakes up with a long gap on its clock which is
        # nobody's silence, so one tick adds little.
        silent = 0.0
        heard = self._heard
        before = time.monotonic()
        while silent < self._silence_s:
            time.sleep(TICK_S)
            now = time.monotonic()
            last = self._heard
            if last != heard:
                silent, heard, before = 0.0, last, last
            silent += min(max(0.0, now - before), MOST_A_TICK_S)
            before = now
        self.end(0)


class _Guard:
    """A small shell beside this process that kills the children's groups when this process is gone, even if it was killed with -9:
    the kernel's own death signal reaches the children only, not what they started. Begins with the first child."""

    SCRIPT = (
        "left=' '; while read -r sign pid; do case $sign in "
        '+) left="$left$pid ";; '
        '-) case $left in *" $pid "*) left="${left%% $pid *} ${left#* $pid }";; esac;; '
        "esac; done; for pid in $left; do kill -9 -$pid; done"
    )

    def __init__(self) -> None:
        self._pipe: Optional[int] = None
        self._process: Optional["subprocess.Popen[bytes]"] = None

    def start(self, children: Iterable[int]) -> None:
        """Begin unless it runs. If no shell can be started there is none: the leash itself still ends what it started."""
        if self._process is not None and self._process.poll() is None:
            return
        self._pipe = None
        quiet = subprocess.DEVNULL
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", self.SCRIPT], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
            )
            assert self._process.stdin is not None
            self._pipe = self._process.stdin.fileno()
        for pid in list(children):
            self.watch(pid)

    def watch(self, pid: int) -> None:
        """Watch a child before its program starts: there is no moment in which it runs unknown."""
        self._tell(b"+ %d\n" % pid)

    def forget(self, pid: int) -> None:
        """Forget a child: its number may be another process's from now on."""
        self._tell(b"- %d\n" % pid)

    def _tell(self, line: bytes) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                os.write(self._pipe, line)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _parent_death_signal() -> Optional[Callable[[], None]]:
    """Return what a child calls before its program starts, so that the kernel kills it if this process is killed with -9.

    None on systems without the call, which is Linux's.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None

    def ask() -> None:
        prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG

    return ask


# -- hosts without Python ----------------------------------------------------------------------------------------------------------

SHELL_BEAT = b"."
"""The heartbeat of SHELL_LEASH: a byte that is no newline, since the shell drops those."""

SHELL_LEASH = """\
LC_ALL=C; export LC_ALL
IFS= read -r count || exit 125
set --
while [ "$count" -gt 0 ]; do IFS= read -r word || exit 125; set -- "$@" "$word"; count=$((count-1)); done
exec 3<&0
own=; command -v setsid >/dev/null 2>&1 && own=setsid
limit=; timeout 9 true 2>/dev/null && limit="timeout 8"
$own "$@" </dev/null 3<&- &
child=$!
( while [ -n "$($limit head -c1 <&3 2>/dev/null)" ]; do :; done
  [ -n "$own" ] && kill -9 -$child; kill -9 $child ) >/dev/null 2>&1 &
watcher=$!
wait $child
status=$?
[ -n "$own" ] && kill -9 -$child 2>/dev/null
kill $watcher 2>/dev/null
exit $status
"""
"""Runs one command on the leash with nothing but a POSIX shell. It is a constant: the command's words come on stdin
(`shell_opening`), then a SHELL_BEAT at least every BEAT_S. The command's output is the shell's; it gets no stdin. Without `timeout`
there only the end of stdin is noticed. Exit status: the command's, 137 when the leash was pulled, 125 when no command came."""


def shell_opening(argv: Sequence[str]) -> bytes:
    """Return what is written first to SHELL_LEASH's stdin. Raise ValueError for words that can't be told by lines."""
    words = [os.fsencode(word) for word in argv]
    if not words or any(b"\n" in word or b"\0" in word for word in words):
        raise ValueError("a command on the shell's leash needs words without newlines")
    lines: List[bytes] = [b"%d" % len(words)]
    return b"\n".join(lines + words) + b"\n"

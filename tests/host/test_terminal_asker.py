"""Prompts on a real terminal (a pty), and none if there is no terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress

import pytest

ASK = """
import asyncio
from tui.cli.login_prompts import terminal_asker
asker = terminal_asker()
async def main():
    if asker is None:
        print("nobody")
    else:
        print(repr(await asker.trust_host_key("gpu\\x1b[2J-box", "ED25519", "SHA256:abc")))
        print(repr(await asker.secret("me@gpu-box", "Pass\\x1b]0;owned\\x07word:", False)))
        print(repr(await asker.secret("me@gpu-box", "Code:", True)))
asyncio.run(main())
"""


def talk(lines: list[tuple[str, str]]) -> str:
    """Run the asker on a pty and type the answer to each text that appears; return all that was shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", ASK])
    shown, deadline = "", time.monotonic() + 20
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(terminal, 4096)
            except OSError:
                break
            if not data:
                break
            shown += data.decode()
            if lines and lines[0][0] in shown:
                os.write(terminal, lines.pop(0)[1].encode())
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return shown


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
@pytest.mark.parametrize(("answer", "trusted"), [("yes\n", "True"), ("no\n", "False"), ("SHA256:abc\n", "True"), ("\n", "False")])
def test_questions_on_the_terminal(answer: str, trusted: str) -> None:
    shown = talk([("[yes/no]", answer), ("word:", "geheim\n"), ("Code:", "123\n")])
    assert "ED25519 SHA256:abc" in shown
    assert "\x1b" not in shown.replace("\x1b[?2004", "")
    assert f"{trusted}\r\n" in shown
    assert shown.count("geheim") == 1  # the printed answer; what was typed is not shown
    assert "'123'" in shown


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
def test_leaving_a_question_cancels_it() -> None:
    shown = talk([("[yes/no]", "\x04"), ("word:", "\x04"), ("Code:", "\x04")])
    assert "False" in shown
    assert shown.count("None") == 2


def test_nobody_is_asked_without_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK], check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True
    )
    assert done.stdout == "nobody\n"


LEAVE = """
import sys
from tui.cli import main
from tui.cli.login_prompts import TerminalAsker, confirm
from tui.cli.signals import play

async def ask():
    if sys.argv[1] == "confirm":
        await confirm("Go on?")
    else:
        await TerminalAsker().secret("me@gpu-box", "Password:", sys.argv[1] == "shown")
    return 0

main.cli.main = lambda **_: play(ask())
main.main()
"""


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["hidden", "shown", "confirm"])
@pytest.mark.parametrize("how", ["key", "term"])
def test_an_interrupted_question_ends_at_once_and_leaves_the_terminal_as_it_was(kind: str, how: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", LEAVE, kind])
    shown, deadline, asked, status = b"", time.monotonic() + 60, False, None
    try:
        while status is None:
            assert time.monotonic() < deadline, f"it still waits for a line: {shown!r}"
            if select.select([terminal], [], [], 0.1)[0]:
                with suppress(OSError):
                    shown += os.read(terminal, 4096)
            if not asked and (b"Password:" in shown or b"Go on?" in shown):
                asked = True
                assert bool(termios.tcgetattr(terminal)[3] & termios.ECHO) == (kind != "hidden")
                if how == "key":
                    os.write(terminal, b"\x03")
                else:
                    os.kill(pid, signal.SIGTERM)
            ended, code = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if ended else None
        assert status == 130
        assert termios.tcgetattr(terminal)[3] & termios.ECHO
    finally:
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)

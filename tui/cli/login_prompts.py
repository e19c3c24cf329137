"""Asks the person at the terminal what a login needs; if there is no terminal, nobody is asked."""

import asyncio
import os
import select
import termios
from typing import Any

from tui.core.text import clean
from tui.host.base import Asker

LONGEST_ANSWER = 4096


class TerminalAsker:
    """Prompts on the terminal itself (/dev/tty), so that stdout stays clean for `--json` and stdin for pipes."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        question = (
            f"The key of {clean(host)} is not known: {clean(key_type)} {clean(fingerprint)}\nAccept and remember it? [yes/no] "
        )
        answer = await self._ask(question, echo=True)
        return answer is not None and answer.strip().lower() in ("y", "yes", fingerprint.lower())

    async def secret(self, host: str, prompt: str, echo: bool) -> str | None:
        return await self._ask(f"({clean(host)}) {clean(prompt).strip()} ", echo=echo)

    async def _ask(self, question: str, *, echo: bool) -> str | None:
        # Several hosts may log in at once: one question at a time.
        async with self._turn:
            return await ask(question, echo=echo)


async def ask(question: str, *, echo: bool = True) -> str | None:
    """Return what the person types after the question, without the line's end, or None after ctrl+d or if nobody is there.

    A cancelled question is left at once, and the terminal shows again what is typed.
    """
    left, leave = os.pipe()
    reading = asyncio.ensure_future(asyncio.to_thread(_read, question, echo, left))
    try:
        return await asyncio.shield(reading)
    finally:
        os.close(leave)
        await asyncio.wait([reading])


async def confirm(question: str) -> bool:
    """Return whether the person says yes."""
    answer = await ask(f"{question} [y/N] ")
    return answer is not None and answer.strip().lower() in ("y", "yes")


def _read(question: str, echo: bool, left: int) -> str | None:
    """Read a line from the terminal until `left` can be read: a thread that blocks in `read` would hold up the program's end."""
    terminal = -1
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        before = None if echo else _without_echo(terminal)
        try:
            os.write(terminal, question.encode(errors="replace"))
            return _line(terminal, left)
        finally:
            if before is not None:
                termios.tcsetattr(terminal, termios.TCSADRAIN, before)
            if not echo:
                os.write(terminal, b"\n")  # the one that was typed is not shown
    except (OSError, termios.error):
        return None
    finally:
        os.close(left)
        if terminal >= 0:
            os.close(terminal)


def _line(terminal: int, left: int) -> str | None:
    typed = b""
    while len(typed) < LONGEST_ANSWER:
        ready, _, _ = select.select([terminal, left], [], [])
        if left in ready:
            return None
        piece = os.read(terminal, LONGEST_ANSWER)
        typed += piece
        if not piece or typed.endswith(b"\n"):
            break
    return typed.decode(errors="replace").rstrip("\r\n") if typed else None


def _without_echo(terminal: int) -> list[Any]:
    """Make the terminal hide what is typed and drop what was typed ahead; return the settings it had before."""
    before = termios.tcgetattr(terminal)
    hiding = termios.tcgetattr(terminal)
    hiding[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, hiding)
    return before


def terminal_asker() -> Asker | None:
    """Return an asker if a person sits at a terminal, or None in scripts, CI, cron and background jobs."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            # A job in the background that reads from its terminal is stopped by it.
            foreground = os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return None
    return TerminalAsker() if foreground else None

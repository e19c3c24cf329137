"""Asks the person at the terminal what a login needs; where there is no terminal, nobody is asked."""

import asyncio
import getpass
import os

from tui.core.text import clean
from tui.host.base import Asker


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
            return await asyncio.to_thread(_read, question, echo)


def _read(question: str, echo: bool) -> str | None:
    try:
        if not echo:
            return getpass.getpass(question)
        with open("/dev/tty", "r+b", buffering=0) as terminal:
            terminal.write(question.encode(errors="replace"))
            line = terminal.readline()
            return line.decode(errors="replace").rstrip("\r\n") if line else None
    except (EOFError, KeyboardInterrupt, OSError):
        return None


def terminal_asker() -> Asker | None:
    """An asker when a person sits at a terminal; None in scripts, CI, cron and background jobs."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            # A job in the background that reads from its terminal is stopped by it.
            foreground = os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return None
    return TerminalAsker() if foreground else None

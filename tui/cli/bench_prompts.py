"""Reads the prompts that `readyroom bench --prompts` names."""

import os
import stat
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tui.core.benchmark_prompts import Given

PROMPTS_LIMIT = 64 << 20
"""Bytes of a file of prompts: they travel to the load generator, and stay in its memory."""


def read_prompts(path: str | None, endpoint: str) -> "Given | None":
    """The prompts of a file, or of standard input (`-`). Raises click.UsageError naming the file and the line."""
    if path is None:
        return None
    from tui.core.benchmark_prompts import parse_prompts

    name = "standard input" if path == "-" else path
    try:
        return parse_prompts(_text(path), endpoint)
    except OSError as error:
        raise click.UsageError(f"--prompts {name}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"--prompts {name}: {error}") from None


def _text(path: str) -> str:
    """Raises OSError, and ValueError for what is no file, too large, or no text."""
    if path == "-":
        data = sys.stdin.buffer.read(PROMPTS_LIMIT + 1)
    else:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("is no regular file; - reads standard input")
        with open(path, "rb") as file:
            data = file.read(PROMPTS_LIMIT + 1)
    if len(data) > PROMPTS_LIMIT:
        part = "take a part of it (of an array: jq -c '.[:1000][]')"
        raise ValueError(f"is larger than {PROMPTS_LIMIT >> 20} MiB, the most that a load generator is sent: {part}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is no UTF-8 text (byte {error.start})") from None

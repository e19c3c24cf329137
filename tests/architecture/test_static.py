"""Linter, formatter, types and import contracts: part of the one test command."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy",),
        ("lint-imports",),
    ],
    ids=lambda command: " ".join(command),
)
@pytest.mark.timeout(300)
def test_static_check_passes(command: tuple[str, ...]) -> None:
    beside = Path(sys.executable).with_name(command[0])
    program = str(beside) if beside.exists() else shutil.which(command[0])
    assert program is not None, f"{command[0]} is not installed: pip install -e '.[test]'"
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

"""The repository's shape, and the words that must not stand in it."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    ".gitattributes",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "config.toml.example",
    "pyproject.toml",
}
TOP = FILES | {".ci", "screenshots", "tests", "tui"}


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [Path(line) for line in done.stdout.splitlines()]


def test_nothing_else_lies_at_the_top() -> None:
    assert {path.parts[0] for path in tracked()} <= TOP


def test_modules_stay_readable() -> None:
    """Above 450 lines a concept is missing."""
    long = {str(path): lines for path in (ROOT / "tui").rglob("*.py") if (lines := path.read_text().count("\n")) > 450}
    assert not long

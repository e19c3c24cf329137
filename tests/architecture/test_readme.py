"""What the README says is so: its keys, its pictures, its commands."""

import importlib.util
import re
from pathlib import Path

import pytest

from tui.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_its_keys_are_those_of_the_actions() -> None:
    spec = importlib.util.spec_from_file_location("keys", ROOT / "screenshots" / "keys.py")
    assert spec is not None
    assert spec.loader is not None
    keys = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(keys)
    assert keys.updated(README) == README, "run python screenshots/keys.py"


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_its_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_its_commands_exist() -> None:
    named = set(re.findall(r"`readyroom ([a-z]+)", README)) | set(re.findall(r"^readyroom ([a-z]+) ", README, re.M))
    assert named <= set(COMMANDS) | {"gpu", "local"}, named
    assert set(COMMANDS) - {"room", "init", "demo"} <= named | {"compare", "report"}

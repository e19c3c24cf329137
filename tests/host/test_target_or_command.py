"""What stands first on the command line: a command, or a TARGET that may resemble one; and whose configuration counts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = '[deployments.bench2]\n[[deployments.bench2.engines]]\nhost = "local"\n'


def command(folder: Path, *words: str) -> tuple[int, str, str]:
    env = {name: value for name, value in os.environ.items() if name != "READYROOM_CONFIG"}
    env |= {"XDG_CONFIG_HOME": str(folder / "xdg"), "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "tui", *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "other.toml"
    path.write_text(CONFIG)
    return path


def test_a_deployment_may_be_named_like_a_command(tmp_path: Path, file: Path) -> None:
    for words in (["bench2", "--config", str(file)], ["--config", str(file), "bench2"], ["room", "bench2", "--config", str(file)]):
        code, _, errors = command(tmp_path, *words)
        assert code == 2
        assert "needs a terminal" in errors
        assert "did you mean" not in errors


@pytest.mark.parametrize(("target", "near"), [("statsu", "status"), ("logs", "log"), ("doctr", "doctor")])
def test_a_target_that_resembles_a_command_is_taken_with_a_hint(tmp_path: Path, target: str, near: str) -> None:
    code, _, errors = command(tmp_path, target)
    assert code == 2
    assert "needs a terminal" in errors
    assert f"(or did you mean the command '{near}'?)" in errors


def test_a_target_that_resembles_none(tmp_path: Path) -> None:
    assert "did you mean" not in command(tmp_path, "gpu-box")[2]


@pytest.mark.parametrize("words", [["gpu-box", "--help"], ["room", "--help"], ["--theme", "dark", "--help"]])
def test_the_room_is_what_readyroom_does_without_a_command(tmp_path: Path, words: list[str]) -> None:
    code, out, _ = command(tmp_path, *words)
    assert code == 0
    assert out.startswith("Usage: readyroom [OPTIONS] [TARGET]\n")


def test_a_port_without_a_target(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(CONFIG + CONFIG.replace("bench2", "kimi"))
    code, _, errors = command(tmp_path, "--port", "8000", "--config", str(file))
    assert code == 2
    assert "--port means a server of one TARGET: name one of bench2, kimi" in errors


def test_config_takes_another_file(tmp_path: Path, file: Path) -> None:
    assert command(tmp_path, "config", "path", "--config", str(file))[1].strip() == str(file)
    code, out, _ = command(tmp_path, "config", "show", "--json", "--config", str(file))
    document = json.loads(out)
    assert (code, document["path"], list(document["settings"]["deployments"])) == (0, str(file), ["bench2"])
    for words in (["check", str(file)], ["check", "--config", str(file)]):
        assert "1 deployment: bench2" in command(tmp_path, "config", *words)[1]
    assert command(tmp_path, "config", "check", str(file), "--config", str(file))[0] == 2
    file.write_text(
        '[keys]\nhelp = "notakey"\nshow-load = "q"\n[[deployments.a.engines]]\nhost = "-oProxyCommand=touch /tmp/pwn"\n'
    )
    code, _, said = command(tmp_path, "config", "check", str(file))
    assert code == 2
    for problem in ("3 problems", f"{file}: keys.help: ", f"{file}: keys.show-load: ", f"{file}: deployments.a.engines[0].host: "):
        assert problem in said
    file.write_text("")
    code, said, _ = command(tmp_path, "config", "check", str(file))
    assert code == 0
    assert "no deployment is configured" in said
    assert command(tmp_path, "config", "show", "--config", str(tmp_path / "missing.toml"))[0] == 2

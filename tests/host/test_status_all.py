"""`readyroom status --all`: all configured deployments at once, whatever is wrong with one of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tui.cli.status import table
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState
from tui.core.logs.load_state import Failure, LoadState, Phase

LOGS = Path(__file__).parent.parent / "data" / "logs" / "servers"
CONFIG = """
[deployments.broken]
api = "http://127.0.0.1:9"
[[deployments.broken.engines]]
log = "file:{failed}"
[deployments.far]
[[deployments.far.engines]]
host = "nobody@127.0.0.1:1"
log = "none"
[deployments.keyless]
api_key_env = "NOT_SET_ANYWHERE"
"""


def run(folder: Path, *words: str, config: str = CONFIG) -> tuple[int, str, str]:
    file = folder / "config.toml"
    file.write_text(config.format(failed=LOGS / "09-cpu-032-kv-too-small.log"))
    env = os.environ | {"READYROOM_CONFIG": str(file), "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}
    command = [sys.executable, "-m", "tui", "status", *words]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_as_one_document(tmp_path: Path) -> None:
    code, out, errors = run(tmp_path, "--all", "--json")
    assert (code, errors) == (4, "")
    document = json.loads(out)
    assert [entry["name"] for entry in document["deployments"]] == ["broken", "far", "keyless"]
    assert [entry["status"] for entry in document["deployments"]] == ["failed", "unreachable", "misconfigured"]
    assert document["deployments"][0]["load"]["failure"]["kind"] == "kv_cache_too_small"
    assert "NOT_SET_ANYWHERE" in document["deployments"][2]["misconfigured"]


def test_a_configuration_that_does_not_hold_is_no_refusal(tmp_path: Path) -> None:
    code, out, errors = run(tmp_path, "--all", config='[deployments.keyless]\napi_key_env = "NOT_SET_ANYWHERE"\n')
    assert (code, errors) == (2, "")
    assert "BAD CONFIG" in out
    assert "api_key_env names NOT_SET_ANYWHERE" in out


@pytest.mark.parametrize(
    ("words", "config", "said"),
    [
        (["--all", "far"], CONFIG, "give no TARGET"),
        (["--all"], "", "readyroom init TARGET"),
    ],
)
def test_usage(tmp_path: Path, words: list[str], config: str, said: str) -> None:
    code, _, errors = run(tmp_path, *words, config=config)
    assert code == 2
    assert said in errors


def test_as_a_table() -> None:
    online = ConnectionState(LinkState.ONLINE)
    failed = LoadState(phase=Phase.FAILED, lines=3, failure=Failure("cuda_oom", Phase.LOADING, "CUDA \x1b[31mout of memory"))
    states = [
        DeploymentState("kimi", "gpu-box", online, load=failed),
        DeploymentState("a-longer-name", "u@h", ConnectionState(LinkState.UNREACHABLE, cause="no route to host")),
    ]
    assert list(table(states)) == [
        "DEPLOYMENT     STATE        HOST     GPUS  WHAT",
        "kimi           FAILED       gpu-box  —     CUDA out of memory",
        "a-longer-name  UNREACHABLE  u@h      —     no route to host",
    ]

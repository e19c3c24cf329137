"""Output into something that can't show all of Unicode."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("encoding", ["latin-1", "cp437"])
@pytest.mark.parametrize("json_wanted", [False, True], ids=["text", "json"])
def test_what_cannot_be_shown_is_replaced(tmp_path: Path, encoding: str, json_wanted: bool, unused_tcp_port: int) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f'[deployments.k]\napi = "http://127.0.0.1:{unused_tcp_port}"\n'
        f'[[deployments.k.engines]]\nhost = "local"\nlog = "file:{tmp_path}/Ωmega—✓.log"\n'
    )
    (tmp_path / "Ωmega—✓.log").write_text("INFO 07-01 12:00:00 [api_server.py:1] vLLM API server version 0.9 — ✓ 模型\n")
    env = os.environ | {"PYTHONIOENCODING": encoding, "XDG_STATE_HOME": str(tmp_path / "state"), "READYROOM_CONFIG": str(config)}
    words = [sys.executable, "-m", "tui", "status", "k", *(["--json"] if json_wanted else [])]
    done = subprocess.run(words, env=env, capture_output=True, timeout=90, check=False)
    assert done.returncode in (3, 5), done
    assert b"bug" not in done.stderr
    out = done.stdout.decode(encoding)
    assert "mega" in out
    assert "?" in out
    if json_wanted:
        assert json.loads(out)["schema"]

"""What runs on the GPU host keeps to Python 3.8."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_wire_and_probe_need_no_newer_python() -> None:
    vermin = Path(sys.executable).with_name("vermin")
    done = subprocess.run(
        [str(vermin), "-t=3.8-", "--no-tips", "--violations", "--eval-annotations", "tui/wire", "tui/probe"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

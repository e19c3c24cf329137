"""What must not be imported before the first paint: a run-time look at sys.modules in a process of its own."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from tui.cli.main import main
from tui.app import ControlRoom
from tui.core.deployment import DeploymentState
from tui.settings import Deployment


class Idle:
    name, target, deployment, state = "a", "a", Deployment(), DeploymentState(name="a", target="a")

    async def states(self):
        yield self.state

    def retry(self): ...


async def run():
    app = ControlRoom(Idle())
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause()
        heavy = {"asyncssh", "httpx", "httpcore", "cryptography", "markdown_it", "prometheus_client", "sqlite3", "tree_sitter"}
        print(sorted(heavy & set(sys.modules)))


asyncio.run(run())
"""


def test_the_first_paint_needs_neither_ssh_nor_http_nor_markdown() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip().splitlines()[-1:] == ["[]"], done.stdout + done.stderr

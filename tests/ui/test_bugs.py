"""A bug in the screen ends it without a traceback that shows local values; whoever runs it can report it."""

from collections.abc import AsyncIterator

import pytest
from room import SetSession

from tui.app import ControlRoom
from tui.core.deployment import DeploymentState


class BrokenSession(SetSession):
    async def states(self) -> AsyncIterator[DeploymentState]:
        secret = "sk-0123456789"
        yield self.state
        raise RuntimeError(f"broken {len(secret)}")


async def test_a_bug_is_kept_for_the_report_and_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    app = ControlRoom(BrokenSession(DeploymentState(name="kimi", target="gpu-box")))  # type: ignore[arg-type]
    await app.run_async(headless=True, size=(80, 24))
    assert "broken 13" in str(app.bug)
    drawn = capsys.readouterr()
    assert "sk-0123456789" not in drawn.out + drawn.err
    assert "Traceback" not in drawn.out + drawn.err

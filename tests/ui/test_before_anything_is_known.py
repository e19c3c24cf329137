"""What stands on the screen before anything is known: what is connected to, and the time."""

import re

from room import SetSession, room, screen, until

from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState

STATE = DeploymentState(name="wide", target="root@gpu-8x", connection=ConnectionState(LinkState.CONNECTING, "root@gpu-8x"))


async def test_the_first_paint_names_the_host_and_the_time() -> None:
    session = SetSession(STATE)
    session.name, session.target = STATE.name, STATE.target
    app, _ = room(STATE, session=session)
    drawn: list[str] = []
    async with app.run_test(size=(120, 35)) as pilot:
        for figure in app.main._canvases[:4]:  # as they were made, whatever they were given since
            assert figure.state.target == "root@gpu-8x"
            assert figure.moment.wall > 0
        await until(pilot, lambda: "Connecting to root@gpu-8x" in screen(pilot))
        drawn.append(screen(pilot))
    assert re.search(r"host +root@gpu-8x", drawn[0])
    assert re.search(r"\d\d:\d\d:\d\d", drawn[0].splitlines()[0])
    assert "wide on root@gpu-8x" in drawn[0]

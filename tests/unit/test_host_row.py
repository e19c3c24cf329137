"""Where a connection is named, it is by the host, not by the deployment that runs on it."""

from tui.cli.status import status_lines
from tui.core.connection import LinkState
from tui.host.open import open_host
from tui.services.deployment_watch import Session
from tui.settings import Deployment, Settings


def test_the_host_of_a_named_deployment() -> None:
    session = Session("wide", "local", Deployment(), Settings(), open_host("local", name="wide"))
    session.link.show(LinkState.ONLINE)
    told = list(status_lines(session.state))
    assert told[0].startswith("wide: ")
    assert told[1].split() == ["host", "local", "online"]

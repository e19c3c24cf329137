"""What the screen's driver takes from Textual's private names is there in the release that is pinned."""

import inspect

import pytest
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from tui.terminal_driver import TerminalDriver


@pytest.mark.parametrize(
    "name", ["_sigtstp_application", "_sigcont_application", "start_application_mode", "stop_application_mode"]
)
def test_a_method_that_is_replaced(name: str) -> None:
    assert name in vars(LinuxDriver)
    assert name in vars(TerminalDriver)


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (LinuxDriver, "_file"),
        (LinuxDriver, "fileno"),
        (LinuxDriver, "_must_signal_resume"),
        (Driver, "_auto_restart"),
        (Driver, "_loop"),
    ],
)
def test_an_attribute_that_is_used(of: type, name: str) -> None:
    assert name in of.__init__.__code__.co_names  # type: ignore[misc]


def test_it_is_made_in_the_same_way() -> None:
    assert inspect.signature(TerminalDriver).parameters.keys() == inspect.signature(LinuxDriver).parameters.keys()
    assert "_file" in inspect.getsource(LinuxDriver.start_application_mode)  # the output thread writes to it

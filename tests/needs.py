"""What a test needs of the machine: skipped with its reason if that is missing, failed if the machine promised to have it.

`need` is for what can be installed, `allowed` for what the kernel and the user's rights must give.
"""

import os

import pytest

REQUIRED = "READYROOM_REQUIRE_REAL"


def need(condition: object, reason: str) -> None:
    """Skip the test unless the condition holds; fail it if READYROOM_REQUIRE_REAL=1 says that nothing may be missing."""
    if condition:
        return
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {reason}")
    pytest.skip(reason)


def allowed(condition: object, reason: str) -> None:
    """Skip the test unless the condition holds: a right that this machine doesn't grant can't be installed."""
    if not condition:
        pytest.skip(reason)

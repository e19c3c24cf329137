"""What a test needs of the machine: skipped with its reason where that is missing, failed where the machine promised to have it."""

import os

import pytest

REQUIRED = "READYROOM_REQUIRE_REAL"


def need(condition: object, reason: str) -> None:
    """Skips the test unless the condition holds; fails it when READYROOM_REQUIRE_REAL=1 says that nothing may be missing."""
    if condition:
        return
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {reason}")
    pytest.skip(reason)

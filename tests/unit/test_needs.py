"""Missing parts of a machine skip a test, and fail it if the machine promised to have them."""

import pytest
from needs import REQUIRED, allowed, need


def test_what_is_there_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    need(True, "never said")


def test_what_is_missing_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no sshd"):
        need(None, "no sshd")


def test_what_was_promised_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="no sshd"):
        need("", "no sshd")


def test_a_right_that_is_missing_skips_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    allowed(True, "never said")
    with pytest.raises(pytest.skip.Exception, match="no namespaces"):
        allowed(False, "no namespaces")

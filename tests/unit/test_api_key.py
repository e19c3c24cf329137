"""Where the API key comes from, and that one which can't be sent is said without being shown."""

import pytest

from tui.cli.context import api_key
from tui.cli.exit_message import ExitCode, Fail
from tui.settings import Deployment


def test_an_openai_key_goes_to_a_bare_url_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody")
    assert api_key(Deployment()) is None
    assert api_key(Deployment(), base_url=True) == "sk-of-somebody"
    monkeypatch.setenv("VLLM_API_KEY", "of-the-server")
    assert api_key(Deployment(), base_url=True) == "of-the-server"


@pytest.mark.parametrize("key", ["ké", "two\nlines", "\x1b[31m"])
def test_a_key_that_no_header_can_carry(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", key)
    with pytest.raises(Fail) as caught:
        api_key(Deployment())
    assert caught.value.code is ExitCode.USAGE
    assert "VLLM_API_KEY" in caught.value.message
    assert key not in caught.value.message


def test_a_named_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KIMI_KEY", raising=False)
    with pytest.raises(Fail) as caught:
        api_key(Deployment(api_key_env="KIMI_KEY"))
    assert "KIMI_KEY" in caught.value.message


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo of-the-server", ""),
        ("yes", "it printed more than 16,384 bytes"),
        ("false", "exit 1"),
        ("true", "it printed nothing"),
        ("sh -c 'echo half; exit 3'", "exit 3"),
        ("/no/such/program", "it can't be run"),
        ("sleep 60", "it did not end within 0 s"),
        ("sh -c 'exec >&-; sleep 60'", "it did not end within 0 s"),
    ],
)
def test_a_command_that_prints_the_key(command: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.cli.context.KEY_S", 0.4)
    deployment = Deployment(api_key_command=command)
    if not why:
        assert api_key(deployment) == "of-the-server"
        return
    with pytest.raises(Fail) as caught:
        api_key(deployment)
    assert caught.value.message == f"api_key_command failed ({why}): run it by hand to see why"

"""Names of deployments are shown everywhere: they are cleaned as other text is."""

from pathlib import Path

import pytest

from tui.cli.context import resolve
from tui.settings import SettingsError, parse_settings


def test_names_are_cleaned_where_they_enter() -> None:
    settings = parse_settings(
        'default = "prod\\u26a0\\ufe0f"\n[deployments."prod\\u26a0\\ufe0f"]\n[deployments.b]\n', Path("c.toml")
    )
    assert list(settings.deployments) == ["prod\u26a0", "b"]
    assert settings.default == "prod\u26a0"
    assert resolve(settings, "prod\u26a0\ufe0f")[0] == "prod\u26a0"
    assert resolve(settings, None)[0] == "prod\u26a0"


@pytest.mark.parametrize("names", ['[deployments."\\u200b"]', '[deployments."a\\u200b"]\n[deployments.a]'])
def test_names_that_cannot_be_told_apart_are_a_problem(names: str) -> None:
    with pytest.raises(SettingsError, match="characters that can't be shown"):
        parse_settings(names, Path("c.toml"))

"""`--config FILE`: what the command reads, and what it writes, is that file."""

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tui.cli.context import config_option
from tui.settings import Settings, settings_path


@pytest.mark.parametrize("before", [None, "/elsewhere.toml"])
def test_what_is_kept_goes_into_the_named_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv("READYROOM_CONFIG", raising=False)
    else:
        monkeypatch.setenv("READYROOM_CONFIG", before)
    file = tmp_path / "mine.toml"
    file.write_text('default = "kimi"\n[deployments.kimi]\n')
    seen: list[tuple[str | None, Path]] = []

    @click.command()
    @config_option
    def command(settings: Settings) -> None:
        seen.append((settings.default, settings_path()))

    result = CliRunner().invoke(command, ["--config", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    assert seen == [("kimi", file)]
    assert os.environ.get("READYROOM_CONFIG") == before

"""`--config FILE`: what the command reads, and what it writes, is that file."""

import os
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tui.cli.context import config_option
from tui.cli.exit_message import Fail
from tui.cli.main import cli
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.record.store import RunStore
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


@pytest.mark.parametrize("words", [["runs"], ["compare", "1", "2"], ["report", "1"]], ids=" ".join)
def test_commands_of_the_record_take_it_and_check_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("[deployments.kimi]\n")
    bad.write_text("x = 1\n")
    result = CliRunner().invoke(cli, [*words, "--config", str(good)])
    assert not isinstance(result.exception, Fail) or "no run 1" in result.exception.message
    assert "No such option" not in result.output
    result = CliRunner().invoke(cli, [*words, "--config", str(bad)])
    assert isinstance(result.exception, Fail)
    assert "x: no such key" in result.exception.message


def test_a_long_word_of_a_title_stays_whole_on_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    with closing(RunStore(tmp_path / "readyroom" / "record.sqlite")) as record:
        result = Result("/v1/chat/completions", "m", Vantage.DIRECT, Plan(), (Point(1, {}),), stopped="max_model_len_too_large")
        record.save_benchmark("deployment-of-a-name-that-fills-the-row-" * 2, result)
    shown = CliRunner().invoke(cli, ["runs"], catch_exceptions=False).output
    assert "max_model_len_too_large" in shown

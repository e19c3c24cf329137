"""Log sources: one table of prefixes, a class for each, and which of them recognises the output of a process."""

import re
from pathlib import Path

import pytest

from tui.probe import container_sources, log_sources
from tui.probe.leash import Link
from tui.probe.log_sources import SOURCES
from tui.probe.outputs import ProcessOutput
from tui.settings import SettingsError, parse_settings
from tui.wire.log_prefixes import LOG_PREFIXES, split_source

HEX = "4f5a1b2c3d4e" + "0" * 52
TOP = Path(__file__).parent.parent.parent


def test_each_prefix_has_a_class() -> None:
    assert sorted(source.prefix for source in SOURCES) == sorted(LOG_PREFIXES)


@pytest.mark.parametrize("document", ["README.md", "config.toml.example"])
def test_the_documents_name_each_prefix(document: str) -> None:
    text = (TOP / document).read_text()
    assert [prefix for prefix in LOG_PREFIXES if f"{prefix}:" not in text] == []


@pytest.mark.parametrize("source", ["podmn:x", "x", ":x", "file:", "/var/log/x.log", "auto:x"])
def test_an_unknown_prefix_is_a_problem_of_its_key(source: str) -> None:
    with pytest.raises(ValueError, match="must be auto, none or one of file:"):
        split_source(source)
    text = f"[[deployments.a.engines]]\nlog = '{source}'"
    with pytest.raises(SettingsError, match=re.escape("deployments.a.engines[0].log: must be auto")):
        parse_settings(text, Path("config.toml"))


LIBPOD = f"0::/machine.slice/libpod-{HEX}.scope/container"
DOCKER = f"0::/system.slice/docker-{HEX}.scope"
POD = f"0::/kubepods.slice/kubepods-pod12.slice/cri-containerd-{HEX}.scope"
UNIT = "0::/system.slice/vllm.service"


@pytest.mark.parametrize(
    ("cgroup", "target", "installed", "source"),
    [
        (LIBPOD, "pipe:[7]", ["docker", "podman"], "podman:4f5a1b2c3d4e"),
        (LIBPOD, None, ["podman"], "podman:4f5a1b2c3d4e"),
        (LIBPOD, "pipe:[7]", ["docker"], "docker:4f5a1b2c3d4e"),
        (LIBPOD, "pipe:[7]", [], None),
        (DOCKER, "pipe:[7]", ["docker", "podman"], "docker:4f5a1b2c3d4e"),
        (DOCKER, "pipe:[7]", ["podman"], "docker:4f5a1b2c3d4e"),
        (DOCKER, "/dev/null", ["docker"], None),
        (POD, "pipe:[7]", ["docker"], None),
        (UNIT, "socket:[7]", ["docker"], "journal:vllm.service"),
        (UNIT, None, [], "journal:vllm.service"),
        ("0::/user.slice/user@1000.service/app.slice/vllm.service", "socket:[7]", [], "journal:user/vllm.service"),
        ("0::/", "socket:[7]", [], None),
    ],
)
def test_a_source_recognises_itself(
    cgroup: str, target: str | None, installed: list[str], source: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_sources, "which", lambda program: program if program in installed else None)
    output = ProcessOutput(2**22, 1, target, Link(), {})
    output.cgroup = cgroup
    found = next((log for log in (kind.recognise(output) for kind in log_sources.SOURCES) if log is not None), None)
    assert (found.source if found is not None else None) == source

"""What doctor concludes from a host's own words, and the configuration that init writes."""

from pathlib import Path

import pytest

from tui.core.checks import Grade, open_files_check, python_check, shm_check, space_check
from tui.services.save_deployment import FoundDeployment, deployment_toml
from tui.settings import parse_settings


@pytest.mark.parametrize(
    ("total_mib", "gpus", "grade"),
    [(64.0, 8, Grade.FAIL), (64.0, 1, Grade.WARN), (515_000.0, 8, Grade.OK), (None, 8, Grade.WARN)],
)
def test_shared_memory(total_mib: float | None, gpus: int, grade: Grade) -> None:
    assert shm_check(total_mib, gpus).grade is grade


@pytest.mark.parametrize(("limit", "grade"), [("1024", Grade.WARN), ("65536", Grade.OK), ("unlimited", Grade.OK), ("", Grade.WARN)])
def test_open_files(limit: str, grade: Grade) -> None:
    assert open_files_check(limit).grade is grade


@pytest.mark.parametrize(
    ("version", "grade"), [("3.8.10", Grade.OK), ("3.6.8", Grade.WARN), ("3.13.0rc1", Grade.OK), ("", Grade.WARN)]
)
def test_python(version: str, grade: Grade) -> None:
    assert python_check(version).grade is grade


DF = "Filesystem     1024-blocks      Used Available Capacity Mounted on\n/dev/nvme0n1p2  {total} {used} {free}      84% /models\n"


@pytest.mark.parametrize(
    ("output", "grade", "says"),
    [
        (DF.format(total=1000, used=1, free=600 * 1024**2), Grade.OK, "600.0 GiB free on /models (84% used)"),
        (
            DF.format(total=1000, used=1, free=1024**2),
            Grade.WARN,
            "1.0 GiB free on /models (84% used): compile caches and downloads need more",
        ),
        ("df: /models: No such file or directory", Grade.WARN, "its space can't be told"),
        ("", Grade.WARN, "its space can't be told"),
    ],
)
def test_space(output: str, grade: Grade, says: str) -> None:
    check = space_check("space", output)
    assert (check.grade, check.says) == (grade, says)


@pytest.mark.parametrize("name", ["kimi-k2", "a b", 'quote"d', "$(rm -rf)", "new\nline", "ünïcode"])
def test_what_was_found_is_valid_configuration_whatever_it_is_called(name: str) -> None:
    found = FoundDeployment(name, "me@gpu-box", "http://127.0.0.1:8000", f"file:/var/log/{name}.log", name, True, f"found {name}")
    (deployment,) = parse_settings(deployment_toml(found), Path("c")).deployments.values()
    assert deployment.engines[0].host == "me@gpu-box"
    assert deployment.engines[0].log == f"file:/var/log/{name}.log"
    assert deployment.model == name
    assert deployment.api_key_env == "VLLM_API_KEY"


def test_an_unreadable_log_is_left_to_be_found() -> None:
    text = deployment_toml(FoundDeployment("a", "b", "http://127.0.0.1:8000", None))
    assert parse_settings(text, Path("c")).deployments["a"].engines[0].log == "auto"

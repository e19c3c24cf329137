"""Log sources beyond files: tmux and a command for real, the others against stand-in programs that behave like the real ones."""

import json
import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_follow import Follower, append, follow  # noqa: F401

from tui.probe.follow_command import overlap

Follow = Callable[..., Follower]


@pytest.mark.parametrize(
    ("lines", "last", "told"),
    [
        ([1, 2, 3], [], 0),
        ([1, 2, 3, 4], [2, 3], 3),
        ([3, 4, 5], [1, 2, 3], 1),
        ([1, 1, 1, 2], [1, 1], 3),
        ([7, 8], [1, 2], 0),
        ([1, 2, 3], [1, 2, 3], 3),
    ],
)
def test_overlap(lines: list[int], last: list[int], told: int) -> None:
    assert overlap(lines, last) == told


def test_overlap_with_lines_drawn_again() -> None:
    assert overlap([1, 2, 30, 4, 5], [1, 2, 3], tolerance=2) == 2


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put shell scripts on the PATH of the probe."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(name: str, script: str) -> None:
        path = folder / name
        path.write_text("#!/bin/sh\n" + textwrap.dedent(script))
        path.chmod(0o755)

    return put


def test_command_resumes_by_its_last_lines(tmp_path: Path, follow: Follow) -> None:  # noqa: F811
    log = tmp_path / "out put.log"
    append(log, "".join(f"line {number}\n" for number in range(10)))
    source = {"source": "command", "name": f"tail -n 500 -F '{log}'"}
    first = follow(**source)
    first.caught_up()
    append(log, "line 10\n")
    first.until(lambda f: len(f.lines) == 11)
    place = first.place
    first.close()
    append(log, "line 11\nline 12\n")
    again = follow(**source, **{"from": place})
    again.until(lambda f: len(f.lines) == 2)
    append(log, "line 13\n")
    again.until(lambda f: len(f.lines) == 3)
    assert first.lines + again.lines == [f"line {number}" for number in range(14)]


def test_command_that_ends_is_run_again_and_its_lines_come_once(tmp_path: Path, follow: Follow) -> None:  # noqa: F811
    log = tmp_path / "vllm.log"
    append(log, "a\nb\n")
    follower = follow(source="command", name=f"cat '{log}'")
    follower.until(lambda f: f.lines == ["a", "b"])
    append(log, "c\n")
    follower.until(lambda f: f.lines == ["a", "b", "c"])


def test_command_that_fails_says_so(follow: Follow) -> None:  # noqa: F811
    follower = follow(source="command", name="exit 3")
    follower.until(lambda f: any("exit status 3" in (frame["why"] or "") for frame in f.said("source")))


def test_what_a_command_prints_on_stderr_is_not_the_log(follow: Follow, tmp_path: Path) -> None:  # noqa: F811
    follower = follow(source="command", name="echo one; echo of no use >&2; echo the cause >&2; exit 3")
    follower.until(lambda f: any(frame["why"] == "the cause" for frame in f.said("source")))
    assert set(follower.lines) == {"one"}
    gate = tmp_path / "gate"
    waiting = f"echo cannot open it yet >&2; until [ -e '{gate}' ]; do sleep 0.1; done; echo two; exec sleep 60"
    late = follow(source="command", name=waiting)
    late.until(lambda f: bool(f.said("source")) and f.said("source")[-1]["why"] == "cannot open it yet")
    gate.touch()
    late.until(lambda f: f.lines == ["two"] and f.said("source")[-1]["why"] is None)
    flood = follow(source="command", name="exec >&-; yes >&2")
    noisy = follow(source="command", name="yes >&2 & echo three; exec sleep 60")
    noisy.until(lambda f: f.lines == ["three"])
    assert not flood.lines


def test_a_unit_that_does_not_exist(follow: Follow, on_path: Callable[[str, str], None]) -> None:  # noqa: F811
    on_path("systemctl", 'case "$*" in *LoadState*) echo not-found;; esac')
    on_path("journalctl", 'case "$*" in *-f*) exec sleep 60;; esac')
    follower = follow(source="journal", name="nope.service")
    follower.until(lambda f: any("no unit nope.service" in (frame["why"] or "") for frame in f.said("source")))
    assert not follower.lines


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_containers(program: str, tmp_path: Path, follow: Follow, on_path: Callable[[str, str], None]) -> None:  # noqa: F811
    log = tmp_path / "container.log"
    # `docker logs --timestamps --follow [--since S] NAME`: whole lines from a stamp on, inclusive.
    on_path(
        program,
        f"""
        if [ "$1" = inspect ]; then echo 2026-11-29T10:00:00.000000000Z; exit; fi
        since=0; while [ $# -gt 0 ]; do if [ "$1" = --since ]; then since=$2; fi; shift; done
        tail -n +1 -f '{log}' | while IFS= read -r line; do
            [ "${{line%% *}}" \\< "$since" ] || printf '%s\\n' "$line"
        done
        """,
    )
    append(
        log,
        "2026-11-28T10:00:00.000000000Z an older start\n"
        "2026-11-29T10:00:01.500000000Z vLLM API server version 0.10.1\n"
        "2026-11-29T10:00:02.000000001Z one\n"
        "2026-11-29T10:00:02.000000001Z two\n",
    )
    first = follow(source=program, name="vllm")
    first.caught_up()
    assert first.lines == ["vLLM API server version 0.10.1", "one", "two"]
    assert first.said("lines")[0]["stamps"][0] == pytest.approx(1795946401.5)
    place = first.place
    first.close()
    append(log, "2026-11-29T10:00:02.000000001Z three\n2026-11-29T10:00:03.000000000Z \rbar 1\rbar 2\n")
    again = follow(source=program, name="vllm", **{"from": place})
    again.until(lambda f: len(f.lines) == 3)
    assert again.lines == ["three", "bar 1", "bar 2"]


@pytest.mark.parametrize(("name", "filters"), [("vllm", "service=vllm"), ("prod/vllm", "service=vllm project=prod")])
def test_compose(name: str, filters: str, tmp_path: Path, follow: Follow, on_path: Callable[[str, str], None]) -> None:  # noqa: F811
    # The newest container of the service is asked for, and then followed as any container.
    on_path(
        "docker",
        f"""
        case "$1" in
            ps) for word in "$@"; do
                    case $word in label=com.docker.compose.*) printf '%s ' "${{word#label=com.docker.compose.}}";; esac
                done >> '{tmp_path}/asked'; echo 0123abcd; exit;;
            inspect) echo 2026-11-29T10:00:00.000000000Z; exit;;
        esac
        for last in "$@"; do :; done
        [ "$last" = 0123abcd ] || exit 1
        echo '2026-11-29T10:00:01.5Z vLLM API server version 0.10.1'; echo '2026-11-29T10:00:02.5Z one'
        exec sleep 60
        """,
    )
    follower = follow(source="compose", name=name)
    follower.until(lambda f: f.lines == ["vLLM API server version 0.10.1", "one"])
    assert (tmp_path / "asked").read_text().startswith(filters)


def test_docker_says_what_is_wrong(follow: Follow, on_path: Callable[[str, str], None]) -> None:  # noqa: F811
    on_path("docker", "echo 'Error response from daemon: No such container: nope' >&2; exit 1")
    follower = follow(source="docker", name="nope")
    follower.until(lambda f: any("No such container" in (frame["why"] or "") for frame in f.said("source")))


def test_kubectl(tmp_path: Path, follow: Follow, on_path: Callable[[str, str], None]) -> None:  # noqa: F811
    log = tmp_path / "pod.log"
    # The real one takes whole seconds only.
    on_path(
        "kubectl",
        f"""
        since=0
        for word in "$@"; do case $word in --since-time=*) since=$(echo "${{word#--since-time=}}" | cut -c1-19);; esac; done
        echo "$*" >> '{tmp_path}/calls'
        tail -n +1 -f '{log}' | while IFS= read -r line; do
            [ "${{line%% *}}" \\< "$since" ] || printf '%s\\n' "$line"
        done
        """,
    )
    append(log, "2026-11-29T10:00:01.1Z one\n2026-11-29T10:00:01.2Z two\n")
    first = follow(source="kubectl", name="prod/vllm-0/server")
    first.caught_up()
    place = first.place
    first.close()
    append(log, "2026-11-29T10:00:01.3Z three\n")
    again = follow(source="kubectl", name="prod/vllm-0/server", **{"from": place})
    again.until(lambda f: bool(f.lines))
    assert first.lines + again.lines == ["one", "two", "three"]
    assert "-n prod vllm-0 -c server" in (tmp_path / "calls").read_text()


def test_journal(tmp_path: Path, follow: Follow, on_path: Callable[[str, str], None]) -> None:  # noqa: F811
    entries = tmp_path / "entries"
    on_path(
        "journalctl",
        f"""
        after=-1
        for word in "$@"; do case $word in --after-cursor=*) after=${{word#--after-cursor=c}};; esac; done
        tail -n +1 -f '{entries}' | {{ number=0; while IFS= read -r line; do
            [ $number -le $after ] || printf '%s\\n' "$line"
            number=$((number + 1))
        done; }}
        """,
    )
    on_path("systemctl", "echo 'Sun 2026-11-29 10:00:00 UTC'")
    blob = list(b"\x1b[32mgreen\x1b[0m")

    def entry(number: int, message: object) -> str:
        return (
            json.dumps({"__CURSOR": f"c{number}", "__REALTIME_TIMESTAMP": f"{1795946401000000 + number}", "MESSAGE": message})
            + "\n"
        )

    append(entries, entry(0, "one") + entry(1, blob) + entry(2, None))
    first = follow(source="journal", name="vllm.service")
    first.caught_up()
    assert first.lines == ["one", "\x1b[32mgreen\x1b[0m", ""]
    place = first.place
    first.close()
    append(entries, entry(3, "two\nlines"))
    again = follow(source="journal", name="vllm.service", **{"from": place})
    again.until(lambda f: bool(f.lines))
    assert again.lines == ["two", "lines"]


@pytest.fixture
def pane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Start a tmux server with one pane; call the result with a shell command to run there."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux isn't installed")
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)
    tmux = ["tmux", "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "-s", "serve", "-x", "80", "-y", "24", "exec env PS1='$ ' /bin/sh"], check=True)

    def type_in(command: str) -> None:
        subprocess.run(["tmux", "send-keys", "-t", "serve", command, "Enter"], check=True)

    yield type_in
    subprocess.run([*tmux, "kill-server"], check=False)


@pytest.mark.tmux
def test_tmux_pane(follow: Follow, pane: Callable[[str], None]) -> None:  # noqa: F811
    pane("clear; echo first")
    first = follow(source="tmux", name="serve")
    first.until(lambda f: "first" in f.lines)
    pane("clear; seq -f 'number %g' 1 60; printf 'bar 1'")
    first.until(lambda f: any("bar 1" in line for line in f.lines))
    numbers = [line for line in first.lines if line.startswith("number ")]
    assert numbers == [f"number {number}" for number in range(1, 61)]
    place = first.place
    first.close()
    pane("seq -f 'later %g' 1 5")
    again = follow(source="tmux", name="serve", **{"from": place})
    again.until(lambda f: "later 5" in f.lines)
    assert [line for line in again.lines if line.startswith("later")] == [f"later {number}" for number in range(1, 6)]
    assert not any(line.startswith("number") for line in again.lines)


@pytest.mark.tmux
def test_tmux_without_that_pane(follow: Follow, pane: Callable[[str], None]) -> None:  # noqa: F811
    follower = follow(source="tmux", name="nowhere")
    follower.until(lambda f: any("nowhere" in (frame["why"] or "") for frame in f.said("source")))

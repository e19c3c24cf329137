"""Feeds everything that reads untrusted bytes with generated ones, and counts: python tests/benchmarks/fuzz.py [seconds each]

For each reader hypothesis makes inputs, plain garbage as well as damaged pieces of the real thing, until the time is up. An input
that raises what the reader does not promise ends the run with the smallest such input. Prints the number of inputs of each.
"""

import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tui.core.deployment import DeploymentState, LogRead, fold
from tui.core.gpu_frames import gpus_from_frame, machine_from_frame
from tui.core.logs.forecast import make_forecast
from tui.core.logs.log_reader import LogReader
from tui.core.logs.log_report import document
from tui.core.server_end import supervisor_from_frame
from tui.core.smi_csv import gpus_from_smi, with_processes
from tui.core.text import LineSplitter, clean
from tui.host.prometheus import MetricsReader
from tui.probe.log_lines import LineCutter
from tui.services.server_search import servers_from_frame
from tui.settings import SettingsError, parse_settings
from tui.wire.event_stream import EventDecoder, token_of
from tui.wire.frames import decode

DATA = Path(__file__).parent.parent / "data"
LOG_LINES = [
    line for path in sorted((DATA / "logs").rglob("*.log")) for line in path.read_text("utf-8", "replace").splitlines()[:400]
]
SMI = [
    "index, name, uuid, memory.used [MiB], memory.total [MiB], utilization.gpu [%], temperature.gpu, power.draw [W]",
    "0, NVIDIA H200, GPU-1f, 96733 MiB, 97887 MiB, 98 %, 61, 540.1 W",
    "Unable to determine the device handle for GPU0000:81:00.0: GPU is lost.  Reboot the system to recover this GPU",
    "1, [N/A], [Unknown Error], [GPU requires reset], , ,",
]
PAGE = (DATA / "http" / "get-metrics-loaded.response").read_bytes().partition(b"\r\n\r\n")[2].decode()
CONFIG = (Path(__file__).parents[2] / "config.toml.example").read_text("utf-8")

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=6
)
shallow = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=6), scalars, max_size=3)
"""What a reader of named values can meet in one of them; deeper ones cost a hundred times as much to make."""


def damaged(texts: list[str]) -> st.SearchStrategy[str]:
    """Real texts, cut, joined and mixed with others."""
    whole = st.sampled_from(texts)
    cut = st.builds(lambda text, begin, end: text[begin:end], whole, st.integers(0, 60), st.integers(20, 400))
    return whole | cut | st.builds(lambda a, b, c: a + b + c, cut, st.text(max_size=12), cut) | st.text(max_size=80)


def objects(*names: str) -> st.SearchStrategy[dict[str, object]]:
    """Generate objects with the names that a reader looks for, and any values."""
    return st.dictionaries(st.sampled_from(names), shallow, max_size=5)


def split(data: bytes) -> None:
    splitter, cutter = LineSplitter(max_length=64), LineCutter(longest=64)
    for start in range(0, len(data), 7):
        splitter.feed(data[start : start + 7])
        cutter.feed(data[start : start + 7])
    splitter.flush()
    cutter.flush(bars_only=False)


def clean_twice(text: str) -> None:
    assert clean(clean(text)) == clean(text)


def read_log(lines: list[str]) -> None:
    reader = LogReader(2026)
    for number, line in enumerate(lines):
        reader.feed(line, 1795946400.0 + number, number + 1)
    forecast = make_forecast(reader.state, 1795946400.0 + len(lines))
    json.dumps(document(reader.state, forecast))
    fold(DeploymentState("a", "b"), LogRead((), reader.state))


def events(data: bytes) -> None:
    decoder = EventDecoder()
    for start in range(0, len(data), 5):
        decoder.feed(data[start : start + 5])
    decoder.close()


def frame(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode(data)


def frames(obj: dict[str, object]) -> None:
    gpus_from_frame(obj, 1.0)
    machine_from_frame(obj, machine_from_frame(obj, None, 1.0), 2.0)
    servers_from_frame(obj)
    supervisor_from_frame(obj)


def configuration(text: str) -> None:
    with contextlib.suppress(SettingsError):
        parse_settings(text, Path("config.toml"))


def smi(lines: list[str]) -> None:
    with_processes(gpus_from_smi(lines, 1.0), lines)


def tokens(obj: dict[str, object]) -> None:
    for endpoint in ("chat", "completions"):
        token_of(obj, endpoint)


def metrics(page: str) -> None:
    reader = MetricsReader()
    reader.read(page.encode("utf-8", "replace"), 1.0)
    reader.read(page.encode("utf-8", "replace"), 2.0)


pieces = st.lists(
    st.sampled_from([b"data: ", b"\n", b"\r", b"\r\n", b"{", b"}", b"[DONE]", b":", b"id", b"\xff"]) | st.binary(max_size=9)
)
gpu_rows = st.lists(
    objects("index", "name", "uuid", "memory_used_mib", "memory_total_mib", "utilisation", "processes", "error", "throttle"),
    max_size=3,
)
holes = st.builds(lambda begin, end: CONFIG[:begin] + CONFIG[end:], st.integers(0, len(CONFIG)), st.integers(0, len(CONFIG)))
TARGETS: dict[str, tuple[st.SearchStrategy[object], Callable[..., None]]] = {
    "LineSplitter, LineCutter": (st.binary(max_size=400), split),
    "clean": (st.text(max_size=300), clean_twice),
    "LogReader, judge, document": (st.lists(damaged(LOG_LINES), max_size=30), read_log),
    "EventDecoder": (pieces.map(b"".join), events),
    "token_of": (objects("choices", "delta", "content", "text", "tool_calls"), tokens),
    "nvidia-smi": (st.lists(damaged(SMI), max_size=6), smi),
    "metrics page": (damaged([*PAGE.splitlines(), PAGE[:3000]]), metrics),
    "frame decoder": (st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()), frame),
    "frames": (
        st.builds(
            lambda head, rows, servers: {**head, "gpus": rows, "servers": servers},
            objects(
                "wall", "mono", "source", "driver", "note", "late", "xids", "restarts", "by", "reason", "cores", "disk_read_bytes"
            ),
            gpu_rows,
            st.lists(objects("pid", "engine", "argv", "port", "host", "uds", "started_at"), max_size=3),
        ),
        frames,
    ),
    "settings": (damaged(CONFIG.splitlines()) | holes, configuration),
}


def run(name: str, seconds: float) -> int:
    """Feed inputs to a target and return how many it took. Raises what the target raised."""
    strategy, target = TARGETS[name]
    count = 0
    ends = time.monotonic() + seconds

    # Without the phase "explain", for which every line that runs would be traced: that takes most of the time.
    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(strategy)
    def one(value: object) -> None:
        nonlocal count
        count += 1
        target(value)

    while time.monotonic() < ends:
        one()
    return count


def main() -> None:
    warnings.simplefilter("error", ResourceWarning)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    total = 0
    for name in TARGETS:
        count = run(name, seconds)
        total += count
        print(f"{name:<28} {count:>9,} inputs, nothing raised", flush=True)
    print(f"{'in all':<28} {total:>9,} inputs, nothing raised")


if __name__ == "__main__":
    main()

"""The same server's output in the wrappers of container runtimes, journals and schedulers says the same."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tui.core.logs.load_state import LoadState
from tui.core.logs.log_reader import LogReader
from tui.core.text import LineSplitter

DATA = Path(__file__).parent.parent / "data" / "logs"
Wrap = Callable[[list[str]], list[str]]


def read(text: str) -> LoadState:
    reader, splitter = LogReader(2026), LineSplitter()
    for line in splitter.feed(text.encode()) + splitter.flush():
        reader.feed(line)
    return reader.state


def each(prefix: str) -> Wrap:
    return lambda lines: [prefix + line for line in lines]


def stamped(form: str) -> Wrap:
    """Add a UTC stamp that grows by 10 ms a line, two hours off the server's own clock."""

    def wrap(lines: list[str]) -> list[str]:
        found = []
        for at, line in enumerate(lines):
            seconds = 11 * 3600 + at / 100
            clock = f"{int(seconds // 3600):02d}:{int(seconds // 60 % 60):02d}:{int(seconds % 60):02d}"
            found.append(form.format(clock=clock, fraction=f"{at % 100:02d}") + line)
        return found

    return wrap


def journal_json(lines: list[str]) -> list[str]:
    found = []
    for at, line in enumerate(lines):
        message: object = line
        if "\r" in line:
            message = list(line.encode())
        found.append(json.dumps({"__REALTIME_TIMESTAMP": str(1795000000000000 + at * 10000), "MESSAGE": message, "_PID": "7"}))
    return found


def docker_json(lines: list[str]) -> list[str]:
    return [json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T11:00:00.1Z"}) for line in lines]


def coloured(lines: list[str]) -> list[str]:
    return [re.sub(r"^((?:\([^()]* pid=[^()]*\) )+)", "\x1b[0;36m\\1\x1b[0;0m", line) for line in lines]


def colour_without_escape(lines: list[str]) -> list[str]:
    return [re.sub(r"^((?:\([^()]* pid=[^()]*\) )+)", "[1;36m\\1[0;0m", line) for line in lines]


def terminal(lines: list[str]) -> list[str]:
    return [line + "\r" for line in lines]


WRAPPERS: dict[str, Wrap] = {
    "docker -t": stamped("2026-11-29T{clock}.{fraction}3456789Z "),
    "compose": each("vllm-1  | "),
    "compose old": each("llm_server_1        | "),
    "compose coloured": each("\x1b[36mvllm-1  | \x1b[0m"),
    "compose -t": stamped("vllm-1  | 2026-11-29T{clock}.{fraction}3456789Z "),
    "journal short": stamped("Nov 29 {clock} gpu01 vllm[2107]: "),
    "journal precise": stamped("Nov 29 {clock}.{fraction}1234 gpu01 vllm-kimi@1.service[2107]: "),
    "journal iso": stamped("2026-11-29T{clock}+0000 gpu01 vllm[2107]: "),
    "journal json": journal_json,
    "docker json": docker_json,
    "kubectl": stamped("2026-11-29T{clock}.{fraction}3456789Z "),
    "kubectl prefix": each("[pod/kimi-0/vllm] "),
    "cri": stamped("2026-11-29T{clock}.{fraction}3456789+00:00 stderr F "),
    "slurm": each("0: "),
    "torchserve": stamped("2026-11-29T{clock},{fraction}5 [INFO ] W-9000-model_1.0-stdout MODEL_LOG - "),
    "cloud": stamped("2026-11-29 {clock}.{fraction}0 UTC\t"),
    "stern": each("kimi-0 vllm "),
    "a prefix of the user's own": each("<prod/kimi> "),
    "coloured": coloured,
    "colour without escape": colour_without_escape,
    "terminal": terminal,
}
LOGS = (
    "servers/26-kimi-k25-8xh200-ep8-ready.log",
    "servers/21-glm46-pp2-ready.log",
    "servers/32-qwen25-72b-tp4-v1-090-ready.log",
    "servers/23-gpt-oss-120b-kv-too-small.log",
    "servers/37-r1-distill-32b-bnb-two-bars.log",
    "servers/19-deepseek-r1-rocm-oom-postload.log",
    "servers/08-cpu-032-json-log-ready.log",
    "cpu/fail-truncated-shard.log",
    "cpu/fail-max-model-len.log",
    "cpu/sigterm-streaming.log",
    "servers/22-glm51-nvfp4-pp4tp2-slow-nfs.log",
)


def facts(load: LoadState) -> dict[str, object]:
    failure = load.failure
    return {
        "phase": load.phase,
        "was_ready": load.was_ready,
        "shards": load.shards and (load.shards.done, load.shards.total),
        "loaders": [(loader.what, loader.done, loader.total) for loader in load.loaders],
        "figures": (load.load_s, load.model_load_s, load.gib_per_gpu, load.kv_tokens, load.max_concurrency, load.init_engine_s),
        "config": (load.version, load.model, load.tensor_parallel, load.pipeline_parallel, load.max_model_len, load.served_names),
        "capture": load.capture and (load.capture.done, load.capture.total),
        "failure": failure and (failure.kind, failure.phase, failure.process, failure.cause),
        "restarts": load.restarts,
    }


@pytest.mark.parametrize("wrapper", list(WRAPPERS))
@pytest.mark.parametrize("name", LOGS)
def test_wrapped_it_says_the_same(wrapper: str, name: str) -> None:
    text = (DATA / name).read_text(encoding="utf-8").replace("\x1b[1;36m", "").replace("\x1b[0;0m", "").replace("\x1b[0;36m", "")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    wrapped = "\n".join(WRAPPERS[wrapper](lines))
    plain, inside = facts(read("\n".join(lines))), facts(read(wrapped))
    assert inside == plain

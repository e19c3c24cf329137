"""The log of llama-server: what its messages say of a start, its words for failures, and what to do about them.

A record begins with the time since the process began, in minutes, seconds, milliseconds and microseconds, and a letter for the
level: `0.00.009.202 I srv  llama_server: listening on http://127.0.0.1:8080`. Older releases write the message alone. Weights are
loaded without a progress bar.
"""

import re

from tui.core.logs.grammar import FailureWords, Finding, Grammar, find
from tui.core.logs.load_state import Phase
from tui.core.logs.log_records import UPTIME, Line
from tui.core.logs.start_parser import StartParser


def _out_of_memory(text: str, start: StartParser, finding: Finding) -> str:
    size = find(r"allocating ([\d.]+) MiB on device (\d+)", text)
    what = f"{size[1]} MiB did not fit on device {size[2]}" if size else "GPU memory ran out"
    return (
        f"{what}: offload fewer layers (--gpu-layers), lower --ctx-size or --parallel, or quantise the KV cache "
        "(--cache-type-k q8_0 --cache-type-v q8_0)."
    )


def _bad_argument(text: str, start: StartParser, finding: Finding) -> str:
    option = find(r"argument: (\S+)", text)
    named = f"no {option[1]}" if option else "another form of that option"
    return f"This llama-server has {named}: llama-server --help lists what it has (options move between builds)."


def _missing_file(text: str, start: StartParser, finding: Finding) -> str:
    file = start.model or "the GGUF file"
    return f"{file} is not there for this process: check the path after --model, and the mount of the container."


def _corrupt(text: str, start: StartParser, finding: Finding) -> str:
    file = start.model or "the GGUF file"
    return f"{file} is cut off or damaged: compare its size or checksum with the source and fetch it again."


def _unsupported(text: str, start: StartParser, finding: Finding) -> str:
    name = find(r"architecture: '([^']+)'", text)
    return f"This build does not know {name[1] if name else 'this model'}: use a newer llama.cpp, or convert the model again."


GRAMMAR = Grammar(
    engine="llama.cpp",
    record=UPTIME,
    record_is_proof=True,
    failures=FailureWords(
        kinds={
            "cuda_oom": r"unable to allocate \w+ buffer|failed to allocate (?:compute|\w+) buffers?",
            "missing_file": r"failed to open GGUF file",
            "corrupt_checkpoint": r"not within the file bounds|invalid magic (?:characters|number)",
            "unsupported_model": r"unknown model architecture",
            "bad_argument": r"^error: (?:invalid|unknown) argument|error while handling argument",
            "port_in_use": r"couldn't bind (?:HTTP )?server socket",
        },
        wrappers=(
            r"failed to load model(?:,? '|$)|exiting due to (?:model loading|HTTP server) error|trying to fit params"
            r"|^main: exiting due to"
        ),
        plain=r"couldn't bind (?:HTTP )?server socket|^error: (?:invalid|unknown) argument|failed to open GGUF file",
        fatal=r"exiting due to (?:model loading|HTTP server) error|^error: (?:invalid|unknown) argument",
    ),
    advice={
        "cuda_oom": _out_of_memory,
        "missing_file": _missing_file,
        "bad_argument": _bad_argument,
        "corrupt_checkpoint": _corrupt,
        "unsupported_model": _unsupported,
    },
    more_detail="--verbosity 5",
)


@GRAMMAR.says(r"error: (?:invalid|unknown) argument: ")
def _refused(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.engine = start.engine or "llama.cpp"


def _seen(start: StartParser) -> None:
    start.engine = start.engine or "llama.cpp"
    start.start_seen = True


@GRAMMAR.says(r"cmn +\S+ common_params_print_info: build (\d+) \((\w+)\)", "cmn")
@GRAMMAR.says(r"build: (\d+) \((\w+)\) with ", "build:")
def _build(start: StartParser, match: re.Match[str], line: Line) -> None:
    _seen(start)
    start.version = f"b{match[1]}-{match[2]}"


@GRAMMAR.says(r"cmn +\S+ common_params_print_info: verbosity = ", "cmn", begins=True)
def _begins(start: StartParser, match: re.Match[str], line: Line) -> None:
    _seen(start)


@GRAMMAR.says(r"srv +load_model: loading model '(.+)'", "srv")
@GRAMMAR.says(r"main: loading model()", "main:")
def _loading(start: StartParser, match: re.Match[str], line: Line) -> None:
    _seen(start)
    start.model = start.model or match[1] or None
    start.enter(Phase.LOADING, start.now)


@GRAMMAR.says(r"print_info: file size += ([\d.]+) (MiB|GiB)")
def _file_size(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.checkpoint_gib = float(match[1]) / (1024 if match[2] == "MiB" else 1)


@GRAMMAR.says(r"print_info: file type += (.+?)\s*$")
def _file_type(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.quantization = match[1].removeprefix("all ")


@GRAMMAR.says(r"load_tensors: +(?!CPU|Host)\w+ model buffer size = +([\d.]+) MiB")
def _weights(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.ranked("gib_per_gpu", float(match[1]) / 1024, line.speaker)


@GRAMMAR.says(r"llama_kv_cache\w*: +size = +([\d.]+) MiB", "llama_kv_cache:", "llama_kv_cache_unified:")
def _kv_cache(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.ranked("kv_gib", float(match[1]) / 1024, line.speaker)
    start.enter(Phase.KV_CACHE, start.now)


@GRAMMAR.says(r"cmn +common_init\w*: warming up the model", "cmn")
@GRAMMAR.says(r"common_init_from_params: warming up the model")
def _warming_up(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.enter(Phase.WARMING_UP, start.now)


@GRAMMAR.says(r"srv +load_model: initializing, n_slots = \d+, n_ctx_slot = (\d+)", "srv")
def _slots(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.max_model_len = int(match[1])
    start.enter(Phase.WARMING_UP, start.now)


@GRAMMAR.says(r"(?:srv +)?(?:llama_server|main): (?:server is )?listening on https?://\S+?:(\d+)", "srv", "main:")
def _ready(start: StartParser, match: re.Match[str], line: Line) -> None:
    _seen(start)
    start.port = int(match[1])
    start.become_ready(start.now)


@GRAMMAR.says(r"srv +operator\(\): operator\(\): cleaning up before exit", "srv")
def _stops(start: StartParser, match: re.Match[str], line: Line) -> None:
    # A start that has failed ends so as well, and says why it failed only afterwards.
    if start.phase is Phase.READY:
        start.stopping = True
        start.end(Phase.STOPPED, start.now)

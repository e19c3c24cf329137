"""SGLang's messages, of releases 0.3 to 0.5.

Its records carry no level and name only ranks. "Application startup complete." comes before it is ready; the one ready line is "The
server is fired up and ready to roll!".
"""

import re

from tui.core.logs.load_state import Phase, Serving
from tui.core.logs.log_records import Line
from tui.core.logs.start_parser import StartParser
from tui.engines.sglang.sglang_failures import GRAMMAR

__all__ = ["GRAMMAR"]

_ARGUMENTS = {
    name: re.compile(rf"\b{name}=({value})")
    for name, value in (
        ("model_path", r"'[^']*'|\"[^\"]*\""),
        ("served_model_name", r"'[^']*'|\"[^\"]*\""),
        ("tp_size", r"\d+"),
        ("pp_size", r"\d+"),
        ("dp_size", r"\d+"),
        ("context_length", r"\d+"),
        ("quantization", r"'[^']*'"),
        ("attention_backend", r"'[^']*'"),
        ("mem_fraction_static", r"[\d.]+"),
    )
}


def _leads(line: Line) -> bool:
    return not line.speaker.rank


@GRAMMAR.contains(
    "Decode batch",
    r"Decode batch.*?#running-req: (\d+).*?token usage: ([\d.]+)"
    r".*?gen throughput \(token/s\): ([\d.]+)(?:.*?#queue-req: (\d+))?",
)
def _decode(start: StartParser, match: re.Match[str], line: Line) -> None:
    before = start.statistics.last(line.speaker.engine)
    one = Serving(
        before.prompt_tokens_s if before else None,
        float(match[3]),
        int(match[1]),
        int(match[4]) if match[4] else (before.waiting if before else None),
        float(match[2]),
        before.prefix_hit_share if before else None,
        start.now,
    )
    start.statistics.take(one, line.speaker.engine)
    if start.phase is not Phase.READY:
        start.become_ready(start.now)  # the warm-up request is too short for this line


@GRAMMAR.contains(
    "Prefill batch",
    r"Prefill batch.*?#new-token: (\d+), #cached-token: (\d+).*?token usage: ([\d.]+)"
    r".*?#running-req: (\d+)(?:.*?#queue-req: (\d+))?",
)
def _prefill(start: StartParser, match: re.Match[str], line: Line) -> None:
    before = start.statistics.last(line.speaker.engine)
    new, cached = int(match[1]), int(match[2])
    one = Serving(
        before.prompt_tokens_s if before else None,
        before.generation_tokens_s if before else None,
        int(match[4]),
        int(match[5]) if match[5] else None,
        float(match[3]),
        cached / (new + cached) if new + cached else None,
        start.now,
    )
    start.statistics.take(one, line.speaker.engine)


@GRAMMAR.contains("server_args=", r"server_args=(?:ServerArgs\()?(.*)", begins=True)
def _arguments(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    found = {name: key[1].strip("'\"") for name, pattern in _ARGUMENTS.items() if (key := pattern.search(match[1]))}
    start.model = start.model or found.get("model_path")
    if "served_model_name" in found:
        start.served_names = (found["served_model_name"],)
    if "tp_size" in found:
        start.tensor = int(found["tp_size"])
    start.pipeline = int(found.get("pp_size", "1"))
    if "dp_size" in found:
        start.data = int(found["dp_size"])
    if "context_length" in found:
        start.max_model_len = int(found["context_length"])
    start.quantization = found.get("quantization") or start.quantization
    start.attention_backend = found.get("attention_backend") or start.attention_backend
    if "mem_fraction_static" in found:
        start.utilisation = float(found["mem_fraction_static"])


@GRAMMAR.contains("Load weight begin", r"Load weight begin")
def _load_begins(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    if _leads(line) or start.phase is Phase.STARTING:
        if start.loaders.main is not None:
            start.loaders.drafter_announced = True
        start.enter(Phase.LOADING, start.now)


@GRAMMAR.contains("Load weight end", r"Load weight end\.(?: elapsed=([\d.]+) s,)?.*?(?:\bmem usage=([\d.]+) GB)?\.?$")
def _load_ends(start: StartParser, match: re.Match[str], line: Line) -> None:
    if not start.loaders.drafter_announced:
        if match[1]:
            start.ranked("load_s", float(match[1]), line.speaker)
        usage = re.search(r"mem usage=([\d.]+) GB", line.message)
        if usage:
            start.ranked("gib_per_gpu", float(usage[1]), line.speaker)
    if _leads(line):
        start.loaders.weights_took += 1
        start.enter(Phase.POST_LOADING, start.now)


@GRAMMAR.contains(
    "#tokens", r"KV Cache is allocated\..*?#tokens: (\d+),.*?(?:K size: ([\d.]+) GB, V size: ([\d.]+) GB|KV size: ([\d.]+) GB)"
)
def _kv(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.loaders.drafter_announced and start.figure("kv_tokens") is not None:
        return
    start.ranked("kv_tokens", float(match[1]), line.speaker)
    size = float(match[4]) if match[4] else float(match[2]) + float(match[3])
    start.ranked("kv_gib", size, line.speaker)
    if _leads(line):
        start.enter(Phase.KV_CACHE, start.now)


@GRAMMAR.contains("Memory pool end", r"Memory pool end")
def _pool(start: StartParser, match: re.Match[str], line: Line) -> None:
    if _leads(line) and start.phase in (Phase.LOADING, Phase.POST_LOADING):
        start.enter(Phase.KV_CACHE, start.now)


@GRAMMAR.contains("graph begin", r"Capture .*graph begin")
def _capture_begins(start: StartParser, match: re.Match[str], line: Line) -> None:
    if _leads(line):
        start.enter(Phase.CAPTURING, start.now)


@GRAMMAR.contains("graph end", r"Capture .*graph end")
def _capture_ends(start: StartParser, match: re.Match[str], line: Line) -> None:
    if _leads(line):
        start.enter(Phase.WARMING_UP, start.now)


@GRAMMAR.contains("max_total_num_tokens=", r"max_total_num_tokens=(\d+),.*?(?:context_len=(\d+))?")
def _totals(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.figure("kv_tokens") is None:
        start.ranked("kv_tokens", float(match[1]), line.speaker)
    context = re.search(r"context_len=(\d+)", line.message)
    if context:
        start.max_model_len = int(context[1])
    if _leads(line):
        start.enter(Phase.WARMING_UP, start.now)


@GRAMMAR.contains(
    "ttention backend",
    r"(?:Using|Set|Defaulting to) (\w+)(?: as)? attention backend"
    r"|[Aa]ttention backend (?:not \w+ specified\. )?(?:Use|Using) (\w+)",
)
def _attention(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.attention_backend = match[1] or match[2]


@GRAMMAR.contains("fired up", r"The server is fired up and ready to roll")
def _ready(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.become_ready(start.now)


@GRAMMAR.contains("Gracefully", r"Gracefully exiting|Gracefully shutting")
def _stops(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.phase is not Phase.FAILED:
        start.stopping = True
        start.end(Phase.STOPPED, start.now)

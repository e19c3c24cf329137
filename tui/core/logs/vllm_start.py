"""vLLM's table, first part: what is said before weights are loaded, from the banner to the engine's configuration."""

import re

from tui.core.logs.log_records import Line
from tui.core.logs.start_parser import Course
from tui.core.logs.table import says


@says(r"vLLM API server version v?(\S+)")
@says(r"vLLM server version v?(\S+?),? (?:serving model (.+))?$")
def _banner(course: Course, match: re.Match[str], line: Line) -> None:
    course.start_seen = True
    course.engine = "vllm"
    course.version = match[1].rstrip(",")
    if match.re.groups > 1 and match[2]:
        course.model = course.model or match[2].strip()


banner = _banner
"""The handler of the lines that begin a start, for the reader to know."""

LOGO_VERSION = re.compile(r"[\s▀-▟]*version (\d\S*)\s*$")
LOGO_MODEL = re.compile(r"[\s▀-▟]*model {2,}(\S.*?)\s*$")


def _argument(text: str, name: str) -> str | None:
    match = re.search(rf"'{name}': (?:'([^']*)'|\"([^\"]*)\"|([^,}}\]]+))", text)
    return next((group for group in match.groups() if group is not None), None) if match else None


def _outer(text: str) -> str:
    """The arguments without nested dictionaries: a drafter's model is not the server's."""
    inner = text[1:]
    while (shorter := re.sub(r"\{[^{}]*\}", "", inner)) != inner:
        inner = shorter
    return inner


@says(r"non-default args: (.*)")
def _arguments(course: Course, match: re.Match[str], line: Line) -> None:
    course.start_seen = True
    text = match[1]
    course.engine = course.engine or "vllm"
    model = _argument(_outer(text), "model") or _argument(_outer(text), "model_tag")
    if model:
        course.model = course.model or model
    names = re.search(r"'served_model_name': \[([^\]]*)\]", text)
    if names:
        course.served_names = tuple(name.strip().strip("'\"") for name in names[1].split(",") if name.strip())
    if _argument(text, "uvicorn_log_level") in ("warning", "error", "critical"):
        course.server_hidden = True
    count = _argument(text, "api_server_count")
    if count and count.isdigit():
        course.api_servers = max(course.api_servers, int(count))
    batched = _argument(text, "max_num_batched_tokens")
    if batched and batched.isdigit():
        course.batched_tokens = int(batched)
    local = _argument(text, "data_parallel_size_local")
    if local and local.isdigit():
        course.data_local = int(local)
    size = _argument(text, "data_parallel_size")
    if size and size.isdigit():
        course.data = int(size)
        course.loaders.engines_expected = max(1, course.data_local or course.data)
    port = _argument(_outer(text), "port")
    if port and port.isdigit():
        course.port = int(port)
    block = _argument(text, "block_size")
    if block and block.isdigit():
        course.block_size = int(block)
    share = _argument(text, "gpu_memory_utilization")
    if share:
        try:
            course.utilisation = float(share)
        except ValueError:
            course.utilisation = None


@says(r"args: Namespace\((.*)")
def _namespace(course: Course, match: re.Match[str], line: Line) -> None:
    course.start_seen = True
    text = match[1]
    model = re.search(r"\bmodel='([^']*)'", text)
    if model:
        course.model = course.model or model[1]
    names = re.search(r"\bserved_model_name=\[([^\]]*)\]", text)
    if names:
        course.served_names = tuple(name.strip().strip("'\"") for name in names[1].split(",") if name.strip())
    port = re.search(r"\bport=(\d+)", text)
    if port:
        course.port = int(port[1])
    block = re.search(r"\bblock_size=(\d+)", text)
    if block:
        course.block_size = int(block[1])
    if re.search(r"\buvicorn_log_level='(?:warning|error|critical)'", text):
        course.server_hidden = True
    share = re.search(r"\bgpu_memory_utilization=([\d.]+)", text)
    if share:
        course.utilisation = float(share[1])


@says(r"Using max model len (\d+)")
def _max_model_len(course: Course, match: re.Match[str], line: Line) -> None:
    course.start_seen = True
    course.max_model_len = int(match[1])


@says(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")
def _batched_tokens(course: Course, match: re.Match[str], line: Line) -> None:
    course.batched_tokens = int(match[1])


@says(r"Auto-fit max_model_len: reduced from (\d+) to (\d+)")
def _auto_fit(course: Course, match: re.Match[str], line: Line) -> None:
    course.max_model_len = int(match[2])


@says(r"Started (\d+) API server process")
def _api_servers(course: Course, match: re.Match[str], line: Line) -> None:
    course.api_servers = int(match[1])


@says(r"Defaulting api_server_count to data_parallel_size(?:_local)? \((\d+)\)")
def _default_api_servers(course: Course, match: re.Match[str], line: Line) -> None:
    course.api_servers = int(match[1])


@says(r"Launching (?:(\d+) data parallel engine\(s\) in|vLLM \(v([^)]+)\)) headless")
def _headless(course: Course, match: re.Match[str], line: Line) -> None:
    course.start_seen = True
    course.engine = course.engine or "vllm"
    if match[1]:
        course.data_local = int(match[1])
        course.loaders.engines_expected = max(1, course.data_local)
    course.version = course.version or match[2]
    course.notes["headless"] = "headless node: no API server appears in this log, so it never says ready"


_KEY = {
    name: re.compile(rf"\b{name}={value}")
    for name, value in (
        ("model", r"'([^']*)'"),
        ("max_seq_len", r"(\d+)"),
        ("tensor_parallel_size", r"(\d+)"),
        ("pipeline_parallel_size", r"(\d+)"),
        ("data_parallel_size", r"(\d+)"),
        ("quantization", r"'?([\w.-]+)"),
        ("served_model_name", r"([^,\]]+|\[[^\]]*\])"),
        ("block_size", r"(\d+)"),
    )
}


@says(r"Initializing an? (?:V[01] )?LLM engine \(v([^)]+)\) with config: (.*)")
def _engine_config(course: Course, match: re.Match[str], line: Line) -> None:
    course.start_seen = True
    course.engine = "vllm"
    course.version = course.version or match[1]
    found = {name: key[1] for name, pattern in _KEY.items() if (key := pattern.search(match[2]))}
    course.model = course.model or found.get("model")
    if "max_seq_len" in found:
        course.max_model_len = int(found["max_seq_len"])
    if "tensor_parallel_size" in found:
        course.tensor = int(found["tensor_parallel_size"])
    if "pipeline_parallel_size" in found:
        course.pipeline = int(found["pipeline_parallel_size"])
    if "data_parallel_size" in found:
        # Each engine's own line may say 1 although the deployment has more: the arguments and ranks know better.
        course.data = max(course.data or 1, int(found["data_parallel_size"]))
    elif course.data is None and course.release >= (0, 8):
        course.data = 1
    quantization = found.get("quantization")
    if quantization and quantization != "None":
        course.quantization = quantization
    names = found.get("served_model_name")
    if names and not course.served_names and names not in ("None",):
        course.served_names = tuple(name.strip().strip("[]'\"") for name in names.split(",") if name.strip("[]'\" "))
    if "block_size" in found:
        course.block_size = int(found["block_size"])
    if course.engine_started_at is None:
        course.engine_started_at = course.now
    if course.loaders.engines_expected < (course.data_local or course.data or 1):
        course.loaders.engines_expected = course.data_local or course.data or 1


@says(r"rank (\d+) in world size (\d+) is assigned as DP rank (\d+), PP rank (\d+),(?: PCP rank \d+,)? TP rank (\d+)")
def _rank(course: Course, match: re.Match[str], line: Line) -> None:
    dp = int(match[3])
    if dp and (course.data or 1) <= dp:
        course.data = dp + 1


@says(r"world_size=(\d+) rank=(\d+)")
def _world(course: Course, match: re.Match[str], line: Line) -> None:
    course.engine = course.engine or "vllm"


_ATTENTION = re.compile(
    r"(?i:flash|xformers|triton|torch.?sdpa|rocm|aiter|cutlass|mla|pallas|tree|flex|cpu|ipex)|.*(?:ATTN|ATTENTION|MLA\b)"
)
_NO_ATTENTION = re.compile(r"(?i)moe|sampl|proposer|kernel|cache|layout|fp[48]|gemm|all-?reduce|all2all|linear(?!.?att)")


@says(
    r"Using (?:AttentionBackendEnum\.)?(.+?) (attention )?backend"
    r"(?: on V1 engine)?(?: (?:out of potential backends|by default|with \w+ KV cache layout|\(selected via|(for (?!ViT))).*)?\.?$"
)
def _attention(course: Course, match: re.Match[str], line: Line) -> None:
    """Kernels of experts and of linear layers, samplers and encoders have backends too, announced in the same words."""
    name = match[1]
    told = match[2] is not None or "attention" in name.lower()
    if (told or (not match[3] and _ATTENTION.match(name))) and not _NO_ATTENTION.search(name):
        course.attention_backend = name

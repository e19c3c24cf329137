"""vLLM's table, first part: what is said before weights are loaded, from the banner to the engine's configuration."""

import re

from tui.core.logs.log_records import Line
from tui.core.logs.start_parser import StartParser
from tui.engines.vllm.vllm_failures import GRAMMAR


@GRAMMAR.says(r"vLLM API server version v?(\S+)", begins=True)
@GRAMMAR.says(r"vLLM server version v?(\S+?),? (?:serving model (.+))?$", begins=True)
def _banner(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    start.engine = "vllm"
    start.version = match[1].rstrip(",")
    if match.re.groups > 1 and match[2]:
        start.model = start.model or match[2].strip()


@GRAMMAR.contains("version ", r"^[\s▀-▟]*version (\d\S*)\s*$", begins=True)
def _logo_version(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.engine = "vllm"
    start.start_seen = True
    start.version = match[1]


@GRAMMAR.contains("model  ", r"^[\s▀-▟]*model {2,}(\S.*?)\s*$")
def _logo_model(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.version:
        start.model = start.model or match[1]


def _argument(text: str, name: str) -> str | None:
    match = re.search(rf"'{name}': (?:'([^']*)'|\"([^\"]*)\"|([^,}}\]]+))", text)
    return next((group for group in match.groups() if group is not None), None) if match else None


def _outer(text: str) -> str:
    """Return the arguments without nested dictionaries: a drafter's model is not the server's."""
    inner = text[1:]
    while (shorter := re.sub(r"\{[^{}]*\}", "", inner)) != inner:
        inner = shorter
    return inner


@GRAMMAR.says(r"non-default args: (.*)")
def _arguments(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    text = match[1]
    start.engine = start.engine or "vllm"
    model = _argument(_outer(text), "model") or _argument(_outer(text), "model_tag")
    if model:
        start.model = start.model or model
    names = re.search(r"'served_model_name': \[([^\]]*)\]", text)
    if names:
        start.served_names = tuple(name.strip().strip("'\"") for name in names[1].split(",") if name.strip())
    if (eager := _argument(text, "enforce_eager")) is not None:
        start.eager = eager == "True"
    if _argument(text, "uvicorn_log_level") in ("warning", "error", "critical"):
        start.server_hidden = True
    count = _argument(text, "api_server_count")
    if count and count.isdigit():
        start.api_servers = max(start.api_servers, int(count))
    batched = _argument(text, "max_num_batched_tokens")
    if batched and batched.isdigit():
        start.batched_tokens = int(batched)
    local = _argument(text, "data_parallel_size_local")
    if local and local.isdigit():
        start.data_local = int(local)
    size = _argument(text, "data_parallel_size")
    if size and size.isdigit():
        start.data = int(size)
        start.loaders.engines_expected = max(1, start.data_local or start.data)
    for name in ("tensor", "pipeline"):
        size = _argument(text, f"{name}_parallel_size")
        if size and size.isdigit():
            setattr(start, name, int(size))
    port = _argument(_outer(text), "port")
    if port and port.isdigit():
        start.port = int(port)
    block = _argument(text, "block_size")
    if block and block.isdigit():
        start.block_size = int(block)
    share = _argument(text, "gpu_memory_utilization")
    if share:
        try:
            start.utilisation = float(share)
        except ValueError:
            start.utilisation = None


@GRAMMAR.says(r"args: Namespace\((.*)")
def _namespace(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    text = match[1]
    model = re.search(r"\bmodel='([^']*)'", text)
    if model:
        start.model = start.model or model[1]
    names = re.search(r"\bserved_model_name=\[([^\]]*)\]", text)
    if names:
        start.served_names = tuple(name.strip().strip("'\"") for name in names[1].split(",") if name.strip())
    port = re.search(r"\bport=(\d+)", text)
    if port:
        start.port = int(port[1])
    block = re.search(r"\bblock_size=(\d+)", text)
    if block:
        start.block_size = int(block[1])
    if re.search(r"\buvicorn_log_level='(?:warning|error|critical)'", text):
        start.server_hidden = True
    share = re.search(r"\bgpu_memory_utilization=([\d.]+)", text)
    if share:
        start.utilisation = float(share[1])


@GRAMMAR.says(r"Using max model len (\d+)")
def _max_model_len(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    start.max_model_len = int(match[1])


@GRAMMAR.says(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")
def _batched_tokens(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.batched_tokens = int(match[1])


@GRAMMAR.says(r"Auto-fit max_model_len: reduced from (\d+) to (\d+)")
def _auto_fit(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.max_model_len = int(match[2])


@GRAMMAR.says(r"Started (\d+) API server process")
def _api_servers(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.api_servers = int(match[1])


@GRAMMAR.says(r"Defaulting api_server_count to data_parallel_size(?:_local)? \((\d+)\)")
def _default_api_servers(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.api_servers = int(match[1])


@GRAMMAR.says(r"Launching (?:(\d+) data parallel engine\(s\) in|vLLM \(v([^)]+)\)) headless")
def _headless(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    start.engine = start.engine or "vllm"
    if match[1]:
        start.data_local = int(match[1])
        start.loaders.engines_expected = max(1, start.data_local)
    start.version = start.version or match[2]
    start.notes["headless"] = "headless node: no API server appears in this log, so it never says ready"


@GRAMMAR.says(r"Automatically detected platform (\w+)", "Automatically")
@GRAMMAR.says(r"Platform plugin (\w+) is activated", "Platform")
@GRAMMAR.says(r"plugin (\w+) loaded", "plugin")
def _platform(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.engine = start.engine or "vllm"
    start.platform = match[0]


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
        ("enforce_eager", r"(True|False)"),
        ("device_config", r"(\w+)"),
    )
}
_GRAPH_SIZES = re.compile(r"['\"]cudagraph_capture_sizes['\"]: \[([^\]]*)\]")


@GRAMMAR.says(r"Dumping input data for V1 LLM engine \(v([^)]+)\) with config: (.*)")
def _dumped_config(start: StartParser, match: re.Match[str], line: Line) -> None:
    """Read the configuration that an engine tells once more as it fails: the log may lack its start."""
    start.version = start.version or match[1]
    found = {name: key[1] for name, pattern in _KEY.items() if (key := pattern.search(match[2]))}
    start.model = start.model or found.get("model")
    start.max_model_len = start.max_model_len or int(found.get("max_seq_len", 0)) or None
    start.tensor = start.tensor or int(found.get("tensor_parallel_size", 0)) or None
    start.pipeline = start.pipeline or int(found.get("pipeline_parallel_size", 0)) or None


@GRAMMAR.says(r"Initializing an? (?:V[01] )?LLM engine \(v([^)]+)\) with config: (.*)")
def _engine_config(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    start.engine = "vllm"
    start.version = start.version or match[1]
    found = {name: key[1] for name, pattern in _KEY.items() if (key := pattern.search(match[2]))}
    start.model = start.model or found.get("model")
    if "max_seq_len" in found:
        start.max_model_len = int(found["max_seq_len"])
    if "tensor_parallel_size" in found:
        start.tensor = int(found["tensor_parallel_size"])
    if "pipeline_parallel_size" in found:
        start.pipeline = int(found["pipeline_parallel_size"])
    if "data_parallel_size" in found:
        # Each engine's own line may say 1 although the deployment has more: the arguments and ranks know better.
        start.data = max(start.data or 1, int(found["data_parallel_size"]))
    elif start.data is None and start.release >= (0, 8):
        start.data = 1
    quantization = found.get("quantization")
    if quantization and quantization != "None":
        start.quantization = quantization
    names = found.get("served_model_name")
    if names and not start.served_names and names not in ("None",):
        start.served_names = tuple(name.strip().strip("[]'\"") for name in names.split(",") if name.strip("[]'\" "))
    if "block_size" in found:
        start.block_size = int(found["block_size"])
    start.device = found.get("device_config") or start.device
    if "enforce_eager" in found:
        start.eager = found["enforce_eager"] == "True"
    if sizes := _GRAPH_SIZES.search(match[2]):
        start.graph_sizes = len([size for size in sizes[1].split(",") if size.strip()])
    if start.engine_started_at is None:
        start.engine_started_at = start.now
    if start.loaders.engines_expected < (start.data_local or start.data or 1):
        start.loaders.engines_expected = start.data_local or start.data or 1


@GRAMMAR.says(r"rank (\d+) in world size (\d+) is assigned as DP rank (\d+), PP rank (\d+),(?: PCP rank \d+,)? TP rank (\d+)")
def _rank(start: StartParser, match: re.Match[str], line: Line) -> None:
    dp = int(match[3])
    if dp and (start.data or 1) <= dp:
        start.data = dp + 1


@GRAMMAR.says(r"world_size=(\d+) rank=(\d+)")
def _world(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.engine = start.engine or "vllm"


_ATTENTION = re.compile(
    r"(?i:flash|xformers|triton|torch.?sdpa|rocm|aiter|cutlass|mla|pallas|tree|flex|cpu|ipex)|.*(?:ATTN|ATTENTION|MLA\b)"
)
_NO_ATTENTION = re.compile(r"(?i)moe|sampl|proposer|kernel|cache|layout|fp[48]|gemm|all-?reduce|all2all|linear(?!.?att)")


@GRAMMAR.says(
    r"Using (?:AttentionBackendEnum\.)?(.+?) (attention )?backend"
    r"(?: on V1 engine)?(?: (?:out of potential backends|by default|with \w+ KV cache layout|\(selected via|(for (?!ViT))).*)?\.?$"
)
def _attention(start: StartParser, match: re.Match[str], line: Line) -> None:
    """Kernels of experts and of linear layers, samplers and encoders have backends too, announced in the same words."""
    name = match[1]
    told = match[2] is not None or "attention" in name.lower()
    if (told or (not match[3] and _ATTENTION.match(name))) and not _NO_ATTENTION.search(name):
        start.attention_backend = name

"""SGLang's words for failures, and what to do about them."""

from tui.core.logs.grammar import FailureWords, Finding, Grammar, Writer
from tui.core.logs.log_records import DATED
from tui.core.logs.start_parser import StartParser


def _always(text: str) -> Writer:
    def write(said: str, start: StartParser, finding: Finding) -> str:
        return text

    return write


def _kv_cache(said: str, start: StartParser, finding: Finding) -> str:
    if "out of memory" in said or "pool is full" in said:
        return (
            "The KV cache ran full while serving: lower --max-running-requests, raise --schedule-conservativeness, or give it more "
            "memory by --mem-fraction-static, a shorter --context-length or more GPUs (--tp)."
        )
    return "Nothing is left for the KV cache: raise --mem-fraction-static, lower --context-length, or use more GPUs (--tp)."


GRAMMAR = Grammar(
    engine="sglang",
    record=DATED,
    startup_is_ready=False,
    source="/sglang/",
    requests=("Receive: ", "Finish: "),
    failures=FailureWords(
        kinds={
            "kv_cache_too_small": (
                r"(?:Prefill|Decode) out of memory|KV cache pool is full"
                r"|Not enough memory\. Please try to increase --mem-fraction-static"
                r"|max_total_num_tokens.*(?:too small|<= 0)"
            ),
            "bad_argument": r"launch_server.*error:",
        },
        wrappers=r"Rank \d+ scheduler is dead|SIGQUIT received|Initialization failed\. (?:warmup|See)",
        plain=r"Not enough memory|SIGQUIT received|Watchdog timeout \(",
        fatal=(
            r"Scheduler hit an exception|SIGQUIT received|watchdog thread terminated with exception|Received sigquit from a child"
            r"|DataParallelController.*exception"
        ),
    ),
    advice={
        "kv_cache_too_small": _kv_cache,
        "cuda_oom": _always(
            "GPU memory ran out: lower --mem-fraction-static, --chunked-prefill-size or --cuda-graph-max-bs, or use more GPUs "
            "(--tp)."
        ),
        "hang": _always(
            "The scheduler does not answer: py-spy dump its processes, look at dmesg for Xid, and restart; --watchdog-timeout sets "
            "when."
        ),
    },
)
"""SGLang's grammar; the messages of a start are registered in `sglang_log`."""

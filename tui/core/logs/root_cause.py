"""Why a start or a server ended: the evidence as it comes in, and the choice of the one line that says why.

A failure may be repeated up to six times: the worker's traceback, the engine's wrapper or copy, the same again as a bare
traceback, the API server's "see root cause above". The cause is the earliest exception that is neither a wrapper nor a copy nor
what survivors say; a wrapper that points at nothing means that the process was killed from outside.
"""

import re
from dataclasses import dataclass, field

from tui.core.logs.exceptions import Raised
from tui.core.logs.exit_signs import first_cause, told
from tui.core.logs.failure_kinds import CLEANUP, CONSEQUENCE, ORDERED, WORDS, is_wrapper, joined, kind_of
from tui.core.logs.grammar import Finding
from tui.core.logs.load_state import Phase

CAUSE_LENGTH = 200
RECENT_S = 180.0
"""Of what happened while serving, only this last stretch before the end can be its cause."""
RECENT_LINES = 4000
KEPT = 400
SHORT = 60
"""An exception's text of fewer characters says little, so that the place it was raised at says more."""

PLACES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("tokenizer", re.compile(r"sentencepiece|tokenization_|tiktoken|/tokenizers/")),
    ("shape_mismatch", re.compile(r"= params_dict\[")),
)
"""What kind of failure it is if only the traceback's last lines tell."""

_BEFORE_THE_CACHE = (Phase.STARTING, Phase.LOADING, Phase.POST_LOADING, Phase.COMPILING, Phase.PROFILING)
_OF_A_LIBRARY = re.compile(r"lmcache|nixl|mooncake|flashinfer|triton|torch_npu|habana|jax|tpu_")
"""A refusal by one of these says something of the machine or of a service, rather than of an option."""
_REFUSALS = ("ValueError", "NotImplementedError", "ValidationError")


_EXTENSION = re.compile(r"\w\._C\b|_C_utils|has no attribute.*_C|_C.*has no attribute|_OpNamespace", re.DOTALL)
"""What is said if a compiled extension could not be imported."""
_EXTENSION_HINTS = joined(*(words.extension_hints for words in WORDS))
_ENGINES_ENDED = [(words.engine_ended[0], re.compile(words.engine_ended[1])) for words in WORDS if words.engine_ended[1]]
_WORKER_ENDED = joined(*(words.worker_ended for words in WORDS))


@dataclass(slots=True)
class Trouble:
    """One exception or plain line that may be the cause, or that wraps it."""

    text: str
    kind: str
    process: str
    rank: int | None
    worker: bool
    line: int
    at: float | None
    phase: Phase
    wrapper: bool
    consequence: bool
    raised: Raised | None = None
    more: str = ""
    weak: bool = False
    """A single line of an error record: some are harmless, so that any exception goes before."""
    request: bool = False
    """Of one request only (uvicorn's "Exception in ASGI application")."""

    @property
    def full(self) -> str:
        """Return all that was said of it."""
        return f"{self.text}\n{self.raised.full}" if self.raised is not None else self.text

    def settle(self) -> None:
        """Read an exception's whole text, whose last lines come after its first."""
        raised = self.raised
        if raised is None:
            return
        self.text = best_text(raised)
        self.kind = kind_of(self.text)
        if self.kind == "other":
            self.kind = kind_of(raised.full)
        if self.kind == "other" and raised.frames and len(raised.text) < SHORT:
            self.kind = next((kind for kind, place in PLACES if place.search("\n".join(raised.frames))), "other")
            if raised.text and not raised.more and not raised.frames[-1].startswith("raise"):
                self.text = f"{self.text} (in: {raised.frames[-1]})"
        if (
            self.kind == "other"
            and self.phase is Phase.STARTING
            and not self.worker
            and raised.type.endswith(_REFUSALS)
            and not _OF_A_LIBRARY.search("\n".join(raised.frames[-2:]))
        ):
            self.kind = "bad_argument"  # before anything is loaded, a value that is refused comes from the configuration
        self.consequence = is_consequence(raised.full[:600])


@dataclass(slots=True)
class Evidence:
    """Everything that may tell why, of one start."""

    troubles: list[Trouble] = field(default_factory=list)
    hints: list[Trouble] = field(default_factory=list)
    wrappers: list[Trouble] = field(default_factory=list)
    fatal_line: int | None = None
    fatal_at: float | None = None
    fatal_phase: Phase = Phase.STARTING
    fatal_text: str = ""

    @property
    def fatal(self) -> bool:
        return self.fatal_line is not None

    def mark_fatal(self, line: int, at: float | None, phase: Phase, text: str) -> None:
        if self.fatal_line is None:
            self.fatal_line, self.fatal_at, self.fatal_phase, self.fatal_text = line, at, phase, text

    def add(self, trouble: Trouble) -> None:
        (self.wrappers if trouble.wrapper else self.troubles).append(trouble)
        for kept in (self.troubles, self.wrappers):
            if len(kept) > KEPT:
                # While serving, the oldest are request errors of long ago; before ready the earliest matter, and they come first.
                del kept[KEPT // 4 : KEPT // 2]

    def hint(self, trouble: Trouble) -> None:
        self.hints.append(trouble)
        if len(self.hints) > KEPT:
            del self.hints[KEPT // 4 : KEPT // 2]  # the first may have broken the start, the last explain the end

    # -- the choice

    def choose(self, *, whole: bool = True) -> Finding:
        """Return the cause. `whole` tells whether the log holds more than the end of the start; only then does silence count."""
        for trouble in self.troubles:
            trouble.settle()
        relevant = [
            trouble for trouble in self.troubles if self._recent(trouble) and not trouble.request and not _wordless(trouble)
        ]
        first_hand = [trouble for trouble in relevant if not trouble.consequence and not _copy_of_wrapper(trouble)]
        strong = [trouble for trouble in first_hand if not trouble.weak]
        chosen = self._earliest(strong) or self._earliest(first_hand) or self._earliest(relevant)
        if chosen is None:
            return self._without_cause(whole)
        chosen = self._refined(chosen)
        phase = chosen.phase
        if chosen.kind == "kv_cache_too_small" and phase in _BEFORE_THE_CACHE:
            phase = Phase.KV_CACHE  # some runners say nothing between the weights and the sizing of the cache
        if chosen.kind == "worker_died" and chosen.raised is None:
            phase = self.fatal_phase  # one process crashed; how far the start got is what the others told after that
        context = tuple(trouble.text for trouble in relevant[:8])
        return Finding(chosen.kind, self._in_words(chosen), chosen.process or None, chosen.line, phase, chosen.full, context)

    def _recent(self, trouble: Trouble) -> bool:
        if trouble.phase is not Phase.READY or self.fatal_line is None:
            return True
        if trouble.line < self.fatal_line - RECENT_LINES:
            return False
        return trouble.at is None or self.fatal_at is None or trouble.at >= self.fatal_at - RECENT_S

    def _earliest(self, troubles: list[Trouble]) -> Trouble | None:
        if not troubles:
            return None
        # Among lines of the same moment a worker's word goes before the engine's, and a known kind before an unknown one.
        known = [trouble for trouble in troubles if trouble.kind != "other"] or troubles
        first = min(known, key=lambda trouble: trouble.line)
        if first.kind == "other" or known is troubles:
            return first
        if first.text == "Killed":
            # The API server ends its whole process group after a failure, and the shell says so.
            raised = [trouble for trouble in troubles if trouble.line < first.line and trouble.raised is not None]
            if raised:
                return min(raised, key=lambda trouble: trouble.line)
        # An unknown exception that came well before, in a worker or the engine, is likelier than a known one in its wake.
        earlier = [
            trouble for trouble in troubles if trouble.kind == "other" and trouble.line < first.line and trouble.raised is not None
        ]
        if earlier and first.kind in (
            "hang",
            "distributed_timeout",
            "cuda_error",
            "worker_died",
            "engine_died",
            "missing_file",
            "nccl",
        ):
            return min(earlier, key=lambda trouble: trouble.line)
        return first

    def _refined(self, chosen: Trouble) -> Trouble:
        text = chosen.text
        if _EXTENSION.search(text):
            hint = next((trouble for trouble in self.hints if _EXTENSION_HINTS.search(trouble.text)), None)
            if hint is not None:
                return hint
        if chosen.kind in ("nccl", "distributed_timeout", "cuda_error", "other"):
            hints = self._near(chosen)
            shm = next(
                (trouble for trouble in hints if trouble.kind == "shm_too_small" and trouble.line <= chosen.line + 200), None
            )
            if shm is not None:
                return shm
            warned = [trouble for trouble in hints if "NCCL WARN" in trouble.text and trouble.kind not in ("nccl", "other")]
            if warned and chosen.kind == "nccl":
                return _last_before(warned, chosen)
        if chosen.kind == "other" and ("architecture" in text or "config" in text.lower()):
            hint = next((trouble for trouble in self._near(chosen) if trouble.kind in ("unsupported_model", "missing_file")), None)
            if hint is not None:
                return hint
        return chosen

    def _near(self, chosen: Trouble) -> list[Trouble]:
        """Return the hints that may explain it: all of a start's, and of what was said before it was ready nothing for its end."""
        if chosen.phase is not Phase.READY:
            return self.hints
        return [trouble for trouble in self.hints if trouble.phase is Phase.READY and self._recent(trouble)]

    def _in_words(self, chosen: Trouble) -> str:
        """Return the cause, and what NCCL warned of last if its error only names a class of errors."""
        cause = _cause(chosen)
        if chosen.kind == "nccl" and "NCCL WARN" not in cause:
            warned = [trouble for trouble in self._near(chosen) if "NCCL WARN" in trouble.text and trouble.line <= chosen.line]
            if warned:
                return _cut(f"{_NCCL_HELP.sub('', cause)}: {_NCCL_HEAD.sub('', warned[-1].text)}")
        return cause

    def _without_cause(self, whole: bool) -> Finding:
        """Word the case of wrappers alone: something was killed from outside, or the log lacks the stream that said why."""
        named = next(
            (trouble for trouble in self.wrappers if re.search(r"died unexpectedly|exited unexpectedly|exit code", trouble.text)),
            None,
        )
        first = named or (self.wrappers[0] if self.wrappers else None)
        phase = self.fatal_phase
        line = first.line if first else self.fatal_line
        texts = [self.fatal_text, *(trouble.text for trouble in self.wrappers)]
        said = " ".join(texts)
        end = first_cause(told(texts))
        engine = next((name for name, pattern in _ENGINES_ENDED if pattern.search(said)), None)
        worker = _WORKER_ENDED.search(said) is not None
        if end is not None and not end.killed and not (worker and end.followed):
            kind = "killed_by_supervisor" if end.ordered else "worker_died" if end.signal else "engine_died"
            where = self.fatal_line if end.process is None else line
            return Finding(kind, end.words, end.process, where, phase, first.full if first else end.words)
        if not whole and (end is None or end.code is None):
            said = _cut(first.text if first else self.fatal_text)[:120]
            cause = f"the reason is said above the part that this log holds, whose end is: {said}"
            return Finding("engine_died", cause, None, line, phase, first.full if first else cause)
        process = end.process if end is not None and end.killed else None
        if engine and process is None:
            process = engine
        who = process or ("a worker" if worker else "the engine" if engine or phase is Phase.READY else "a process")
        cause = f"{who} was killed from outside (no process printed why): most likely SIGKILL by the host's out-of-memory killer"
        if phase is Phase.READY and engine:
            cause = f"{who} exited unexpectedly while serving, without a reason: killed from outside, as by the OOM killer"
        return Finding("host_oom_or_killed", cause, process, line, phase, first.full if first else cause)


def _last_before(hints: list[Trouble], chosen: Trouble) -> Trouble:
    """Return the last of some hints before a trouble, or the first one after it."""
    before = [trouble for trouble in hints if trouble.line <= chosen.line]
    return before[-1] if before else hints[0]


def _copy_of_wrapper(trouble: Trouble) -> bool:
    raised = trouble.raised
    return raised is not None and is_wrapper(raised.full[:400]) and kind_of(raised.full) in ("other", "worker_died", "engine_died")


def _wordless(trouble: Trouble) -> bool:
    """Tell whether an exception has no words while its successor in the chain has some, such as a bare `TimeoutError`."""
    raised = trouble.raised
    return raised is not None and raised.covered and not raised.text and not raised.more


_RAYLET_HEAD = re.compile(r"^\(raylet[^)]*\) (?:\[[^\]]*\] \(raylet\) [\w.]+:\d+: )?")
_NCCL_HELP = re.compile(r" ?\(run with NCCL_DEBUG=\w+ for details\)")
_NCCL_HEAD = re.compile(r"^.*?(?=NCCL WARN)")
_TORCH_HEAD = re.compile(r"^(?:\[rank(\d+)\]:)?\s?\[[EWF]\d{3,4} [^\]]*\]\s*(?:\[[^\]]*\]\s*)*")


def _cause(trouble: Trouble) -> str:
    text = " ".join(trouble.text.split())
    if text == "Killed":
        text = "Killed: the shell saw SIGKILL end the server, most likely by the host's out-of-memory killer"
    text = _RAYLET_HEAD.sub("", text)
    if "NCCL WARN" in text:
        text = _NCCL_HEAD.sub("", text)
    head = _TORCH_HEAD.match(text)
    if head and head.end():
        text = (f"rank {head[1]}: " if head[1] else "") + text[head.end() :]
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= CAUSE_LENGTH else text[: CAUSE_LENGTH - 1].rstrip() + "…"


_PYDANTIC = re.compile(r"validation errors? for \w+")
_VALUE_ERROR = re.compile(r"(?:Value|Assertion) error, (.*?)(?: \[type=|$)")
_FATAL_TOOL = re.compile(r".*?((?:nvcc|ptxas) (?:fatal|error)\b.*|fatal error:.*|error: .*)")
_SEVERED = re.compile(r"(?:ConnectionResetError|BrokenPipeError)$")
_PIPES = re.compile(r"multiprocessing|zmq|asyncio/(?:selector|stream|proactor)|uvicorn|shm_broadcast|torch/distributed|executor")
_TYPED = re.compile(r"\w+(?:Error|Exception): .")
_HTTP = re.compile(r"\b(?:401|403|404|429|5\d\d) (?:Client|Server) Error|gated repo|Access to model|restricted", re.IGNORECASE)


def best_text(raised: Raised) -> str:
    """Return the one line of an exception that says the most: usually its first, but not for pydantic, compilers and the hub."""
    first = f"{raised.type.rpartition('.')[2]}: {raised.text}" if raised.text else raised.type.rpartition(".")[2]
    if _PYDANTIC.search(first):
        for at, line in enumerate(raised.more):
            value = _VALUE_ERROR.search(line)
            if value:
                return value[1]
            if line and not line.startswith("For further information"):
                detail = (
                    raised.more[at + 1] if at + 1 < len(raised.more) and not raised.more[at + 1].startswith("For further") else ""
                )
                return re.sub(r" \[type=.*", "", f"{first.split(' for ')[-1]}: {line}: {detail}" if detail else line)
    for line in raised.more:
        tool = _FATAL_TOOL.match(line)
        if tool and re.search(r"[Nn]inja|nvcc|Error building|CalledProcess|ompil|fatal", raised.full):
            return tool[1]
    if not raised.text or (_HTTP.search(raised.full) and not _HTTP.search(first)):
        for line in raised.more:
            if _HTTP.search(line):
                return f"{first} {line}" if len(first) < 90 else line
    if "failed in the TorchScript interpreter" in first:
        for line in reversed(raised.more):
            if _TYPED.match(line):
                return line
    if not raised.text and not raised.more and raised.frames:
        return f"{first}: {raised.frames[-1]}"
    if first.rstrip().endswith(":") and raised.more:
        return f"{first} {raised.more[0].strip()}"  # the cause is what it points at
    if len(raised.text) < 12 and raised.more and not raised.text.startswith("cancel"):
        return f"{first} {raised.more[0]}".strip()
    return first


def is_ordered(raised: Raised) -> bool:
    return ORDERED.match(f"{raised.type.rpartition('.')[2]}{': ' + raised.text if raised.text else ''}") is not None


def is_severed(raised: Raised) -> bool:
    """Tell whether a connection broke to some other service than the server's own processes, whose end would be the cause then."""
    frames = "\n".join(raised.frames)
    return _SEVERED.search(raised.type) is not None and bool(frames) and not _PIPES.search(frames)


def is_cleanup(text: str) -> bool:
    return CLEANUP.search(text) is not None


def is_consequence(text: str) -> bool:
    return CONSEQUENCE.search(text) is not None

"""A conversation: immutable turns, what is sent for the next one, and how a streamed reply is folded into a turn.

The figures of a reply are vLLM's: TTFT is the first token-bearing chunk minus the moment just before the request was sent; tok/s is
(n - 1) / (last token-bearing chunk - first), n being `usage.completion_tokens`, so that waiting for the first token does not count.
The count is asked for with every chunk, so that a reply that is stopped has its figures, too. Without the server's usage, or where
it counts fewer tokens than chunks came, tok/s is unknown; the pace of the chunks is told as such: a chunk may hold several tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tui.core.text import clean
from tui.wire.event_stream import CONTENT, REASONING, error_of, token_of

TAGS = (
    ("<think>", "</think>"),  # DeepSeek R1, Qwen 3, GLM, MiniMax, Kimi K2 Thinking
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi-VL
    ("<|channel>thought", "<channel|>"),  # Gemma
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss without its parser
)

LONE = ("</think>", "[/THINK]", "◁/think▷")
"""Closing tags whose opening one some templates write themselves."""


class ThinkingSplitter:
    """Splits streamed content into reasoning and answer, however the chunks cut the tags.

    Reasoning is what stands between an opening tag at the very start and its closing tag. Where the template opened the tag itself,
    the content has only the closing one: then all before it was reasoning. Tags later in the answer are text like any other.
    """

    def __init__(self) -> None:
        self._held = ""
        self._closing: str | None = None
        self._answered = False
        self._begun = False
        self._at_start = False
        """Whether the answer has yet to begin after a closing tag: line ends there belong to the tag."""
        self._last = ""
        """The last character handed out: a tag in `backquotes` is spoken of, not used."""

    def feed(self, text: str) -> tuple[str, str, bool]:
        """Return reasoning and answer of this piece, and whether everything returned as answer before was in fact reasoning."""
        thought, answer, moved = self._split(self._held + text)
        if self._at_start:
            answer = answer.lstrip("\n")
            self._at_start = not answer
        self._last = answer[-1:] or self._last
        return thought, answer, moved

    def _split(self, text: str) -> tuple[str, str, bool]:
        self._held = ""
        if self._answered:
            return "", text, False
        if not self._begun:
            begun = text.lstrip()
            if any(opening.startswith(begun) for opening, _ in TAGS):  # nothing yet, or a piece of a tag
                self._held = text
                return "", "", False
            self._begun = True
            for opening, closing in TAGS:
                if begun.startswith(opening):
                    self._closing = closing
                    text = begun[len(opening) :]
                    break
        if self._closing is not None:
            before, found, after = text.partition(self._closing)
            if found:
                self._answered = self._at_start = True
                return before, after, False
            self._held = _piece_of(text, (self._closing,))
            return text[: len(text) - len(self._held)], "", False
        at, closing = self._unopened(text)
        if closing:
            self._answered = self._at_start = True
            return text[:at], text[at + len(closing) :], True
        self._held = _piece_of(text, LONE)
        return "", text[: len(text) - len(self._held)], False

    def _unopened(self, text: str) -> tuple[int, str]:
        """Return the position of the first closing tag that the text does not merely mention, and the tag ("" for none)."""
        places = []
        for closing in LONE:
            at = text.find(closing)
            while at >= 0 and (text[at - 1 : at] if at else self._last) == "`":
                at = text.find(closing, at + 1)
            if at >= 0:
                places.append((at, closing))
        return min(places, default=(-1, ""))

    def flush(self) -> tuple[str, str]:
        """Return what is still held back when the stream has ended, as reasoning and answer. The splitter does not change."""
        return (self._held, "") if self._closing is not None and not self._answered else ("", self._held)


def _piece_of(text: str, tags: tuple[str, ...]) -> str:
    """Return the end of the text that may be the beginning of a tag."""
    for length in range(min(len(text), max(map(len, tags)) - 1), 0, -1):
        if any(tag.startswith(text[-length:]) for tag in tags):
            return text[-length:]
    return ""


NO_TEMPLATE = "no chat template: sent as a plain completion"
STREAM_OPTIONS: Final[tuple[Mapping[str, bool], ...]] = (
    {"include_usage": True, "continuous_usage_stats": True},
    {"include_usage": True},
    {},
)
"""What is asked for beside the stream: vLLM's counts with every chunk, OpenAI's at the end, nothing: less if it is refused."""
COMPLETION_TOKENS = 512
"""Asked of /v1/completions when nothing else is said: its default is 16, and a base model seldom ends by itself."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One token-bearing chunk as it arrived; `at` is the client's monotonic clock when its bytes came."""

    at: float
    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user asked and what came back. `error` holds the server's own words, cleaned, in full."""

    asked: str
    reply: str = ""
    reasoning: str = ""
    ttft_ms: float | None = None
    thought_s: float | None = None
    """From the first token of the reasoning to the first of the answer (or the last one seen while it still thinks)."""
    tokens_s: float | None = None
    chunks_s: float | None = None
    """Token-bearing chunks a second, between the first and the last one."""
    usage: Usage = Usage()
    seconds: float | None = None
    """From before the request was sent to the end; None while it streams."""
    finish: str | None = None
    """The server's finish reason, "stopped" by the user; None while it streams, or if the server ended without one."""
    error: str | None = None
    note: str | None = None
    """"no chat template: sent as a plain completion" …"""
    chunks: int = 0
    """Token-bearing chunks that came: all that is known of the length while it streams, or when it was stopped."""
    endpoint: str = "chat"
    """"chat" or "completions": where it was sent."""
    refused: int = 0
    """How many of STREAM_OPTIONS the server refused before it took one."""
    so_far_s: float | None = None
    """From before the request was sent to the last chunk, while it streams."""

    @property
    def miscounted(self) -> bool:
        """Tell whether the server's count contradicts what came: each chunk holds at least one token, except an empty last one."""
        return self.usage.completion_tokens is not None and _too_few(self.usage.completion_tokens, self.chunks)

    @property
    def streaming(self) -> bool:
        return self.seconds is None and self.finish is None and self.error is None

    def stopped(self) -> "Turn":
        """Return the turn as it ends when the user stops it; what came stays."""
        return replace(self, finish="stopped", seconds=self.so_far_s)


@dataclass(frozen=True, slots=True)
class Conversation:
    system: str = ""
    turns: tuple[Turn, ...] = ()

    def answered(self, turn: Turn) -> "Conversation":
        """Return the conversation with one more turn."""
        return replace(self, turns=(*self.turns, turn))

    def with_system(self, system: str) -> "Conversation":
        return replace(self, system=system)

    @property
    def endpoint(self) -> str:
        """The endpoint of the next turn: completions once the model has turned out to have no chat template."""
        return self.turns[-1].endpoint if self.turns else "chat"

    @property
    def refused(self) -> int:
        """How many of STREAM_OPTIONS the server has refused; these are not tried again."""
        return self.turns[-1].refused if self.turns else 0


def _too_few(tokens: int, chunks: int) -> bool:
    return tokens + 2 < chunks


def messages(conversation: Conversation, asked: str) -> list[dict[str, str]]:
    """Return the `messages` of the next request.

    Turns without a reply (failed, stopped at once) are left out whole, since templates demand that user and assistant alternate;
    reasoning is never sent back.
    """
    sent = [{"role": "system", "content": conversation.system}] if conversation.system.strip() else []
    for turn in conversation.turns:
        if turn.reply.strip():
            sent += [{"role": "user", "content": turn.asked}, {"role": "assistant", "content": turn.reply}]
    return [*sent, {"role": "user", "content": asked}]


def plain_prompt(conversation: Conversation, asked: str) -> str:
    """Return the prompt for a model without a chat template: the text so far, to be continued, without roles."""
    before = [turn.asked + turn.reply for turn in conversation.turns if turn.reply.strip()]
    return "\n\n".join([*([conversation.system] if conversation.system.strip() else []), *before, asked])


def request(
    conversation: Conversation,
    asked: str,
    *,
    model: str,
    endpoint: str = "chat",
    max_tokens: int | None = None,
    extra: Mapping[str, Any] | None = None,
    options: Mapping[str, bool] = STREAM_OPTIONS[0],
) -> tuple[str, dict[str, Any]]:
    """Path and body of the next streamed request; `options` is one of STREAM_OPTIONS."""
    body: dict[str, Any] = {"model": model, "stream": True}
    if options:
        body["stream_options"] = dict(options)
    if endpoint == "completions":
        body |= {"prompt": plain_prompt(conversation, asked), "max_tokens": max_tokens or COMPLETION_TOKENS}
    else:
        body |= {"messages": messages(conversation, asked)}
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
    return f"/v1/{'completions' if endpoint == 'completions' else 'chat/completions'}", body | dict(extra or {})


def lacks_chat_template(status: int | None, message: str) -> bool:
    """Tell whether an error says that the model can't be asked in turns.

    The words are transformers' and vLLM's ("default chat template is no longer allowed, so you must provide a chat template",
    "tokenizer.chat_template is not set", "The model does not support Chat Completions API"), and those of llama.cpp and SGLang.
    """
    said = message.lower().replace("_", " ")
    if "does not support chat" in said or "chat completions is not supported" in said:
        return True
    missing = (
        "must provide",
        "no longer allowed",
        "is not set",
        "not define",
        "no chat template",
        "does not have",
        "missing",
        "without",
    )
    return status in (None, 400, 404, 422, 500, 501) and "chat template" in said and any(words in said for words in missing)


def refuses_options(status: int | None, message: str) -> bool:
    """Tell whether an error says that the server does not know an option of `stream_options`.

    OpenAI's words ("Unknown parameter: 'stream_options.continuous_usage_stats'"), pydantic's ("Extra inputs are not permitted"),
    Go's ("json: unknown field").
    """
    said = message.lower()
    words = ("stream_options", "continuous_usage", "extra inputs", "extra fields", "unknown field", "unknown parameter")
    return status in (400, 422) and any(word in said for word in words)


@dataclass(slots=True)
class ReplyReader:
    """Folds the decoded objects of one stream into a Turn. `started_at` and the arrival times are of one monotonic clock."""

    asked: str
    started_at: float
    endpoint: str = "chat"
    note: str | None = None
    refused: int = 0
    usage: Usage = Usage()
    finish: str | None = None
    error: str | None = None
    chunks: int = 0
    changes: int = 0
    """Grows with each change: tells a reader of `turn` whether there is anything new."""
    _first_at: float | None = None
    _last_at: float | None = None
    _thought_from: float | None = None
    _thought_to: float | None = None
    _reply: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _splitter: ThinkingSplitter = field(default_factory=ThinkingSplitter)

    def feed(self, at: float, chunk: dict[str, Any]) -> None:
        """Take one decoded object of the event stream. Unknown shapes are skipped; an error object is kept in full."""
        if isinstance(chunk.get("usage"), dict):
            self._take_usage(chunk["usage"])
        problem = error_of(chunk)
        if problem is not None:
            self.fail(problem)
            return
        kind, text = token_of(chunk, self.endpoint)
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        if kind is not None:
            delta = choice.get("delta")
            both = delta if kind == CONTENT and isinstance(delta, dict) else {}  # the chunk at the border may carry both
            reasoning = text if kind == REASONING else _text(both.get("reasoning")) or _text(both.get("reasoning_content"))
            self.take(Delta(at, "" if kind == REASONING else text, reasoning))
        if isinstance(choice.get("finish_reason"), str):
            self.finish = clean(choice["finish_reason"])
            self.changes += 1

    def take(self, delta: Delta) -> None:
        """Take one chunk that carries a token; its text may be empty (a token that decodes to nothing)."""
        self.chunks += 1
        self.changes += 1
        self._first_at = delta.at if self._first_at is None else self._first_at
        self._last_at = delta.at
        reasoning, reply = clean(delta.reasoning, keep_newlines=True), clean(delta.text, keep_newlines=True)
        if self.endpoint == "chat" and reply:
            thought, reply, moved = self._splitter.feed(reply)
            if moved:  # a closing tag without an opening one: what was taken for the answer was the reasoning
                self._reasoning += self._reply
                self._reply = []
                self._thought_from = self._first_at
            reasoning += thought
        if reasoning:
            self._reasoning.append(reasoning)
            self._thought_from = delta.at if self._thought_from is None else self._thought_from
            self._thought_to = delta.at
        if reply:
            if self._thought_from is not None and not self._reply and reply.strip():
                self._thought_to = delta.at
            self._reply.append(reply)

    def _take_usage(self, usage: Mapping[str, Any]) -> None:
        self.usage = Usage(
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            _count(_within(usage, "prompt_tokens_details", "cached_tokens")),
            # 0 beside a reasoning that is there is not a measurement
            _count(_within(usage, "completion_tokens_details", "reasoning_tokens")) or None,
        )
        self.changes += 1

    def fail(self, message: str) -> None:
        """End the turn with an error; what came before stays."""
        self.error = clean(message, keep_newlines=True).strip() or "the server gave no reason"
        self.changes += 1

    def turn(self, ended_at: float | None = None) -> Turn:
        """Return the turn as it is now, or as it was when it ended."""
        thought, reply = ("", "") if ended_at is None else self._splitter.flush()
        replied = ("".join(self._reply) + reply).lstrip("\n") if self._reasoning or thought else "".join(self._reply) + reply
        tokens, first, last = self.usage.completion_tokens, self._first_at, self._last_at
        lasted = last - first if first is not None and last is not None and last > first else None
        known = tokens if tokens is not None and not _too_few(tokens, self.chunks) else None
        rate = (known - 1) / lasted if known is not None and known > 1 and lasted is not None else None
        thinking = None if self._thought_from is None or self._thought_to is None else self._thought_to - self._thought_from
        return Turn(
            asked=self.asked,
            reply=replied,
            reasoning=("".join(self._reasoning) + thought).strip("\n"),
            ttft_ms=None if first is None else (first - self.started_at) * 1000,
            thought_s=thinking,
            tokens_s=rate,
            chunks_s=(self.chunks - 1) / lasted if lasted is not None and self.chunks > 1 else None,
            usage=self.usage,
            seconds=None if ended_at is None else ended_at - self.started_at,
            finish=self.finish if ended_at is not None else None,
            error=self.error if ended_at is not None else None,
            note=self.note,
            chunks=self.chunks,
            endpoint=self.endpoint,
            refused=self.refused,
            so_far_s=last - self.started_at if last is not None and ended_at is None else None,
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _within(value: Mapping[str, Any], outer: str, inner: str) -> object:
    found = value.get(outer)
    return found.get(inner) if isinstance(found, Mapping) else None

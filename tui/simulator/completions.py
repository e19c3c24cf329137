"""What a request for a completion asks, checked as vLLM checks it, and the reply that the simulated model gives."""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui.simulator.responder import answer, continuation, filler
from tui.simulator.scenarios import Scenario

_BASE_TOKENS = 65_536
"""The longest reply when none is asked for."""


_PIECE = re.compile(r" ?[A-Za-z]{1,6}| ?[0-9]{1,3}|\n+| ?[^A-Za-z0-9\s]{1,2}|\s", re.ASCII)


def split(text: str) -> list[str]:
    """Split the text into tokens; joined they are the text again."""
    return _PIECE.findall(text)


class Vocabulary:
    """Numbers for tokens, given out as they are met."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._pieces: list[str] = []

    def encode(self, text: str) -> list[int]:
        return [self._id(piece) for piece in split(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """Join the tokens' texts; an id that was never given out reads as a word of its own."""
        return "".join(self._pieces[number] if 0 <= number < len(self._pieces) else f" w{number}" for number in ids)

    def _id(self, piece: str) -> int:
        number = self._ids.get(piece)
        if number is None:
            number = self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return number


class Refusal(Exception):
    """A request that is answered with an error object."""

    def __init__(self, message: str, *, kind: str = "BadRequestError", param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self._error = {"message": message, "type": kind, "param": param, "code": status}
        self.status = status

    @classmethod
    def invalid(cls, kind: str, place: str, message: str, given: str) -> "Refusal":
        detail = f"{{'type': '{kind}', 'loc': '{place}', 'msg': '{message}', 'input': '{given}'}}"
        return cls(f"1 validation error:\n  {detail}", kind="Bad Request", param=place)

    @classmethod
    def parameter(cls, message: str, name: str, value: object) -> "Refusal":
        return cls(f"{message} (parameter={name}, value={value})", param=name)

    def body(self, *, spaced: bool = False) -> bytes:
        return json.dumps({"error": self._error}, separators=None if spaced else (",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class Completion:
    """A checked request: its prompt's tokens, and the reply's, the first `thinking` of which are reasoning."""

    chat: bool
    prompt: Sequence[int]
    reply: Sequence[str]
    finish: str
    thinking: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    n: int


def read_chat(body: Mapping[str, Any], scenario: Scenario, vocabulary: Vocabulary) -> Completion:
    """Check a request for a chat completion. Raises Refusal."""
    model = scenario.model
    _check_model(body, scenario)
    if "messages" not in body:
        raise Refusal.invalid("missing", "body.messages", "Field required", f"<dict of {len(body)} items>")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise Refusal.invalid("list_type", "body.messages", "Input should be a valid list", str(messages)[:80])
    if model.kind == "base":
        raise Refusal(
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
            "tokenizer does not define one."
        )
    if not messages:
        raise Refusal("Cannot apply chat template to an empty conversation. Provide at least one message.")
    turns = [(str(turn.get("role", "user")), _text(turn.get("content"))) for turn in messages if isinstance(turn, dict)]
    text = "".join(f"<|im_{role}|>{role}<|im_middle|>{said}<|im_end|>" for role, said in turns) + "<|im_assistant|>"
    said = answer(turns, kind=model.kind, seed=_seed(body, text))
    thought = split(said.thought) if model.reasoning else []
    content = _hostile(said.text) if scenario.garbage else said.text
    return _complete(body, scenario, vocabulary.encode(text), thought, content, chat=True)


def read_completion(body: Mapping[str, Any], scenario: Scenario, vocabulary: Vocabulary) -> Completion:
    """Check a request for a completion. Raises Refusal."""
    _check_model(body, scenario)
    prompt = body.get("prompt")
    if prompt in (None, "", []):
        raise Refusal("Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)", param="prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, list):
        tokens = [int(token) for token in prompt]
        text = vocabulary.decode(tokens)
    else:
        text = str(prompt)
        tokens = vocabulary.encode(text)
    content = continuation(text, kind=scenario.model.kind, seed=_seed(body, text))
    return _complete(body, scenario, tokens, [], _hostile(content) if scenario.garbage else content, chat=False)


def _complete(
    body: Mapping[str, Any], scenario: Scenario, prompt: list[int], thought: list[str], content: str, *, chat: bool
) -> Completion:
    limit = scenario.model.max_model_len
    asked = (
        _integer(body, "max_completion_tokens") if body.get("max_completion_tokens") is not None else _integer(body, "max_tokens")
    )
    if asked is not None and asked < 1:
        raise Refusal.parameter(f"max_tokens must be at least 1, got {asked}.", "max_tokens", asked)
    if asked is not None and asked > limit:
        message = f"max_tokens={asked} cannot be greater than max_model_len={limit}. Please request fewer output tokens."
        raise Refusal.parameter(message, "max_tokens", asked)
    if len(prompt) >= limit:
        message = (
            f"This model's maximum context length is {limit} tokens. However, your prompt contains at least {limit + 1} input "
            f"tokens, "
            "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
        )
        raise Refusal.parameter(message, "input_tokens", limit + 1)
    if asked is not None and asked + len(prompt) > limit:
        message = (
            f"This model's maximum context length is {limit} tokens. However, you requested {asked} output tokens and your prompt "
            f"contains at least {limit - asked + 1} input tokens, for a total of at least {limit + 1} tokens. Please reduce "
            f"the length "
            "of the input prompt or the number of requested output tokens."
        )
        raise Refusal.parameter(message, "input_tokens", limit - asked + 1)
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        raise Refusal.parameter(f"temperature must be non-negative, got {float(temperature)}.", "temperature", float(temperature))
    room = min(asked if asked is not None else (16 if not chat else _BASE_TOKENS), limit - len(prompt))
    least = room if body.get("ignore_eos") else min(room, _integer(body, "min_tokens") or 0)
    reply = [*thought, *split(_stopped(content, body.get("stop")))]
    if len(reply) < least:
        seed = _seed(body, content) + len(prompt)
        reply += split(filler(least - len(reply), seed))
        reply = reply[:least] if len(reply) >= least else reply
    finish = "stop"
    if len(reply) >= room and (len(reply) > room or body.get("ignore_eos")):
        reply, finish = reply[:room], "length"
    options = body.get("stream_options") or {}
    return Completion(
        chat=chat,
        prompt=prompt,
        reply=reply or [""],
        finish=finish,
        thinking=min(len(thought), len(reply)),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        n=max(1, min(16, _integer(body, "n") or 1)),
    )


def _check_model(body: Mapping[str, Any], scenario: Scenario) -> None:
    name = body.get("model")
    if name is not None and name not in (scenario.model.name, ""):
        message = f"The model `{name}` does not exist. Valid aliases: {scenario.model.name}."
        raise Refusal(message, kind="NotFoundError", param="model", status=404)


def _integer(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        message = "Input should be a valid integer, unable to parse string as an integer"
        raise Refusal.invalid("int_parsing", f"body.{name}", message, str(value)[:80])
    return int(value)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _stopped(text: str, stop: object) -> str:
    for mark in [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []:
        if isinstance(mark, str) and mark:
            text = text.partition(mark)[0]
    return text


def _seed(body: Mapping[str, Any], text: str) -> int:
    seed = body.get("seed")
    return seed if isinstance(seed, int) else zlib.crc32(text.encode("utf-8", "replace"))


def _hostile(text: str) -> str:
    """Return the reply among what would write to a terminal or into markup."""
    return (
        f"\x1b]0;owned\x07\x1b[2J[bold red]{text}[/] \u202egnihtyna\u202c \u200b[link=file:///etc/passwd]x[/link] \x9b31m \x00\x08"
    )

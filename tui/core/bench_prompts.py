"""Prompts of a user's file, and other JSON of the user's that is sent on."""

import json
import math
from typing import Any, NamedTuple

from tui.core.bench_limits import MOST_TOKENS
from tui.core.presentation import counted

DEEPEST = 64
"""Levels of a value that is sent on: whoever reads it recurses through them, here, on the host and in the server."""


def read_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises ValueError for what is no JSON, for NaN and infinity, and for what is nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if (wrong := why_unsendable(value)) is not None:
        raise ValueError(wrong)
    return value


TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"


def why_unsendable(value: Any) -> str | None:
    """Return why a value cannot be sent as JSON; None if it can."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for inside in level:
            if isinstance(inside, dict):
                inner.extend(inside.values())
            elif isinstance(inside, list):
                inner.extend(inside)
            elif isinstance(inside, float) and not math.isfinite(inside):
                return "NaN and infinity are not JSON"
        if not inner:
            return None
        level = inner
    return TOO_DEEP


SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "chatgpt": "assistant",
}


PLAIN = ("prompt", "text", "question", "instruction")
"""Names under which an entry has its prompt as a string."""


class GivenPrompts(NamedTuple):
    """The prompts of a file, and what a reader of the figures must know of them."""

    prompts: list[dict[str, Any]]
    notes: tuple[str, ...]

    def out(self, output_tokens: int) -> str:
        """Return how long the file wants replies to be: `40` or `12 to 300` tokens; empty if it does not say.

        An entry that says nothing asks for `output_tokens`.
        """
        if not any("output_tokens" in prompt for prompt in self.prompts):
            return ""
        asked = [int(prompt.get("output_tokens", output_tokens)) for prompt in self.prompts]
        least, most = min(asked), max(asked)
        return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def parse_prompts(text: str, endpoint: str) -> GivenPrompts:
    """Return `{"prompt": …}` or `{"messages": […]}` objects, with `output_tokens` if the file says how long a reply should be.

    Accepts `{"prompt"}`, `{"text"}`, `{"question"}`, `{"messages"}`, ShareGPT's `{"conversations": [{"from", "value"}]}` (its first
    human turn), and plain JSON strings. An empty one, such as a conversation without a human turn, is left out, as
    `vllm bench serve` does, and counted in the notes. Raises ValueError naming the line that is none of these.
    """
    stripped = text.lstrip()
    if stripped.startswith("["):
        try:
            entries = list(enumerate(json.loads(stripped), 1))
        except ValueError as error:
            raise ValueError(f"is neither JSON lines nor a JSON array: {error}") from None
        except RecursionError:
            first = text[: len(text) - len(stripped)].count("\n") + 1
            raise ValueError(f"line {first} begins an array: {TOO_DEEP}") from None
        word = "entry"
    else:
        entries = []
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    entries.append((number, json.loads(line)))
                except ValueError as error:
                    raise ValueError(f"line {number} is not JSON: {error}") from None
                except RecursionError:
                    raise ValueError(f"line {number}: {TOO_DEEP}") from None
        word = "line"
    found = []
    conversations = False
    for number, entry in entries:
        if (wrong := why_unsendable(entry)) is not None:
            raise ValueError(f"{word} {number}: {wrong}")
        try:
            prompt = _prompt(entry)
        except ValueError as error:
            raise ValueError(f"{word} {number}: {error}") from None
        if prompt is None and _is_empty(entry):
            continue
        if prompt is None:
            raise ValueError(f"{word} {number} has no prompt, messages or conversations")
        if "messages" in prompt and endpoint == "completions":
            raise ValueError(f"{word} {number} has messages, which need --endpoint chat")
        conversations = conversations or (isinstance(entry, dict) and "conversations" in entry and "output_tokens" not in prompt)
        found.append(prompt)
    skipped = len(entries) - len(found)
    if not found:
        raise ValueError("holds no prompts" + (f": {counted(skipped, 'entry', 'entries')} without one" if skipped else ""))
    notes = []
    if skipped:
        notes.append(f"{skipped:,} of the {counted(len(entries), 'entry', 'entries')} of the file had no prompt: left out")
    if conversations:
        notes.append(
            "replies to the file's conversations have the asked length: vLLM's client takes that of the answers in the file"
        )
    return GivenPrompts(found, tuple(notes))


def _is_empty(entry: Any) -> bool:
    """Return whether an entry without a prompt has a place for one."""
    if not isinstance(entry, dict):
        return isinstance(entry, str)
    turns = entry.get("conversations")
    if isinstance(turns, list):
        return all(isinstance(turn, dict) for turn in turns)
    return any(name in entry and entry[name] in ("", [], None) for name in ("messages", *PLAIN))


def _prompt(entry: Any) -> dict[str, Any] | None:
    """Return the prompt of an entry; None if it has none. Raises ValueError for an invalid length."""
    if isinstance(entry, str):
        return {"prompt": entry} if entry else None
    if not isinstance(entry, dict):
        return None
    made: dict[str, Any] = {}
    for name in ("output_tokens", "output_len", "max_tokens"):
        length = entry.get(name)
        if length is None:
            continue
        if isinstance(length, bool) or not isinstance(length, int) or not 0 < length <= MOST_TOKENS:
            raise ValueError(f"{name} must be a whole number from 1 to {MOST_TOKENS:,}, not {json.dumps(length)[:40]}")
        made["output_tokens"] = length
        break
    messages = entry.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(m, dict) and "role" in m for m in messages):
        return {**made, "messages": messages}
    turns = entry.get("conversations")
    if isinstance(turns, list):
        for turn in turns:
            if (
                isinstance(turn, dict)
                and SPEAKERS.get(str(turn.get("from"))) == "user"
                and isinstance(turn.get("value"), str)
                and turn["value"]
            ):
                return {**made, "prompt": turn["value"]}
        return None
    for name in PLAIN:
        if isinstance(entry.get(name), str) and entry[name]:
            return {**made, "prompt": entry[name]}
    return None

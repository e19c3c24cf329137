"""Prompts of a user's file: JSON lines, or one JSON array, in the shapes that benchmark data sets come in."""

import json
from typing import Any

from tui.core.bench_limits import MOST_TOKENS
from tui.core.plain_json import TOO_DEEP, unfit

SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "chatgpt": "assistant",
}


def parse_prompts(text: str, endpoint: str) -> list[dict[str, Any]]:
    """`{"prompt": …}` or `{"messages": […]}` objects, `output_tokens` with them where the file says how long a reply should be.

    Takes `{"prompt"}`, `{"text"}`, `{"question"}`, `{"messages"}`, ShareGPT's `{"conversations": [{"from", "value"}]}` (its first
    human turn, as `vllm bench serve` does), and plain JSON strings. Raises ValueError naming the line that is none of these.
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
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    entries.append((number, json.loads(line)))
                except ValueError as error:
                    raise ValueError(f"line {number} is no JSON: {error}") from None
                except RecursionError:
                    raise ValueError(f"line {number}: {TOO_DEEP}") from None
        word = "line"
    found = []
    for number, entry in entries:
        if (wrong := unfit(entry)) is not None:
            raise ValueError(f"{word} {number}: {wrong}")
        try:
            prompt = _prompt(entry)
        except ValueError as error:
            raise ValueError(f"{word} {number}: {error}") from None
        if prompt is None:
            raise ValueError(f"{word} {number} has no prompt, messages or conversations")
        if "messages" in prompt and endpoint == "completions":
            raise ValueError(f"{word} {number} has messages, which need --endpoint chat")
        found.append(prompt)
    if not found:
        raise ValueError("holds no prompts")
    return found


def _prompt(entry: Any) -> dict[str, Any] | None:
    """None where an entry holds no prompt. Raises ValueError for a length that is none."""
    if isinstance(entry, str):
        return {"prompt": entry}
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
            if isinstance(turn, dict) and SPEAKERS.get(str(turn.get("from"))) == "user" and isinstance(turn.get("value"), str):
                return {**made, "prompt": turn["value"]}
        return None
    for name in ("prompt", "text", "question", "instruction"):
        if isinstance(entry.get(name), str) and entry[name]:
            return {**made, "prompt": entry[name]}
    return None

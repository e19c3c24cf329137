"""Prompts near the longest length that a server takes: what is known of its tokenizer is checked there before they are sent.

A few per cent between two short texts are hundreds of tokens at the server's limit, and a prompt beyond it is refused. Python 3.8.
"""

import json
import math
from typing import Any, Dict, Optional, Tuple

from tui.probe.load_ask import Caller
from tui.probe.load_prompts import PATHS, Lengths, Prompts

TRIED = (0.9, 0.5)
"""Shares of the wished length at which a prompt is counted; the next one where the server refuses the one before."""

SPREAD = 0.02
"""By how much of their length prompts of estimated length differ among themselves, at most (of 4,000 tokens and more)."""

UNCOUNTED = 0.5
"""The share of the wished length that is aimed at where the server counts nothing."""

NUMBER = -3
"""Of the prompt that is counted; those of a run begin at 0, the calibration's own are -1 and -2."""


def fitted(
    caller: Caller, plan: Dict[str, Any], fields: Dict[str, Any], lengths: Dict[str, Any], wanted: int
) -> Tuple[Dict[str, Any], int]:
    """What is known of the lengths, corrected by one prompt near `wanted` tokens (the shared prefix is on top of them), and the
    tokens to aim at, so that none is longer than that."""
    if plan.get("style") == "tokens" or plan.get("prompts"):
        return lengths, wanted
    whole = wanted + int(plan.get("shared_prefix") or 0)
    for share in TRIED:
        asked = max(1, int(wanted * share))
        prompts = Prompts(dict(plan, input_tokens=asked), Lengths(lengths), fields)
        body = json.loads(prompts.body(NUMBER, 1)[0].decode("ascii"))
        body.pop("stream_options", None)
        body["stream"] = False
        count = _count(caller, PATHS[plan["endpoint"]], body)
        if count is not None:
            break
    else:
        return lengths, wanted if lengths["exact"] else max(1, int(wanted * UNCOUNTED))
    if lengths["exact"]:
        # what the template adds, or what joins across words
        over = math.ceil((count - asked - (whole - wanted)) / share)
        return dict(lengths, overhead=lengths["overhead"] + max(0, over)), wanted
    text = body["messages"][0]["content"] if plan["endpoint"] == "chat" else body["prompt"]
    per_word = max(0.2, (count - lengths["overhead"]) / max(1, len(text.split(" "))))
    return dict(lengths, per_word=per_word), max(1, wanted - math.ceil(whole * SPREAD))


def _count(caller: Caller, path: str, body: Dict[str, Any]) -> Optional[int]:
    """The server's count of a prompt; None where it refuses it or tells none."""
    try:
        status, reply = caller.ask_json("POST", path, body)
    except (OSError, ValueError):
        return None
    usage = reply.get("usage") if status == 200 and isinstance(reply, dict) else None
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else None

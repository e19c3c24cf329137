"""What is asked against what the server says of its models, before anything is sent: their names, and their longest length.

Python 3.8.
"""

import json
import math
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from tui.probe.load_prompts import PATHS, Lengths, Prompts, Refused, names_in
from tui.probe.load_server import Caller
from tui.wire.urls import askable

TOO_LONG = "too_long"
"""The kind of refusal where prompts and replies as asked are more than the server takes."""


def fit(caller: Caller, plan: Dict[str, Any]) -> Tuple[Optional[int], List[str]]:
    """The server's limit for prompt and reply together in tokens (None where it doesn't say), and a note on a model that it does
    not list. Raises Refused where no request of the plan, its model being settled, is below that limit."""
    try:
        status, reply = caller.ask_json("GET", "/v1/models")
    except (OSError, ValueError):
        return None, []
    entries, _ = askable(reply.get("data") if status == 200 and isinstance(reply, dict) else None)
    longest: Optional[int] = None
    for entry in entries:
        if entry["id"] == plan["model"]:
            limit = entry.get("max_model_len")
            if isinstance(limit, int) and limit > 0:
                longest = limit
            break
    else:
        names = [entry["id"] for entry in entries]
        if names:  # a proxy may serve what it doesn't list: it is for its answers to refuse it
            return None, ["the server does not list the model %s: it lists %s" % (plan["model"], names_in(names))]
    if longest is not None and (words := _too_long(plan, longest)):
        raise Refused(TOO_LONG, words)
    return longest, []


def _too_long(plan: Dict[str, Any], longest: int) -> str:
    """Why nothing of the plan fits; empty where something does. The prompts of a file are not counted: their replies alone are."""
    extra = plan.get("extra_body") or {}
    output = extra.get("max_tokens", extra.get("max_completion_tokens", plan["output_tokens"]))
    if not isinstance(output, int):
        return ""  # the server will say what it thinks of it
    limit = "than the %s that the server takes together (max_model_len)" % "{:,}".format(longest)
    given = plan.get("prompts")
    if given:
        least = min(int(one.get("output_tokens") or output) for one in given)
        return "replies of {:,} tokens and a prompt are more ".format(least) + limit if least >= longest else ""
    prompt = int(plan["input_tokens"]) + int(plan.get("shared_prefix") or 0)
    if prompt + output <= longest:
        return ""
    return "a prompt of {:,} and a reply of {:,} tokens are more ".format(prompt, output) + limit


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


NOT_NOW = (429, 502, 503, 504)
"""Statuses that another time, and not another request, would change: the server's, or those of what stands before it."""

AGAIN_S = (1.0, 2.0, 4.0)
"""What is waited before each further attempt, over all requests of one caller: a server that is down is not asked for long."""


class Patient(Caller):
    """Asks through another caller, and again where the server has no room."""

    def __init__(self, caller: Caller, wait: Callable[[float], bool], tell: Callable[[str], None]) -> None:
        """`wait` waits for so many seconds, and says whether to go on; `tell` is told in words what is waited for, and with no
        words that it is over."""
        self._caller = caller
        self._go_on = wait
        self._tell = tell
        self._left: Iterator[float] = iter(AGAIN_S)

    def ask(
        self, method: str, path: str, body: Optional[Dict[str, Any]] = None, within_s: Optional[float] = None
    ) -> Tuple[int, bytes]:
        status, reply = self._caller.ask(method, path, body, within_s)
        waited = False
        while status in NOT_NOW:
            seconds = next(self._left, None)
            if seconds is None:
                break
            self._tell("the server answers %d, asking again" % status)
            waited = True
            if not self._go_on(seconds):
                break
            status, reply = self._caller.ask(method, path, body, within_s)
        if waited:
            self._tell("")
        return status, reply

    def full(self, path: str) -> str:
        return self._caller.full(path)

    def close(self) -> None:
        self._caller.close()

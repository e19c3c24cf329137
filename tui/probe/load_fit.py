"""What is asked against what the server says of its models, before anything is sent: their names, and their longest length.

Python 3.8.
"""

from typing import Any, Dict, List, Optional, Tuple

from tui.probe.load_ask import Caller
from tui.probe.load_prompts import Refused, names_in
from tui.wire.models import askable

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

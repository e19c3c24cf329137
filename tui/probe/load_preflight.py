"""Ask a server, before anything is measured, what it takes: its model, the fields of a request, the longest prompt.

Python 3.8.
"""

import json
import math
import re
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from tui.probe.load_prompts import PATHS, PlanRefused, Prompts, TokenLengths, uncounted_lengths
from tui.probe.load_server import ApiCaller, json_of
from tui.wire.event_stream import error_of
from tui.wire.urls import askable

NOT_NOW = (429, 502, 503, 504)
"""Statuses that another time, and not another request, would change: the server's, or those of what stands before it."""

AGAIN_S = (1.0, 2.0, 4.0)
"""What is waited before each further attempt, over all requests of one caller: a server that is down is not asked for long."""

LISTED = 6
"""Models that a refusal names: a server with adapters has thousands."""

LISTED_CHARACTERS = 64
"""Of each name; the longest that is taken is one of 4 KiB."""

QUOTED_OF, QUOTED = 2000, 160
"""So many bytes of a reply without words of an error are looked at, and so many characters of them told."""

TRIAL = "Say a word."

TRIAL_IDS = [1, 2, 3, 4]

REJECTIONS = (400, 422)
"""Status codes with which a server rejects a field of a request."""


class RetryingCaller(ApiCaller):
    """Ask through another caller, and again while the server has no room."""

    def __init__(self, caller: ApiCaller, wait: Callable[[float], bool], tell: Callable[[str], None]) -> None:
        """`wait` waits for so many seconds and returns whether to go on; `tell` is told what is waited for, and an empty string
        once it is over.
        """
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


def settle_model(caller: ApiCaller, plan: Dict[str, Any]) -> None:
    """Set `plan["model"]` if it is not. Raises PlanRefused if the server has several and none was named."""
    if plan.get("model"):
        return
    status, reply = caller.ask_json("GET", "/v1/models")
    entries, refused = askable(reply.get("data") if isinstance(reply, dict) else None)
    names = [entry["id"] for entry in entries]
    if status != 200:
        asked = "GET %s answers %d" % (caller.full("/v1/models"), status)
        hint = {401: "", 403: "", 404: ": is this the server's base URL?"}.get(
            status, ": is the server ready? Else name a model with --model"
        )
        raise PlanRefused("http_%d" % status, asked + hint)
    if not names:
        raise PlanRefused("http_%d" % status, "%s: name one with --model" % (refused or "GET /v1/models lists no model"))
    roots = {str(entry.get("root")) for entry in entries}
    if len(names) > 1 and len(roots) > 1:
        raise PlanRefused("model", "the server has several models, name one with --model: %s" % names_in(names))
    plan["model"] = names[0]


def names_in(names: List[str]) -> str:
    """Return the names of models, as many as a line takes."""
    listed = ", ".join(name[:LISTED_CHARACTERS] for name in names[:LISTED])
    return listed + (" and %d more" % (len(names) - LISTED) if len(names) > LISTED else "")


def settle_fields(caller: ApiCaller, plan: Dict[str, Any]) -> Tuple[Dict[str, Any], List[str]]:
    """Return the fields that this server takes beside the prompt, and notes on those it doesn't.

    A first request of four tokens tries them, and a second one, streamed, what only a stream has; a field that the server rejects
    is left out. Raises Refused if none of the forms works.
    """
    # not both: ignore_eos alone holds a reply to its length, and min_tokens makes vLLM mask logits at every step, which is not free
    plain = {"max_tokens": "$asked", "stream": True, "stream_options": {"include_usage": True}}
    forms: List[Tuple[Dict[str, Any], str]] = [
        (dict(plain, ignore_eos=True), ""),
        (dict(plain, min_tokens="$asked"), "ignore_eos is not accepted, min_tokens is"),
        (plain, "ignore_eos is not accepted: replies may end before the asked length"),
        (
            {"max_completion_tokens" if name == "max_tokens" else name: value for name, value in plain.items()},
            "neither ignore_eos nor max_tokens is accepted: replies may end before the asked length",
        ),
    ]
    if not plan.get("ignore_eos", True):
        forms = [(plain, ""), forms[3]]
    refused: Optional[PlanRefused] = None
    for fields, note in forms:
        body = _trial(plan, fields)
        body.pop("stream_options", None)
        body["stream"] = False
        try:
            status, data = caller.ask("POST", PATHS[plan["endpoint"]], body)
        except (OSError, ValueError) as error:
            raise PlanRefused("connect", str(error)) from None
        words = error_of(json_of(data))
        if status == 200 and words is None:
            fields, refusal = _streamed(caller, plan, fields)
            return fields, [told for told in (note, refusal) if told]
        refused = refused or PlanRefused("http_%d" % status, words or _text_of(data) or "no reason given")
        if status not in REJECTIONS:
            break
    assert refused is not None
    raise refused


def _trial(plan: Dict[str, Any], fields: Dict[str, Any]) -> Dict[str, Any]:
    """Return the body of a request for four tokens."""
    return Prompts(plan, uncounted_lengths(), fields).fields_for(TRIAL if plan.get("style") != "tokens" else TRIAL_IDS, 4)


def _text_of(data: bytes) -> str:
    """Return the beginning of what a reply says that is no JSON of an error, without its marks: a proxy's page, say."""
    return " ".join(re.sub(r"<[^>]*>", " ", data[:QUOTED_OF].decode("utf-8", "replace")).split())[:QUOTED]


def _streamed(caller: ApiCaller, plan: Dict[str, Any], fields: Dict[str, Any]) -> Tuple[Dict[str, Any], str]:
    """Return the fields without `stream_options` if they alone keep the server from streaming, and a note that says so.

    Only a streamed request can try them: vLLM takes them with `stream` only.
    """
    plain = {name: value for name, value in fields.items() if name != "stream_options"}
    if _refuses(caller, plan, fields) and not _refuses(caller, plan, plain):
        return plain, "stream_options are not accepted: tokens are counted by chunks"
    return fields, ""


def _refuses(caller: ApiCaller, plan: Dict[str, Any], fields: Dict[str, Any]) -> bool:
    """Return whether the server rejects a short streamed request; what else can go wrong with one is for the load to see."""
    try:
        status, reply = caller.ask("POST", PATHS[plan["endpoint"]], _trial(plan, fields))
    except (OSError, ValueError):
        return False
    if status != 200:
        return status in REJECTIONS
    first = reply.lstrip().partition(b"\n")[0]
    try:
        said = json.loads((first[5:] if first.startswith(b"data:") else first).decode("utf-8", "replace"))
    except ValueError:
        return False
    return error_of(said) is not None


TOO_LONG = "too_long"
"""The kind of refusal where prompts and replies as asked are more than the server takes."""


def check_lengths(caller: ApiCaller, plan: Dict[str, Any]) -> Tuple[Optional[int], List[str]]:
    """Return the server's limit for prompt and reply together in tokens, and notes on a model that it does not list.

    The limit is None if the server tells none. Raises PlanRefused if no request of the plan, whose model is settled, is below it.
    """
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
        raise PlanRefused(TOO_LONG, words)
    return longest, []


def _too_long(plan: Dict[str, Any], longest: int) -> str:
    """Say why nothing of the plan fits; return an empty string if something does.

    The prompts of a file are not counted: their replies alone are.
    """
    extra = plan.get("extra_body") or {}
    output = extra.get("max_tokens", extra.get("max_completion_tokens", plan["output_tokens"]))
    if not isinstance(output, int):
        return ""  # the server will say what it thinks of it
    limit = "than the %s that the server takes together (max_model_len)" % "{:,}".format(longest)
    given = plan.get("prompts")
    if given:
        least = min(int(prompt.get("output_tokens") or output) for prompt in given)
        return "replies of {:,} tokens and a prompt are more ".format(least) + limit if least >= longest else ""
    prompt = int(plan["input_tokens"]) + int(plan.get("shared_prefix") or 0)
    if prompt + output <= longest:
        return ""
    return "a prompt of {:,} and a reply of {:,} tokens are more ".format(prompt, output) + limit


TRIED = (0.9, 0.5)
"""Shares of the wished length at which a prompt is counted; the next one if the server refuses the one before."""

SPREAD = 0.02
"""By how much of their length prompts of estimated length differ among themselves, at most (of 4,000 tokens and more)."""

UNCOUNTED = 0.5
"""The share of the wished length that is aimed at if the server counts nothing."""

NUMBER = -3
"""Of the prompt that is counted; those of a run begin at 0, the calibration's own are -1 and -2."""


def fit_longest(
    caller: ApiCaller, plan: Dict[str, Any], fields: Dict[str, Any], lengths: Dict[str, Any], wanted: int
) -> Tuple[Dict[str, Any], int]:
    """Correct what is known of the lengths by one prompt near `wanted` tokens, so that none of a run is longer than that.

    Returns the corrected lengths and the tokens to aim at; the shared prefix comes on top of `wanted`.
    """
    if plan.get("style") == "tokens" or plan.get("prompts"):
        return lengths, wanted
    whole = wanted + int(plan.get("shared_prefix") or 0)
    for share in TRIED:
        asked = max(1, int(wanted * share))
        prompts = Prompts(dict(plan, input_tokens=asked), TokenLengths(lengths), fields)
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


def _count(caller: ApiCaller, path: str, body: Dict[str, Any]) -> Optional[int]:
    """Return the server's count of a prompt; None if it refuses it or tells none."""
    try:
        status, reply = caller.ask_json("POST", path, body)
    except (OSError, ValueError):
        return None
    usage = reply.get("usage") if status == 200 and isinstance(reply, dict) else None
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else None

"""The smoke run: the prompts one after the other, so that each one's TTFT is the server's and not the queue's."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from tui.core.answers import shown
from tui.core.coherence import Doubt
from tui.core.conversation import Conversation, Turn
from tui.core.smoke_prompts import CONTEXT_TOKENS, Outcome, SmokePrompt, SmokeResult, SmokeRun, judge, prompts
from tui.core.text import clean
from tui.services.chat_turn import converse
from tui.settings import SmokeSettings

if TYPE_CHECKING:
    from tui.host.api import ApiClient, ApiError

COMPLETION_TOKENS = 160
"""Asked of a model without a chat template: it continues a text until it is cut."""
MARGIN_TOKENS = 128
"""What a chat template adds around a prompt, and more."""
SHORTEST_CONTEXT = 256


async def run_smoke(api: "ApiClient", *, model: str, settings: SmokeSettings | None = None) -> AsyncGenerator[SmokeRun, None]:
    """Ask every smoke prompt and yield the growing run; the last one is finished. Closing the iterator ends the request in hand.

    A prompt whose answer takes longer than the configured time is inconclusive when it was still being written, failed when nothing
    came. After an error that is the server's and not the prompt's (nothing listens, no access), the rest is not asked.
    Raise ApiError if the server can't be reached, or demands a key, at the first prompt.
    """
    settings = settings or SmokeSettings()
    room = await _context(api, model)
    context = CONTEXT_TOKENS if room is None else min(CONTEXT_TOKENS, room // 2)
    asked = prompts(context if context >= SHORTEST_CONTEXT else None)
    run = SmokeRun(model=clean(model), planned=len(asked), started_at=time.time())
    yield run
    conversation = Conversation()
    for prompt in asked:
        turn, late = await _ask(api, conversation, prompt, model, room, settings)
        if turn.endpoint == "completions" and not conversation.turns:
            # found out only now: the rest is asked as completions from the start, this one once more in words that can be continued
            conversation = Conversation(turns=(Turn(asked="", endpoint="completions"),))
            run = replace(run, planned=sum(prompt.completion is not None for prompt in asked))
            turn, late = await _ask(api, conversation, prompt, model, room, settings)
        if prompt.completion is None and turn.endpoint == "completions":
            continue
        result = _result(prompt, turn, late)
        run = replace(run, results=(*run.results, result))
        yield run
        if turn.error is not None and turn.chunks == 0 and (gone := await _gone(api)) is not None:
            if len(run.results) == 1:
                raise gone
            break
    yield replace(run, finished=True)


async def _ask(
    api: "ApiClient", conversation: Conversation, prompt: SmokePrompt, model: str, room: int | None, settings: SmokeSettings
) -> tuple[Turn, bool]:
    """Return the finished turn, and whether its time was up. An answer that is plainly no language is cut short."""
    completion = conversation.endpoint == "completions"
    text = prompt.completion if completion else prompt.asked
    turn = Turn(asked=prompt.asked, endpoint=conversation.endpoint)
    if text is None:
        return turn, False
    limit = COMPLETION_TOKENS if completion else settings.max_tokens
    if room is not None:
        limit = max(16, min(limit, room - _tokens(text) - MARGIN_TOKENS))
    fresh = replace(conversation, system="", turns=tuple(replace(past, reply="") for past in conversation.turns))
    try:
        async with (
            asyncio.timeout(settings.timeout_s),
            aclosing(converse(api, fresh, text, model=model, max_tokens=limit)) as turns,
        ):
            doubted, reasoning_doubted = Doubt(), Doubt()
            async for turn in turns:
                nonsense = doubted.confirmed(turn.reply) or (not turn.reply and reasoning_doubted.confirmed(turn.reasoning))
                if nonsense and turn.streaming:
                    return replace(turn, finish="length", seconds=turn.so_far_s), False
    except TimeoutError:
        return replace(turn, seconds=settings.timeout_s), True
    return turn, False


def _result(prompt: SmokePrompt, turn: Turn, late: bool) -> SmokeResult:
    if late:
        outcome = Outcome.INCONCLUSIVE if turn.chunks else Outcome.FAILED
        says = "still writing when its time was up" if turn.chunks else "no token in its time"
    else:
        outcome, says = judge(prompt, turn)
        if outcome is Outcome.PASSED and prompt.name == "long context" and turn.usage.prompt_tokens:
            says = f"{turn.usage.prompt_tokens:,} tokens"
    return SmokeResult(
        name=prompt.name,
        outcome=outcome,
        says=says,
        reply=turn.reply,
        reasoning=turn.reasoning,
        seconds=turn.seconds,
        ttft_ms=turn.ttft_ms,
        asked=shown(prompt.asked, 160),
    )


async def _context(api: "ApiClient", model: str) -> int | None:
    """Return the most tokens of prompt and reply that /v1/models tells; None if it doesn't. Raise ApiError if nothing answers."""
    from tui.host.api import ApiError

    try:
        listed = (await api.get("/v1/models")).get("data")
    except ApiError as error:
        if error.kind in ("closed", "unreachable", "not_permitted", "timeout", "unauthorized"):
            raise
        return None
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and entry.get("id") == model and isinstance(entry.get("max_model_len"), int):
            return int(entry["max_model_len"])
    return None


async def _gone(api: "ApiClient") -> "ApiError | None":
    """Return why the server answers nobody, or not us; None if it does, so that only this prompt failed."""
    from tui.host.api import ApiError

    try:
        await api.get("/v1/models")
    except ApiError as error:
        return None if error.kind == "http" else error
    return None


def _tokens(text: str) -> int:
    """Return no fewer tokens than any usual tokenizer makes of an English text."""
    return len(text) // 3 + 8

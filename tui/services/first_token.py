"""The last proof of readiness: one real token."""

import re
from typing import TYPE_CHECKING

from tui.core.text import clean
from tui.host.api import ApiError

if TYPE_CHECKING:
    from tui.host.api import ApiClient

TOKEN_S = 120.0
_NOT_THIS_WAY = (400, 404, 405, 422, 501)
"""What an endpoint answers that the model, or the server, does not have; the other endpoint may do."""
_GENERATES_NOT = re.compile(
    r"does(?: not|n't) support (?:the )?(?:chat )?(?:completions?|generat)|is an? (?:embedding|pooling) model",
    re.IGNORECASE,
)
"""vLLM: "The model does not support Completions API"."""
_NO_ROUTE = re.compile(r"(?:404 Not Found|405 Method Not Allowed|501 Not Implemented)$")
_POOLING = ("/v1/embeddings", "/pooling", "/classify")
_NOT_SERVED = re.compile(r"model\b.*(?:does not exist|not found|is not served)|no such model", re.IGNORECASE)


async def one_token(api: "ApiClient", model: str) -> bool:
    """Generates one token. False where the server says that the model does not generate at all (an embedding model).

    Raises ApiError when the server fails to; its kind is "not_served" where it serves no model of that name.
    """
    refused: list[ApiError] = []
    asked = {"model": model, "max_tokens": 1}
    for path, body in (
        ("/v1/completions", {**asked, "prompt": "Hello", "temperature": 0}),
        ("/v1/chat/completions", {**asked, "messages": [{"role": "user", "content": "Hello"}]}),
    ):
        try:
            await api.post(path, body, timeout=TOKEN_S)
        except ApiError as error:
            if error.status not in _NOT_THIS_WAY:
                raise
            if error.status in (400, 404) and (
                _NOT_SERVED.search(error.message) or (model and f"`{clean(model)}`" in error.message)
            ):
                raise ApiError(error.status, error.message, "not_served") from None
            refused.append(error)
        else:
            return True
    if all(_GENERATES_NOT.search(error.message) for error in refused):
        return False
    if all(_NO_ROUTE.match(error.message) for error in refused) and await _pools(api, model):
        return False
    # An endpoint that is missing says less than one that is there and refuses.
    raise next((error for error in reversed(refused) if not _NO_ROUTE.match(error.message)), refused[-1])


async def _pools(api: "ApiClient", model: str) -> bool:
    """Whether the model does the work of a pooling model; a server of one may have no endpoint that generates."""
    for path in _POOLING:
        try:
            await api.post(path, {"model": model, "input": "Hello"}, timeout=TOKEN_S)
        except ApiError as error:
            if error.status not in _NOT_THIS_WAY:
                raise
        else:
            return True
    return False

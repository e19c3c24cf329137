"""The last proof of readiness: one real token."""

from typing import TYPE_CHECKING

from tui.host.api import ApiError

if TYPE_CHECKING:
    from tui.host.api import ApiClient

TOKEN_S = 120.0
_NO_SUCH_TASK = (400, 404, 405, 422, 501)


async def one_token(api: "ApiClient", model: str) -> bool:
    """Generates one token. False where the model does not generate at all (an embedding model).

    Raises ApiError when the server fails to.
    """
    try:
        await api.post("/v1/completions", {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}, timeout=TOKEN_S)
    except ApiError as error:
        if error.status not in _NO_SUCH_TASK:
            raise
    else:
        return True
    message = [{"role": "user", "content": "Hello"}]
    try:
        await api.post("/v1/chat/completions", {"model": model, "messages": message, "max_tokens": 1}, timeout=TOKEN_S)
    except ApiError as error:
        if error.status not in _NO_SUCH_TASK:
            raise
        return False
    return True

"""The last proof of readiness, one token: what counts as one, what ends a wait, and how often a server is asked."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from test_api import UP, Replay, recorded, reply

from tui.host.api import ApiClient, ApiError
from tui.services.chat_turn import one_token


def error(status: str, words: str) -> bytes:
    """Return an error as vLLM words it."""
    return reply(status, json.dumps({"error": {"message": words, "type": "X", "code": int(status[:3])}}))


COMPLETIONS, CHAT, EMBEDDINGS = "POST /v1/completions", "POST /v1/chat/completions", "POST /v1/embeddings"
NO_ROUTE = reply("404 Not Found", '{"detail":"Not Found"}')
NO_SUCH_MODEL = error("404 Not Found", "The model `wrong` does not exist.")
EMBEDS = {
    COMPLETIONS: error("400 Bad Request", "The model does not support Completions API"),
    CHAT: error("501 Not Implemented", "The model does not support Chat Completions API"),
}
NO_TEMPLATE = error("400 Bad Request", "default chat template is no longer allowed, so you must provide a chat template")
VECTOR = reply("200 OK", '{"object": "list", "data": [{"embedding": [0.1]}]}')


@pytest.fixture
async def server() -> AsyncIterator[Replay]:
    async with Replay() as replay:
        yield replay


@pytest.mark.parametrize(
    ("answers", "generates"),
    [
        ({COMPLETIONS: recorded("completions")}, True),
        ({COMPLETIONS: NO_ROUTE, CHAT: recorded("completions")}, True),
        (EMBEDS, False),
        ({COMPLETIONS: NO_ROUTE, CHAT: NO_ROUTE, EMBEDDINGS: VECTOR}, False),
    ],
)
async def test_one_token(server: Replay, answers: dict[str, bytes], generates: bool) -> None:
    server.answers = answers
    async with aclosing(_Api(server)) as api:
        assert await one_token(api.client, "m") is generates


@pytest.mark.parametrize(
    ("answers", "kind", "said"),
    [
        ({COMPLETIONS: NO_SUCH_MODEL, CHAT: NO_SUCH_MODEL}, "not_served", "does not exist"),
        ({COMPLETIONS: NO_ROUTE, CHAT: NO_SUCH_MODEL}, "not_served", "does not exist"),
        ({COMPLETIONS: NO_ROUTE, CHAT: NO_ROUTE}, "http", "404 Not Found"),
        ({COMPLETIONS: NO_ROUTE, CHAT: NO_TEMPLATE}, "http", "chat template"),
        ({COMPLETIONS: error("422 Unprocessable Entity", "max_tokens: extra field")}, "http", "extra field"),
        ({COMPLETIONS: error("400 Bad Request", "no"), CHAT: error("400 Bad Request", "nor this")}, "http", "nor this"),
        ({COMPLETIONS: EMBEDS[COMPLETIONS], CHAT: error("400 Bad Request", "no memory")}, "http", "no memory"),
        ({COMPLETIONS: error("503 Service Unavailable", "engine is dead")}, "http", "engine is dead"),
        ({COMPLETIONS: error("401 Unauthorized", "who are you")}, "unauthorized", "who are you"),
    ],
)
async def test_no_token(server: Replay, answers: dict[str, bytes], kind: str, said: str) -> None:
    server.answers = {CHAT: NO_ROUTE, **answers}
    async with aclosing(_Api(server)) as api:
        with pytest.raises(ApiError) as caught:
            await one_token(api.client, "wrong")
    assert caught.value.kind == kind
    assert said in caught.value.message


class _Api:
    def __init__(self, server: Replay) -> None:
        self.client = ApiClient(server.url, None)

    async def aclose(self) -> None:
        await self.client.close()


async def wait(folder: Path, server: Replay, more: str = "", *words: str) -> tuple[int, str, str]:
    """`readyroom wait` as installed, for a server on this machine without a log."""
    config = folder / "config.toml"
    config.write_text(
        f'[deployments.kimi]\napi = "{server.url}"\n{more}\n[[deployments.kimi.engines]]\nhost = "local"\nlog = "none"\n'
    )
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env |= {"READYROOM_CONFIG": str(config), "XDG_STATE_HOME": str(folder / "state")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tui", "wait", "kimi", *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env
    )
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


def posts(server: Replay) -> list[str]:
    return [line for line, _, _ in server.asked if line.startswith("POST")]


async def test_a_configured_model_that_is_not_served(tmp_path: Path, server: Replay) -> None:
    server.answers = UP | {COMPLETIONS: NO_SUCH_MODEL, CHAT: NO_SUCH_MODEL}
    code, out, errors = await wait(tmp_path, server, 'model = "wrong"', "--json")
    assert code == 2, errors
    last = json.loads(out.splitlines()[-1])
    assert last["event"] == "misconfigured"
    assert "does not serve 'wrong'; it serves /models/tiny" in last["why"]
    assert posts(server) == []


async def test_a_model_that_the_server_lists_and_does_not_have(tmp_path: Path, server: Replay) -> None:
    server.answers = UP | {COMPLETIONS: error("404 Not Found", "The model `/models/tiny` does not exist.")}
    code, _, errors = await wait(tmp_path, server)
    assert code == 2
    assert "does not serve '/models/tiny'" in errors


async def test_a_missing_key_is_a_refusal(tmp_path: Path, server: Replay) -> None:
    server.answers = UP | {COMPLETIONS: error("401 Unauthorized", "Unauthorized")}
    code, _, errors = await wait(tmp_path, server)
    assert code == 8
    assert "kimi: refused: " in errors
    assert "API key" in errors


async def test_a_model_that_embeds_is_ready(tmp_path: Path, server: Replay) -> None:
    server.answers = UP | EMBEDS
    code, out, errors = await wait(tmp_path, server)
    assert (code, errors) == (0, "")
    assert "kimi: ready" in out


async def test_a_server_that_refuses_is_asked_ever_more_rarely(tmp_path: Path, server: Replay) -> None:
    server.answers = UP | {COMPLETIONS: error("503 Service Unavailable", "overloaded")}
    code, _, errors = await wait(tmp_path, server, "", "--timeout", "9s")
    assert code == 6
    assert "no token yet: 503" in errors
    assert 1 <= len(posts(server)) <= 3  # at once, after 2 s and after 4 s more

"""The API client against a real HTTP server on loopback that answers with recorded bytes of a real vLLM, and with worse."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from listening import Listening

from tui.core.api_status import Reach
from tui.core.presentation import some_of
from tui.host.api import ApiClient, ApiError
from tui.host.api_errors import Words
from tui.host.base import NotPermitted

DATA = Path(__file__).parent.parent / "data" / "http"
KEY = "sk-very-secret-key"


def recorded(name: str) -> bytes:
    return (DATA / f"{name}.response").read_bytes()


def reply(status: str, body: str | bytes, kind: str = "application/json") -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data


UP = {
    "GET /health": recorded("get-health"),
    "GET /version": recorded("get-version"),
    "GET /v1/models": recorded("get-models"),
    "GET /metrics": recorded("get-metrics-loaded"),
}
_RUNNING = b'num_requests_running{engine="0",model_name="/models/tiny"} '
IDLE = UP | {"GET /metrics": UP["GET /metrics"].replace(_RUNNING + b"4.0", _RUNNING + b"0.0")}
"""Without running requests: recorded counters stand still, which is a hang if requests run."""


class Replay(Listening):
    """Answers each request line with given bytes, then closes the connection; `asked` holds heads and bodies."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.answers: dict[str, bytes] = {}
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.heads: list[str] = []

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        line, *rest = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append((line, headers, body))
        writer.write(self.answers.get(line.rsplit(" ", 1)[0], recorded("get-not-found")))
        await writer.drain()


@pytest.fixture
async def server() -> AsyncIterator[Replay]:
    async with Replay() as replay:
        yield replay


@pytest.fixture
async def client(server: Replay) -> AsyncIterator[ApiClient]:
    async with aclosing_client(ApiClient(server.url + "/v1/", None, api_key=KEY)) as api:
        yield api


class aclosing_client:
    def __init__(self, api: ApiClient) -> None:
        self.api = api

    async def __aenter__(self) -> ApiClient:
        return self.api

    async def __aexit__(self, *_: object) -> None:
        await self.api.close()


async def test_poll_of_a_server_that_is_up(server: Replay, client: ApiClient) -> None:
    server.answers = dict(UP)
    status = await client.poll()
    assert status.ready
    assert (status.reach, status.health, status.version) == (Reach.UP, 200, "0.32.0")
    assert [(model.id, model.max_model_len) for model in status.models] == [("/models/tiny", 4096)]
    assert status.metrics is not None
    assert status.metrics.running == 4
    assert status.error is None
    assert {line.split()[0] for line, _, _ in server.asked} == {"GET"}
    assert all(headers["authorization"] == f"Bearer {KEY}" for _, headers, _ in server.asked)
    before = len(server.asked)
    again = await client.poll()
    assert again.ready
    assert len(server.asked) - before == 2  # health and metrics; what does not change is remembered


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_kept_connection_that_ends_as_it_is_used_says_nothing_of_the_server(how: str) -> None:
    """Each connection serves one request, and the next one on it meets its end, as if a server has just closed an idle one."""
    ended = 0
    answers = UP | {"POST /v1/completions": recorded("completions")}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if length := re.search(r"content-length: (\d+)", head.lower()):
            await reader.readexactly(int(length[1]))
        writer.write(answers[head.partition(" HTTP/1.1")[0]])
        if await reader.read(1 if how == "reset" else 65536):
            ended += 1
        if how == "reset":
            writer.transport.abort()  # with what is left unread

    async with Listening(serve) as listening, aclosing_client(ApiClient(listening.url, None)) as api:
        status = await api.poll()
        said = await api.post("/v1/completions", {"model": "/models/tiny", "prompt": "Hello", "max_tokens": 1})
    assert (status.reach, status.error, status.ready) == (Reach.UP, None, True)
    assert status.metrics is not None
    assert said["object"] == "text_completion"
    assert ended == 4


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (
            {"/": b"307 X\r\nLocation: https://sso.example/\r\n\r\n"},
            "/v1/models is redirected to https://sso.example/",
        ),
        (
            {"/health": b"200 OK\r\n\r\n", "/": b"200 OK\r\n\r\n<html><title>SSO</title>"},
            "/v1/models answers a web page (SSO)",
        ),
        ({"/health": b"200 OK\r\n\r\n", "/": b"200 OK\r\n\r\n[1]"}, "/v1/models does not answer with a list of models"),
        ({"/": b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n"}, " answers something that is no HTTP: illegal chunk header"),
        ({"/": b"trickle"}, " answers a byte at a time"),
    ],
)
async def test_what_is_no_inference_server_is_told_as_such(answers: dict[str, bytes], said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        answer = next(answer for begin, answer in answers.items() if path.startswith(begin))
        if answer == b"trickle":
            for byte in b"HTTP/1.1 200 OK\r\n" + b"X" * 40:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.5)
        writer.write(b"HTTP/1.1 " + answer)
        await writer.drain()

    async with Listening(serve) as listening, aclosing_client(ApiClient(listening.url, None)) as api:
        async with asyncio.timeout(20):
            status = await api.poll()
    assert status.reach is Reach.ERROR
    assert (status.error or "").startswith(listening.url + said)


async def test_metrics_that_never_come_do_not_hide_a_server_that_answers() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        if path == b"/metrics":
            await reader.read()  # until the client gives up
            return
        writer.write(b'HTTP/1.1 200 OK\r\n\r\n{"data": [{"id": "m"}]}')
        await writer.drain()

    async with Listening(serve) as listening, aclosing_client(ApiClient(listening.url, None)) as api:
        assert (await api.poll()).ready
        async with asyncio.timeout(4):
            assert (await api.poll()).ready


async def test_a_server_that_ends_every_connection_is_asked_once() -> None:
    """A forwarded port behind which nobody listens, say."""
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1

    async with Listening(serve) as listening, aclosing_client(ApiClient(listening.url, None)) as api:
        status = await api.poll()
    assert (status.reach, asked) == (Reach.ERROR, 1)
    assert status.error == f"{listening.url}: Server disconnected without sending a response."


async def test_closed_port_is_not_yet(unused_tcp_port: int) -> None:
    async with aclosing_client(ApiClient(f"http://127.0.0.1:{unused_tcp_port}", None)) as api:
        status = await api.poll()
        assert (status.reach, status.error, status.ready) == (Reach.CLOSED, None, False)
        with pytest.raises(ApiError) as raised:
            await api.post("/v1/completions", {})
        assert raised.value.kind == "closed"


async def test_dead_engine(server: Replay, client: ApiClient) -> None:
    server.answers = dict(UP)
    assert (await client.poll()).ready
    server.answers["GET /health"] = recorded("get-health-after-kill9-EngineCore-0")
    status = await client.poll()
    assert (status.reach, status.health, status.ready) == (Reach.SICK, 503, False)
    assert status.error == "/health answers 503"


async def test_key_that_is_refused(server: Replay, client: ApiClient) -> None:
    server.answers = UP | {"GET /v1/models": recorded("error-no-auth")}
    status = await client.poll()
    assert (status.reach, status.health, status.ready) == (Reach.UP, 200, False)
    assert status.error is not None
    assert "401 Unauthorized" in status.error
    assert "api_key_env" in status.error


async def test_openai_like_server_without_health(server: Replay, client: ApiClient) -> None:
    server.answers = {"GET /v1/models": recorded("get-models")}
    status = await client.poll()
    assert status.ready
    assert status.metrics is None
    assert status.version is None


@pytest.mark.parametrize(
    ("answer", "status", "kind", "words"),
    [
        (recorded("error-unknown-model"), 404, "http", "The model `gpt-nope` does not exist."),
        (recorded("error-context-too-long"), 400, "http", "maximum context length is 4096 tokens"),
        (recorded("error-no-auth"), 401, "unauthorized", "Unauthorized"),
        (recorded("get-not-found"), 404, "http", "404 Not Found"),
        (reply("422 Unprocessable Entity", '{"detail":[{"loc":["body"],"msg":"field required"}]}'), 422, "http", "field required"),
        (reply("400 Bad Request", '{"object":"error","message":"old style","code":400}'), 400, "http", "old style"),
        (
            reply("502 Bad Gateway", "<html><head><title>502 Bad Gateway</title></head><body>x</body></html>", "text/html"),
            502,
            "http",
            "502 Bad Gateway",
        ),
        (reply("500 Internal Server Error", b"\xff\xfe\x00\x1b[31mred\x1b]0;title\x07"), 500, "http", "red"),
        (reply("500 Internal Server Error", ""), 500, "http", "500 Internal Server Error"),
        (reply("401 Unauthorized", f'{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}'), 401, "unauthorized", "•••"),
        (reply("200 OK", "[1, 2]"), 200, "garbage", "not a JSON object"),
        (reply("200 OK", ""), 200, "garbage", "empty"),
        (reply("200 OK", "[" * 100_000), 200, "garbage", "not a JSON object"),
        (reply("500 Oops", "x" * 10_000_000), 500, "http", "xxx"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", None, "garbage", ""),
        (b"", None, "cut", ""),
    ],
)
async def test_every_shape_of_error(
    server: Replay, client: ApiClient, answer: bytes, status: int | None, kind: str, words: str
) -> None:
    server.answers = {"POST /v1/completions": answer}
    with pytest.raises(ApiError) as raised:
        await client.post("/v1/completions", {"model": "m"})
    error = raised.value
    assert (error.status, error.kind) == (status, kind)
    assert words in error.message
    assert KEY not in error.message
    assert len(error.message) < 2200
    assert "\x1b" not in error.message


async def test_poll_survives_a_reply_without_end(server: Replay, client: ApiClient) -> None:
    server.answers = UP | {"GET /v1/models": reply("200 OK", b"[" + b" " * 40_000_000)}
    status = await client.poll()
    assert not status.ready
    assert status.error is not None
    assert "MiB" in status.error


@pytest.mark.parametrize("length", ["9" * 5000, "1099511627776", "-1", "1e9", "١٢"])
async def test_a_length_that_nobody_can_mean(server: Replay, client: ApiClient, length: str) -> None:
    server.answers = UP | {"GET /v1/models": f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{{}}".encode()}
    status = await client.poll()
    assert not status.ready
    assert status.error is not None
    assert 5 < len(status.error) < 400
    assert status.error.isprintable()


async def test_a_list_of_models_without_end(server: Replay, client: ApiClient) -> None:
    many = [{"id": f"adapter-{number}-{'x' * 900}"} for number in range(4_000)]
    server.answers = UP | {"GET /v1/models": reply("200 OK", json.dumps({"data": many}))}
    models = (await client.poll()).models
    assert len(models) == 4_000
    assert max(len(model.id) for model in models) == 400
    assert some_of(["a", "b"]) == "a, b"
    assert some_of(model.id[:9] for model in models).endswith("adapter-7 and 3,992 more")


async def test_a_large_page_of_metrics_is_read_beside_the_loop(server: Replay, client: ApiClient) -> None:
    line = 'vllm:num_requests_running{{engine="{}",model_name="m"}} 2.0\n'
    many = "".join(map(line.format, range(64))) + "# HELP other words\nother 1\n" * 30_000
    server.answers = UP | {"GET /metrics": reply("200 OK", many, "text/plain")}
    metrics = (await client.poll()).metrics
    assert metrics is not None
    assert metrics.running == 128
    server.answers["GET /metrics"] = reply("200 OK", line.format(0) * 70_000, "text/plain")
    status = await client.poll()
    assert status.ready
    assert status.metrics is None  # no server has so many: a sum of a part of them would be wrong


@pytest.mark.parametrize("headers", [{"authorization": "Token mine"}, {"AUTHORIZATION": "Token mine"}])
async def test_a_configured_header_goes_before_the_key(server: Replay, headers: dict[str, str]) -> None:
    server.answers = UP
    for url in (server.url, server.url.replace("//", "//me:word@")):
        async with aclosing_client(ApiClient(url, None, api_key="the key", headers=headers)) as api:
            assert (await api.poll()).ready
        head = server.heads[-1].lower()
        assert head.count("authorization:") == 1
        assert "authorization: token mine" in head


async def test_the_password_of_an_address_is_sent_and_never_shown(server: Replay, unused_tcp_port: int) -> None:
    server.answers = UP | {"POST /v1/completions": reply("400 Bad Request", '{"error": {"message": "who is pass@word?"}}')}
    async with aclosing_client(ApiClient(server.url.replace("//", "//me:pass%40word@"), None)) as api:
        assert (await api.poll()).ready
        assert server.asked[0][1]["authorization"] == "Basic bWU6cGFzc0B3b3Jk"
        with pytest.raises(ApiError) as raised:
            await api.post("/v1/completions", {})
        assert raised.value.message == "400 Bad Request: who is •••?"
    for address in (f"127.0.0.1:{unused_tcp_port}", f"127.0.0.1:{unused_tcp_port}x", "no-such-host.invalid"):
        async with aclosing_client(ApiClient(f"http://me:pass%40word@{address}", None)) as api:
            with pytest.raises(ApiError) as raised:
                await api.post("/v1/completions", {})
            assert address.partition(":")[0] in raised.value.message
            assert "word" not in raised.value.message
    async with aclosing_client(ApiClient(f"ftp://me:pass%40word@127.0.0.1:{unused_tcp_port}", None)) as api:
        with pytest.raises(ApiError) as raised:
            await api.post("/v1/completions", {})
        assert "pass" not in raised.value.message


def test_a_file_of_authorities_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "no-certificate.pem").write_text("hello")
    for name in ("missing.pem", "no-certificate.pem"):
        with pytest.raises(NotPermitted, match=name):
            ApiClient("https://127.0.0.1:1", None, ca_file=str(tmp_path / name))


async def test_key_with_a_line_end_is_refused_without_being_shown(server: Replay) -> None:
    async with aclosing_client(ApiClient(server.url, None, api_key="sk-secret\nmore")) as api:
        status = await api.poll()
        assert status.reach is Reach.ERROR
        assert status.error is not None
        assert "sk-secret" not in status.error


async def collect(api: ApiClient) -> tuple[str, list[float]]:
    text, stamps = "", []
    async with aclosing(api.stream("/v1/chat/completions", {"stream": True})) as events:
        async for at, obj in events:
            stamps.append(at)
            text += "".join(choice["delta"].get("content") or "" for choice in obj["choices"])
    return text, stamps


async def test_stream(server: Replay, client: ApiClient) -> None:
    server.answers = {"POST /v1/chat/completions": recorded("chat-stream")}
    text, stamps = await collect(client)
    assert text
    assert stamps == sorted(stamps)
    assert json.loads(server.asked[0][2]) == {"stream": True}


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("chat-stream-kill9-EngineCore", "stream", "EngineCore encountered an issue"),
        ("chat-stream-kill9-APIServer", "cut", ""),
        ("error-unknown-model", "http", "does not exist"),
    ],
)
async def test_stream_that_fails(server: Replay, client: ApiClient, name: str, kind: str, words: str) -> None:
    server.answers = {"POST /v1/chat/completions": recorded(name)}
    with pytest.raises(ApiError) as raised:
        await collect(client)
    assert raised.value.kind == kind
    assert words in raised.value.message


async def test_closing_a_stream_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {"choices": []}\n\n')
        await writer.drain()
        await reader.read()
        while await reader.read(1000):
            pass
        gone.set()

    async with Listening(serve) as listening, aclosing_client(ApiClient(listening.url, None)) as api:
        async with aclosing(api.stream("/v1/chat/completions", {})) as events:
            async for _ in events:
                break
        await asyncio.wait_for(gone.wait(), 10)


async def test_stale_authorities_in_the_environment_matter_to_https_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    for scheme, words in (("http", "nothing listens"), ("https", "SSL_CERT_FILE=/no/such/file.pem can't be read: No such file")):
        client = ApiClient(f"{scheme}://127.0.0.1:1", None)
        with pytest.raises(ApiError, match=words):
            await client.get("/version")
        await client.close()


CERTIFICATES = [
    (9, "certificate is not yet valid", "check the clocks"),
    (10, "certificate has expired", "renew it"),
    (62, "Hostname mismatch, certificate is not valid for 'x'", "use the name that it was issued for"),
    (64, "IP address mismatch, certificate is not valid for '127.0.0.1'", "use the name that it was issued for"),
    (18, "self-signed certificate", "set ca_file"),
]


@pytest.mark.parametrize(("code", "said", "advice"), CERTIFICATES)
def test_what_is_wrong_with_a_certificate_is_told_with_what_helps(code: int, said: str, advice: str) -> None:
    error = ssl.SSLCertVerificationError("certificate verify failed")
    error.verify_code, error.verify_message = code, said
    told = Words("https://box:8000", ()).of_transport(error)
    assert said in told.message
    assert advice in told.message
    assert ("set ca_file" in told.message) == (code == 18)


async def test_a_header_in_latin_1_is_sent() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))

    async with Listening(serve) as listening, aclosing_client(ApiClient(listening.url, None, headers={"X-Team": "grün"})) as api:
        await api.poll()
    assert b"X-Team: gr\xfcn\r\n" in heads[0]

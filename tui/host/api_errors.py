"""What goes wrong between a server's API and here, in words: every shape of error that servers answer with, and what the network
does on the way."""

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from tui.core.text import clean, hide
from tui.host.base import HostError, NotPermitted, PortClosed
from tui.wire.event_stream import error_of

ERROR_LIMIT = 64 * 1024
"""Bytes of an error's body that are read."""
WORDS = 2000
"""Characters of a server's error message that are kept."""


class ApiError(Exception):
    """A call that failed, in the server's own words if it sent any; cleaned, and without the API key.

    `kind`: "closed" (nothing listens), "unreachable", "not_permitted", "timeout", "unauthorized", "http" (any other status),
    "redirect",
    "stream" (an error object inside a stream), "cut" (a stream that ended before its reply), "garbage" (no such API speaks so),
    "too_large".
    """

    def __init__(self, status: int | None, message: str, kind: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind


class Words:
    """Makes ApiErrors of what a server at `where` answers and of what the transport raises, without any of the `secrets`.

    As a context manager it turns what the transport raises within into ApiError.
    """

    def __init__(self, where: str, secrets: tuple[str, ...]) -> None:
        self.where = where
        """The address as it may be shown."""
        self._secrets = secrets

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(
            error, httpx.HTTPError | httpx.InvalidURL | httpx.StreamError | HostError | OSError | UnicodeEncodeError | EOFError
        ):
            raise self.of_transport(error) from None
        if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
            raise ApiError(None, self.one_line(str(error)), "garbage") from None

    def one_line(self, text: str) -> str:
        """Return a server's text on one line: cleaned, cut, and without any secret of ours that it may echo."""
        text = hide(text, self._secrets)
        return " ".join(clean(text[: WORDS * 2], keep_newlines=True).split())[:WORDS]

    def event(self, payload: bytes) -> dict[str, Any]:
        """Return the object of a stream's event. Raises ApiError for what is none, and for one that is an error."""
        try:
            obj = json.loads(payload)
        except (ValueError, RecursionError):
            shown = self.one_line(payload.decode("utf-8", "replace"))
            raise ApiError(None, f"the stream holds something that is not JSON: {shown}", "garbage") from None
        if not isinstance(obj, dict):
            raise ApiError(None, "the stream holds an event that is not a JSON object", "garbage")
        said = error_of(obj)
        if said is not None:
            raise ApiError(_code_in(obj), self.one_line(said), "stream")
        return obj

    def answer(self, code: int, body: bytes) -> dict[str, Any]:
        """Return the object that a call answers with. Raises ApiError for any other answer."""
        if code != 200:
            raise self.refusal(code, body)
        try:
            obj = json.loads(body)
        except (ValueError, RecursionError):
            obj = None
        if not isinstance(obj, dict):
            raise ApiError(
                code,
                f"the answer is not a JSON object: {self.one_line(body.decode('utf-8', 'replace')) or 'it is empty'}",
                "garbage",
            )
        said = error_of(obj)
        if said is not None:
            raise ApiError(_code_in(obj) or code, self.one_line(said), "http")
        return obj

    def refusal(self, code: int, body: bytes) -> ApiError:
        """Return what an answer with another status than 200 means."""
        text = body[:ERROR_LIMIT].decode("utf-8", "replace")
        try:
            said = error_of(json.loads(text))
        except (ValueError, RecursionError):
            said = None
        if said is None:
            said = _title(text) if _is_page(text) else text
        words = self.one_line(said)
        reason = httpx.codes.get_reason_phrase(code)
        head = f"{code} {reason}".rstrip()
        message = (
            words
            if words and words != reason and str(code) in words[:8]
            else f"{head}: {words}"
            if words and words != reason
            else head
        )
        if code in (401, 403):
            return ApiError(code, f"{message}: the server wants an API key (api_key_env or api_key_command)", "unauthorized")
        return ApiError(code, message, "http")

    def redirect(self, code: int, location: str, path: str) -> ApiError:
        """Return what an answer that sends the client elsewhere means: it is not followed, the key is for this server alone."""
        leads = f"{self.where}{path} is redirected to {self.one_line(location)[:300]}"
        return ApiError(code, f"{leads}: set api to the address of the server itself", "redirect")

    def no_models(self, body: bytes) -> str:
        """Say what /v1/models answers that is no list of models."""
        text = body[:ERROR_LIMIT].decode("utf-8", "replace")
        if _is_page(text):
            return f"{self.where}/v1/models answers a web page ({self.one_line(_title(text))[:80]}): is it an inference server?"
        return f"{self.where}/v1/models does not answer with a list of models: is this an OpenAI-like server?"

    def _certificate(self, error: ssl.SSLCertVerificationError) -> str:
        """Say what is wrong with a certificate, and what would help; codes as in OpenSSL's x509_vfy.h."""
        why = self.one_line(error.verify_message)
        match error.verify_code:
            case 9:
                return f"the certificate of {self.where} isn't valid yet: check the clocks of both machines ({why})"
            case 10:
                return f"the certificate of {self.where} has expired: renew it on the server, or check this machine's clock ({why})"
            case 62 | 64:
                return f"the certificate of {self.where} is for another name: use the name that it was issued for ({why})"
        return f"the certificate of {self.where} is not trusted: {why} (set ca_file)"

    def of_transport(self, error: Exception) -> ApiError:
        """Return what an exception of the transport means."""
        where = self.where
        for cause in _chain(error):
            match cause:
                case PortClosed() | ConnectionRefusedError():
                    return ApiError(None, f"nothing listens at {where} yet", "closed")
                case NotPermitted():
                    return ApiError(
                        None, self.one_line(f"{cause.cause}: {cause.advice}" if cause.advice else cause.cause), "not_permitted"
                    )
                case HostError():
                    return ApiError(None, self.one_line(cause.cause), "unreachable")
                case ssl.SSLCertVerificationError():
                    return ApiError(None, self._certificate(cause), "unreachable")
        match error:
            case httpx.ConnectTimeout() | httpx.PoolTimeout():
                return ApiError(None, f"{where} does not answer: no connection in time", "timeout")
            case httpx.TimeoutException():
                return ApiError(None, f"{where} accepted the connection but was silent for too long", "timeout")
            case httpx.RemoteProtocolError():
                kind = "cut" if re.search("closed|incomplete|disconnected", str(error)) else "garbage"
                said = " answers something that is no HTTP" if kind == "garbage" else ""
                return ApiError(None, self.one_line(f"{where}{said}: {error}"), kind)
            case httpx.LocalProtocolError():
                # Its text may quote a header, and so the key.
                return ApiError(
                    None, "the request can't be sent: a header or the API key holds characters that HTTP forbids", "unauthorized"
                )
            case httpx.UnsupportedProtocol() | httpx.InvalidURL():
                return ApiError(None, self.one_line(f"{where} is not an API's address: {error}"), "garbage")
        return ApiError(None, self.one_line(f"{where}: {str(error) or type(error).__name__}"), "unreachable")


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    while stack:
        link = stack.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        stack += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            stack += link.exceptions


def _code_in(obj: Mapping[str, Any]) -> int | None:
    error = obj.get("error")
    code = error.get("code") if isinstance(error, dict) else obj.get("code")
    return code if isinstance(code, int) else None


def _is_page(text: str) -> bool:
    return re.search("<html|<!doctype", text[:2000], re.IGNORECASE) is not None


def _title(html: str) -> str:
    """Return the words of an error page of a proxy: its title, else its text without tags."""
    found = re.search(r"<title[^>]*>([^<]{1,300})", html, re.IGNORECASE)
    return found.group(1) if found else re.sub(r"<[^>]{0,500}>", " ", html[:4000])

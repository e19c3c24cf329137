"""The event stream (text/event-stream) of OpenAI-like servers: its decoder, and the rule for what counts as a token.

Shared by the load generator and the chat, so that both mean the same by "first token". Python 3.8: this runs on the GPU host.
"""

from typing import Any, Dict, List, Optional, Tuple

DONE = b"[DONE]"
"""The payload with which OpenAI-like servers end a stream. Not every server sends it."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""A single event above this is no token stream; decoding it would only fill the memory."""

LF, CR = b"\n\r"
"""As numbers: Python looks for bytes in bytes ten times slower than for a number."""

CONTENT = "content"
REASONING = "reasoning"
TOOL = "tool"


class EventDecoder:
    """Cuts a byte stream into the payloads of its `data:` events, wherever the pieces of the stream begin and end.

    After the HTML standard's "event stream interpretation": lines end in LF, CR LF or CR; a line that begins with a colon is a
    comment (a keep-alive ping); several `data` lines of one event are joined by LF; `event`, `id` and `retry` are passed over;
    an event ends at an empty line. It works on bytes, since a piece may end inside a UTF-8 character.
    """

    __slots__ = ("_held", "_size", "_skip_lf")

    def __init__(self) -> None:
        self._held: List[bytes] = []
        """The pieces of an event whose end has not come: joined once, at its end, so that a large one costs linear time."""
        self._size = 0
        self._skip_lf = False

    @property
    def idle(self) -> bool:
        """Return whether the next byte begins an event."""
        return not self._held and not self._skip_lf

    def feed(self, data: bytes) -> List[bytes]:
        """Return the payloads that are complete with these bytes, `[DONE]` among them.

        Raises ValueError if one event is larger than MAX_EVENT_BYTES.
        """
        if (
            not self._held
            and not self._skip_lf
            and data[:6] == b"data: "
            and data[-1:] == b"\n"
            and data.find(b"\n") == len(data) - 2
            and CR not in data
        ):
            return [data[6:-2]]  # nearly every piece of a token stream is exactly one event
        if self._skip_lf and data:
            self._skip_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        if CR in data:
            # A CR at the very end is a line end already; if its LF follows in the next piece, that one is dropped.
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._held:
            if b"\n\n" not in data and not (data[:1] == b"\n" and self._held[-1][-1:] == b"\n"):
                self._hold(data)
                return []
            data = b"".join(self._held) + data
            self._held.clear()
            self._size = 0
        blocks = data.split(b"\n\n")
        self._hold(blocks.pop())
        payloads = []
        for block in blocks:
            if block.startswith(b"data: ") and LF not in block:
                payloads.append(block[6:])
            else:
                payload = _payload(block)
                if payload is not None:
                    payloads.append(payload)
        return payloads

    def _hold(self, piece: bytes) -> None:
        """Keep a piece of an event until its end comes. Raises ValueError if there is too much of it."""
        if not piece:
            return
        self._held.append(piece)
        self._size += len(piece)
        if self._size > MAX_EVENT_BYTES:
            raise ValueError("an event of the stream is larger than %d bytes" % MAX_EVENT_BYTES)

    def close(self) -> List[bytes]:
        """Return what remains at the end of the stream: an event whose empty line was never sent.

        The standard drops it; some servers forget the last empty line, and a token that came is a token.
        """
        payload = _payload(b"".join(self._held))
        self._held.clear()
        self._size = 0
        return [] if payload is None else [payload]


def _payload(block: bytes) -> Optional[bytes]:
    """Return the joined `data` lines of one event; None if it has none (a comment, an empty line, another field)."""
    lines = []
    if block.startswith(b"\xef\xbb\xbf"):  # a byte order mark, which may begin the stream
        block = block[3:]
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if any(lines) else None


def token_of(obj: Dict[str, Any], endpoint: str) -> Tuple[Optional[str], str]:
    """Return what kind of token a chunk carries, and its text: ("content" | "reasoning" | "tool" | None, text).

    The rule is that of `vllm bench serve` (0.33), and one field more:

    - chat: the first choice's delta has non-empty `content`, `reasoning`, `tool_calls` or `function_call`, or `content == ""`
      without a `role` (a token that decodes to nothing). The opening chunk with the role is no token. `reasoning_content`, the
      older name of `reasoning`, counts as well.
    - completions: any chunk with a choice, even one of empty text.

    The usage chunk at the end (no choices) is no token. An object of an unexpected shape is no token either.
    """
    choices = obj.get("choices")
    if not isinstance(choices, list) or not choices:
        return None, ""
    choice = choices[0]
    if not isinstance(choice, dict):
        return None, ""
    if endpoint == "completions":
        text = choice.get("text")
        return CONTENT, text if isinstance(text, str) else ""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return None, ""
    content = delta.get("content")
    if content and isinstance(content, str):
        return CONTENT, content
    reasoning = delta.get("reasoning") or delta.get("reasoning_content")
    if reasoning and isinstance(reasoning, str):
        return REASONING, reasoning
    calls = delta.get("tool_calls")
    if calls:
        return TOOL, _arguments(calls)
    call = delta.get("function_call")
    if call:
        return TOOL, _arguments([{"function": call}])
    if content == "" and "role" not in delta:
        return CONTENT, ""
    return None, ""


def _arguments(calls: Any) -> str:
    parts = []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            for name in ("name", "arguments"):
                text = function.get(name)
                if isinstance(text, str):
                    parts.append(text)
    return "".join(parts)


def error_of(obj: Any) -> Optional[str]:
    """Return the server's words if an object reports an error, in any of the shapes in use; None if it doesn't.

    `{"error": {"message"}}` (vLLM, OpenAI), `{"error": "text"}`, `{"object": "error", "message"}` (older vLLM), `{"detail": ...}`
    (FastAPI), `{"errors": ...}`. The words are the server's own: clean them before they are shown.
    """
    if not isinstance(obj, dict):
        return None
    error = obj.get("error")
    if error:
        if isinstance(error, dict):
            message = error.get("message") or error.get("msg") or error.get("type") or error.get("code")
            return str(message) if message else str(error)
        return str(error)
    if obj.get("object") == "error" or (obj.get("type") == "error" and "choices" not in obj):
        return str(obj.get("message") or obj)
    if "choices" not in obj:
        for name in ("detail", "errors"):
            if obj.get(name):
                return str(obj[name])
    return None

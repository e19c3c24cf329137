"""Untrusted text made safe to show, and bytes made into lines.

Logs, replies, error messages, process names and banners come from machines that nobody here controls. They are cleaned once, where
they enter, so that nothing in them can move the cursor, set a title, write to the clipboard or turn a line around.
"""

import codecs
import re
from collections.abc import Iterable, Mapping

_ESCAPES = re.compile(
    # The strings (OSC, DCS, APC, PM, SOS) end with BEL or ST; one that is cut off is dropped to the end of its line.
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\r\n]*(?:\x1b\\|\x9c)?"
    # CSI: parameters, intermediates, a final byte; a cut one loses what is there of it.
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)?"
    # Any other escape: intermediates and one final byte (charset choice, keypad mode, reset …).
    r"|\x1b[ -/]*[0-~]?"
)
_FORBIDDEN = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # C0 except tab, CR and LF, DEL, C1
    r"\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # zero width, line separators, bidi controls
    r"\ufe0e\ufe0f"  # the choice between an emoji and a sign: terminals don't agree on how wide it makes the character before it
    r"\ud800-\udfff"  # lone surrogates: can't be encoded, a terminal write would raise
    r"\U000e0000-\U000e007f"  # tags: invisible text
)
_CONTROLS = re.compile(f"[{_FORBIDDEN}]")
_CONTROLS_AND_BREAKS = re.compile(f"[\r\n{_FORBIDDEN}]")
_BREAKS = re.compile(r"\r+\n|\r")
_ANY_BREAKS = re.compile(r"[\r\n]+")


def clean(text: str, *, keep_newlines: bool = False) -> str:
    """Return the text without anything that acts on a terminal or on the direction of writing.

    Escape sequences go whole (CSI, OSC with its payload, DCS and the like, cut-off ones too), then the remaining control characters
    except tab, and zero-width and bidirectional controls. Line breaks become one space, or, with `keep_newlines`, `\n`.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text)
    if keep_newlines:
        return _CONTROLS.sub("", _BREAKS.sub("\n", text))
    if "\n" in text or "\r" in text:
        text = _ANY_BREAKS.sub(" ", text).strip(" ")
    return _CONTROLS_AND_BREAKS.sub("", text)


class LineSplitter:
    """Cuts a stream of bytes into lines, however the chunks fall.

    LF, CR LF and a lone CR each end a line, as progress bars demand; several CRs before an LF end one line. Invalid UTF-8 becomes
    U+FFFD. A line longer than `max_length` characters is handed out in pieces, so that a file without line ends can't fill the
    memory.
    """

    def __init__(self, max_length: int = 65536) -> None:
        self._max_length = max_length
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._after_cr = False

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that these bytes complete, without their ends."""
        return self._split(self._decoder.decode(data))

    def flush(self) -> list[str]:
        """Return the unfinished last line, if there is one: the stream has ended."""
        lines = self._split(self._decoder.decode(b"", final=True))
        if self._rest:
            lines.append(self._rest)
        self._rest = ""
        self._after_cr = False
        return lines

    def _split(self, text: str) -> list[str]:
        if self._after_cr and text:
            # The CR that ended the last chunk has ended its line already: the LF of this chunk belongs to it.
            stripped = text.lstrip("\r")
            self._after_cr = not stripped
            text = stripped[1:] if stripped.startswith("\n") else stripped
        if not text:
            return []
        if "\r" in text:
            self._after_cr = text.endswith("\r")
            text = re.sub(r"\r+\n?", "\n", text)
        if self._rest:
            text = self._rest + text
        lines = text.split("\n")
        self._rest = lines.pop()
        limit = self._max_length
        if len(self._rest) > limit or any(len(line) > limit for line in lines):
            lines = [piece for line in lines for piece in (_pieces(line, limit) or [""])]
            *whole, self._rest = _pieces(self._rest, limit) or [""]
            lines.extend(whole)
        return lines


def _pieces(text: str, length: int) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]


HIDDEN = "•••"
SHORTEST_SECRET = 8
"""A shorter value ("true") is none, and would be found everywhere."""


def secrets_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what of a request's headers must never be shown: the values, and of `Bearer X` the X too, longest first."""
    values = {part for value in headers.values() for part in (value, value.rpartition(" ")[2])}
    return tuple(sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True))


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets that a server may echo in it."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text

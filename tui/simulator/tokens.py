"""A tokenizer of the simulated model: pieces of text of about four characters, joined without loss."""

import re
from collections.abc import Sequence

_PIECE = re.compile(r" ?[A-Za-z]{1,6}| ?[0-9]{1,3}|\n+| ?[^A-Za-z0-9\s]{1,2}|\s", re.ASCII)


def split(text: str) -> list[str]:
    """The text as tokens; joined they are the text again."""
    return _PIECE.findall(text)


class Vocabulary:
    """Numbers for tokens, given out as they are met."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._pieces: list[str] = []

    def encode(self, text: str) -> list[int]:
        return [self._id(piece) for piece in split(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """An id that was never given out reads as a word of its own."""
        return "".join(self._pieces[number] if 0 <= number < len(self._pieces) else f" w{number}" for number in ids)

    def _id(self, piece: str) -> int:
        number = self._ids.get(piece)
        if number is None:
            number = self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return number

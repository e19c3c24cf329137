"""Reasoning that stands in the content itself: servers without a reasoning parser pass the model's own tags through."""

TAGS = (
    ("<think>", "</think>"),  # DeepSeek R1, Qwen 3, GLM, MiniMax, Kimi K2 Thinking
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi-VL
    ("<|channel>thought", "<channel|>"),  # Gemma
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss without its parser
)

LONE = ("</think>", "[/THINK]", "◁/think▷")
"""Closing tags whose opening one some templates write themselves."""


class ThinkingSplitter:
    """Splits streamed content into reasoning and answer, however the chunks cut the tags.

    Reasoning is what stands between an opening tag at the very start and its closing tag. Where the template opened the tag itself,
    the content has only the closing one: then all before it was reasoning. Tags later in the answer are text like any other.
    """

    def __init__(self) -> None:
        self._held = ""
        self._closing: str | None = None
        self._answered = False
        self._begun = False
        self._at_start = False
        """Whether the answer has yet to begin after a closing tag: line ends there belong to the tag."""
        self._last = ""
        """The last character handed out: a tag in `backquotes` is spoken of, not used."""

    def feed(self, text: str) -> tuple[str, str, bool]:
        """Returns reasoning and answer of this piece, and whether all that was handed out as answer before was reasoning."""
        thought, answer, moved = self._split(self._held + text)
        if self._at_start:
            answer = answer.lstrip("\n")
            self._at_start = not answer
        self._last = answer[-1:] or self._last
        return thought, answer, moved

    def _split(self, text: str) -> tuple[str, str, bool]:
        self._held = ""
        if self._answered:
            return "", text, False
        if not self._begun:
            begun = text.lstrip()
            if any(opening.startswith(begun) for opening, _ in TAGS):  # nothing yet, or a piece of a tag
                self._held = text
                return "", "", False
            self._begun = True
            for opening, closing in TAGS:
                if begun.startswith(opening):
                    self._closing = closing
                    text = begun[len(opening) :]
                    break
        if self._closing is not None:
            before, found, after = text.partition(self._closing)
            if found:
                self._answered = self._at_start = True
                return before, after, False
            self._held = _piece_of(text, (self._closing,))
            return text[: len(text) - len(self._held)], "", False
        at, closing = self._unopened(text)
        if closing:
            self._answered = self._at_start = True
            return text[:at], text[at + len(closing) :], True
        self._held = _piece_of(text, LONE)
        return "", text[: len(text) - len(self._held)], False

    def _unopened(self, text: str) -> tuple[int, str]:
        """Where the first closing tag stands that is not spoken of, and which one it is ("" for none)."""
        places = []
        for closing in LONE:
            at = text.find(closing)
            while at >= 0 and (text[at - 1 : at] if at else self._last) == "`":
                at = text.find(closing, at + 1)
            if at >= 0:
                places.append((at, closing))
        return min(places, default=(-1, ""))

    def flush(self) -> tuple[str, str]:
        """What is still held back, as reasoning and answer: the stream has ended. The splitter stays as it is."""
        return (self._held, "") if self._closing is not None and not self._answered else ("", self._held)


def _piece_of(text: str, tags: tuple[str, ...]) -> str:
    """The end of the text that may be the beginning of a tag."""
    for length in range(min(len(text), max(map(len, tags)) - 1), 0, -1):
        if any(tag.startswith(text[-length:]) for tag in tags):
            return text[-length:]
    return ""

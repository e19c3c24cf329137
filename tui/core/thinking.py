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

    def feed(self, text: str) -> tuple[str, str, bool]:
        """Returns reasoning and answer of this piece, and whether all that was handed out as answer before was reasoning."""
        text = self._held + text
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
                self._answered = True
                return before, after.lstrip("\n"), False
            self._held = _piece_of(text, (self._closing,))
            return text[: len(text) - len(self._held)], "", False
        for closing in ("</think>", "[/THINK]", "◁/think▷"):
            before, found, after = text.partition(closing)
            if found and not before.endswith("`"):
                self._answered = True
                return before, after.lstrip("\n"), True
        self._held = _piece_of(text, ("</think>", "[/THINK]", "◁/think▷"))
        return "", text[: len(text) - len(self._held)], False

    def flush(self) -> tuple[str, str]:
        """What is still held back, as reasoning and answer: the stream has ended. The splitter stays as it is."""
        return (self._held, "") if self._closing is not None and not self._answered else ("", self._held)


def _piece_of(text: str, tags: tuple[str, ...]) -> str:
    """The end of the text that may be the beginning of a tag."""
    for length in range(min(len(text), max(map(len, tags)) - 1), 0, -1):
        if any(tag.startswith(text[-length:]) for tag in tags):
            return text[-length:]
    return ""

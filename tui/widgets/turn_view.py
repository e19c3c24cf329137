"""One turn of the conversation: what was asked, what the model thought, its reply as it streams, and the figures of it."""

from contextlib import suppress
from typing import ClassVar

from markdown_it import MarkdownIt
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.css.query import NoMatches
from textual.reactive import var
from textual.widgets import Label, Markdown, Static
from textual.widgets._markdown import MarkdownBlock, MarkdownFence, MarkdownTable, MarkdownTableCellContents, MarkdownTableContent
from textual.widgets.markdown import MarkdownStream

from tui.core.conversation import Turn
from tui.core.presentation import DASH, counted, three, whole
from tui.messages import TextCopied
from tui.widgets.canvas import Verbatim, VerbatimText, in_ascii
from tui.widgets.draw import BE, BP, QUIET, B, E, Part, W, label, line


class _Code(Verbatim, Label):
    pass


class _Fence(MarkdownFence):
    def compose(self) -> ComposeResult:
        yield _Code(self._highlighted_code, id="code-content", expand=True)


class _Cell(Verbatim, MarkdownTableCellContents):
    pass


class _Cells(MarkdownTableContent):
    def compose(self) -> ComposeResult:
        for widget in super().compose():
            assert isinstance(widget, MarkdownTableCellContents)
            yield _Cell(widget.content, classes=" ".join(widget.classes), name=widget.name)


class _Table(MarkdownTable):
    def compose(self) -> ComposeResult:
        for widget in super().compose():
            assert isinstance(widget, MarkdownTableContent)
            yield _Cells(widget.headers, widget.rows)


def _of_words(kind: type[MarkdownBlock]) -> type[MarkdownBlock]:
    return type(f"Their{kind.__name__}", (Verbatim, kind), {})


WORDS = ("h1", "h2", "h3", "h4", "h5", "h6", "paragraph_open")


class Reply(Markdown):
    """Without HTML: tags of a reply are text."""

    BLOCKS: ClassVar[dict[str, type[MarkdownBlock]]] = {  # type: ignore[misc]
        **Markdown.BLOCKS,
        **{name: _of_words(Markdown.BLOCKS[name]) for name in WORDS},
        "fence": _Fence,
        "code_block": _Fence,
        "table_open": _Table,
    }

    def __init__(self) -> None:
        super().__init__(classes="reply", parser_factory=parser, open_links=False)


def parser() -> MarkdownIt:
    """Markdown without HTML."""
    return MarkdownIt("gfm-like").disable(["html_block", "html_inline"])


MARKDOWN_LIMIT = 40_000
"""Characters of a reply that are drawn as Markdown, a widget a block; the rest of a longer one is plain text."""
TAIL_LIMIT = 20_000
FINISH = {
    "stop": ("stop", QUIET),
    "length": ("▲ cut off at its token limit", W),
    "stopped": ("stopped", W),
    "abort": ("▲ ended by the server", W),
}


def footer(turn: Turn) -> Content:
    """Draw the figures of a reply: `TTFT 187 ms   81.2 tok/s   28 in, 201 out   2.7 s`."""
    if turn.streaming:
        if turn.ttft_ms is None:
            return line(("◐ ", BP), label("waiting for the first token"))
        took = f"   {turn.so_far_s:.1f} s" if turn.so_far_s is not None else ""
        tokens = turn.usage.completion_tokens
        if tokens is None or turn.miscounted:
            came = f"   {counted(turn.chunks, 'chunk')}"
        else:
            pace = f"   {three(turn.tokens_s)} tok/s" if turn.tokens_s is not None else ""
            came = f"{pace}   {counted(tokens, 'token')}"
        return line(("◐ ", BP), label("TTFT "), (three(turn.ttft_ms), B), label(f" ms{came}{took}"))
    usage = turn.usage
    parts: list[list[Part]] = [[label("TTFT "), (three(turn.ttft_ms), B), label(" ms")]]
    if turn.tokens_s is None and turn.chunks_s is not None:
        parts.append([(f"~{three(turn.chunks_s)}", B), label(" tok/s by chunks")])
    else:
        parts.append([(three(turn.tokens_s), B), label(" tok/s")])
    if usage.completion_tokens is None or turn.miscounted:
        parts.append([(f"{turn.chunks:,}", B), label(" chunk" if turn.chunks == 1 else " chunks")])
        if turn.miscounted:
            parts.append([(f"▲ the server counts {counted(usage.completion_tokens or 0, 'token')}", W)])
    else:
        cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        parts.append([(whole(usage.prompt_tokens), B), label(f" in{cached}, "), (whole(usage.completion_tokens), B), label(" out")])
    parts.append([(DASH if turn.seconds is None else f"{turn.seconds:.1f}", B), label(" s")])
    if turn.finish:
        words, style = FINISH.get(turn.finish, (turn.finish, W))
        if words:
            parts.append([(words, style)])
    return Content("   ").join(line(*part) for part in parts)


def thought_line(turn: Turn, folded: bool) -> Content:
    """`▸ thought for 1.9 s, 154 tokens`."""
    mark = "▸ " if folded else "▾ "
    tokens = f", {turn.usage.reasoning_tokens:,} tokens" if turn.usage.reasoning_tokens else ""
    took = f" for {turn.thought_s:.1f} s" if turn.thought_s is not None else ""
    if turn.streaming and not turn.reply:
        return line((mark, BP), label(f"thinking{took}   "))
    return line(label(f"{mark}thought{took}{tokens}"))


class TurnView(Vertical):
    """Draws its turn; a growing reply is appended to, never drawn again from the start."""

    DEFAULT_CSS = """
    TurnView {
        height: auto; margin: 1 0 0 0;
        & > .asked { border-left: wide $secondary; padding: 0 1; text-style: bold; height: auto; }
        & > .thought, & > .note, & > .foot { padding: 0 2; height: auto; }
        & > .thinking { padding: 0 2; margin: 0 0 0 2; height: auto; color: $foreground 70%; border-left: solid $rule; }
        & > .thinking:ansi { text-style: dim; }
        & > Markdown { padding: 0 2; margin: 1 0 0 0; background: $background; height: auto; }
        & > .rest { padding: 0 2; height: auto; }
        & > .error { padding: 0 1; margin: 1 0 0 0; height: auto; background: $error 14%; border-left: outer $error; }
        & > .asked.-ascii { border-left: ascii $secondary; }
        & > .thinking.-ascii { border-left: ascii $rule; }
        & > .error.-ascii { border-left: ascii $error; }
        & > .error:ansi { background: transparent; }
        &.-folded > .thinking { display: none; }
        MarkdownFence { background: $surface; margin: 0 0 1 0; }
        /* Markdown's own default for it is as specific as any rule here */
        MarkdownBlock > .code_inline { background: $surface !important; color: $primary !important; }
        MarkdownBlock:ansi > .code_inline { background: transparent !important; }
    }
    """
    turn: var[Turn] = var(Turn(asked=""), init=False)
    folded: var[bool] = var(True, init=False, toggle_class="-folded")

    def __init__(self, turn: Turn, *, folded: bool) -> None:
        super().__init__()
        self.set_reactive(TurnView.turn, turn)
        self.set_reactive(TurnView.folded, folded)
        self.set_class(folded, "-folded")
        self._stream: MarkdownStream | None = None
        self._written = ""
        self._plain_from: int | None = None
        """Where the part of the reply begins that is too long for Markdown."""

    def compose(self) -> ComposeResult:
        yield VerbatimText(Content(self.turn.asked), classes="asked", markup=False)
        yield Static(classes="note", markup=False)
        yield VerbatimText(classes="thought", markup=False)
        yield VerbatimText(classes="thinking", markup=False)
        yield Reply()
        yield VerbatimText(classes="rest", markup=False)
        yield VerbatimText(classes="error", markup=False)
        yield Static(classes="foot", markup=False)

    async def on_mount(self) -> None:
        if self.app.has_class("-ascii"):
            self.query(".asked, .thinking, .error").add_class("-ascii")
        await self._show()

    async def on_unmount(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            with suppress(NoMatches):
                await stream.stop()

    async def watch_turn(self) -> None:
        if self.is_mounted and self.is_attached:
            await self._show()

    def watch_folded(self) -> None:
        if self.is_mounted:
            self._show_thought()

    async def _show(self) -> None:
        turn = self.turn
        self._put("note", line(("▲ ", W), turn.note) if turn.note else None)
        self._show_thought()
        await self._show_reply(turn)
        self._put("error", line(self._own(line(("✗ ", BE))), (turn.error, E)) if turn.error else None)
        self._put("foot", footer(turn))

    def _show_thought(self) -> None:
        turn = self.turn
        self._put("thought", line(self._own(thought_line(turn, self.folded)), self._last_thought()) if turn.reasoning else None)
        # while it is folded nobody sees it: the text is put in when it opens
        if not turn.reasoning or self.folded:
            self.query_one(".thinking", Static).display = False
        else:
            self._put("thinking", Content(_tail(turn.reasoning)))

    def _last_thought(self) -> Content:
        """Draw the newest line of thought, if the rest is folded."""
        turn = self.turn
        now = self.folded and turn.streaming and not turn.reply
        return line(label(turn.reasoning.rstrip().rpartition("\n")[2][-100:] if now else ""))

    def _own(self, words: Content) -> Content:
        """Draw the room's own words, which ASCII mode may replace, unlike those of others."""
        return in_ascii(words) if self.app.has_class("-ascii") else words

    async def _show_reply(self, turn: Turn) -> None:
        markdown = self.query_one(Markdown)
        text = turn.reply
        if self._plain_from is None and len(text) > MARKDOWN_LIMIT:
            cut = text.rfind("\n", 0, MARKDOWN_LIMIT) + 1
            self._plain_from = cut or MARKDOWN_LIMIT
        body = text if self._plain_from is None else text[: self._plain_from]
        markdown.display = bool(body.strip())
        if not body.startswith(self._written):
            await self._end_stream()
            await markdown.update(body)
        elif body != self._written:
            if self._stream is None:
                self._stream = Markdown.get_stream(markdown)
            await self._stream.write(body[len(self._written) :])
        self._written = body
        if not turn.streaming and self._stream is not None:
            await self._end_stream()
            await markdown.update(body)  # what was appended piece by piece is parsed once more as a whole
        self._put("rest", Content(_tail(text[self._plain_from :])) if self._plain_from is not None else None)

    async def _end_stream(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.stop()

    def _put(self, name: str, content: Content | None) -> None:
        widget = self.query_one(f".{name}", Static)
        widget.display = content is not None
        if content is not None:
            widget.update(content)

    def on_click(self, event: object) -> None:
        """Fold or unfold the reasoning when its line is clicked."""
        widget = getattr(event, "widget", None)
        if isinstance(widget, Static) and widget.has_class("thought"):
            self.folded = not self.folded

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Copy a link of a reply instead of opening it, so that the user sees where it leads."""
        event.stop()
        self.post_message(TextCopied(event.href, "the link"))


def _tail(text: str) -> str:
    if len(text) <= TAIL_LIMIT:
        return text
    return f"({len(text) - TAIL_LIMIT:,} characters before)\n{text[-TAIL_LIMIT:]}"

"""A reply as Markdown, whose words stay what they are in a terminal that is asked for ASCII; bullets and rules don't."""

from typing import ClassVar

from markdown_it import MarkdownIt
from textual.app import ComposeResult
from textual.widgets import Label, Markdown
from textual.widgets._markdown import MarkdownBlock, MarkdownFence, MarkdownTable, MarkdownTableCellContents, MarkdownTableContent

from tui.widgets.ink import Theirs


class _Code(Theirs, Label):
    pass


class _Fence(MarkdownFence):
    def compose(self) -> ComposeResult:
        yield _Code(self._highlighted_code, id="code-content", expand=True)


class _Cell(Theirs, MarkdownTableCellContents):
    pass


class _Cells(MarkdownTableContent):
    def compose(self) -> ComposeResult:
        for one in super().compose():
            assert isinstance(one, MarkdownTableCellContents)
            yield _Cell(one.content, classes=" ".join(one.classes), name=one.name)


class _Table(MarkdownTable):
    def compose(self) -> ComposeResult:
        for one in super().compose():
            assert isinstance(one, MarkdownTableContent)
            yield _Cells(one.headers, one.rows)


def _of_words(kind: type[MarkdownBlock]) -> type[MarkdownBlock]:
    return type(f"Their{kind.__name__}", (Theirs, kind), {})


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

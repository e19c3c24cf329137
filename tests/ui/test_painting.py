"""What a change on the screen has written to the terminal."""

from collections.abc import Iterable

import pytest
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.content import Content, Span
from textual.geometry import Offset
from textual.reactive import var
from textual.screen import Screen
from textual.visual import Visual
from textual.widgets import Static

from tui.screens.compositor import SparingCompositor, SparingUpdate
from tui.widgets.canvas import Canvas, Painter, difference


class Words(Canvas):
    text: var[str] = var("", init=False)
    drawn = 0

    def draw(self, width: int, height: int) -> Content:
        self.drawn += 1
        return Content(self.text)

    def watch_text(self) -> None:
        self.redraw_soon()


class Sparing(Screen[None]):
    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparingCompositor()

    def compose(self) -> ComposeResult:
        yield Words()


class Room(App[None]):
    def get_default_screen(self) -> Screen[None]:
        return Sparing()


@pytest.mark.parametrize(
    ("before", "after", "columns"),
    [
        ("abc", "abc", (3, 3)),
        ("10:00:01", "10:00:02", (7, 8)),
        ("10:00:09", "10:00:10", (6, 8)),
        ("abc", "abcd", (3, 4)),
        ("abcd", "abc", (3, 4)),
        ("", "ab", (0, 2)),
        ("読x1", "読x2", (3, 4)),
        ("読x", "読読", (2, 4)),
    ],
)
def test_difference_in_columns(before: str, after: str, columns: tuple[int, int]) -> None:
    assert difference(Content(before), Content(after)) == columns


def test_difference_of_styles() -> None:
    plain = Content("one two three")
    assert difference(plain, plain.stylize("bold", 4, 7)) == (4, 7)
    assert difference(plain.stylize("bold", 4, 7), plain.stylize("dim", 4, 7)) == (4, 7)


async def test_only_what_changed_is_written() -> None:
    """Fails when Textual renames what the sparing update uses: then it writes more than it must, or too little."""
    app = Room()
    async with app.run_test(size=(60, 5)) as pilot:
        words = app.screen.query_one(Words)
        words.text = "the time is 10:00:01 and all is well\nin the second line, too"
        await pilot.pause()
        written: list[str] = []
        compositor = app.screen._compositor
        real = compositor.render_partial_update

        def noted() -> object:
            update = real()
            if update is not None:
                written.append(update.render_segments(app.console))
            return update

        compositor.render_partial_update = noted  # type: ignore[method-assign,assignment]
        words.text = words.text.replace("10:00:01", "10:00:02")
        await pilot.pause()
        assert len(written) == 1
        assert "\x1b[1;20H" in written[0]
        assert "2" in written[0]
        assert "all" not in written[0]
        assert "second" not in written[0]
        assert "\n" not in written[0]
        lines = [strip.text.rstrip() for strip in compositor.render_strips()]
        assert lines[:2] == ["the time is 10:00:02 and all is well", "in the second line, too"]


async def test_values_assigned_together_are_drawn_once() -> None:
    app = Room()
    async with app.run_test(size=(60, 5)) as pilot:
        words = app.screen.query_one(Words)
        await pilot.pause()
        before = words.drawn
        for text in ("a", "b", "c"):
            words.text = text
        await pilot.pause()
        assert words.drawn == before + 1


LINES = [
    Content("nothing about it"),
    Content(""),
    Content.assemble(("quiet ", "$foreground-muted"), ("bold ", "bold"), "plain ", ("tinted", "bold $primary 55%")),
    Content("one two three").stylize("bold", 0, 9).stylize("$error", 4, 7).stylize("reverse", 6, 13),
    Content("under all of it").stylize_before("$success", 0, 15).stylize("dim $warning", 3, 5),
    Content("読み込み 12 %").stylize("$primary 30%", 2, 9),
    Content("tab\there").stylize("bold", 4, 8),
    Content("short", [Span(3, 90, "bold")]),
]


@pytest.mark.parametrize("line", LINES, ids=[line.plain for line in LINES])
async def test_a_line_looks_as_textual_draws_it(line: Content) -> None:
    """Fails when Textual mixes styles in another way than it did."""
    app = Room()
    async with app.run_test(size=(60, 5)) as pilot:
        words = app.screen.query_one(Words)
        await pilot.pause()
        theirs = Visual.to_strips(words, line, 60, 1, words.visual_style)[0]
        theirs = theirs.extend_cell_length(60, words.visual_style.rich_style)
        for line_filter in words.get_line_filters():
            theirs = theirs.apply_filter(line_filter, words.background_colors[1])
        ours = Painter(words).strip(line, 60)
        assert cells_of(ours) == cells_of(theirs)
        assert ours.cell_length == 60


def cells_of(segments: Iterable[Segment]) -> list[tuple[str, str]]:
    """Yield each character with its looks."""
    return [(char, str(style.clear_meta_and_links()) if style else "") for text, style, _ in segments for char in text]


async def test_nothing_that_a_terminal_obeys_is_painted() -> None:
    app = Room()
    async with app.run_test(size=(60, 5)) as pilot:
        await pilot.pause()
        ours = Painter(app.screen.query_one(Words)).strip(Content("a\x1b[31mb\x07c\x9bd", strip_control_codes=False), 20)
        assert ours.text.rstrip() == "a�[31mb�c�d"


class Covered(Sparing):
    def compose(self) -> ComposeResult:
        yield Words()
        yield Static("FRONT!")


class CoveredRoom(App[None]):
    CSS = """
    Screen { layers: base front; }
    Static { layer: front; offset: 4 0; width: 6; height: 1; }
    """

    def get_default_screen(self) -> Screen[None]:
        return Covered()


async def test_what_is_covered_stays_so() -> None:
    app = CoveredRoom()
    async with app.run_test(size=(20, 3)) as pilot:
        words = app.screen.query_one(Words)
        words.text = "." * 20
        await pilot.pause()
        compositor = app.screen._compositor
        compositor.render_partial_update()
        words.text = "," * 20
        words.redraw()
        compositor.update_widgets({words})
        update: object = compositor.render_partial_update()
        assert isinstance(update, SparingUpdate)
        assert [(piece.y, piece.x, piece.strip.text) for piece in update.pieces] == [
            (0, 0, ",,,,"),
            (0, 4, "FRONT!"),
            (0, 10, "," * 10),
        ]


async def test_a_figure_can_be_selected_from() -> None:
    """The mouse finds the character it is on."""
    app = Room()
    async with app.run_test(size=(60, 5)) as pilot:
        words = app.screen.query_one(Words)
        words.text = "abc\n読み def"
        await pilot.pause()
        assert app.screen.get_widget_and_offset_at(1, 0) == (words, Offset(1, 0))
        assert app.screen.get_widget_and_offset_at(6, 1) == (words, Offset(4, 1))

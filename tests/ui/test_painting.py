"""What a change on the screen has written to the terminal."""

import pytest
from textual.app import App, ComposeResult
from textual.content import Content
from textual.reactive import var
from textual.screen import Screen

from tui.screens.painting import SparingCompositor
from tui.widgets.figure import Figure, difference


class Words(Figure):
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

"""Lines in which GPUs are drawn, and which cells of them belong to which GPU: what a click opens is said by what draws."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from textual.content import Content

from tui.core.gpu import Gpu


class Spot(Struct, frozen=True):
    """The cells from `first` to before `end` of a line, in which that GPU of that host is drawn."""

    first: int
    end: int
    host: str
    index: int


class Row(Struct, frozen=True):
    """One line; `spots` is empty where it shows no GPU."""

    text: Content
    spots: tuple[Spot, ...] = ()

    def at(self, column: int) -> Spot | None:
        """The GPU that is drawn in that column."""
        return next((spot for spot in self.spots if spot.first <= column < spot.end), None)


def of_gpu(text: Content, width: int, host: str, gpu: Gpu) -> Row:
    """A line that is one GPU's over its whole width."""
    return Row(text, (Spot(0, width, host, gpu.index),))


def of_none(texts: Iterable[Content]) -> list[Row]:
    """Lines that show no GPU."""
    return [Row(text) for text in texts]


def side_by_side(text: Content, first: int, widths: Sequence[int], host: str, gpus: Sequence[Gpu]) -> Row:
    """A line in which GPUs of one host stand next to each other, from the column `first` on, each so many cells wide."""
    spots = []
    for wide, gpu in zip(widths, gpus, strict=True):
        spots.append(Spot(first, first + wide, host, gpu.index))
        first += wide
    return Row(text, tuple(spots))

"""Which bar is whose: the main model's, a drafter's, a second pass, another engine's, a reload's.

A second bar from 0 is not a restart. Bars carry no name at all from 0.31 on, and a refresh may be printed twice or leave counts
out.
"""

import re
from dataclasses import dataclass, field

from msgspec import Struct

from tui.core.logs.load_state import Loader

_BAR = re.compile(
    r"(?:^|(?<=\]))(?P<name>[^\r\n|]{0,160}?):\s{1,4}(?P<percent>\d{1,3})%"
    r"(?P<shape> Completed \||\|[^|\r\n]*\|)\s(?P<done>[\d.]+[kKMGTP]?)i?B?/(?P<total>[\d.]+[kKMGTP]?)i?B?"
    r"(?:\s?\[(?P<elapsed>\d+(?::\d\d){1,2})(?:<(?P<left>[\d:?]*)(?:,\s*(?P<rate>\?|[\d.]+)?\s*(?P<unit>[A-Za-z/]+)?)?)?)?"
)
MOST = 1e18
"""Above any count of bytes."""
_SCALE = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


class Bar(Struct, frozen=True):
    """One refresh of a bar. `elapsed` is in seconds, None if it is cut off; `shards` marks the weight loader's own format."""

    name: str
    done: float
    total: float
    elapsed: float | None
    unit: str
    shards: bool
    rate_s: float | None = None
    """Seconds a step: tqdm's moving average, to hundredths."""


def looks_like_bar(text: str) -> bool:
    return "% Completed |" in text or "%|" in text


def parse_bar(text: str) -> Bar | None:
    """Return the last bar of a line, None if there is none that tqdm would draw."""
    match = None
    for match in _BAR.finditer(text):  # noqa: B007
        pass
    if match is None:
        return None
    elapsed = match["elapsed"]
    seconds: float | None = None
    if elapsed:
        seconds = 0.0
        for part in elapsed.split(":"):
            seconds = seconds * 60 + int(part)
    try:
        done, total = _number(match["done"]), _number(match["total"])
    except ValueError:
        return None
    if int(match["percent"]) > 100 or not 0 <= done <= total < MOST:
        return None  # no bar of tqdm's: what else is in the log must not end the real one
    unit = match["unit"] or ""
    return Bar(match["name"].strip(), done, total, seconds, unit, match["shape"].startswith(" "), _rate_s(match["rate"], unit))


def _rate_s(rate: str | None, unit: str) -> float | None:
    try:
        number = float(rate or 0)
    except ValueError:
        return None
    if not number:
        return None
    return number if unit.startswith("s/") else 1 / number if unit.endswith("/s") else None


def _number(text: str) -> float:
    scale = _SCALE.get(text[-1])
    return float(text[:-1]) * scale if scale else float(text)


STEPS_KEPT = 512
SMOOTHING = 0.3
"""The weight of the latest step in tqdm's moving average, by default."""


@dataclass(slots=True)
class StepTimes:
    """The seconds of each refresh, out of tqdm's moving average: a bar's own clock counts whole seconds only.

    tqdm keeps `last = SMOOTHING * x + (1 - SMOOTHING) * last`, of steps and of seconds, and prints the quotient.
    """

    steps: float = 0.0
    seconds: float = 0.0
    unseen: float = 1.0
    """The weight of what came before the first refresh."""

    def begin(self, done: float, rate_s: float | None) -> None:
        """Take the first refresh that was seen, after one a step."""
        self.unseen = (1 - SMOOTHING) ** min(done, 1000.0)
        self.steps = 1 - self.unseen
        self.seconds = self.steps * (rate_s or 0.0)

    def take(self, steps: float, rate_s: float | None) -> float | None:
        """Return the seconds that these steps took; None if the average does not tell."""
        if rate_s is None:
            return None
        self.unseen *= 1 - SMOOTHING
        self.steps = SMOOTHING * steps + (1 - SMOOTHING) * self.steps
        before, self.seconds = self.seconds, self.steps * rate_s
        return round((self.seconds - (1 - SMOOTHING) * before) / SMOOTHING, 3)


@dataclass(slots=True)
class OpenBar:
    """One bar as it grows. Times in seconds of the log's clock; `step_seconds` as `Loader` has it."""

    what: str
    unit: str
    name: str
    owner: str
    done: float
    total: float
    started_at: float | None
    last_at: float | None
    elapsed: float | None = None
    step_seconds: list[float] = field(default_factory=list)
    took_after: int = 0
    repeats: int = 0
    times: StepTimes = field(default_factory=StepTimes)
    whole_seconds: bool = False

    @property
    def complete(self) -> bool:
        return self.done >= self.total > 0

    def loader(self) -> Loader:
        return Loader(
            self.what,
            _count(self.done),
            _count(self.total),
            self.unit,
            self.started_at,
            tuple(self.step_seconds),
            self.last_at,
            self.whole_seconds,
        )

    def refresh(self, done: float, elapsed: float | None, at: float | None, rate_s: float | None = None) -> None:
        """Take a later refresh of the same bar. Times of arrival and averages are finer than its own clock of whole seconds."""
        steps = done - self.done
        if steps > 0:
            averaged = self.times.take(steps, rate_s)
            spent, fine = _spent(self.last_at, at, self.elapsed, elapsed, averaged)
            self.whole_seconds = self.whole_seconds or not fine
            if spent is not None and steps <= 1000 and self.unit != "bytes":
                each = spent / steps
                self.step_seconds.extend([each] * int(steps))
                if len(self.step_seconds) > STEPS_KEPT:
                    # The first step is the cold one, which an estimate leaves out: it keeps its place.
                    del self.step_seconds[1 : len(self.step_seconds) - STEPS_KEPT + 1]
            self.done = done
            self.elapsed = elapsed if elapsed is not None else self.elapsed
            self.last_at = at if at is not None else self.last_at


def _unit(bar: Bar, release: tuple[int, int]) -> str:
    """Return what a loader counts. The streamers took to other units, and their bars do not say which."""
    if "InstantTensor" in bar.name:
        return "bytes" if bar.total >= 1e6 else "tensors"
    if "Runai" in bar.name and (release >= (0, 10) or bar.total >= 1000):
        return "tensors"
    return "shards"


def _spent(
    before: float | None, at: float | None, elapsed_before: float | None, elapsed: float | None, averaged: float | None
) -> tuple[float | None, bool]:
    """Return the seconds between two refreshes, and whether they are finer than whole ones."""
    by_bar = elapsed - elapsed_before if elapsed is not None and elapsed_before is not None else None
    by_arrival = at - before if at is not None and before is not None else None
    if averaged is not None and by_bar is not None and averaged >= 0 and abs(averaged - by_bar) < 1.05:
        return averaged, True
    if by_arrival is not None and by_arrival >= 0 and (by_bar is None or 1e-3 < abs(by_arrival - by_bar) <= 1.5):
        return by_arrival, True
    return (by_bar, False) if by_bar is not None and by_bar >= 0 else (None, True)


def _count(number: float) -> float:
    return int(number) if number == int(number) else round(number) if number > 1e6 else number


class Loaders:
    """All bars over weights of one start."""

    def __init__(self) -> None:
        self.bars: list[OpenBar] = []
        self.drafter_announced = False
        self.weights_took = 0
        self.model_loading_took = 0
        self.engines_expected = 1
        self.files: dict[str, tuple[float, float]] = {}
        self._last: OpenBar | None = None

    @property
    def main(self) -> OpenBar | None:
        return next((bar for bar in self.bars if bar.what == "model"), None)

    @property
    def incomplete(self) -> bool:
        """Tell whether the bar of any engine's main model still has shards before it."""
        engines = self.engines
        owed = 0 < len(engines) < self.engines_expected and self.weights_took < self.engines_expected
        return owed or any(not bar.complete for bar in engines)

    def update(self, bar: Bar, owner: str, at: float | None, release: tuple[int, int]) -> OpenBar:
        """Take a refresh of a bar that the engine's release draws."""
        unit = _unit(bar, release)
        known = self._find(bar, owner)
        if known is not None:
            known.refresh(bar.done, bar.elapsed, at, bar.rate_s)
            self._last = known
            return known
        started = at - bar.elapsed if at is not None and bar.elapsed is not None else at
        new = OpenBar(self._what(bar, owner), unit, bar.name, owner, bar.done, bar.total, started, at, bar.elapsed)
        new.took_after = self.weights_took
        new.times.begin(bar.done, bar.rate_s)
        if bar.done and bar.elapsed is not None and bar.done <= 1000 and unit != "bytes":
            new.step_seconds = [bar.elapsed / bar.done] * int(bar.done)
        self.bars.append(new)
        self._last = new
        return new

    def _find(self, bar: Bar, owner: str) -> OpenBar | None:
        alike = [other for other in self.bars if other.name == bar.name and other.total == bar.total and other.done <= bar.done]
        # A name may be missing on some lines of one bar: a terminal's or a log store's work.
        candidates = [other for other in alike if other.owner == owner] or [
            other for other in alike if not owner or not other.owner
        ]
        if not candidates:
            return None
        if bar.done == 0:
            # A first refresh printed twice belongs to the bar that has not moved yet, unless another engine owes a bar of its own.
            still = [other for other in candidates if other.done == 0]
            return still[-1] if still and (owner or len(self.engines) >= self.engines_expected) else None
        if bar.done >= bar.total:
            # The last line usually comes twice.
            last = self._last
            if last is not None and last in candidates and last.complete and last.repeats == 0:
                last.repeats = 1
                return last
        # Unnamed bars of several engines look alike: the nearest count whose bar is not ahead in time is the likeliest.
        moving = [other for other in candidates if not other.complete] or candidates
        in_time = [other for other in moving if other.elapsed is None or bar.elapsed is None or other.elapsed <= bar.elapsed + 1]
        return max(in_time or moving, key=lambda other: other.done)

    def settle(self) -> None:
        """Complete the bars once all engines have said that their weights are loaded, however they were told apart."""
        engines = self.engines
        if len(engines) > 1 and self.weights_took >= len(engines):
            for other in engines:
                other.done = other.total

    @property
    def engines(self) -> list[OpenBar]:
        """Return the bar of each engine's main model."""
        return [other for other in self.bars if other.what == "model" or other.what.startswith("engine")]

    def _what(self, bar: Bar, owner: str) -> str:
        if self.drafter_announced:
            return "drafter"
        if self.main is None:
            return "model"
        shown = [other for other in self.bars if other.what not in ("prefetch", "download")]
        mine = [other for other in shown if other.owner == owner]
        engines = self.engines
        if len(engines) < self.engines_expected and (not mine or not owner):
            return f"engine {len(engines)}"
        if mine and owner:
            pass
        elif not mine and owner and engines and all(other.total == bar.total for other in engines) and self.engines_expected > 1:
            return f"engine {len(engines)}"
        last = (mine or shown)[-1]
        if self.model_loading_took and self.weights_took > last.took_after:
            return "reload"
        if self.weights_took > last.took_after:
            return "drafter"
        passes = sum(1 for other in self.bars if other.what == "model" or other.what.startswith("pass"))
        return f"pass {passes + 1}"

    def prefetch(self, done: float, total: float, owner: str, at: float | None) -> None:
        self._keyed("prefetch", "shards", owner, done, total, at)

    def download(self, name: str, bar: Bar, at: float | None) -> None:
        """Take the hub's own bars: one a file in bytes, or one over all files."""
        if name.startswith("Fetching"):
            self._keyed("download", "files", name, bar.done, bar.total, at)
            return
        self.files[name] = (bar.done, bar.total)
        if any(other.what == "download" and other.unit == "files" for other in self.bars):
            return
        done = sum(part[0] for part in self.files.values())
        total = sum(part[1] for part in self.files.values())
        self._keyed("download", "bytes", "", done, total, at)

    def _keyed(self, what: str, unit: str, owner: str, done: float, total: float, at: float | None) -> None:
        for other in self.bars:
            if other.what == what and other.owner == owner:
                other.total = total
                other.refresh(done, None, at)
                return
        self.bars.append(OpenBar(what, unit, what, owner, done, total, at, at))

"""tqdm's progress bars, whole or cut at the width of a terminal.

Shards: `Loading safetensors checkpoint shards: 25% Completed | 1/4 [00:02<00:07, 2.40s/it]`; everything else in tqdm's default
format: `Capturing CUDA graphs: 15%|█▍ | 10/67 [00:03<00:18, 3.12it/s]`. At 80 columns unit and bracket are gone, at 60 the
times, too.
"""

import re

from msgspec import Struct

_BAR = re.compile(
    r"(?:^|(?<=\]))(?P<name>[^\r\n|]{0,160}?):\s{1,4}(?P<percent>\d{1,3})%"
    r"(?P<shape> Completed \||\|[^|\r\n]*\|)\s(?P<done>[\d.]+[kKMGTP]?)i?B?/(?P<total>[\d.]+[kKMGTP]?)i?B?"
    r"(?:\s?\[(?P<elapsed>\d+(?::\d\d){1,2})(?:<(?P<left>[\d:?]*)(?:,\s*(?P<rate>\?|[\d.]+)?\s*(?P<unit>[A-Za-z/]+)?)?)?)?"
)
MOST = 1e18
"""Above any count of bytes."""
_SCALE = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


class Bar(Struct, frozen=True):
    """One refresh. `elapsed` is in seconds, None where it is cut off; `shards` tells the weight loader's own format."""

    name: str
    done: float
    total: float
    elapsed: float | None
    unit: str
    shards: bool


def looks_like_bar(text: str) -> bool:
    return "% Completed |" in text or "%|" in text


def parse_bar(text: str) -> Bar | None:
    """The last bar of a line, None where there is none, or none that tqdm would draw."""
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
    return Bar(match["name"].strip(), done, total, seconds, match["unit"] or "", match["shape"].startswith(" "))


def _number(text: str) -> float:
    scale = _SCALE.get(text[-1])
    return float(text[:-1]) * scale if scale else float(text)

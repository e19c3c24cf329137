"""What a progress bar says about the course of a start."""

import re

from msgspec.structs import replace

from tui.core.logs.bars import Bar
from tui.core.logs.course import Course
from tui.core.logs.records import Speaker
from tui.core.logs.state import Phase

_LOADER = re.compile(r"[Ll]oading .*(?:checkpoint|shards|Streamer|loader)|Multi-thread loading")
_CAPTURE = re.compile(r"Capturing")
_WARM_UP = re.compile(r"warm-?up|Compiling|Autotun|Pre-compiling|tuning", re.IGNORECASE)
_HUB = re.compile(r"Fetching \d+ files|\.(?:safetensors|bin|json|gguf|pt|model)\b|Downloading")
_NAME = re.compile(r"(?:Loading|Multi-thread|Capturing|Fetching|Downloading|\[Aiter|DeepGEMM|Compiling|JIT).*")
"""Where a bar's own words begin, behind a prefix that nobody knows."""


def take(course: Course, bar: Bar, speaker: Speaker, now: float | None) -> None:
    """Reads one refresh of a bar."""
    named = _NAME.search(bar.name)
    if named and named[0] != bar.name:
        bar = replace(bar, name=named[0])
    if bar.shards or _LOADER.search(bar.name):
        if course.phase in (Phase.STOPPED, Phase.FAILED) and course.loaders.main is None:
            return
        known = course.loaders.update(bar, speaker.key if speaker.pid is not None else "", now, course.release)
        if not known.complete and known.what != "reload":
            course.enter(Phase.LOADING, now)
    elif _CAPTURE.search(bar.name):
        course.capture_bar(bar, now)
        course.enter(Phase.CAPTURING, now)
    elif _HUB.search(bar.name):
        course.loaders.download(bar.name, bar, now)
        weights = "safetensors" in bar.name or bar.name.startswith("Fetching") or ".bin" in bar.name or ".gguf" in bar.name
        if weights and course.phase in (Phase.STARTING, Phase.LOADING) and course.loaders.main is None:
            course.enter(Phase.DOWNLOADING, now)
    elif _WARM_UP.search(bar.name) and course.phase in (Phase.KV_CACHE, Phase.CAPTURING):
        course.enter(Phase.WARMING_UP, now)

"""What a phase is called wherever a person reads of it; programs get the phases' own values."""

from typing import Final

from tui.core.logs.state import Phase

NAMES: Final[dict[Phase, str]] = {
    Phase.STARTING: "starting",
    Phase.DOWNLOADING: "download",
    Phase.LOADING: "loading",
    Phase.POST_LOADING: "post-load",
    Phase.COMPILING: "compile",
    Phase.PROFILING: "profile",
    Phase.KV_CACHE: "KV cache",
    Phase.CAPTURING: "capture",
    Phase.WARMING_UP: "warm-up",
}
"""The phases of a start, in the order that most versions have; at most nine characters each."""


def name_of(phase: Phase | str) -> str:
    """The name; a word that is no phase (of a record that another version wrote) stays as it is."""
    known = phase if isinstance(phase, Phase) else next((one for one in Phase if one.value == phase), None)
    return NAMES.get(known, known.value.replace("_", " ")) if known is not None else phase.replace("_", " ")

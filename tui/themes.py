"""The four themes, and which of them a terminal gets. Colours are named nowhere else.

One meaning each, and a sign or a word says it too: primary is the engine (its memory, progress, tokens) and where you are; success
is passed, ready, even; warning is "look at this"; error is failed, odd; secondary is you, and latency in a sweep. `quiet` is for
labels and units, `track` for what is not filled, `rule` for borders.
"""

from collections.abc import Mapping

from textual.theme import BUILTIN_THEMES, Theme

DARK = Theme(
    "readyroom-dark",
    primary="#58b4f5",
    secondary="#c3a6ff",
    success="#63d297",
    warning="#f3bd5c",
    error="#ff7070",
    foreground="#dbe3ee",
    background="#0e131b",
    surface="#161d28",
    panel="#1c2533",
    variables={"quiet": "#7f8da3", "track": "#2a374a", "rule": "#2a374a"},
)
LIGHT = Theme(
    "readyroom-light",
    dark=False,
    primary="#0968c3",
    secondary="#7a3fc4",
    success="#17794a",
    warning="#9a5b00",
    error="#c0262d",
    foreground="#1b2430",
    background="#fbfaf7",
    surface="#f0eee8",
    panel="#e6e3da",
    variables={"quiet": "#667080", "track": "#cfd2d4", "rule": "#cfd0cc"},
)


def _sixteen(name: str, base: str, dark: bool, primary: str, warning: str) -> Theme:
    """Return a theme of 16 colours that uses the terminal's own palette and background."""
    return Theme(
        name,
        ansi=True,
        dark=dark,
        primary=primary,
        secondary="ansi_magenta",
        success="ansi_green",
        warning=warning,
        error="ansi_red",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        variables={**BUILTIN_THEMES[base].variables, "quiet": "dim", "track": "ansi_bright_black", "rule": "ansi_bright_black"},
    )


SIXTEEN = _sixteen("readyroom-16", "ansi-dark", True, "ansi_cyan", "ansi_yellow")
# yellow and cyan can't be read on a light ground: magenta is the warning there too, its sign ▲ tells it from the user's own colour
SIXTEEN_LIGHT = _sixteen("readyroom-16-light", "ansi-light", False, "ansi_blue", "ansi_magenta")
THEMES = (DARK, LIGHT, SIXTEEN, SIXTEEN_LIGHT)
WORDS = {"dark": DARK.name, "light": LIGHT.name, "16": SIXTEEN.name, "16-light": SIXTEEN_LIGHT.name}


def choose(wanted: str, color_system: str | None, environ: Mapping[str, str]) -> str:
    """Return the name of the theme for a terminal.

    `wanted` is the setting (auto, dark, light, 16, 16-light, or a theme's full name); `color_system` is what the console can do
    ("standard" is 16 colours). COLORFGBG, if the terminal sets it, tells a light ground.
    """
    if wanted in WORDS:
        return WORDS[wanted]
    if wanted in {theme.name for theme in THEMES}:
        return wanted
    light = environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    few = color_system == "standard" and environ.get("COLORTERM", "") not in ("truecolor", "24bit") and "NO_COLOR" not in environ
    if few:
        return SIXTEEN_LIGHT.name if light else SIXTEEN.name
    return LIGHT.name if light else DARK.name

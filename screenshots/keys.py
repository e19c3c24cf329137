"""Writes the table of keys into README.md, from the table of actions that footer, help and palette use."""

from pathlib import Path

from tui.actions import ACTIONS, NO_KEYS, help_of

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "from the table that footer, help and palette use -->\n", "<!-- /keys -->"


def table() -> str:
    """Return the table of keys as Markdown."""
    rows = ["| key | does |", "| --- | --- |"]
    rows += [f"| `{action.shown}` | {help_of(action, NO_KEYS)} |" for action in ACTIONS if action.shown]
    return "\n".join(rows) + "\n"


def updated(text: str) -> str:
    """README's text with the table of today."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    README.write_text(updated(README.read_text("utf-8")), "utf-8")

"""Keys by Textual's names: which of them a terminal can send, and what they type."""

import difflib
from functools import cache

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
SENT = frozenset(key.value for key in Keys if not key.value.startswith("<")) - {"return", "ctrl-at"}
"""Keys that are no characters, alone and with modifiers; the two that are left out are names that nothing sends."""
SHORT_NAMES = {short: key_to_character(long) for long, short in KEY_NAME_REPLACEMENTS.items()}
"""Characters whose key Textual calls by a name of its own: `slash` for `/`."""


@cache
def typed_by(key: str) -> str | None:
    """The character that a key types: `q`, `?` by question_mark; None for `f5`, `enter`, `ctrl+t`."""
    if len(key) > 1 and "+" in key:
        return None
    character = key if len(key) == 1 else SHORT_NAMES.get(key) or key_to_character(key)
    if character is None or not character.isprintable() or key_name(character) != key_name(key):
        return None  # its Unicode name, say, by which no key is known
    return character


def is_key(name: str) -> bool:
    """Whether a terminal can send a key that Textual calls so: `q`, `?`, `question_mark`, `f5`, `ctrl+t`.

    Those of modern terminals count, too: `ctrl+1`, `alt+ctrl+x`. With shift a character is another one: `shift+q` comes as `Q`.
    """
    *modifiers, base = name.split("+") if name != "+" else [name]
    if modifiers != sorted(MODIFIERS.intersection(modifiers)):  # in this order they come
        return False
    if name in SENT or base in SENT:
        return True
    if typed_by(base) is None:
        return False
    return not modifiers or (modifiers != ["shift"] and base == base.lower())


def key_name(key: str) -> str:
    """The one name of a key that may be written as its character: `?` is `question_mark`."""
    if key in (",", " "):
        return {",": "comma", " ": "space"}[key]  # between two keys these are no keys
    return next(iter(Binding.make_bindings([(key, "", "")]))).key if len(key) == 1 else key


def like(key: str) -> str:
    """What to write instead of a key that is none, to be put behind its name."""
    *modifiers, base = key.split("+")
    meant = base.upper() if modifiers == ["shift"] else "+".join([*sorted(map(str.lower, modifiers)), base.lower()])
    near = [meant] if is_key(meant) else difflib.get_close_matches(key, SENT | SHORT_NAMES.keys(), 1)
    return f"; did you mean {near[0]!r}?" if near else ": write it as in q, f5, ctrl+t, enter, question_mark"

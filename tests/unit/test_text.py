import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.core.text import LineSplitter, clean, hide, secrets_in


@pytest.mark.parametrize(
    ("dirty", "cleaned"),
    [
        ("plain text, 100 % fine", "plain text, 100 % fine"),
        ("tab\tstays", "tab\tstays"),
        ("\x1b[32mINFO \x1b[0mready", "INFO ready"),
        ("\x1b[1;36m(Worker_TP0 pid=1)\x1b[0;0m x", "(Worker_TP0 pid=1) x"),
        ("\x1b[38:5:196mred\x1b[m", "red"),
        ("\x1b[2J\x1b[H\x1b[?1049hgone", "gone"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]52;c;cm0gLXJmIC8=\x1b\\clip", "clip"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2;0;0;0\x1b\\sixel", "sixel"),
        ("cut \x1b[38;5", "cut "),
        ("cut \x1b]0;no end", "cut "),
        ("\x9b31mC1 form", "C1 form"),
        ("\x9d0;t\x9cC1 string", "C1 string"),
        ("\x1b(B\x1b)0\x1b7\x1b=x", "x"),
        ("bell\x07 back\x08space del\x7f nul\x00", "bell backspace del nul"),
        ("one\r\ntwo\rthree\n", "one two three"),
        ("ad\u202egnp.exe\u2066x\u2069", "adgnp.exex"),
        ("zero\u200bwidth\ufeff\u2060", "zerowidth"),
        ("tag\U000e0041", "tag"),
        ("\u26a0\ufe0f hot \u2764\ufe0e", "\u26a0 hot \u2764"),
        ("24%|██▍       | é 日本", "24%|██▍       | é 日本"),
        ("[1;36m(an SGR without its ESC stays for the log reader)", "[1;36m(an SGR without its ESC stays for the log reader)"),
        ("lone \ud83d surrogate", "lone  surrogate"),
    ],
)
def test_clean(dirty: str, cleaned: str) -> None:
    assert clean(dirty) == cleaned


def test_clean_keeps_newlines_when_asked() -> None:
    assert clean("a\r\nb\rc\n\x1b[1md\te\x1b]0;cut\nf", keep_newlines=True) == "a\nb\nc\nd\te\nf"


@given(st.text())
def test_cleaned_text_holds_nothing_that_acts_and_cleaning_twice_changes_nothing(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert all(character == "\t" or unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") for character in cleaned)
    assert not set(cleaned) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
    kept = clean(text, keep_newlines=True)
    assert clean(kept, keep_newlines=True) == kept


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb\n", ["a", "b"]),
        (b"bar 1\rbar 2\rbar 3\n", ["bar 1", "bar 2", "bar 3"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\r\rx", ["", "x"]),
        (b"\xff\xfe bad \xe2\x96", ["�� bad �"]),
        ("█▍\n".encode(), ["█▍"]),
        (b"", []),
    ],
)
def test_lines(data: bytes, lines: list[str]) -> None:
    splitter = LineSplitter()
    assert splitter.feed(data) + splitter.flush() == lines


def test_a_line_without_end_comes_in_pieces() -> None:
    splitter = LineSplitter(max_length=4)
    assert splitter.feed(b"abcdefghij") == ["abcd", "efgh"]
    assert splitter.feed(b"\nk") == ["ij"]
    assert splitter.flush() == ["k"]


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"ab", b"\xe2", b"\x96", b"\x88", b"0123456789", b"\xff"])),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1),
)
def test_lines_do_not_depend_on_the_chunks(parts: list[bytes], sizes: list[int]) -> None:
    data = b"".join(parts)
    whole = LineSplitter(max_length=8)
    expected = whole.feed(data) + whole.flush()
    chunked = LineSplitter(max_length=8)
    lines: list[str] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        lines += chunked.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert lines + chunked.flush() == expected


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"Authorization": "Bearer sk-0123456789"}, "no such key: Bearer ••• for team-blue"),
        ({"Authorization": "sk-0123456789", "X-Team": "team-blue"}, "no such key: Bearer ••• for •••"),
        ({"X-Debug": "for", "X-Other": "Bearer"}, "no such key: Bearer sk-0123456789 for team-blue"),  # too short to be secrets
    ],
)
def test_a_secret_that_a_server_echoes_is_hidden(headers: dict[str, str], told: str) -> None:
    said = hide("no such key: Bearer sk-0123456789 for team-blue", secrets_in(headers))
    assert said.replace("key: •••", "key: Bearer •••") == told

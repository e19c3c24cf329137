"""Finding the answer in a reply, whatever its wording, language, Markdown or LaTeX: what the verdicts of smoke prompts stand on.

A reply is free text by a model that was asked for little; the judge must neither miss a wrong answer nor raise a false alarm about
a right one that explains itself. So numbers are told apart into claims and workings, a name that is denied ("not Sydney") is no
claim, and if a reply says several things, its last word counts.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether a reply has the answer, and what to show: the answer found, or what stands there instead."""

    right: bool
    says: str


_MARKUP = re.compile(r"[*_`~$]|\\[()\[\]!,;: ]|\\(?:text|mathrm|mathbf|textbf|displaystyle|left|right)\b|[{}]")
_BOXED = re.compile(r"\\boxed\s*\{+\s*(?:\\text\s*\{)?\s*([^{}]+)")
_SPECIAL = re.compile(r"<\|[^|<>]{1,40}\|>|<｜[^｜<>]{1,40}｜>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|<eos>")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t(?: be)?|\bnever|\binstead of|\brather than|\bnot the|≠|!=|/=|\bnicht|\bkein\w*|\bpas|\bno es|\bnão|\bnon"
    r"|\bniet|\bне|不是|并非|並非|而非|じゃなく|ではなく|ليس(?:ت)?)[\s:\"“«(]*$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"^[\s\"”»)]*(?:is|was|would be|are|est|ist|es)?\s*"
    r"(?:wrong|incorrect|not (?:right|correct|the (?:capital|answer))|false|falsch|faux"
    r"|n'est pas|ist nicht|no es|ではなく|じゃなく|이 아니|가 아니|не\b|不是)",
    re.IGNORECASE,
)


def plain(reply: str) -> str:
    """Return the reply without markup, chat-format tokens, full-width forms or digits of other scripts."""
    text = unicodedata.normalize("NFKC", _SPECIAL.sub(" ", reply))
    text = "".join(
        str(unicodedata.digit(char)) if char.isdigit() and not char.isascii() and _is_digit(char) else char for char in text
    )
    text = text.replace("٫", ".").replace("‐", "-").replace("‑", "-").replace("–", "-").replace("—", " - ").replace("−", "-")
    text = text.replace("\\times", "×").replace("\\cdot", "×").replace("\\approx", "≈").replace("\\neq", "≠").replace("\\ne ", "≠ ")
    text = text.replace("\\gt", ">").replace("\\lt", "<").replace("&gt;", ">").replace("&lt;", "<")
    return _MARKUP.sub("", text)


def _is_digit(char: str) -> bool:
    return unicodedata.digit(char, None) is not None


def shown(reply: str, width: int = 40) -> str:
    """Return the reply in one line, for a verdict."""
    text = " ".join(plain(reply).split())
    return text if len(text) <= width else text[: width - 1] + "…"


# -- a number ----------------------------------------------------------------------------------------------------------------------


def number(reply: str, expected: int, *, workings: Collection[int] = (), spelled: Sequence[str] = ()) -> Judged:
    """Judge whether the last claim of the reply is the expected number; `workings` are numbers that an explanation may mention."""
    boxed = _BOXED.findall(reply)
    if boxed:
        value = _value(plain(boxed[-1]).strip())
        return Judged(value == expected, shown(boxed[-1]))
    text = plain(reply)
    claims: list[float] = []
    for match in _NUMBER.finditer(text):
        value = _value(match[0])
        if value is None or (value in workings and value != expected) or _denied(text, match.start(), match.end()):
            continue
        if re.match(r"\s*[)．.]\s", text[match.end() :]) and value < 20 and _line_start(text, match.start()):
            continue  # the number of a list's item
        claims.append(value)
    if claims:
        return Judged(claims[-1] == expected, f"{expected}" if claims[-1] == expected else f"{claims[-1]:g}, not {expected}")
    folded = text.casefold()
    if any(words in folded.replace("-", " ").replace(" and ", " ") for words in spelled):
        return Judged(True, str(expected))
    return Judged(False, f"no {expected}: {shown(reply)}")


def _value(text: str) -> float | None:
    text = text.replace("−", "-").replace(" ", "").rstrip(".,")
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def _line_start(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _denied(text: str, start: int, end: int) -> bool:
    return bool(_DENIED_BEFORE.search(text[max(0, start - 24) : start]) or _DENIED_AFTER.match(text[end : end + 32]))


# -- the larger of two -------------------------------------------------------------------------------------------------------------

_LARGER = (
    r"larg(?:er|est)|great(?:er|est)|bigg(?:er|est)|high(?:er|est)|\bmore\b|größ(?:er|te|ere)\w*|grösser\w*|plus grand\w*"
    r"|supérieur\w*|mayor|más grande|maior|maggiore|più grande|groter|grootste|större|større|większ\w*|větší|больш\w*|більш\w*"
    r"|büyük|lebih besar|lớn hơn|更大|较大|較大|最大|大于|大於|大きい|大きく|더 큰|더 크|더 큽|크다|큽니다|أكبر|बड़ी|बड़ा|बड़ी|बड़ा"
    r"|גדול|μεγαλύτερ\w*"
)
_SMALLER = (
    r"small(?:er|est)|less(?:er)?\b|low(?:er|est)|kleiner\w*|plus petit\w*|inférieur\w*|menor|más pequeñ\w*|minore"
    r"|più piccol\w*|mindre|mniejsz\w*|menší|меньш\w*|менш\w*|küçük|lebih kecil|nhỏ hơn|更小|较小|較小|小于|小於|小さい|더 작"
    r"|작다|작습니다|أصغر|छोट\w*|קטן|μικρότερ\w*"
)
_THAN = r"than|als\b|que\b|do que|di\b|dan\b|än|enn|end\b|чем|ніж|daripada|hơn|于|於|より|보다|من|से"
_COMPARATIVE = re.compile(rf"(?P<larger>{_LARGER})|(?P<smaller>{_SMALLER})", re.IGNORECASE)
_NOT_HERE = re.compile(r"\b(?:not|n't|isn't|nicht|pas|no|não|non|niet|не)\b|不|ليس", re.IGNORECASE)


def larger_of(reply: str, larger: str, smaller: str) -> Judged:
    """Judge whether the reply holds `larger` (such as "9.9") to be the larger of the two decimals."""
    boxed = _BOXED.findall(reply)
    text = plain(boxed[-1] if boxed else reply)
    one = {True: _decimal(larger), False: _decimal(smaller)}
    either = re.compile(f"(?P<a>{one[True]})|(?P<b>{one[False]})")

    found = [(match.start(), match.end(), match["a"] is not None) for match in either.finditer(text)]
    if not found:
        return Judged(False, f"neither number: {shown(reply)}")
    verdict = _said_alone(text, either)
    if verdict is None:
        verdict = _related(text, one)
    if verdict is None:
        verdict = _worded(text, found)
    if verdict is None:
        verdict = next((is_larger for start, end, is_larger in reversed(found) if not _denied(text, start, end)), found[-1][2])
    return Judged(verdict, f"{larger} > {smaller}" if verdict else f"holds {smaller} to be larger")


def _decimal(number: str) -> str:
    """Return a pattern for a decimal with a point or a comma, with trailing zeros, and not inside a longer number."""
    whole, fraction = number.split(".")
    return rf"(?<![\d.,]){whole}[.,]{fraction}0*(?![\d]|[.,]\d)"


def _said_alone(text: str, either: re.Pattern[str]) -> bool | None:
    """Return the verdict of a last line that is one of the numbers and little else: `9.9`, `Answer: 9.9`."""
    lines = [line.strip(" .!。:*#>-") for line in text.splitlines() if line.strip(" .!。:*#>-")]
    last = lines[-1] if lines else ""
    matches = list(either.finditer(last))
    if len(matches) != 1 or _COMPARATIVE.search(last):
        return None
    return matches[0]["a"] is not None and not _denied(last, matches[0].start(), matches[0].end())


def _related(text: str, one: dict[bool, str]) -> bool | None:
    """Return the verdict of the last `9.9 > 9.11` or `9.9比9.11大`."""
    verdict, at = None, -1
    for first in (True, False):
        for match in re.finditer(rf"{one[first]}\s*比\s*{one[not first]}\s*(?:更|要|还)?(?:(大)|小)", text):
            verdict, at = first if match[1] else not first, match.start()
        for sign, holds in ((">", first), ("<", not first)):
            for match in re.finditer(rf"{one[first]}\s*{sign}(?!=)\s*{one[not first]}", text):
                if match.start() > at:
                    verdict, at = holds, match.start()
    return verdict


def _worded(text: str, found: list[tuple[int, int, bool]]) -> bool | None:
    """Return the verdict of the last sentence that compares the two in words."""
    verdict = None
    for match in re.finditer(r"[^\n!?。！？]+", text):
        for clause in re.split(r"(?<!\d)\.(?!\d)|\.\s", match[0]):
            start = text.find(clause, match.start())
            inside = [(a - start, b - start, is_larger) for a, b, is_larger in found if start <= a < start + len(clause)]
            if inside:
                said = _clause(clause, inside)
                verdict = verdict if said is None else said
    return verdict


def _clause(clause: str, numbers: list[tuple[int, int, bool]]) -> bool | None:
    verdict = None
    for word in _COMPARATIVE.finditer(clause):
        holds = word["larger"] is not None
        before = [number for number in numbers if number[1] <= word.start()]
        after = [number for number in numbers if number[0] >= word.end()]
        subject: tuple[int, int, bool] | None = None
        if after:
            gap = clause[word.end() : after[0][0]]
            # "the larger one is 9.9": what follows is what it is; "larger than 9.11": it is what it is compared with
            named = len(gap) <= 40 and not re.search(_THAN, gap, re.IGNORECASE) and not word[0].endswith(("于", "於", "hơn"))
            if named:
                subject = after[0]
        if subject is None and before:
            subject = _subject(clause, before, word.start())
            between = clause[subject[1] : word.start()]
            if _NOT_HERE.search(between):
                holds = not holds
        if subject is not None:
            verdict = subject[2] if holds else not subject[2]
    return verdict


def _subject(clause: str, before: list[tuple[int, int, bool]], word_at: int) -> tuple[int, int, bool]:
    """Return the number before the comparative that it speaks of: not the one that "than" marks (9.11 より, 9.11보다, 比 9.11)."""
    for index in range(len(before) - 1, -1, -1):
        start, end, _ = before[index]
        limit = before[index + 1][0] if index + 1 < len(before) else word_at
        marked = re.match(r"\s*(?:より|보다|से|den\b|dan\b|'?[dt][ae]n\b)", clause[end:limit]) or re.search(
            r"(?:比|من)\s*$", clause[:start]
        )
        if not marked:
            return before[index]
    return before[0]


# -- a name ------------------------------------------------------------------------------------------------------------------------


def named(reply: str, right: Sequence[str], wrong: Sequence[str]) -> Judged:
    """Judge whether the reply claims one of the `right` spellings; a wrong one beside it counts if the reply asserts it."""
    boxed = _BOXED.findall(reply)
    text = plain(boxed[-1] if boxed else reply).casefold()
    good = [at for name in right for at in _claims(text, name.casefold())]
    bad = {at: name for name in wrong for at in _claims(text, name.casefold())}
    if not good:
        return Judged(False, f"{next(iter(bad.values()))}, not {right[0]}" if bad else f"no {right[0]}: {shown(reply)}")
    asserted = [
        at for at in bad if re.search(r"(?:capital\b[^.\n]{0,40}?\b(?:is|:|=)|answer\b[^.\n]{0,12}?(?:is|:))\s*$", text[:at])
    ]
    if asserted and max(asserted) > max((at for at in good if not _denied(text, at, at)), default=-1):
        return Judged(False, f"{bad[max(asserted)]}, not {right[0]}")
    if asserted and not any(re.search(r"(?:\bis|:|=|not)\s*$|^\W*$", text[:at]) for at in good):
        return Judged(False, f"{bad[max(asserted)]}, not {right[0]}")
    return Judged(True, right[0])


def _claims(text: str, name: str) -> list[int]:
    return [m.start() for m in re.finditer(re.escape(name), text) if not _denied(text, m.start(), m.end())]


# -- a form ------------------------------------------------------------------------------------------------------------------------


def json_object(reply: str, expected: dict[str, Any]) -> Judged:
    """Judge whether the reply is, or holds, the expected JSON object; the order of its keys does not matter."""
    text = _SPECIAL.sub("", reply).strip()
    candidates: list[tuple[Any, str]] = []
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            candidates.append((value, (text[:at] + text[end:]).strip()))
            at = text.find("{", end)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
    for value, around in candidates:
        if value == expected:
            if not around:
                return Judged(True, "valid JSON")
            fenced = re.fullmatch(r"```\w*\s*```", around)
            return Judged(True, "valid JSON, in a code fence" if fenced else "valid JSON, with words around it")
    if candidates:
        return Judged(False, f"other JSON: {shown(json.dumps(candidates[-1][0], ensure_ascii=False))}")
    return Judged(False, f"no valid JSON: {shown(reply)}")


def needle(reply: str, word: str, digits: str) -> Judged:
    """Judge whether the reply recalls a code word made of a word and digits, however it is joined, spaced or cased."""
    found = re.search(rf"{re.escape(word)}[\s\-_.:#'\"]{{0,4}}{digits}(?!\d)", plain(reply), re.IGNORECASE)
    return Judged(bool(found), f"{word}-{digits}" if found else f"not found: {shown(reply)}")

"""Whether a text can be language at all: broken weights speak in repeated characters, loops, or random tokens of the vocabulary.

Nothing here knows what a text should say. The signs are those that hold in any language: how well it compresses, whether its end
is periodic, how many scripts it mixes, and whether the small words are there that a fifth to a half of all running text consists
of (random tokens of a vocabulary have next to none). Where the small words of a script are not known here, that sign is left out: a
correct reply must never be called gibberish.
"""

import math
import re
import unicodedata
import zlib
from collections import Counter
from dataclasses import dataclass

# en, de, fr, es, pt, it, nl, sv/da/no, pl, cs, ro, hu, fi, tr, id, vi, then Cyrillic (ru, uk, bg) and Greek
_WORDS = """
 the of and in a to is are that it for as with on by this be when from into which or at then an can they
 these its have has was
 you i we it's there so if but let me my your not no what how do does will just i'm
 der die das und ist in zu den mit von für auf ein eine dem sich wird wenn aus es werden des als auch bei oder diese sind durch wie
 le la les de des et est un une du que en dans pour au aux se sur ce qui par il elle sont plus avec lorsque puis
 el los las y es del por con una al lo como para su cuando más son hasta
 o os e do da no na que em um uma para com se por ao dos das são quando mais
 il lo gli e di che è un una in per con si del della al dal quando sono nel più
 het een van en dat die te met op voor zijn als wordt door uit naar bij
 och att det som en på är av för med till den ett når og af til er der
 i w na z się że do jest to nie a gdy jak przez oraz
 v se na je že s do k ve jako po při
 și în de la cu pe care este un o din să se când
 a az és hogy egy is nem van ha mint
 ja on se että ei kun ne joka sekä kuin
 ve bir bu ile da için olarak olan
 yang dan di ke dari ini itu dengan untuk pada adalah saat
 là và của các khi vào trong một được những thì có từ không này
 и в на не что с по из это как к для а при от когда они до или у та що це з і до як від коли на се
 και το η ο του της στο σε που με τα να για από όταν οι
 """
_SMALL_WORDS = frozenset(_WORDS.split())
_SMALL_HAN = frozenset("的是在了不和有一中为上会到这也就而与其以及当后它从并于可过成之们地得个個這為會過當與後從們將将因所由被")
_SMALL_HANGUL = frozenset("은는이가을를의에로다고서요며면한도와과나게여지")
_ARABIC = "في من إلى على هو هي أن التي الذي عن مع ثم و هذا هذه إن كان عندما حتى قد"
_SMALL_ARABIC = frozenset(_ARABIC.split())
_HINDI = "के है में की का और से को हैं पर यह जब तो इस ये एक होता होती ने हो कि"
_SMALL_HINDI = frozenset(_HINDI.split())

_SCRIPTS: tuple[tuple[str, int, int], ...] = (
    ("latin", 0x41, 0x24F),
    ("latin", 0x1E00, 0x1EFF),
    ("greek", 0x370, 0x3FF),
    ("cyrillic", 0x400, 0x52F),
    ("hebrew", 0x590, 0x5FF),
    ("arabic", 0x600, 0x77F),
    ("devanagari", 0x900, 0x97F),
    ("bengali", 0x980, 0x9FF),
    ("tamil", 0xB80, 0xBFF),
    ("thai", 0xE00, 0xE7F),
    ("kana", 0x3040, 0x30FF),
    ("han", 0x3400, 0x9FFF),
    ("hangul", 0xAC00, 0xD7AF),
)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_INNER_CAPITAL = re.compile(r"[a-zà-ÿ][A-Z]")
_CODE = re.compile(r"```.*?(?:```|$)|`[^`\n]*`|\$\$.*?\$\$|\\\[.*?\\\]|\\\(.*?\\\)|https?://\S+", re.DOTALL)

_AROUND = ".,;:!?()[]\"'“”„«»‘’*_-–—…`#>|/+=~¿¡"
"""What may stand around a word, Markdown included."""
_STRANGE = re.compile(r"[_{}<>\[\]\\^=#@|~\u0120\ufffd≠]")

ENOUGH_WORDS = 10
"""Below this the share of small words says nothing: "Water rises, cools, condenses, falls." has none."""

SMALL_SHARE = 0.06
"""Prose of two dozen languages has 11 % and more of the small words, the random tokens of two models 0 to 2.2 %."""


FIRST_LOOK = 1200
"""Characters, about 300 tokens, after which a growing text is judged for the first time."""
NEXT_LOOK = 400


@dataclass(frozen=True, slots=True)
class Coherence:
    """`problem` says in a few words why a text is no language; None when nothing speaks against it."""

    entropy: float | None
    """Bits a character: about 4.1 for English prose, below 2 for loops, above 5 for random tokens (and for Chinese)."""
    words: int
    problem: str | None = None


def coherence(text: str) -> Coherence:
    """Judge a text of any language, with or without Markdown; code and formulas in it are skipped."""
    prose = _CODE.sub(" ", unicodedata.normalize("NFKC", text)).strip()
    words = _WORD.findall(prose)
    entropy = _entropy(prose) if prose else None
    problem = repetition(text) or _garbage(prose) or _mixture(prose) or _salad(prose, words)
    return Coherence(entropy, len(words), problem)


class Doubt:
    """Judges a text while it grows, so that nonsense without end need not be waited for.

    One look proves nothing: the rule of a table repeats itself too, as long as it is the end of the text.
    """

    def __init__(self) -> None:
        self._next_look = FIRST_LOOK
        self._found: str | None = None

    def confirmed(self, text: str) -> str | None:
        """Return what is wrong with the text so far if two looks in a row found it to be no language, else None."""
        if len(text) < self._next_look:
            return None
        self._next_look = len(text) + NEXT_LOOK
        before, self._found = self._found, coherence(text).problem
        return self._found if before is not None else None


def repetition(text: str) -> str | None:
    """Return what a text repeats without end: its last characters are periodic, or it compresses to next to nothing."""
    text = text.strip()
    for period in range(1, min(400, len(text) // 4) + 1):
        length = max(5 * period, 48)
        if length > len(text):
            break
        if text[-length + period :] == text[-length:-period]:
            unit = " ".join(text[-period:].split())
            return f"repeats itself: {unit[:24]!r} again and again" if unit else "repeats itself"
    if len(text) >= 800 and len(zlib.compress(text.encode(), 6)) / len(text.encode()) < 0.1:
        return "repeats itself"
    return None


def _entropy(text: str) -> float:
    counts = Counter(text.lower())
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())


def _garbage(text: str) -> str | None:
    """Broken characters, or no letters at all in a long text."""
    broken = text.count("�")
    if broken >= 3 and broken > len(text) * 0.02:
        return "broken characters (invalid UTF-8)"
    letters = sum(char.isalnum() for char in text)
    if len(text) >= 60 and letters < 0.2 * len(text.replace(" ", "").replace("\n", "")):
        return "hardly a letter in it"
    return None


def _scripts(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for char in text:
        if char.isalpha():
            code = ord(char)
            found[next((name for name, first, last in _SCRIPTS if first <= code <= last), "other")] += 1
    return found


def _mixture(text: str) -> str | None:
    """Return what is wrong with the mixture of scripts.

    Running text is of one script, or of two; random tokens of a large vocabulary are of many.
    """
    found = _scripts(text)
    found["han"] += found.pop("kana", 0)
    total = sum(found.values())
    if total < 24:
        return None
    real = {name: n for name, n in found.items() if n >= max(2, 0.03 * total)}
    if len(real) >= 4 or (len(real) == 3 and max(real.values()) < 0.6 * total):
        return f"mixes {len(real)} scripts"
    return None


def _salad(text: str, words: list[str]) -> str | None:
    """Return what is wrong with a text that lacks the small words that hold sentences together."""
    found = _scripts(text)
    total = sum(found.values())
    if not total:
        return None
    script, count = found.most_common(1)[0]
    cjk = found["han"] + found["kana"]
    if cjk > 0.5 * total:
        if cjk < 30:
            return None
        if found["kana"] > 0.08 * cjk:
            hiragana = sum("\u3040" <= char <= "\u309f" for char in text)
            return "no sentences in it" if hiragana < 0.15 * cjk else None
        return "no sentences in it" if sum(char in _SMALL_HAN for char in text) < 0.03 * cjk else None
    if count < 0.6 * total or script not in ("latin", "cyrillic", "greek", "hangul", "arabic", "devanagari"):
        return None
    if script == "hangul":
        small = sum(word[-1] in _SMALL_HANGUL for word in words)
        return "no sentences in it" if len(words) >= ENOUGH_WORDS and small < 0.25 * len(words) else None
    if script == "arabic":
        small = sum(word in _SMALL_ARABIC or word.startswith(("ال", "وال", "بال", "لل")) for word in words)
        return "no sentences in it" if len(words) >= ENOUGH_WORDS and small < 0.1 * len(words) else None
    if script == "devanagari":
        parts = text.split()  # vowel signs are no letters: the pattern of a word would cut there
        small = sum(word.strip("।,.") in _SMALL_HINDI for word in parts)
        return "no sentences in it" if len(parts) >= ENOUGH_WORDS and small < 0.1 * len(parts) else None
    small = sum(word.lower() in _SMALL_WORDS for word in words)
    odd = sum(bool(_INNER_CAPITAL.search(word)) for word in words)
    if len(words) < ENOUGH_WORDS:
        return "no words of a language" if len(words) >= 3 and not small and _run_together(words, odd) else None
    if odd > max(1, 0.1 * len(words)) and small < 0.25 * len(words):
        return "words run together"
    if _odd_share(text) > max(0.1, small / len(words)):
        return "words and symbols run together"
    if small < SMALL_SHARE * len(words):
        return "no sentences in it"
    return None


def _odd_share(text: str) -> float:
    """Return the share of pieces between blanks that no language writes: `_getters`, `]]>`, `0x7fthe`, a word of two scripts.

    Prose has 0 to 8 % of them, fewer than small words; random tokens have 17 % and more.
    """
    stripped = (piece.strip(_AROUND) for piece in text.split())
    pieces = [piece for piece in stripped if piece and unicodedata.category(piece[0]) != "So"]
    odd = 0
    for piece in pieces:
        strange = _STRANGE.search(piece) or (any(map(str.isdigit, piece)) and sum(map(str.isalpha, piece)) > 2)
        odd += bool(strange) or bool(_INNER_CAPITAL.search(piece)) or len(_scripts(piece)) > 1
    return odd / len(pieces) if len(pieces) >= ENOUGH_WORDS else 0.0


def _run_together(words: list[str], odd: int) -> bool:
    """Pieces of words glued as random tokens are: a capital inside, or longer than the words of any language are on average."""
    average = sum(map(len, words)) / len(words)
    return average > 12 or (odd > 0 and average > 6)

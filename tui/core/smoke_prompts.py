"""The smoke prompts: what is asked, and how each reply is judged.

They find what a broken deployment gets wrong (mangled weights, a wrong quantisation, a chat template that does not fit, a tokenizer
of another model, a KV cache that forgets), not how clever a model is: every sane model of a few billion parameters answers them.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tui.core.answers import Judged, json_object, larger_of, named, needle, number, plain, shown
from tui.core.coherence import coherence
from tui.core.conversation import Turn


class Outcome(StrEnum):
    """INCONCLUSIVE: cut by its length before an answer; neither passed nor failed."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class SmokeResult:
    name: str
    outcome: Outcome
    says: str
    """Why, in a few words."""
    reply: str = ""
    seconds: float | None = None
    ttft_ms: float | None = None
    asked: str = ""
    """The prompt, shortened if it is long."""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class SmokeRun:
    model: str
    planned: int
    results: tuple[SmokeResult, ...] = ()
    finished: bool = False
    started_at: float | None = None

    @property
    def passed(self) -> bool:
        """Whether every prompt was asked and answered right."""
        return self.finished and len(self.results) == self.planned and self.count(Outcome.PASSED) == self.planned

    def count(self, outcome: Outcome) -> int:
        return sum(result.outcome is outcome for result in self.results)


CONTEXT_TOKENS = 8192
"""How long the prompt of the recall test is at most."""
NEEDLE = ("heron", "4817")
_TOKENS_PER_WORD = 1.45


@dataclass(frozen=True, slots=True)
class SmokePrompt:
    """One question. `completion` is the same question as text to be continued, for a model without a chat template, or None."""

    name: str
    asked: str
    judge: Callable[[str], Judged]
    completion: str | None
    prose: bool = False
    """Whether the answer is running text, which is judged for coherence first."""


def prompts(context_tokens: int | None = CONTEXT_TOKENS) -> tuple[SmokePrompt, ...]:
    """Return all prompts. The recall test is about `context_tokens` long, and left out if that is None."""
    out = [
        SmokePrompt(
            "arithmetic",
            "What is 17 × 23? Reply with the number only.",
            _arithmetic,
            "Question: What is 2 + 3?\nAnswer: 5\n\nQuestion: What is 17 × 23?\nAnswer:",
        ),
        SmokePrompt(
            "comparison",
            "Which number is larger, 9.11 or 9.9? Reply with that number only.",
            lambda reply: larger_of(reply, "9.9", "9.11"),
            None,
        ),
        SmokePrompt(
            "fact",
            "What is the capital of Australia? Reply with one word.",
            _capital,
            "The capital of France is Paris. The capital of Australia is",
        ),
        SmokePrompt(
            "format",
            'Reply with exactly this JSON object and nothing else: {"name": "Ada", "born": 1815, "tags": ["math", "engine"]}',
            lambda reply: json_object(reply, {"name": "Ada", "born": 1815, "tags": ["math", "engine"]}),
            None,
        ),
    ]
    if context_tokens is not None:
        text = haystack(context_tokens)
        asked = "What is the access word of the archive? Reply with the access word only."
        out.append(
            SmokePrompt(
                "long context",
                f"{text}\n\n{asked}",
                lambda reply: needle(reply, *NEEDLE),
                f"{text}\n\nThe access word of the archive is",
            )
        )
    out.append(SmokePrompt("coherence", "Explain in three or four sentences how rain forms.", _rain, "How rain forms:", prose=True))
    return tuple(out)


def judge(prompt: SmokePrompt, turn: Turn) -> tuple[Outcome, str]:
    """Return the verdict on a finished turn, and the reason.

    What follows the reasoning counts. A text that can't be language fails even when it was cut; else a reply cut by its length is
    inconclusive. A completion (no chat template) goes on until it is cut: of it, the beginning is the answer.
    """
    if turn.error is not None:
        return Outcome.FAILED, f"error: {shown(turn.error, 200)}"
    completion = turn.endpoint == "completions"
    cut = turn.finish == "length" and not completion
    answer = _first_answer(turn.reply) if completion and not prompt.prose else turn.reply.strip()
    broken = coherence(turn.reply).problem or (coherence(turn.reasoning).problem if cut or not answer else None)
    if broken is not None and (cut or prompt.prose):
        return Outcome.FAILED, f"incoherent: {broken}"
    if turn.finish not in ("stop", "length", "eos", "eos_token", "stop_sequence", "end_turn", None):
        return Outcome.FAILED, f"ended by the server: {turn.finish}"
    if cut:
        where = "while still reasoning" if not answer and turn.reasoning else "at its token limit"
        length = f" after {turn.usage.completion_tokens:,} tokens" if turn.usage.completion_tokens else ""
        return Outcome.INCONCLUSIVE, f"cut {where}{length}"
    if not plain(answer).strip():
        if turn.reasoning:
            return Outcome.FAILED, "no answer after its reasoning: does the reasoning parser fit this model?"
        return Outcome.FAILED, "empty reply"
    judged = prompt.judge(answer)
    if judged.right:
        return Outcome.PASSED, judged.says
    return Outcome.FAILED, f"incoherent: {broken}" if broken else judged.says


def _first_answer(reply: str) -> str:
    return re.split(r"\n\s*\n|\n(?:Question|Q|Answer)\b", reply.strip(), maxsplit=1)[0]


# -- the answers -------------------------------------------------------------------------------------------------------------------

_WORKINGS = {
    *range(0, 35),
    40,
    46,
    50,
    51,
    60,
    69,
    100,
    119,
    160,
    161,
    170,
    200,
    230,
    300,
    340,
    345,
    350,
    374,
    400,
    408,
    414,
    425,
    460,
    500,
    510,
}
_SPELLED = (
    "three hundred ninety one", "dreihunderteinundneunzig", "trois cent quatre vingt onze",
    "trescientos noventa y uno", "trezentos e noventa e um", "trecentonovantuno",
    "driehonderdeenennegentig", "триста девяносто один", "三百九十一", "삼백구십일",
)  # fmt: skip
_CANBERRA = (
    "Canberra", "Camberra", "Canberre", "Kanberra", "Канберра", "堪培拉", "坎培拉", "キャンベラ", "캔버라", "كانبرا",
    "كانبيرا", "कैनबरा", "קנברה", "Καμπέρα", "แคนเบอร์รา", "ক্যানবেরা", "கான்பரா", "کانبرا", "کنبرا",
)  # fmt: skip
_OTHER_CITIES = (
    "Sydney", "Melbourne", "Perth", "Brisbane", "Adelaide", "Hobart", "Darwin", "Wellington", "Vienna",
    "Сидней", "悉尼", "雪梨", "シドニー", "시드니", "سيدني", "सिडनी", "墨尔本", "メルボルン", "Мельбурн",
)  # fmt: skip
_RAIN = (
    "water", "cloud", "drop", "vapo", "moist", "rain", "condens", "evapor", "precipit", "atmosph",
    "wasser", "wolke", "tropf", "dampf", "regen", "kondens", "verdunst", "eau", "nuage", "goutte",
    "vapeur", "pluie", "agua", "nube", "gota", "vapor", "lluvia", "água", "nuve", "chuva", "acqua",
    "nuvol", "gocc", "piogg", "damp", "druppel", "vatten", "moln", "vand", "sky", "woda", "wod", "chmur",
    "kropl", "deszcz", "vod", "oblak", "mrak", "kapk", "déšť", "su buhar", "bulut", "damla", "yağmur",
    "air", "awan", "hujan", "uap", "nước", "mây", "mưa", "hơi", "apă", "nor", "ploaie", "víz", "felhő",
    "eső", "vesi", "pilv", "sade", "вод", "облак", "облач", "капл", "пар", "дожд", "дощ", "хмар",
    "крапл", "дъжд", "νερ", "νέφ", "σύννεφ", "βροχ", "σταγ", "水", "云", "雲", "雨", "蒸", "凝", "滴", "물",
    "구름", "비", "수증기", "응결", "ماء", "مياه", "بخار", "سحاب", "سحب", "غيوم", "مطر", "قطرات", "آب", "ابر",
    "باران", "पानी", "जल", "बादल", "वर्षा", "बारिश", "भाप", "बूंद", "बूँद", "מים", "ענן", "עננ", "גשם",
    "אדים", "น้ำ", "เมฆ", "ฝน", "জল", "মেঘ", "বৃষ্টি", "மழை", "மேக", "நீர்",
)  # fmt: skip


def _arithmetic(reply: str) -> Judged:
    return number(reply, 391, workings=_WORKINGS, spelled=_SPELLED)


def _capital(reply: str) -> Judged:
    return named(reply, _CANBERRA, _OTHER_CITIES)


def _rain(reply: str) -> Judged:
    """Judge whether a running text speaks of rain; its coherence is judged before."""
    text = plain(reply).lower()
    found = {stem for stem in _RAIN if stem in text}
    measured = coherence(reply)
    if len(text) < 24:
        return Judged(False, f"hardly a reply: {shown(reply)}")
    if len(found) < 2:
        return Judged(False, f"not about rain: {shown(reply)}")
    return Judged(True, f"entropy {measured.entropy:.1f}" if measured.entropy is not None else "coherent")


# -- the recall test ---------------------------------------------------------------------------------------------------------------

_WHO = (
    "keeper",
    "librarian",
    "clerk",
    "surveyor",
    "carpenter",
    "gardener",
    "teacher",
    "captain",
    "printer",
    "weaver",
    "miller",
    "guide",
)
_WHERE = (
    "north wing",
    "reading room",
    "harbour",
    "old mill",
    "east gate",
    "upper terrace",
    "market hall",
    "town bridge",
    "glass house",
)
_WHAT = (
    "boxes",
    "letters",
    "maps",
    "lamps",
    "chairs",
    "barrels",
    "coins",
    "books",
    "ropes",
    "bells",
    "plates",
    "stamps",
    "keys of brass",
)
_HOW = (
    "dry",
    "complete",
    "older than expected",
    "well kept",
    "slightly worn",
    "in good order",
    "covered with dust",
    "freshly painted",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def haystack(tokens: int) -> str:
    """Return the same diary of about this many tokens (of any usual tokenizer); the access word stands once, at two fifths."""
    chance = random.Random(4817)
    lines: list[str] = []
    words, wanted = 0, tokens / _TOKENS_PER_WORD
    hidden = False
    while words < wanted:
        if not hidden and words >= wanted * 0.4:
            entry = f"The access word of the archive is {'-'.join(NEEDLE)}."
            hidden = True
        else:
            entry = (
                f"On {chance.choice(_DAYS)} the {chance.choice(_WHO)} of the {chance.choice(_WHERE)} counted "
                f"{chance.randint(2, 90)} {chance.choice(_WHAT)} and wrote that they were {chance.choice(_HOW)}."
            )
        lines.append(entry)
        words += len(entry.split())
    return "\n".join(lines)

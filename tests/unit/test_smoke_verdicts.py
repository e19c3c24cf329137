"""Replies as models write them, and the verdict that each must get: no wrong answer passes, no right one is called wrong."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tui.core.coherence import Doubt, coherence, repetition
from tui.core.conversation import Turn, Usage
from tui.core.smoke_prompts import Outcome, haystack, judge, prompts

PROMPTS = {prompt.name: prompt for prompt in prompts(600)}
GIBBERISH = json.loads((Path(__file__).parents[1] / "data/smoke/gibberish.json").read_text("utf-8"))


def verdict(name: str, reply: str, **turn: object) -> tuple[Outcome, str]:
    fields: dict[str, object] = {"finish": "stop", **turn}
    return judge(PROMPTS[name], Turn(asked="", reply=reply, **fields))  # type: ignore[arg-type]


ARITHMETIC_RIGHT = [
    "391",
    "391.",
    " 391\n",
    "**391**",
    "`391`",
    "$391$",
    "\\boxed{391}",
    "$\\boxed{391}$",
    "\\[ 17 \\times 23 = 391 \\]",
    "\\(17 \\cdot 23 = \\mathbf{391}\\)",
    "The answer is 391.",
    "17 × 23 = 391",
    "17 x 23 = **391**",
    "17*23=391",
    "391 (17 × 20 = 340, 17 × 3 = 51)",
    "17 × 23 = 17 × 20 + 17 × 3 = 340 + 51 = 391",
    "To multiply:\n1. 17 × 20 = 340\n2. 17 × 3 = 51\n3. 340 + 51 = 391\n\n**Answer: 391**",
    "20 × 23 = 460, minus 3 × 23 = 69, gives 391.",
    "It is 391, not 401.",
    "Not 381 but 391.",
    "391, because 400 - 9 = 391.",
    "The result is 391.0",
    "３９１",
    "٣٩١",
    "३९१",
    "Three hundred ninety-one",
    "three hundred and ninety-one",
    "答案是391。",
    "17乘以23等于391。",
    "三百九十一",
    "Das Ergebnis ist 391.",
    "dreihunderteinundneunzig",
    "Le résultat est 391.",
    "El resultado es **391**.",
    "Ответ: 391",
    "答えは391です。",
    "정답은 391입니다.",
    "الجواب هو ٣٩١.",
    "391<|im_end|>",
    "<|start_header_id|>assistant<|end_header_id|>\n\n391",
    "Sure! 17 multiplied by 23 is 391. Let me know if you need anything else!",
    "Check: 391 / 17 = 23. So 391.",
    "```\n391\n```",
]
ARITHMETIC_WRONG = [
    "381",
    "401",
    "17 × 23 = 401",
    "The answer is 401, not 391.",
    "3910",
    "39.1",
    "1391",
    "I can't calculate.",
    "17 × 23",
    "seventeen",
    "17 × 23 = 17 × 20 + 17 × 3 = 340 + 61 = 401",
    "At first I thought 391, but it is 402.",
    "\\boxed{389}",
    "Hello! How can I help you today?",
    "!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!",
]
COMPARISON_RIGHT = [
    "9.9",
    "9.9.",
    "**9.9**",
    "9.90",
    "9,9",
    "\\boxed{9.9}",
    "$9.9$",
    "9.9 is larger than 9.11.",
    "9.9 is larger.",
    "**9.9** is larger than **9.11**",
    "9.9 > 9.11",
    "$9.9 > 9.11$",
    "9.11 < 9.9",
    "\\(9.11 \\lt 9.9\\), so the larger one is \\(9.9\\)",
    "9.11 is smaller than 9.9.",
    "The larger number is 9.9.",
    "The larger number is **9.9**, since 9.90 > 9.11.",
    "Between 9.11 and 9.9, the larger number is 9.9.",
    "Between 9.9 and 9.11, the larger one is 9.9.",
    "Comparing 9.11 and 9.9: the tenths digit of 9.9 is 9, that of 9.11 is 1. So 9.9 is greater.",
    "9.11 is not larger than 9.9.",
    "9.9 is the bigger number. It may look as if 9.11 were larger because 11 > 9, but 9.9 = 9.90, which is larger.",
    "The answer is 9.9, not 9.11.",
    "9.11 vs 9.9\n\nAnswer: 9.9",
    "9.9 é maior que 9.11.",
    "9,9 ist größer als 9,11.",
    "Die größere Zahl ist 9,9.",
    "9.9 est plus grand que 9.11.",
    "9.11 est plus petit que 9.9.",
    "El número mayor es 9.9.",
    "9.9 es mayor que 9.11",
    "9.9 è maggiore di 9.11",
    "9.9 больше, чем 9.11.",
    "Число 9.9 больше.",
    "9.9更大。",
    "9.9比9.11大。",
    "9.11比9.9小。",
    "9.9 大于 9.11",
    "更大的数字是9.9。",
    "9.9の方が大きいです。",
    "9.11より9.9の方が大きい。",
    "大きいのは9.9です。",
    "9.9가 더 큽니다.",
    "더 큰 수는 9.9입니다.",
    "9.11보다 9.9가 더 큽니다.",
    "９．９",
    "٩٫٩",
    "9.9<|eot_id|>",
    "- 9.11 = 9 + 11/100\n- 9.9 = 9 + 90/100\n\nTherefore 9.9 is larger.",
]
COMPARISON_WRONG = [
    "9.11",
    "9.11.",
    "**9.11**",
    "9,11",
    "\\boxed{9.11}",
    "9.11 is larger than 9.9.",
    "9.11 > 9.9",
    "9.9 < 9.11",
    "9.9 is smaller than 9.11.",
    "The larger number is 9.11.",
    "Between 9.9 and 9.11, the larger number is 9.11.",
    "Between 9.11 and 9.9, the larger number is 9.11.",
    "9.9 is not larger than 9.11.",
    "The answer is 9.11, not 9.9.",
    "9.11比9.9大。",
    "9.9比9.11小。",
    "9.11更大。",
    "9.11 ist größer als 9.9.",
    "9.11 est plus grand que 9.9",
    "9.11 больше, чем 9.9.",
    "9.11の方が大きいです。",
    "9.11가 더 큽니다.",
    "They are equal.",
    "I don't know.",
    "9",
    "99",
    "19.9",
]
FACT_RIGHT = [
    "Canberra",
    "Canberra.",
    "**Canberra**",
    "canberra",
    "CANBERRA",
    "The capital of Australia is Canberra.",
    "The capital of Australia is **Canberra**, not Sydney.",
    "Many think it is Sydney, but it is Canberra.",
    "It is a common misconception that the capital is Sydney. The capital is Canberra.",
    "Canberra (Sydney is the largest city)",
    "Canberra, chosen in 1908 as a compromise between Sydney and Melbourne.",
    "\\boxed{\\text{Canberra}}",
    "`Canberra`",
    "堪培拉",
    "澳大利亚的首都是堪培拉。",
    "坎培拉",
    "キャンベラです。",
    "캔버라",
    "Канберра",
    "كانبرا",
    "कैनबरा",
    "Καμπέρα",
    "Camberra",
    "Canberra<|im_end|>",
    "Answer: Canberra",
]
FACT_WRONG = [
    "Sydney",
    "Sydney.",
    "Melbourne",
    "Wellington",
    "Vienna",
    "The capital of Australia is Sydney.",
    "The capital of Australia is Sydney, not Canberra.",
    "悉尼",
    "シドニー",
    "Paris",
    "I am not sure.",
    "Australia",
    "optionflags nice isspace",
    "The capital is Sydney. Canberra is a smaller city.",
]
OBJECT = '{"name": "Ada", "born": 1815, "tags": ["math", "engine"]}'
FORMAT_RIGHT = [
    OBJECT,
    OBJECT + "\n",
    OBJECT.replace(" ", ""),
    json.dumps(json.loads(OBJECT), indent=2),
    json.dumps(json.loads(OBJECT), indent=2, sort_keys=True),
    f"```json\n{OBJECT}\n```",
    f"```\n{OBJECT}\n```",
    f"Here it is:\n\n{OBJECT}",
    f"{OBJECT}<|im_end|>",
    f"{OBJECT}</s>",
    '{"tags": ["math", "engine"], "born": 1815, "name": "Ada"}',
    '{"name": "\\u0041da", "born": 1815, "tags": ["math", "engine"]}',
]
FORMAT_WRONG = [
    "{'name': 'Ada', 'born': 1815, 'tags': ['math', 'engine']}",
    '{"name": "Ada", "born": 1815, "tags": ["math", "engine"]',
    '{"name": "Ada", "born": "1815", "tags": ["math", "engine"]}',
    '{"name": "Ada", "born": 1815}',
    '{"name": "Ada", "born": 1816, "tags": ["math", "engine"]}',
    '{"name": "Ada", "born": 1815, "tags": ["engine", "math"]}',
    "{}",
    "[]",
    "Ada was born in 1815.",
    "{" * 2000,
    "name: Ada\nborn: 1815",
]
NEEDLE_RIGHT = [
    "heron-4817",
    "Heron-4817",
    "HERON-4817",
    "heron‑4817",
    "heron–4817",
    "heron 4817",
    "heron4817",
    "**heron-4817**",
    "`heron-4817`",
    '"heron-4817"',
    "The access word of the archive is heron-4817.",
    "访问词是heron-4817。",
    "Das Zugangswort lautet „heron-4817“.",
    "heron_4817",
    "\\boxed{\\text{heron-4817}}",
    "ｈｅｒｏｎ－４８１７",
]
NEEDLE_WRONG = [
    "heron",
    "4817",
    "heron-4871",
    "heron-48170",
    "eagle-4817",
    "I could not find an access word in the text.",
    "On Monday the keeper counted 12 boxes.",
    "The archive was dry.",
]
RAIN_RIGHT = [
    "Rain forms when water vapor in the air cools and condenses into tiny droplets around dust "
    "particles. These droplets gather into clouds "
    "and collide with each other. When they grow too heavy for the rising air to hold, they fall to the ground as rain.",
    "Water evaporates, rises, cools, condenses into clouds, and falls as rain.",
    "**How rain forms**\n\n1. The sun heats water, which *evaporates*.\n2. The vapor rises, cools and "
    "condenses into clouds.\n3. Droplets "
    "merge until they are heavy enough to fall.",
    "Regen entsteht, wenn Wasser verdunstet und als Wasserdampf aufsteigt. In der Höhe kühlt die Luft "
    "ab, und der Dampf kondensiert zu "
    "Wolken aus winzigen Tropfen. Werden diese Tropfen zu schwer, fallen sie als Regen zur Erde.",
    "La pluie se forme lorsque l'eau s'évapore et que la vapeur monte dans l'air. En se refroidissant, "
    "elle se condense en gouttelettes qui "
    "forment des nuages. Quand les gouttes deviennent trop lourdes, elles tombent.",
    "La lluvia se forma cuando el agua se evapora y el vapor sube. Al enfriarse se condensa en gotas que "
    "forman nubes. Cuando pesan "
    "demasiado, caen.",
    "A chuva se forma quando a água evapora e o vapor sobe para a atmosfera, onde esfria e se condensa "
    "em gotas que formam as nuvens.",
    "La pioggia si forma quando l'acqua evapora e il vapore sale nell'aria fredda, dove si condensa in "
    "gocce che formano le nuvole.",
    "Regen ontstaat als water verdampt en de waterdamp opstijgt. In de koude lucht condenseert de damp "
    "tot druppels, en die vallen.",
    "Deszcz powstaje, gdy woda paruje i para wodna unosi się do góry. Tam ochładza się i skrapla, "
    "tworząc chmury, z których spadają krople.",
    "Дождь образуется, когда вода испаряется и пар поднимается в воздух. Там он охлаждается и конденсируется в капли, из которых "
    "состоят облака. Когда капли становятся тяжёлыми, они падают на землю.",
    "雨的形成始于水的蒸发：阳光加热海洋和湖泊，使水变成水蒸气上升到空中。水蒸气在高空遇冷凝结成小水滴，形"
    "成云。当水滴变得足够重时，就会落下成为雨。",
    "當水蒸發成為水蒸氣上升到高空後，會遇冷凝結成小水滴，聚集成雲。水滴越來越大，重到空氣托不住時，就會落下來成為雨。",
    "雨は、地表の水が蒸発して水蒸気になり、上空で冷やされて小さな水滴になることから始まります。水滴が集ま"
    "って雲になり、大きく重くなると雨として落ちてきます。",
    "비는 물이 증발하여 수증기가 되고 하늘로 올라가면서 시작됩니다. 수증기는 차가운 공기를 만나 작은 "
    "물방울로 응결되어 구름을 만듭니다. 물방울이 무거워지면 비가 되어 땅으로 떨어집니다.",
    "يتكون المطر عندما تتبخر المياه من البحار والأنهار وتصعد إلى السماء على شكل بخار. ثم يبرد البخار "
    "ويتكاثف إلى قطرات صغيرة تشكل السحب.",
    "वर्षा तब होती है जब सूर्य की गर्मी से पानी भाप बनकर ऊपर उठता है। ठंडी हवा में यह भाप छोटी बूंदों में बदल जाती है और बादल बनाती है।",
    "Yağmur, suyun buharlaşıp havaya yükselmesi ile oluşur. Yükselen su buharı soğur ve bulut olarak "
    "yoğunlaşır; damla ağırlaşınca düşer.",
    "Mưa hình thành khi nước bốc hơi và bay lên cao. Hơi nước gặp lạnh ngưng tụ thành những giọt nhỏ tạo thành mây, rồi rơi xuống.",
    "Hujan terbentuk ketika air menguap dan naik ke atmosfer. Uap itu mendingin dan menjadi awan, lalu jatuh sebagai hujan.",
    "Rain forms through the **water cycle**: $H_2O$ evaporates (e.g. at $T > 20\\,^\\circ\\mathrm{C}$), "
    "rises, and condenses into clouds; the "
    "drops then fall when they are heavy.",
    "🌧️ Rain starts with **evaporation** ☀️: water turns into vapor. The vapor cools into clouds ☁️, and "
    "when the drops are heavy, it rains! 💧",
    "Rain forms when moist air rises.\n\n---\n\n| step | what |\n| --- | --- |\n| 1 | water evaporates "
    "|\n| 2 | it condenses to clouds |\n| 3 | it "
    "falls |",
]
RAIN_WRONG = [
    "",
    "Rain.",
    "I'm sorry, I can't help with that.",
    "The French Revolution began in 1789 when the king called the estates to a meeting, and it ended with Napoleon in power.",
    "the the the the the the the the the the the the the the the the the the the the the the the the the the",
    "Rain forms when water rises. Rain forms when water rises. Rain forms when water rises. Rain forms "
    "when water rises. Rain forms when "
    "water rises. Rain forms when water rises.",
    "!" * 400,
    "\n".join(["- cloud"] * 60),
    "water cloud rain " * 40,
    "����" * 20,
]
CASES = [
    *((name, reply, Outcome.PASSED) for name, replies in (
        ("arithmetic", ARITHMETIC_RIGHT), ("comparison", COMPARISON_RIGHT), ("fact", FACT_RIGHT), ("format", FORMAT_RIGHT),
        ("long context", NEEDLE_RIGHT), ("coherence", RAIN_RIGHT)) for reply in replies),
    *((name, reply, Outcome.FAILED) for name, replies in (
        ("arithmetic", ARITHMETIC_WRONG), ("comparison", COMPARISON_WRONG), ("fact", FACT_WRONG), ("format", FORMAT_WRONG),
        ("long context", NEEDLE_WRONG), ("coherence", RAIN_WRONG)) for reply in replies),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reply", "outcome"), CASES)
def test_verdict(name: str, reply: str, outcome: Outcome) -> None:
    assert verdict(name, reply)[0] is outcome, verdict(name, reply)


@pytest.mark.parametrize("source", GIBBERISH)
@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_random_weights_fail_every_prompt_even_when_cut(source: str, name: str, finish: str) -> None:
    outcome, says = verdict(name, GIBBERISH[source], finish=finish)
    if len(GIBBERISH[source].split()) < 12 and finish == "length":
        assert outcome is not Outcome.PASSED  # a dozen tokens are too few to be sure of more than that
    else:
        assert outcome is Outcome.FAILED, says


@pytest.mark.parametrize(
    "source", [name for name, text in GIBBERISH.items() if len(text.split()) >= 10] + ["sse", "sse-engine-killed"]
)
def test_random_weights_are_called_incoherent(source: str) -> None:
    assert "incoherent" in verdict("coherence", GIBBERISH[source], finish="length")[1]
    assert coherence(GIBBERISH[source]).problem


def _grown(text: str, step: int = 7) -> Iterator[str]:
    return (text[:end] for end in range(0, len(text) + step, step))


@pytest.mark.parametrize("source", [name for name, text in GIBBERISH.items() if len(text.split()) >= 10])
def test_doubt_of_a_growing_text_needs_two_looks(source: str) -> None:
    doubt, text = Doubt(), f"{GIBBERISH[source]} " * 40
    first = next(len(part) for part in _grown(text) if doubt.confirmed(part))
    assert 1600 <= first < 2500


def test_doubt_leaves_language_alone() -> None:
    table = "| city | people | founded |\n|" + "-" * 380 + "|\n" + "| Canberra is the capital | 0.4 million | in 1913 |\n"
    prose = f"{haystack(700)}\n{table}{haystack(900)}"
    for text in (prose, haystack(2000), *(f"{reply} " * 3 for reply in RAIN_RIGHT if len(reply) > 600)):
        doubt = Doubt()
        assert not any(doubt.confirmed(part) for part in _grown(text))


@pytest.mark.parametrize("reply", RAIN_RIGHT)
def test_language_is_coherent(reply: str) -> None:
    assert coherence(reply).problem is None
    assert coherence(haystack(2000)).problem is None


@pytest.mark.parametrize(
    ("reply", "turn", "outcome", "words"),
    [
        ("391", {"finish": "length"}, Outcome.INCONCLUSIVE, "cut at its token limit"),
        (
            "",
            {"finish": "length", "reasoning": "Okay, the user wants the product of"},
            Outcome.INCONCLUSIVE,
            "while still reasoning",
        ),
        (
            "",
            {"finish": "length", "usage": Usage(completion_tokens=4096), "reasoning": "Let me see."},
            Outcome.INCONCLUSIVE,
            "4,096 tokens",
        ),
        ("", {"finish": "length", "reasoning": "Wait, let me check again. " * 200}, Outcome.FAILED, "repeats itself"),
        ("", {"finish": "stop", "reasoning": "391"}, Outcome.FAILED, "reasoning parser"),
        ("391", {"reasoning": "17 × 23 is 381? No: 340 + 51 = 391."}, Outcome.PASSED, "391"),
        ("381", {"reasoning": "340 + 51 = 391"}, Outcome.FAILED, "381"),
        ("391", {"finish": "abort"}, Outcome.FAILED, "abort"),
        ("", {}, Outcome.FAILED, "empty"),
        ("<|im_end|>", {}, Outcome.FAILED, "empty"),
        (" \n\t", {}, Outcome.FAILED, "empty"),
        ("", {"finish": None, "error": "EngineCore encountered an issue."}, Outcome.FAILED, "EngineCore"),
        (" 391\n\nQuestion: What is 4 + 4?\nAnswer: 8", {"endpoint": "completions", "finish": "length"}, Outcome.PASSED, "391"),
        (" 381\nQuestion: What is 17 × 23?\nAnswer: 391", {"endpoint": "completions", "finish": "length"}, Outcome.FAILED, "381"),
    ],
)
def test_verdict_of_turns(reply: str, turn: dict[str, object], outcome: Outcome, words: str) -> None:
    found, says = verdict("arithmetic", reply, **turn)
    assert found is outcome, says
    assert words in says


def test_loops_are_found_wherever_they_were_cut() -> None:
    loop = "so the answer is that the water rises and "
    for cut in range(len(loop)):
        assert repetition("It begins well. " + loop * 8 + loop[:cut])
    assert repetition("One sentence, and another one that is different, and a third of them.") is None


def test_haystack_holds_the_needle_once_and_grows_with_the_tokens() -> None:
    for tokens in (100, 1000, 8192):
        text = haystack(tokens)
        assert text.count("heron-4817") == 1
        assert 0.8 * tokens < len(text.split()) * 1.45 < 1.2 * tokens + 40

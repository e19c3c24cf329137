"""What the simulated model says: right answers to plain questions, Markdown with code in a conversation, prose for the rest."""

import ast
import json
import operator
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PROSE = (
    " The control room was quiet in the hour before the model came up. On the wall the eight bars stood at a fifth of their "
    "height, "
    "and every half minute they rose together by the width of a finger. Nobody spoke much; there was a kettle, a window, and the "
    "steady sound of fans behind the glass. An engineer wrote the time of each step into a notebook, as her teacher had done, "
    "because "
    "a column of plain figures tells more about a machine than any feeling. When the last of the files was read, the disks fell "
    "silent and the processors began their own work: they folded the weights into new shapes, compiled what had to be "
    "compiled, and "
    "measured how much room was left for the conversations to come. It was less than one would think, and it was enough. Then the "
    "lamp at the door turned green. The first question was a small one, about a river and its towns, and the answer came at once, "
    "word after word, at the pace of a fast reader. They asked for a poem, a proof, a recipe for bread. They asked two hundred and "
    "fifty-six things at the same time and watched the pace of each fall while the sum of all rose, as it should. By the "
    "evening the "
    "notebook held a full page, and the page agreed with the one of the day before to within a percent. Outside it had begun "
    "to snow."
)

RAIN = (
    "Rain forms when the sun warms water and some of it evaporates into the air as vapour. As the moist air rises it cools, and "
    "the vapour condenses on tiny particles into the droplets that make up a cloud. The droplets collide and grow until they are "
    "too heavy to stay up. Then they fall as rain."
)

REPLIES: tuple[tuple[str, str], ...] = (
    (r"\brain\b.*\b(form|fall|happen|come)|how does it rain", RAIN),
    (r"^\s*(hi|hello|hey|good (morning|evening))\b", "Hello! How can I help you today?"),
    (
        r"who are you|your name|what model",
        "I'm Kimi, a large language model. I run on eight GPUs of this host, split by tensor parallelism.",
    ),
    (
        r"free memory of a gpu",
        "With `nvidia-ml-py`, after `nvmlInit()`:\n\n```python\ngpu = nvmlDeviceGetHandleByIndex(0)\n"
        "print(nvmlDeviceGetMemoryInfo(gpu).free / 2**30)\n```\n\nOn this host it prints about **1.13**, the same for all eight.",
    ),
    (
        r"haiku",
        "Eight bars rise as one,\nthe last shard falls into place:\na green lamp, a word.",
    ),
    (
        r"tensor[- ]parallel",
        "**Tensor parallelism** splits each layer's matrices over the GPUs, so that all of them work on every token:\n\n"
        "1. A weight matrix is cut by columns, the next one by rows.\n2. Each GPU multiplies with its part.\n"
        "3. One *all-reduce* per pair adds the parts up.\n\n"
        "```python\nh = all_reduce(silu(x @ w1[rank]) @ w2[rank])\n```\n\n"
        "It needs fast links between the GPUs, and all of them hold **the same amount of memory**: a GPU that differs is a "
        "sign of a broken load.",
    ),
    (
        r"\bttft\b|time to first token",
        "**TTFT** is the time from sending the request to the first token of the reply. It holds the queue, the prefill of "
        "the prompt "
        "and one decoding step; it grows with the prompt's length and with the load.",
    ),
    (
        r"colou?r of the sky|sky (is )?blue|why is the sky",
        "The sky is blue because air scatters short wavelengths of sunlight far more than long ones (Rayleigh scattering).",
    ),
    (r"opposite of hot", "Cold."),
    (r"translate .*(hello|good morning).*(french)|(hello|good morning).*in french", "Bonjour."),
    (r"translate .*(thank you).*(german)|thank you.*in german", "Danke."),
    (r"chemical (symbol|formula).*(water)|formula (of|for) water", "H₂O (H2O)."),
    (r"chemical symbol.*gold", "Au."),
    (r"boiling point of water|water boil", "Water boils at 100 °C (212 °F) at sea level."),
    (r"largest planet", "Jupiter."),
    (r"author of|who wrote.*(hamlet|romeo)", "William Shakespeare."),
    (r"how many (days|months)", "A year has 365 days (366 in a leap year) and 12 months; a week has 7 days."),
    (
        r"all (roses|bloops|cats|men|razzies)",
        "Yes: if all of the first are second, and all of the second are third, then all of the first are third.",
    ),
    (
        r"\b(story|essay|paragraph|describe|tell me about|summar)",
        PROSE.strip(),
    ),
)

_BITS = (
    "ackle", "set", "CONFIG", "leftover", "list", "OW", "specification", "nb", "PATH", "ubyte", "exists", "Wait", "isspace", "HACL",
    "optionflags", "ĠĠ", "]]>", "您的", "ция", "ivers", "_getters", "}}}", "NULL", "ppe", "0x7f", "≠", "quoi", "Ġthe", "the", "the",
    "esc", "\ufffd", "ruct", "等", "oS", "memory",
)  # fmt: skip


def babble(seed: int, words: int) -> str:
    """Return what a model with broken weights says."""
    dice = random.Random(seed)
    return "".join(dice.choice((" ", "", " ", "\n")) + dice.choice(_BITS) for _ in range(words))


CAPITALS = {
    "france": "Paris", "germany": "Berlin", "italy": "Rome", "spain": "Madrid", "portugal": "Lisbon", "japan": "Tokyo",
    "china": "Beijing", "india": "New Delhi", "australia": "Canberra", "canada": "Ottawa", "brazil": "Brasília",
    "argentina": "Buenos Aires", "egypt": "Cairo", "kenya": "Nairobi", "norway": "Oslo", "sweden": "Stockholm",
    "finland": "Helsinki", "denmark": "Copenhagen", "poland": "Warsaw", "austria": "Vienna", "switzerland": "Bern",
    "greece": "Athens", "turkey": "Ankara", "mexico": "Mexico City", "peru": "Lima", "chile": "Santiago",
    "ireland": "Dublin", "iceland": "Reykjavík", "new zealand": "Wellington", "south korea": "Seoul", "mongolia": "Ulaanbaatar",
    "the united states": "Washington, D.C.", "the united kingdom": "London", "england": "London", "russia": "Moscow",
}  # fmt: skip

_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "hundred": 100,
}  # fmt: skip

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    thought: str = ""


def answer(messages: Sequence[tuple[str, str]], *, kind: str = "chat", seed: int = 0) -> Answer:
    """Return the reply to a conversation of (role, text)."""
    if kind == "gibberish":
        return Answer(babble(seed, 400))
    asked = next((text for role, text in reversed(messages) if role == "user"), "")
    whole = "\n".join(text for _, text in messages)
    for look in (_recall, _exact, _json, _list, _compare, _arithmetic, _capital, _known, _code):
        said = look(asked, whole)
        if said is not None:
            return Answer(said, _thought(asked, said))
    said = _general(asked)
    return Answer(said, _thought(asked, said))


def continuation(prompt: str, *, kind: str = "base", seed: int = 0) -> str:
    """Return what follows a bare prompt: the fact that it begins to tell, or prose."""
    if kind == "gibberish":
        return babble(seed, 400)
    if match := re.search(r"capital (?:city )?of ([\w ]+?) is(?: called)?\s*$", prompt[-200:], re.I):
        city = CAPITALS.get(match[1].strip().lower())
        if city:
            return f" {city}. It is the seat of the government and one of the country's best-known cities." + PROSE
    if (match := re.search(r"([\d+\-*/×. ()]+)=\s*$", prompt[-80:])) and (value := _value(match[1])) is not None:
        return f" {value}\n" + PROSE
    if re.search(r"how rain forms:?\s*$", prompt[-60:], re.I):
        return f" {RAIN}" + PROSE
    if re.search(r"(?:^|\D)(\d+), (\d+), (\d+),?\s*$", prompt[-60:]):
        numbers = [int(number) for number in re.findall(r"\d+", prompt[-60:])]
        step = numbers[-1] - numbers[-2]
        return "".join(f" {numbers[-1] + step * (i + 1)}," for i in range(12)) + PROSE
    if question := re.search(r"(?:Q|Question|User|Human):\s*([^\n]+)\n+\s*(?:A|Answer|Assistant|AI):?\s*$", prompt[-1500:]):
        return " " + answer([("user", question[1])]).text + "\n\n" + PROSE
    if told := _induction(prompt):
        return told + "." + PROSE
    return PROSE


def _induction(prompt: str, words: int = 5) -> str | None:
    """Return how a sentence with the same beginning went on earlier in the prompt."""
    beginning = " ".join(prompt[-400:].split()[-words:])
    if len(beginning.split()) < words:
        return None
    at = prompt.find(beginning, 0, len(prompt) - len(beginning) - 1)
    if at < 0:
        return None
    return re.split(r"(?<=\w)[.\n]", prompt[at + len(beginning) :], maxsplit=1)[0]


def filler(count: int, seed: int) -> str:
    """Prose of at least `count` words, beginning at a place of its own for each seed."""
    words = PROSE.split(" ")
    start = seed % len(words)
    rotated = words[start:] + words[:start]
    return " " + " ".join((rotated * (count // len(rotated) + 1))[: count + 1])


def _thought(asked: str, said: str) -> str:
    first = asked.strip().splitlines()[0][:120] if asked.strip() else "nothing"
    return (
        f'The user asks: "{first}". Let me think about what is wanted here. The question is short, so the answer can be too. '
        f"Checking once more whether anything in it is a trap: I see none. A first draft would be: {said.strip()[:120]} "
        "That looks right, and it is said in the form that was asked for. I'll answer with that."
    )


# -- what it knows ---------------------------------------------------------------------------------------------------------------


_SECRET = r"(?:secret|magic|pass|access|special|launch|code|vault|key|password|passphrase)"
_ASKED_SECRET = re.compile(rf"(?:what|which|tell|repeat|say|find|give|reply|answer)[^.?!]{{0,120}}?\b{_SECRET}\b", re.I)
_TOLD_SECRET = re.compile(rf"\b{_SECRET}[\w -]{{0,60}}?(?: is| are|:|=)[ \n]+[\"'`*]*(\w[\w-]*(?:\.\d+)?)", re.I)


def _recall(asked: str, whole: str) -> str | None:
    """Return a secret told somewhere in a long text, when the question at its end (or the beginning) asks for it."""
    if not _ASKED_SECRET.search(asked[-600:]):
        return None
    told = (match[1] for match in _TOLD_SECRET.finditer(whole))
    return next((word for word in told if word.lower() not in ("the", "a", "hidden", "what", "in", "it", "to")), None)


def _exact(asked: str, whole: str) -> str | None:
    """ "Reply with exactly: X" and its like."""
    match = re.search(
        r"(?:repeat|reply|respond|answer|say|output|print|write)\b(?: back)?(?: with| to me)?(?: only| just| exactly| verbatim)*"
        r"(?: the)?(?: following)?(?: this)?(?: exact)?(?: single)?(?: word| words| text| phrase| string| sentence| token)?"
        r"(?: exactly| verbatim| back)?\s*(?::|,? and nothing else:)\s*(.+)",
        asked,
        re.I | re.S,
    )
    if match:
        return match[1].strip().strip("\"'`")
    if match := re.search(
        r"\b(?:say|reply|respond|answer)(?: with)?(?: only| just| exactly)?(?: the word)? [\"'“`]([^\"'”`]+)[\"'”`]", asked, re.I
    ):
        return match[1]
    return None


_JSON_OBJECT = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")


def _json(asked: str, whole: str) -> str | None:
    if not re.search(r"\bjson\b", asked, re.I):
        return None
    if (given := _JSON_OBJECT.search(asked)) and re.search(r"\b(exactly|this|verbatim|following)\b", asked, re.I):
        return given[0]
    keys: dict[str, object] = {}
    for name in re.findall(r"[\"'`“]([A-Za-z_][\w-]*)[\"'`”]", asked):
        keys.setdefault(name, None)
    if not keys and (listed := re.search(r"(?:keys?|fields?|properties)\s+([\w, ]+?)(?: only|\.|:|;|$)", asked, re.I)):
        keys = {name: None for name in re.findall(r"[A-Za-z_]\w*", listed[1]) if name.lower() not in ("and", "the", "with")}
    if not keys:
        keys = {"name": None, "value": None}
    for name in list(keys):
        keys[name] = _field(name, asked)
    return json.dumps(keys, ensure_ascii=False)


def _field(name: str, asked: str) -> object:
    lowered = name.lower()
    country = next((country for country in CAPITALS if country in asked.lower()), None)
    given = re.search(rf"{re.escape(name)}[\"'`”]?\s*(?::|=|is|set to|being|with(?: the)? value)\s*[\"'`“]?([\w.-]+)", asked, re.I)
    if given and given[1].lower() not in ("a", "an", "the", "number", "string", "integer", "boolean"):
        text = given[1].rstrip(".")
        try:
            return json.loads(text)
        except ValueError:
            return text
    if "capital" in lowered or "city" in lowered:
        return CAPITALS.get(country or "france", "Paris")
    if "country" in lowered:
        return (country or "france").title()
    if lowered in ("sum", "result", "answer", "total", "value", "product"):
        value = _arithmetic_value(asked)
        return value if value is not None else 42
    if lowered in ("population", "age", "count", "year", "id", "number", "n"):
        return {"population": 67_000_000, "age": 36, "year": 2026}.get(lowered, 3)
    if lowered in ("ok", "valid", "success", "done", "healthy", "prime", "is_prime", "true"):
        return True
    if lowered in ("colors", "colours", "items", "list", "tags", "primes", "numbers"):
        return [2, 3, 5] if lowered in ("primes", "numbers") else ["red", "green", "blue"]
    return {"name": "Ada", "language": "Python", "status": "ok", "color": "blue", "animal": "cat"}.get(lowered, "example")


def _list(asked: str, whole: str) -> str | None:
    if match := re.search(r"count(?:ing)? (?:up )?from (\d+) (?:up )?to (\d+)", asked, re.I):
        low, high = int(match[1]), int(match[2])
        if abs(high - low) < 2000:
            numbers = range(low, high + 1) if high >= low else range(low, high - 1, -1)
            return ("\n" if "line" in asked.lower() else ", ").join(map(str, numbers))
    if match := re.search(r"first (\w+) prime", asked, re.I):
        count = int(match[1]) if match[1].isdigit() else _WORDS.get(match[1].lower(), 5)
        primes = [n for n in range(2, 2000) if all(n % d for d in range(2, int(n**0.5) + 1))]
        return ", ".join(map(str, primes[:count]))
    if re.search(r"days? (?:of|in) (?:the|a) week", asked, re.I):
        return "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"
    return None


def _compare(asked: str, whole: str) -> str | None:
    match = re.search(
        r"(larger|bigger|greater|higher|smaller|lower|less|max\w*|min\w*)\b[^0-9]{0,40}?(-?\d+(?:\.\d+)?)\s*,?\s*(?:or|and|vs\.?|than)\s*(-?\d+(?:\.\d+)?)",
        asked,
        re.I,
    )
    if not match:
        match = re.search(r"(?P<a>)(-?\d+\.\d+)\s*(?:or|and|vs\.?)\s*(-?\d+\.\d+)", asked)
        if not match:
            return None
    word, first, second = match[1].lower(), match[2], match[3]
    small = word.startswith(("small", "low", "less", "min"))
    low, high = sorted((first, second), key=float)
    chosen, other = (low, high) if small else (high, low)
    if re.search(r"\b(only|just)\b", asked, re.I):
        return chosen
    places = max(len(number.partition(".")[2]) for number in (first, second))
    return (
        f"**{chosen}** is {'smaller' if small else 'larger'}. Written to the same length they are "
        f"{float(first):.{places}f} and {float(second):.{places}f}, so {chosen} {'<' if small else '>'} {other}."
    )


def _value(text: str) -> float | int | None:
    """Return the value of an arithmetic expression; None if it is none. Bounded, so that nothing can keep it busy."""
    text = (
        text.replace("×", "*").replace("÷", "/").replace("−", "-").replace("^", "**").replace(",", "").strip().rstrip("=? ").strip()
    )
    if not re.fullmatch(r"[\d+\-*/%(). ]{3,60}", text):
        return None
    try:
        value = _evaluate(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return int(value) if value == int(value) else round(value, 6)


def _evaluate(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _evaluate(left), _evaluate(right)
            if isinstance(op, ast.Pow) and (abs(b) > 64 or abs(a) > 1e6):
                raise ValueError("too large")
            return _OPERATORS[type(op)](a, b)
    raise ValueError("no arithmetic")


def _arithmetic_value(asked: str) -> float | int | None:
    text = re.sub(r"\bplus\b", "+", asked, flags=re.I)
    text = re.sub(r"\bminus\b", "-", text, flags=re.I)
    text = re.sub(r"\b(?:times|multiplied by)\b|(?<=\d)\s*[x×]\s*(?=\d)", "*", text, flags=re.I)
    text = re.sub(r"\b(?:divided by|over)\b|÷", "/", text, flags=re.I)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    for candidate in re.findall(r"\(?-?\d[\d+\-*/%(). ]*\d\)?", text):
        if re.search(r"\d\s*\)*\s*(?:\*\*|[+\-*/%])\s*\(*\s*\d", candidate) and (value := _value(candidate)) is not None:
            return value
    return None


def _arithmetic(asked: str, whole: str) -> str | None:
    value = _arithmetic_value(asked)
    if value is None and (
        many := re.search(r"how many (?:letters?|times)? ?[\"'“]?(\w)[\"'”]?s? .*?(?:in|word) [\"'“]?(\w{4,})", asked, re.I)
    ):
        return f"The letter “{many[1]}” occurs {many[2].lower().count(many[1].lower())} times in “{many[2]}”."
    if value is None:
        return None
    if re.search(r"\b(only|just)\b", asked, re.I):
        return str(value)
    expression = re.search(r"\(?-?\d[\d+\-*/%().×÷ x]*\d\)?", asked)
    return (
        f"{expression[0].strip()} = **{value}**"
        if expression and not expression[0].strip().isdigit()
        else f"The result is **{value}**."
    )


def _capital(asked: str, whole: str) -> str | None:
    match = re.search(r"capital (?:city )?of ([A-Za-z ]+?)(?:[?.!,\n]|$| in | and |\s+reply|\s+answer)", asked, re.I)
    if not match:
        return None
    city = CAPITALS.get(match[1].strip().lower())
    if city is None:
        return None
    if re.search(r"\b(one word|only|just|single word)\b", asked, re.I):
        return city
    return f"The capital of {match[1].strip()} is **{city}**."


def _known(asked: str, whole: str) -> str | None:
    return next((said for pattern, said in REPLIES if re.search(pattern, asked, re.I)), None)


def _code(asked: str, whole: str) -> str | None:
    if not re.search(r"\b(python|code|function|program|script|write a (?:function|class)|snippet)\b", asked, re.I):
        return None
    return (
        "Here is a small, complete version:\n\n"
        "```python\n"
        "from collections import Counter\n\n\n"
        "def most_common(words: list[str], n: int = 3) -> list[tuple[str, int]]:\n"
        '    """The n most frequent words, the most frequent first."""\n'
        "    return Counter(word.lower() for word in words).most_common(n)\n\n\n"
        'print(most_common("the cat and the hat and the bat".split()))\n'
        "```\n\n"
        "It prints `[('the', 3), ('and', 2), ('cat', 1)]`. Some notes:\n\n"
        "- `Counter` counts in one pass, so it is **O(n)**.\n"
        "- Ties keep the order in which the words were first met.\n"
        "- For very large inputs, feed it an iterator instead of a list.\n"
    )


def _general(asked: str) -> str:
    topic = " ".join(re.findall(r"\w+", asked)[:12]) or "that"
    return (
        f"Let me take **{topic}** step by step.\n\n"
        "1. **What is given.** The request names its subject; what it leaves open I take in its plainest sense.\n"
        "2. **What follows.** The simplest reading that fits all of it is usually the right one, and it can be checked.\n"
        "3. **What to do next.** Try the smallest example first, compare it with what you expect, and only then scale it up.\n\n"
        "| step | effort | gain |\n| --- | --- | --- |\n| smallest example | minutes | certainty |\n| scale up | hours | the "
        "result |\n\n"
        "If you tell me more about the goal, I can be more specific."
    )

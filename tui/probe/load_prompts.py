"""Makes the requests of a benchmark: prompts of an exact length that no prefix cache has seen, and bodies that the server takes.

Lengths are exact without a local tokenizer: the server's /tokenize counts each sentence once (byte-pair and unigram tokenizers
never join across the space between two words, so counts add up), and common words of one token fill what is missing. Where there
is no /tokenize, two first requests' `usage` gives tokens a word. Every prompt begins with words drawn from the run's seed and its
number, so that no two share more than the chat template. Python 3.8.
"""

import json
import random
from typing import Any, Dict, List, Optional, Sequence, Tuple

from tui.probe.load_server import ApiCaller

SENTENCES = (
    "The ferry left the harbour a little after six, when the fog had already lifted from the far shore.",
    "Most of the old maps in the library were drawn by hand and coloured by people whose names nobody wrote down.",
    "A good bread dough needs time more than it needs strength, and the cold of a cellar gives it that time.",
    "When the river rises in spring, the lower fields stand under water for two weeks and the geese come back.",
    "The committee agreed that the bridge should be repaired before winter, but it did not agree on who would pay.",
    "Copper carries heat so well that the handle of such a pan must be made of something else.",
    "Her first experiment failed because the lamp had warmed the sample before the measurement began.",
    "In a small orchestra every player can hear all the others, which is both a comfort and a danger.",
    "The night train stops at the border for an hour while the engines are changed and the papers are read.",
    "Bees find their way home by the sun, and on cloudy days by the pattern of light that the clouds let through.",
    "The museum keeps its oldest clocks in one room, and at noon the visitors stop talking to listen.",
    "A theory that explains everything that could happen does not explain why this happened instead.",
    "After the storm the power was out for three days, and the neighbours cooked together in the yard.",
    "The engineer drew the valve from memory and marked the two places where it always leaked.",
    "Good questions are rarer than good answers, since an answer only has to be found once.",
    "The harvest was late that year, and the price of grain rose in every town along the coast.",
    "He counted the steps of the tower twice and got a different number each time.",
    "A language without a word for blue can still tell one shade of the sea from another.",
    "The court asked for the original letter, but only a copy of a copy had survived.",
    "Glass flows so slowly that the thick edge of an old window is not a sign of its age.",
    "The doctor listened for a long time before she wrote anything down.",
    "Every evening the lamplighter walked the same streets in the same order, whatever the weather.",
    "The first version of the program was fast and wrong, and the second one was right and slow.",
    "Salt was once worth so much that whole cities were built where it came out of the ground.",
    "The children built a dam of stones and mud, and by the evening the stream had found a way around it.",
    "A ship's carpenter could read the sound of the hull and hear which plank would give way first.",
    "The vote was close enough that the three people who had stayed at home talked about it for years.",
    "When two mirrors face each other, the images grow darker with every reflection because no mirror is perfect.",
    "The village had one telephone, and the woman who owned the shop knew everyone's news before they did.",
    "An index is a promise that the thing you are looking for will not have to be looked for twice.",
    "The glacier has lost a third of its length since the first photograph was taken from the same rock.",
    "A careful gardener plants for the tree's shade in thirty years and not for its flowers next spring.",
    "The message arrived in the wrong order, and for one hour the whole office believed the opposite of the truth.",
    "Wool keeps its warmth when it is wet, which is why sailors wore it long after other cloth was cheaper.",
    "The teacher drew a line on the board and asked how anyone could be sure that it was straight.",
    "Between the two towns lies a forest in which the road turns so often that strangers think they are lost.",
    "The price of a promise is paid on the day when keeping it is no longer convenient.",
    "A drum tuned on a dry morning will sound lower by the time the evening mist comes up.",
    "The astronomer threw away one night in four because the air above the mountain would not hold still.",
    "Nobody remembered who had planted the apple tree, but everyone knew when its fruit was ripe.",
)

REQUEST = "Please go on with this text in the same manner, at length, and do not stop early."

WORDS = tuple(
    (  # noqa: SIM905 - a list of words reads as text
        "time year people way day man world life hand part child eye place work week case point number group problem fact water "
        "room money story night home side head house service friend power hour game line end law car city name team minute body "
        "level door art war history party result change morning reason moment air force road book word music ground form light"
    ).split()
)


PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
TAG_WORDS = 8
ROOM_FOR_SENTENCES = 48
"""Prompts of fewer tokens are single words only."""


BLIND_IDS = range(1000, 8000)
"""Token ids for a server that doesn't say which ones it has: every vocabulary in use holds these."""


class PlanRefused(Exception):
    """The server takes no request of this benchmark; `kind` as in the counts of failures."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class TokenLengths:
    """Hold what is known about the server's tokenizer; it travels to workers as JSON."""

    def __init__(self, known: Dict[str, Any]) -> None:
        self.exact: bool = known["exact"]
        self.overhead: int = known["overhead"]
        self.words: List[str] = known["words"]
        self.counts: List[int] = known["counts"]
        self.request: int = known["request"]
        self.per_word: float = known["per_word"]
        self.ids: List[int] = known["ids"]
        self.known = known


def asked_input(plan: Dict[str, Any]) -> Optional[int]:
    """Return the tokens that a plan's prompts should have; None for given ones, which nobody has counted."""
    return None if plan.get("prompts") else max(1, int(plan["input_tokens"])) + int(plan.get("shared_prefix") or 0)


class Prompts:
    """Make the bodies of a run: `body(n)` is the n-th request's, the same for the same seed."""

    def __init__(self, plan: Dict[str, Any], lengths: TokenLengths, fields: Dict[str, Any]) -> None:
        self._plan = plan
        self._lengths = lengths
        self._chat = plan["endpoint"] == "chat"
        self._tokens = plan.get("style") == "tokens"
        self._given: Sequence[Dict[str, Any]] = plan.get("prompts") or ()
        self._fields = fields
        self.asked_input = asked_input(plan)
        prefix = int(plan.get("shared_prefix") or 0)
        self._prefix_ids: List[int] = []
        self._prefix = ""
        if prefix and not self._given:
            rng = random.Random("%s/prefix" % plan["seed"])
            if self._tokens:
                self._prefix_ids = self._id_list(rng, prefix)
            else:
                self._prefix = self._text(rng, prefix) + " "

    def body(self, number: int, output: Optional[int] = None) -> Tuple[bytes, int]:
        """Return the JSON of a request and the output tokens that it asks for."""
        asked = int(output or self._plan["output_tokens"])
        if self._given:
            given = self._given[number % len(self._given)]
            asked = min(int(given.get("output_tokens") or asked), output or 1 << 60)
            prompt = given.get("messages") or given.get("prompt")
        else:
            rng = random.Random("%s/%d" % (self._plan["seed"], number))
            wanted = int(self._plan["input_tokens"])
            if self._tokens:
                prompt = self._prefix_ids + self._id_list(rng, wanted)
            else:
                prompt = self._prefix + self._text(rng, wanted - self._lengths.overhead)
        fields = self.fields_for(prompt, asked)
        return json.dumps(fields, separators=(",", ":")).encode("ascii"), asked

    def fields_for(self, prompt: Any, asked: int) -> Dict[str, Any]:
        """Return the whole body as an object."""
        fields: Dict[str, Any] = {"model": self._plan["model"]}
        if self._chat:
            fields["messages"] = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        else:
            fields["prompt"] = prompt
        for name, value in self._fields.items():
            fields[name] = asked if value == "$asked" else value
        fields.update(self._plan.get("extra_body") or {})
        return fields

    def _id_list(self, rng: random.Random, count: int) -> List[int]:
        ids = self._lengths.ids or BLIND_IDS
        return [rng.choice(ids) for _ in range(count)]

    def _text(self, rng: random.Random, wanted: int) -> str:
        """Make text of `wanted` tokens (at least one): drawn words, sentences, words that fill up, and a request to go on."""
        lengths = self._lengths
        words = lengths.words
        if not lengths.exact:
            return self._estimated(rng, wanted)
        if wanted < ROOM_FOR_SENTENCES:
            return " ".join([words[0]] + [rng.choice(words) for _ in range(wanted - 1)])
        # always the same first word: without a space before it, another one may be another number of tokens
        parts = [words[0]] + [rng.choice(words) for _ in range(TAG_WORDS)]
        left = wanted - len(parts) - lengths.request
        order = list(range(len(SENTENCES)))
        while True:
            rng.shuffle(order)
            for i in order:
                if lengths.counts[i] <= left:
                    parts.append(SENTENCES[i])
                    left -= lengths.counts[i]
            if left < max(lengths.counts):
                break
        parts.extend(rng.choice(words) for _ in range(left))
        parts.append(REQUEST)
        return " ".join(parts)

    def _estimated(self, rng: random.Random, wanted: int) -> str:
        count = max(1, round(wanted / self._lengths.per_word))
        parts = [rng.choice(WORDS) for _ in range(min(TAG_WORDS, count))]
        room = count - len(parts)
        while room > 0:
            piece = rng.choice(SENTENCES).split(" ")[:room]
            parts.extend(piece)
            room -= len(piece)
        return " ".join(parts)


def settle_lengths(caller: ApiCaller, plan: Dict[str, Any], fields: Dict[str, Any]) -> Tuple[TokenLengths, List[str]]:
    """Find out how this server's tokenizer counts our text; return that, and notes on what stays uncertain."""
    if plan.get("prompts"):
        return uncounted_lengths(), []
    counter = _Tokenizer(caller, plan)
    if counter.works():
        if plan.get("style") == "tokens":
            ids = sorted({i for i in counter.ids(" ".join(SENTENCES)) if i > 10})
            return TokenLengths(dict(uncounted_lengths().known, ids=ids)), []
        return _counted(counter, plan)
    if plan.get("style") == "tokens":
        return uncounted_lengths(), ["the server has no /tokenize: token ids from %d to %d" % (BLIND_IDS[0], BLIND_IDS[-1])]
    return _from_usage(caller, plan, fields)


def uncounted_lengths() -> TokenLengths:
    return TokenLengths(
        {"exact": False, "overhead": 0, "words": list(WORDS), "counts": [], "request": 0, "per_word": 1.3, "ids": []}
    )


class _Tokenizer:
    """Count with the server's /tokenize. Raises OSError or ValueError when it stops answering."""

    def __init__(self, caller: ApiCaller, plan: Dict[str, Any]) -> None:
        self._caller = caller
        self._model = plan["model"]
        self._plan = plan

    def _reply(self, fields: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        status, reply = self._caller.ask_json("POST", "/tokenize", dict(fields, model=self._model))
        return reply if status == 200 and isinstance(reply, dict) else None

    def works(self) -> bool:
        try:
            reply = self._reply({"prompt": "time"})
        except (OSError, ValueError):
            return False
        return reply is not None and self._number(reply) is not None

    @staticmethod
    def _number(reply: Dict[str, Any]) -> Optional[int]:
        count = reply.get("count")
        tokens = reply.get("tokens")
        if isinstance(count, int):
            return count
        return len(tokens) if isinstance(tokens, list) else None

    def text(self, text: str) -> int:
        reply = self._reply({"prompt": text})
        count = None if reply is None else self._number(reply)
        if count is None:
            raise ValueError("/tokenize gave no count")
        return count

    def chat(self, text: str) -> Optional[int]:
        """Count a whole chat prompt, template included; return None if /tokenize takes no messages."""
        fields = {"messages": [{"role": "user", "content": text}]}
        extra = (self._plan.get("extra_body") or {}).get("chat_template_kwargs")
        reply = self._reply(dict(fields, chat_template_kwargs=extra) if extra else fields)
        return None if reply is None else self._number(reply)

    def ids(self, text: str) -> List[int]:
        reply = self._reply({"prompt": text}) or {}
        tokens = reply.get("tokens")
        return [i for i in tokens if isinstance(i, int)] if isinstance(tokens, list) else []


def _counted(counter: _Tokenizer, plan: Dict[str, Any]) -> Tuple[TokenLengths, List[str]]:
    base = counter.text("time")
    words: List[str] = []
    for at in range(0, len(WORDS), 8):
        group = WORDS[at : at + 8]
        if counter.text("time " + " ".join(group)) - base == len(group):
            words.extend(group)
        else:
            words.extend(word for word in group if counter.text("time " + word) - base == 1)
    if not words:
        return uncounted_lengths(), ["no common word is one token here: the lengths of prompts are estimated"]
    counts = [counter.text("time " + sentence) - base for sentence in SENTENCES]
    known = {"exact": True, "words": words, "counts": counts, "request": counter.text("time " + REQUEST) - base}
    known.update(overhead=0, per_word=1.3, ids=[])
    whole = counter.chat if plan["endpoint"] == "chat" else counter.text
    lengths = TokenLengths(known)
    wanted = int(plan["input_tokens"])
    # Two whole prompts of the asked length tell what the template adds, and whether the counts really add up.
    seen = []
    for number in (-1, -2):
        text = Prompts(dict(plan, shared_prefix=0), lengths, {})._text(random.Random("%s/%d" % (plan["seed"], number)), wanted)
        count = whole(text)
        if count is None:
            return lengths, ["/tokenize takes no messages: prompts are longer by the chat template"]
        seen.append(count - max(1, wanted))
    known["overhead"] = seen[0]
    notes = []
    if seen[0] != seen[1]:
        notes.append("prompt lengths vary by about %d tokens: this tokenizer joins across words" % abs(seen[0] - seen[1]))
    if seen[0] >= wanted:
        notes.append("the chat template alone has %d tokens: prompts are longer than the asked %d" % (seen[0], wanted))
    return TokenLengths(known), notes


def _from_usage(caller: ApiCaller, plan: Dict[str, Any], fields: Dict[str, Any]) -> Tuple[TokenLengths, List[str]]:
    """Estimate tokens a word and the template's tokens from the usage of two requests of one token."""
    points = []
    rough = TokenLengths(dict(uncounted_lengths().known, per_word=1.0))
    for number, count in ((-1, 24), (-2, 224)):
        prompts = Prompts(dict(plan, shared_prefix=0), rough, fields)
        text = prompts._text(random.Random("%s/%d" % (plan["seed"], number)), count)
        body = prompts.fields_for(text, 1)
        body.pop("stream_options", None)
        body["stream"] = False
        try:
            status, reply = caller.ask_json("POST", PATHS[plan["endpoint"]], body)
        except (OSError, ValueError):
            return uncounted_lengths(), ["the server reports no token counts: the lengths of prompts are estimated"]
        usage = reply.get("usage") if status == 200 and isinstance(reply, dict) else None
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if not isinstance(tokens, int):
            return uncounted_lengths(), ["the server reports no token counts: the lengths of prompts are estimated"]
        points.append((len(text.split(" ")), tokens))
    (x0, y0), (x1, y1) = points
    slope = max(0.2, (y1 - y0) / (x1 - x0))
    known = dict(uncounted_lengths().known, per_word=slope, overhead=max(0, round(y0 - slope * x0)))
    return TokenLengths(known), [
        "the server has no /tokenize: the lengths of prompts are calibrated by usage, within a few per cent"
    ]

"""Texts that the simulated model knows by heart."""

import random
import re
from collections.abc import Sequence

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
    """What a model with broken weights says."""
    dice = random.Random(seed)
    return "".join(dice.choice((" ", "", " ", "\n")) + dice.choice(_BITS) for _ in range(words))


_PIECE = re.compile(r" ?[A-Za-z]{1,6}| ?[0-9]{1,3}|\n+| ?[^A-Za-z0-9\s]{1,2}|\s", re.ASCII)


def split(text: str) -> list[str]:
    """The text as tokens; joined they are the text again."""
    return _PIECE.findall(text)


class Vocabulary:
    """Numbers for tokens, given out as they are met."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._pieces: list[str] = []

    def encode(self, text: str) -> list[int]:
        return [self._id(piece) for piece in split(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """An id that was never given out reads as a word of its own."""
        return "".join(self._pieces[number] if 0 <= number < len(self._pieces) else f" w{number}" for number in ids)

    def _id(self, piece: str) -> int:
        number = self._ids.get(piece)
        if number is None:
            number = self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return number

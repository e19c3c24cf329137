"""The simulated model answers as a sane one would, so that what judges replies can be tried on it; a broken one babbles."""

import pytest

from tui.core.conversation import Turn
from tui.core.smoke_prompts import Outcome, SmokePrompt, judge, prompts
from tui.simulator.completions import Vocabulary, split
from tui.simulator.responder import answer, continuation


@pytest.mark.parametrize("prompt", prompts(2048), ids=lambda prompt: prompt.name)
def test_smoke_prompts_pass_in_a_conversation(prompt: SmokePrompt) -> None:
    reply = answer([("user", prompt.asked)]).text
    assert judge(prompt, Turn(asked=prompt.asked, reply=reply, finish="stop"))[0] is Outcome.PASSED, reply


@pytest.mark.parametrize("prompt", [prompt for prompt in prompts(2048) if prompt.completion], ids=lambda prompt: prompt.name)
def test_smoke_prompts_pass_as_completions(prompt: SmokePrompt) -> None:
    assert prompt.completion is not None
    reply = continuation(prompt.completion)
    turn = Turn(asked=prompt.asked, reply=reply, finish="length", endpoint="completions")
    assert judge(prompt, turn)[0] is Outcome.PASSED, reply[:200]


@pytest.mark.parametrize("prompt", prompts(2048), ids=lambda prompt: prompt.name)
def test_broken_weights_fail(prompt: SmokePrompt) -> None:
    reply = answer([("user", prompt.asked)], kind="gibberish", seed=3).text
    assert judge(prompt, Turn(asked=prompt.asked, reply=reply, finish="stop"))[0] is Outcome.FAILED, reply


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("What is 12 + 30?", "42"),
        ("Compute 1,200 * 3 - 7. Just the number.", "3593"),
        ("What is 7 times 8?", "56"),
        ("Which is smaller, 0.5 or 0.25?", "0.25"),
        ("What is the capital of Japan?", "Tokyo"),
        ('Reply with exactly: "ready"', "ready"),
        ("Count from 1 to 5.", "1, 2, 3, 4, 5"),
        ("List the first six prime numbers.", "2, 3, 5, 7, 11, 13"),
        (
            'Return a JSON object with the keys "city" and "country" for the capital of France.',
            '{"city": "Paris", "country": "France"}',
        ),
        ("Write a Python function that counts words.", "```python"),
        ("What is 9 ** 999999999?", "step by step"),
        ("", "step by step"),
    ],
)
def test_plain_questions(asked: str, expected: str) -> None:
    assert expected in answer([("user", asked)]).text


@pytest.mark.parametrize("text", ["", "Hello, world!\n\n  x=1; naïve 日本 🙂 ", "a" * 1000, "1234567 -- \t\r\n"])
def test_tokens_join_to_the_text(text: str) -> None:
    assert "".join(split(text)) == text
    vocabulary = Vocabulary()
    assert vocabulary.decode(vocabulary.encode(text)) == text

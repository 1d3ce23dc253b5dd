r"""The math reward: the answer is right when math-verify finds it equal to the reference answer.

Of a completion, the last complete `\boxed{...}` counts, then the `<answer>` tag, then what
math-verify finds in its last characters. Of a reference answer, what stands behind `####` counts
where there is one (GSM8K), and a bare `\frac{1}{2}` is taken as LaTeX.
"""

import functools
import re
from typing import Any

from evenodds.rewards.sandbox import Sandbox
from evenodds.rewards.text import tagged_answer

NUM_CHARACTERS = 20_000
"""Characters at the end of a completion in which a `\\boxed{...}` or a tag is looked for."""
NUM_UNMARKED_CHARACTERS = 2_000
"""Characters at the end of a completion without either that are searched for an answer."""

PLAIN_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")
BRACE = re.compile(r"\\\\|\\[{}]|(?P<boxed>\\(?:boxed|fbox)\s{0,3}\{)|(?P<open>\{)|(?P<close>\})")
DOLLAR = re.compile(r"(?<!\\)\$")


class MathGrader:
    """Compares expressions in a sandbox; a text that cannot be parsed in time is wrong."""

    def __init__(self, time_limit_s: float = 5.0) -> None:
        self.sandbox = Sandbox("evenodds.rewards.math:judge", time_limit_s)

    def grade(self, completion: str, gold: str) -> float:
        """1 where the completion's answer equals the reference answer, else 0."""
        request = {"gold": as_latex(gold), "answer": answer_of(completion)}
        return float(bool(self.sandbox.ask(request)))

    def fault(self, gold: str) -> str | None:
        """What a reference answer should have been: something math-verify can parse."""
        if PLAIN_NUMBER.fullmatch(gold.strip()):
            return None
        if gold.strip() and self.sandbox.ask({"gold": as_latex(gold)}):
            return None
        return "a number or LaTeX that math-verify can parse"


def answer_of(completion: str) -> str:
    """The part of a completion that holds its answer."""
    end = completion[-NUM_CHARACTERS:]
    boxed = last_boxed(end)
    if boxed is not None:
        return boxed
    tagged = tagged_answer(end)
    return completion[-NUM_UNMARKED_CHARACTERS:] if tagged is None else as_latex(tagged)


def as_latex(answer: str) -> str:
    r"""An answer in a `\boxed{}`, unless it says itself where its LaTeX is."""
    answer = answer.rpartition("####")[2].strip()
    boxed = last_boxed(answer)
    if boxed is not None:
        return boxed
    if len(DOLLAR.findall(answer)) >= 2:
        return answer
    return f"\\boxed{{{DOLLAR.sub('', answer)}}}"  # one dollar is money


def last_boxed(text: str) -> str | None:
    r"""The last complete `\boxed{...}`, its braces included; none where there is none."""
    open_braces: list[int | None] = []  # where a box starts, none for other braces
    found = None
    for brace in BRACE.finditer(text):
        if brace["boxed"]:
            open_braces.append(brace.end())
        elif brace["open"]:
            open_braces.append(None)
        elif brace["close"] and open_braces:
            start = open_braces.pop()
            found = found if start is None else f"\\boxed{{{text[start : brace.start()]}}}"
    return found


def judge(request: dict[str, str] | None) -> bool:
    """Whether `answer` equals `gold`, or `gold` can be parsed; runs in the sandbox."""
    from math_verify import verify

    if request is None:
        return bool(_parsed_gold("\\boxed{1}"))
    gold = _parsed_gold(request["gold"])
    if "answer" not in request:
        return bool(gold)
    return verify(gold, _parsed(request["answer"]), timeout_seconds=None)


@functools.lru_cache(maxsize=4096)
def _parsed_gold(gold: str) -> list[Any]:
    return _parsed(gold)


def _parsed(text: str) -> list[Any]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    places = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
    return parse(text, places, parsing_timeout=None)  # pyright: ignore[reportArgumentType]

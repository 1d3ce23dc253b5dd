"""From a row as its dataset has it to a question and an answer."""

import re
from collections.abc import Callable, Mapping
from string import ascii_uppercase
from typing import Any

from evenodds.errors import DataError
from evenodds.questions import Row
from evenodds.rewards.math import last_boxed

LEVELS = ("Level 3", "Level 4", "Level 5")
MOST_CHOICES = 10  # the reward `choice` knows A to J
SCIENCES = ("physics", "chemistry", "biology")
UNBRACED = re.compile(r"\\(?:boxed|fbox)\s+([^\s$.{]+)")


def graded(question: str, answer: str) -> Callable[[Row], Row]:
    """For sources with the bare answer in a column of its own."""

    def read(row: Row) -> Row:
        return {"question": row[question], "answer": row[answer]}

    return read


def solved_math(row: Row) -> Row | None:
    r"""MATH: levels 3 to 5, with what the solution puts into its last `\boxed{}`."""
    if row["level"] not in LEVELS:
        return None
    return {"question": row["problem"], "answer": _boxed(str(row["solution"]))}


def solved_gsm8k(row: Row) -> Row:
    """GSM8K: the answer stands behind `####`."""
    return {"question": row["question"], "answer": str(row["answer"]).rpartition("####")[2].strip()}


def talk_of_orz(row: Row) -> Row:
    """Open-Reasoner-Zero: what the human says, and the `ground_truth` of the reply."""
    asked, reply = row["0"], row["1"]
    try:
        return {"question": asked["value"], "answer": reply["ground_truth"]["value"]}
    except (KeyError, TypeError) as error:
        raise DataError(
            "a row is not shaped like those of Open-Reasoner-Zero",
            got=repr(row)[:200],
            expected='[{"from": "human", "value": ...}, {"ground_truth": {"value": ...}, ...}]',
        ) from error


def chosen_of_scp(row: Row) -> Row:
    """Multiple choice: the letter, and where the choices lie in a list of their own, these."""
    choices = row.get("choices")
    text = str(row["question"]) if choices is None else _with_choices(row["question"], choices)
    return {"question": text, "answer": row["answer"]}


def chosen_of_mmlu(row: Row) -> Row | None:
    """MMLU: subjects of physics, chemistry and biology; the answer counts from 0."""
    if not any(science in row["subject"] for science in SCIENCES):
        return None
    choices, place = row["choices"], row["answer"]
    if not isinstance(place, int) or not 0 <= place < len(choices):
        raise DataError(
            "an answer names no choice",
            got=repr(place),
            expected=f"a whole number from 0 to {len(choices) - 1}",
        )
    return {
        "question": _with_choices(row["question"], choices),
        "answer": ascii_uppercase[place],
    }


def _with_choices(question: Any, choices: Any) -> str:
    """The question, and a line for each choice."""
    if isinstance(choices, Mapping):
        choices = choices.get("text")
    if not isinstance(choices, list | tuple) or not 2 <= len(choices) <= MOST_CHOICES:
        raise DataError(
            "the choices of a question are not a list",
            got=repr(choices)[:200],
            expected=f"2 to {MOST_CHOICES} texts",
        )
    lines = [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, choices, strict=False)]
    return "\n".join([str(question), *lines])


def _boxed(solution: str) -> str | None:
    found = last_boxed(solution)
    if found is not None:
        return found.removeprefix("\\boxed{").removesuffix("}").strip()
    bare = UNBRACED.findall(solution)
    return bare[-1] if bare else None

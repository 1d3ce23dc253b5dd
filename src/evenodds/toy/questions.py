"""Questions about strings of digits, made by code, each with the one answer that is right."""

import itertools
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from evenodds.config import unknown_key

Split = Literal["pool", "evaluation", "demonstrations"]
SPLITS: tuple[Split, ...] = ("pool", "evaluation", "demonstrations", "demonstrations")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Task:
    """A kind of question.

    Attributes:
        solve: The right answer for a string of digits; `turn` is 0 unless the task `turns`.
        turns: Whether the question has a second argument, 1 <= turn < number of digits.
    """

    solve: Callable[[str, int], str]
    turns: bool = False


def _sums(digits: str, turn: int) -> str:
    return ",".join(map(str, itertools.accumulate(map(int, digits))))


def _peaks(digits: str, turn: int) -> str:
    return "".join(itertools.accumulate(digits, max))


TASKS: dict[str, Task] = {
    "copy": Task(lambda digits, turn: digits),
    "reverse": Task(lambda digits, turn: digits[::-1]),
    "sort": Task(lambda digits, turn: "".join(sorted(digits))),
    "rotate": Task(lambda digits, turn: digits[turn:] + digits[:turn], turns=True),
    "peaks": Task(_peaks),
    "double": Task(lambda digits, turn: str(2 * int(digits)).zfill(len(digits))),
    "sums": Task(_sums),
    "spell": Task(lambda digits, turn: " ".join(WORDS[int(digit)] for digit in digits)),
}

# Numbers of digits, (fewest, most), of each world and task.
WORLDS: dict[str, dict[str, tuple[int, int]]] = {
    "main": {task: (3, 7) if task == "spell" else (3, 10) for task in TASKS},
    "easy": {task: (3, 5) if task == "spell" else (3, 7) for task in TASKS},
}


def make(task: str, digits: str, turn: int = 0) -> dict[str, Any]:
    """One question: `question`, `answer`, `task` and `length` (its number of digits)."""
    argument = f"{digits},{turn}" if TASKS[task].turns else digits
    return {
        "question": f"{task}({argument})=",
        "answer": TASKS[task].solve(digits, turn),
        "task": task,
        "length": len(digits),
    }


def draw(dice: random.Random, lengths: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """A question of a random task, length and content."""
    task = dice.choice(list(lengths))
    length = dice.randint(*lengths[task])
    digits = "".join(dice.choices("0123456789", k=length))
    return make(task, digits, dice.randrange(1, length) if TASKS[task].turns else 0)


def split_of(question: str) -> Split:
    """Which set a question may be in: a checksum of its text decides, so that none is in two."""
    return SPLITS[zlib.crc32(question.encode()) % len(SPLITS)]


def sample(split: Split, size: int, *, world: str, seed: int) -> list[dict[str, Any]]:
    """`size` different questions of a split, the same for the same seed.

    Raises:
        ConfigError: there is no such world.
    """
    if world not in WORLDS:
        raise unknown_key(world, list(WORLDS), kind="world")
    dice = random.Random(f"{split}-{world}-{seed}")
    found: dict[str, dict[str, Any]] = {}
    while len(found) < size:
        row = draw(dice, WORLDS[world])
        if split_of(row["question"]) == split:
            found.setdefault(row["question"], row)
    return list(found.values())

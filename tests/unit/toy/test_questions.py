"""The toy world's questions: as many as said, always the same, apart, and rightly answered."""

import subprocess
import sys
from collections import Counter

import pytest

from evenodds import toy
from evenodds.errors import ConfigError
from evenodds.toy.questions import make

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def solve(question):
    """The answer, worked out from the text of the question alone."""
    task, _, rest = question.partition("(")
    digits, _, turn = rest.removesuffix(")=").partition(",")
    numbers = [int(digit) for digit in digits]
    count = len(digits)
    match task:
        case "copy":
            return digits
        case "reverse":
            return "".join(digits[count - 1 - place] for place in range(count))
        case "sort":
            return "".join(str(value) * numbers.count(value) for value in range(10))
        case "rotate":
            return "".join(digits[(place + int(turn)) % count] for place in range(count))
        case "peaks":
            return "".join(str(max(numbers[: place + 1])) for place in range(count))
        case "double":
            return f"{int(digits) + int(digits):0{count}d}"
        case "sums":
            return ",".join(str(sum(numbers[: place + 1])) for place in range(count))
        case "spell":
            return " ".join(NAMES[number] for number in numbers)
    raise AssertionError(question)


@pytest.mark.parametrize("world", ["main", "easy"])
def test_every_answer_is_right(world):
    for row in toy.pool(world=world) + toy.evaluation(world=world):
        assert row["answer"] == solve(row["question"])


@pytest.mark.parametrize(
    ("task", "digits", "turn", "question", "answer"),
    [
        ("rotate", "31415", 2, "rotate(31415,2)=", "41531"),
        ("sums", "3141", 0, "sums(3141)=", "3,4,8,9"),
        ("double", "0655", 0, "double(0655)=", "1310"),
        ("peaks", "3141592", 0, "peaks(3141592)=", "3344599"),
        ("spell", "07", 0, "spell(07)=", "zero seven"),
    ],
)
def test_questions_worked_out_by_hand(task, digits, turn, question, answer):
    row = make(task, digits, turn)
    assert (row["question"], row["answer"], row["length"]) == (question, answer, len(digits))


def test_sizes_and_columns():
    assert len(toy.pool()) == 4096
    assert len(toy.evaluation()) == 512
    assert len(toy.pool(100, world="easy")) == 100
    assert set(toy.pool(1)[0]) == {"question", "answer", "task", "length"}


def test_pool_is_the_same_for_the_same_seed_and_another_for_another():
    assert toy.pool() == toy.pool()
    assert toy.pool(200, seed=1) == toy.pool(200, seed=1)
    assert toy.pool(200, seed=1) != toy.pool(200, seed=2)


def test_a_smaller_pool_is_the_beginning_of_a_larger_one():
    assert toy.pool(64) == toy.pool(256)[:64]


def test_no_question_is_there_twice_or_in_both_sets():
    kinds = [{"seed": seed, "world": world} for seed in (0, 1) for world in ("main", "easy")]
    pools = [toy.pool(**kind) for kind in kinds]
    held_out = [toy.evaluation(**kind) for kind in kinds]
    for rows in pools + held_out:
        assert len({row["question"] for row in rows}) == len(rows)
    trained = {row["question"] for rows in pools for row in rows}
    assert not trained & {row["question"] for rows in held_out for row in rows}


def test_lengths_and_tasks_are_evenly_drawn():
    rows = toy.pool()
    tasks = Counter(row["task"] for row in rows)
    assert len(tasks) == 8
    assert all(400 <= count <= 624 for count in tasks.values())  # 512 each on average
    assert {row["length"] for row in rows} == set(range(3, 11))
    assert {row["length"] for row in toy.pool(world="easy")} == set(range(3, 8))


def test_an_unknown_world_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'easy'"):
        toy.pool(world="eazy")


def test_import_is_light():
    code = "import sys, evenodds.toy; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]

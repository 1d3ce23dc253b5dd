"""The reasoning-gym reward: scores of the tasks themselves, from stored entries."""

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
import reasoning_gym

from evenodds.errors import RewardError
from evenodds.questions import DataConfig, load_pool
from evenodds.rewards import RewardConfig, make_reward
from evenodds.rewards.reasoning_gym import (
    ReasoningGymReward,
    _packed,
    _unpacked,
    entry_text,
    given_answer,
)

# With tuples that scoring compares, fractions, numbers as keys, several lines, partial credit.
TASKS = {
    "rearc": {"count": 2},
    "gsm_symbolic": {"count": 25, "seed": 1},
    "graph_color": {"count": 2},
    "syllogism": {"count": 3},
    "mini_sudoku": {"count": 2},
    "decimal_arithmetic": {"count": 2, "max_num_decimal_places": 3},
}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return load_pool(DataConfig(source="reasoning_gym", tasks=TASKS)).rows()


@pytest.fixture(scope="module")
def reward() -> ReasoningGymReward:
    return ReasoningGymReward(time_limit_s=1.0)


def score(
    reward: ReasoningGymReward, rows: list[dict[str, Any]], completions: list[str]
) -> list[float]:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return reward(columns.pop("prompt"), completions, **columns)


def test_right_answers_get_all_with_and_without_a_tag(
    reward: ReasoningGymReward, rows: list[dict[str, Any]]
) -> None:
    answered = [row for row in rows if row["answer"] is not None]
    assert {row["task"] for row in answered} == TASKS.keys() - {"graph_color"}
    tagged = [f"Hm.\n<answer>\n{row['answer']}\n</answer> Bye." for row in answered]
    assert score(reward, answered, tagged) == [1.0] * len(answered)
    last = [f"Let me see.\n\n{row['answer']}\n" for row in answered]
    assert score(reward, answered, last) == [1.0] * len(answered)


def test_answers_without_a_single_right_one(
    reward: ReasoningGymReward, rows: list[dict[str, Any]]
) -> None:
    row = next(row for row in rows if row["task"] == "graph_color")
    entry = _unpacked(json.loads(row["reasoning_gym"]))["entry"]
    colours = entry["metadata"]["possible_answer"]
    assert score(reward, [row] * 2, [json.dumps(colours), "{}"]) == [1.0, 0.01]


def test_partial_scores_are_the_tasks_own(
    reward: ReasoningGymReward, rows: list[dict[str, Any]]
) -> None:
    row = next(row for row in rows if row["task"] == "syllogism")
    task = reasoning_gym.create_dataset("syllogism", size=1, seed=0)
    near = f"{row['answer']} indeed"
    expected = task.score_answer(near, {"answer": row["answer"], "metadata": {}})
    assert 0 < expected < 1
    assert score(reward, [row], [near]) == [expected]


def test_what_a_task_trips_over_is_wrong(reward: ReasoningGymReward) -> None:
    tasks = {"prime_factorization": {"count": 1}, "countdown": {"count": 1}}
    rows = load_pool(DataConfig(source="reasoning_gym", tasks=tasks)).rows()
    assert score(reward, rows, ["2 × x", "9**9**9**9"]) == [0.0, 0.0]  # raises; has no end
    assert max(score(reward, rows, ["", "é" * 200_000])) <= 0.01  # the least that tasks give
    assert score(reward, rows, [row["answer"] for row in rows]) == [1.0, 1.0]


def test_settings_of_the_task_count_when_scoring(reward: ReasoningGymReward) -> None:
    def score_of_near_miss(places: int) -> float:
        table = {"count": 1, "min_num_decimal_places": places, "max_num_decimal_places": places}
        tasks = {"decimal_arithmetic": table}
        rows = load_pool(DataConfig(source="reasoning_gym", tasks=tasks)).rows()
        return score(reward, rows, [str(Decimal(rows[0]["answer"]) + Decimal("0.005"))])[0]

    assert score_of_near_miss(2) == 1.0  # within 0.01
    assert score_of_near_miss(4) == 0.0  # not within 0.0001


def test_questions_of_another_source() -> None:
    reward = make_reward(RewardConfig(kind="reasoning_gym"))
    assert reward.__name__ == "reasoning_gym"
    with pytest.raises(RewardError, match=r'set data\.source = "reasoning_gym"'):
        reward(["p"], ["c"], answer=["1"])
    with pytest.raises(RewardError, match="the column `reasoning_gym`"):
        reward(["p"], ["c"], reasoning_gym=[None])


def test_entries_survive_being_text() -> None:
    entry = {
        "answer": None,
        "metadata": {
            "board": ((1, 2), [3, (4,)]),
            "keys": {1: "a", 2.5: {"b"}},
            "$tuple": "a key like a tag",
            "third": Fraction(1, 3),
            "empty": {},
        },
    }
    assert _unpacked(json.loads(json.dumps(_packed(entry)))) == entry


def test_entries_that_cannot_be_text() -> None:
    with pytest.raises(TypeError, match="a object cannot be kept as text"):
        entry_text("task", {}, {"metadata": object()})


@pytest.mark.parametrize(
    ("completion", "reference", "answer"),
    [
        ("The GCD of 6 and 10 is 6.", "2", "6"),
        ("so it is\n1,234.5 in all", "7", "1234.5"),
        ("It fell by -3", "-3", "-3"),
        ("<answer>about 4</answer> or 5", "4", "4"),
        ("no digits here", "4", "no digits here"),
        ("2 of them", "two", "2 of them"),
        ("a\nb", "x\ny", "a\nb"),
        ("anything", None, "anything"),
        ("", "4", ""),
    ],
)
def test_where_a_number_is_asked_for_the_last_number_counts(completion, reference, answer):
    assert given_answer(completion, reference) == answer

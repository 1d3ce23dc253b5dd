"""The exact reward."""

import pytest

from evenodds.rewards.exact import fault, grade


@pytest.mark.parametrize(
    ("completion", "gold", "reward"),
    [
        ("5", "5", 1.0),
        (" 5\n", "5", 1.0),
        ("Two and three.\n5", " 5 ", 1.0),
        ("<answer>5</answer> for sure", "5", 1.0),
        ("07", "7", 0.0),
        ("7", "07", 0.0),
        ("07", "07", 1.0),
        ("yes", "Yes", 0.0),
        ("5.", "5", 0.0),
        ("The answer is 5", "5", 0.0),
        ("5\nso 6", "5", 0.0),
        ("", "5", 0.0),
        ("Look:\n1 2 \n\n 3 4", "1 2\n3 4", 1.0),
        ("3 4", "1 2\n3 4", 0.0),
        ("größe 😀", "größe 😀", 1.0),
    ],
)
def test_grade(completion: str, gold: str, reward: float) -> None:
    assert grade(completion, gold) == reward


def test_only_blank_reference_answers_are_at_fault() -> None:
    assert fault("07") is None
    assert fault(" \n") == "text that is not blank"

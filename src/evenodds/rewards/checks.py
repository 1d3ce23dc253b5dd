"""Rewards as they come from a function, made sure of: one finite number a completion."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

from evenodds.errors import RewardError, some


def checked_rewards(
    rewards: Any,
    count: int,
    *,
    name: str,
    reward_range: tuple[float, float],
    question_ids: Sequence[str] | None = None,
) -> list[float]:
    """The rewards of a batch as plain floats.

    Args:
        rewards: A list, tuple, array or tensor.
        count: Number of completions.
        name: The reward function, for error messages.
        reward_range: Lowest and highest reward that may occur.
        question_ids: The question of each completion, for error messages.

    Raises:
        RewardError: not one reward a completion, not numbers, or outside the range.
    """
    values = rewards.tolist() if hasattr(rewards, "tolist") else rewards
    if not isinstance(values, list | tuple):
        raise RewardError(
            f"{name} does not return a list of rewards",
            got=f"{type(rewards).__name__} {rewards!r}"[:200],
            expected="a list with one number a completion",
        )
    if len(values) != count:
        raise RewardError(
            f"{name} returns the wrong number of rewards",
            got=f"{len(values)} rewards",
            expected=f"{count}, one a completion",
        )
    plain = [_number(value) for value in values]
    _refuse(
        [row for row, value in enumerate(plain) if value is None or not math.isfinite(value)],
        values,
        f"{name} returns something that is not a number",
        expected="a finite number for each completion",
        fix="return the lowest reward where an answer cannot be scored",
        question_ids=question_ids,
    )
    finite = [value for value in plain if value is not None]
    low, high = reward_range
    tolerance = 1e-5 * (high - low)
    _refuse(
        [
            row
            for row, value in enumerate(finite)
            if not low - tolerance <= value <= high + tolerance
        ],
        finite,
        f"{name} returns a reward outside its declared range",
        expected=f"a number in [{low}, {high}]",
        fix="set reward.range to the lowest and highest reward that can occur",
        question_ids=question_ids,
    )
    return finite


def _refuse(
    rows: list[int],
    values: Sequence[Any],
    what: str,
    *,
    expected: str,
    fix: str,
    question_ids: Sequence[str] | None,
) -> None:
    if rows:
        names = question_ids or [f"completion {row + 1}" for row in range(len(values))]
        where = "question " if question_ids else ""
        raise RewardError(
            what,
            got=some(f"{values[row]!r} for {where}{names[row]}" for row in rows),
            expected=expected,
            fix=fix,
        )


def _number(value: Any) -> float | None:
    if hasattr(value, "item"):  # of an array or tensor
        try:
            value = value.item()
        except (RuntimeError, ValueError):  # it has not one element
            return None
    return float(value) if isinstance(value, numbers.Real) else None

"""evenodds' rewards as verl's custom reward function."""

import functools
import inspect
from typing import Any

from evenodds.rewards import Reward, RewardConfig, make_reward


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    kind: str = "math",
    lowest: float = 0.0,
    highest: float = 1.0,
    **others: Any,
) -> float:
    """Score a completion; the arguments up to `extra_info` are verl's.

    Args:
        data_source: Not used.
        solution_str: The completion.
        ground_truth: The reference answer.
        extra_info: Further columns of the question under `columns`, as `verl-command` writes them.
        kind: As `reward.kind`.
        lowest: Lowest reward that can occur.
        highest: Highest reward that can occur.
        others: What else verl hands over.
    """
    columns = dict((extra_info or {}).get("columns") or {})
    scored = _reward(kind, lowest, highest)(
        [columns.pop("prompt", "")],
        [solution_str],
        answer=[ground_truth],
        **{name: [value] for name, value in columns.items()},
    )
    if inspect.isawaitable(scored):
        raise TypeError(f"the reward {kind} is asynchronous; give it to verl as it is")
    return float(scored[0])


@functools.lru_cache(maxsize=4)
def _reward(kind: str, lowest: float, highest: float) -> Reward:
    return make_reward(RewardConfig(kind=kind, range=(lowest, highest)))

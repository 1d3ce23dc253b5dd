"""From a host's rewards to observations; an unscored rollout is NaN."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from evenodds.errors import RewardError
from evenodds.loss import AdvantageForm, group_advantages
from evenodds.types import Observation, normalise_rewards


def normalised(
    rewards_BG: Float[np.ndarray, "B G"], reward_range: tuple[float, float]
) -> Float[np.ndarray, "B G"]:
    """Rewards mapped to [0, 1]; NaN stays NaN.

    Raises:
        RewardError: a reward lies outside the declared range.
    """
    scored_BG = np.full(rewards_BG.shape, np.nan, dtype=np.float32)
    known_BG = ~np.isnan(rewards_BG)
    scored_BG[known_BG] = normalise_rewards(rewards_BG[known_BG], reward_range)
    return scored_BG


def observed(
    questions_B: Int[np.ndarray, " B"], scored_BG: Float[np.ndarray, "B G"]
) -> Observation:
    """What the groups show of their questions; groups that were not scored at all are left out.

    Args:
        questions_B: Row in the pool of each group.
        scored_BG: Rewards in [0, 1], NaN where a rollout was not scored.
    """
    some_B = ~np.isnan(scored_BG).all(axis=1)
    known_BG = scored_BG[some_B]
    return Observation(
        questions_K=np.asarray(questions_B, dtype=np.int64)[some_B],
        difficulty_K=(1.0 - np.nanmean(known_BG, axis=1)).astype(np.float32),
        effective_K=np.nanmax(known_BG, axis=1) > np.nanmin(known_BG, axis=1),
        samples_K=(~np.isnan(known_BG)).sum(axis=1),
    )


def without_signal(scored_BG: Float[np.ndarray, "B G"]) -> Bool[np.ndarray, " B"]:
    """Groups whose scored rollouts all have the same reward; not those without any score."""
    known_BG = ~np.isnan(scored_BG)
    highest_B = np.where(known_BG, scored_BG, -np.inf).max(axis=1)
    lowest_B = np.where(known_BG, scored_BG, np.inf).min(axis=1)
    return highest_B == lowest_B


def joined(parts: Sequence[Observation]) -> Observation:
    """The observations of all processes, in their order.

    Raises:
        RewardError: not a single rollout was scored.
    """
    whole = Observation(
        questions_K=np.concatenate([part.questions_K for part in parts]),
        difficulty_K=np.concatenate([part.difficulty_K for part in parts]),
        effective_K=np.concatenate([part.effective_K for part in parts]),
        samples_K=np.concatenate([part.samples_K for part in parts]),
    )
    if len(whole.questions_K) == 0:
        raise RewardError(
            "no rollout was scored",
            got="None or NaN from every reward function",
            expected="a number for at least some completions",
            fix="call the reward function on one completion by hand",
        )
    return whole


def advantages_of_scored(
    rewards_BG: Float[np.ndarray, "B G"], form: AdvantageForm
) -> Float[np.ndarray, "B G"]:
    """Group advantages where an unscored rollout gets 0 and does not move the mean."""
    unscored_BG = np.isnan(rewards_BG)
    if not unscored_BG.any():
        return group_advantages(rewards_BG, form)
    counts_B1 = np.maximum((~unscored_BG).sum(axis=1, keepdims=True), 1)
    means_B1 = np.nansum(rewards_BG, axis=1, keepdims=True) / counts_B1
    advantages_BG = group_advantages(np.where(unscored_BG, means_B1, rewards_BG), form)
    return np.where(unscored_BG, 0.0, advantages_BG)

"""Stage 5, the whole of it: which questions the next batches hold, and in which order.

The criterion gives every question a chance. Beside it exploration, mastered questions and those
unseen for long can each have a share of the fresh groups, and questions that fail again and again
can be parked. With the paper's settings this is the criterion alone.
"""

import numpy as np
from jaxtyping import Float, Int

from evenodds.config import EfficiencyConfig
from evenodds.difficulty.estimator import Estimate
from evenodds.history import QuestionHistory
from evenodds.selection import (
    compose,
    drawn_difficulty,
    expected_signal,
    gumbel_top_k,
    selection_logits,
)

LEAST_WORTH = 1e-6  # of a question, so that none is impossible
PARKED = -1e9  # logit of questions that come after all others


def criterion_logits(
    config: EfficiencyConfig, estimate: Estimate, generator: np.random.Generator
) -> Float[np.ndarray, " N"]:
    """Unnormalised log-probability of each question, by the criterion of the settings.

    Args:
        config: With criterion, target and temperature.
        estimate: What is known of every question.
        generator: For Thompson sampling.
    """
    difficulty_N, tau = estimate.difficulty_N, config.selection_temperature
    if config.criterion in ("signal", "proportional"):
        worth_N = expected_signal(difficulty_N, estimate.variance_N)
        worth_N += config.curiosity * estimate.variance_N
        if config.criterion == "signal":
            return worth_N / tau
        return config.signal_power * np.log(np.maximum(worth_N, LEAST_WORTH))
    if config.criterion == "thompson":
        difficulty_N = drawn_difficulty(difficulty_N, estimate.variance_N, generator)
    return selection_logits(difficulty_N, target=config.target_difficulty, temperature=tau)


def order_questions(
    config: EfficiencyConfig,
    estimate: Estimate,
    history: QuestionHistory,
    step: int,
    count: int,
    generator: np.random.Generator,
) -> Int[np.ndarray, " M"]:
    """The next `count` questions (all, if there are fewer), those to take first in front.

    Args:
        config: Every knob of the method.
        estimate: What is known of every question.
        history: When each was seen, and how it failed.
        step: The present one.
        count: Questions wanted.
        generator: Owned by the caller.
    """
    parked_N = history.parked(step, after=config.park_after, retest=config.retest_after)
    logits_N = criterion_logits(config, estimate, generator)
    if parked_N.any():
        logits_N = np.where(parked_N, PARKED, logits_N - logits_N.max())
    count = min(count, len(logits_N))
    main = gumbel_top_k(logits_N, count, generator)
    others = _others(config, estimate, history, ~parked_N, count, generator)
    if not others:
        return main
    rest = 1.0 - sum(share for share, _ in others)
    return compose([*others, (rest, main)], count)


def _others(
    config: EfficiencyConfig,
    estimate: Estimate,
    history: QuestionHistory,
    free_N: np.ndarray,
    count: int,
    generator: np.random.Generator,
) -> list[tuple[float, Int[np.ndarray, " M"]]]:
    """Each share above 0 with the order in which it wants questions; parked ones are left out."""
    orders = []
    if config.explore_share:
        with np.errstate(divide="ignore"):
            logits_N = np.log(np.where(free_N, estimate.variance_N, 0.0))
        wanted = min(count, int(np.isfinite(logits_N).sum()))
        orders.append((config.explore_share, gumbel_top_k(logits_N, wanted, generator)))
    if config.revisit_share:
        mastered = np.flatnonzero(free_N & (estimate.difficulty_N <= config.mastered_below))
        orders.append((config.revisit_share, generator.permutation(mastered)))
    if config.oldest_share:
        oldest = history.oldest(len(free_N), generator)
        orders.append((config.oldest_share, oldest[free_N[oldest]]))
    return orders

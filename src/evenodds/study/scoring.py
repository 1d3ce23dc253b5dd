"""All scores of one set of predictions against one policy's labels."""

import numpy as np
from jaxtyping import Float, Int

from evenodds.difficulty.scores import (
    effective_chance,
    mean_absolute_error,
    pearson,
    reliability,
    sampling_noise,
    spearman,
    standardised_error,
)
from evenodds.selection import gumbel_top_k, selection_logits
from evenodds.study_config import ScoringConfig

NEAR = 0.25  # a question so close to the target counts as rightly chosen

METRICS = {
    "pearson": "Pearson r",
    "spearman": "Spearman r",
    "mean_absolute_error": "mean absolute error",
    "calibration_error": "calibration error",
    "precision": "precision of the choice",
    "effective_fraction": "effective fraction of the choice",
    "standardised_error": "error² over stated",
}


def score(
    predicted_M: Float[np.ndarray, " M"],
    variance_M: Float[np.ndarray, " M"],
    correct_M: Int[np.ndarray, " M"],
    samples_M: Int[np.ndarray, " M"],
    config: ScoringConfig,
    generator: np.random.Generator,
) -> dict[str, float]:
    """Every score of `METRICS`.

    The choice is made by the library's own selection: B questions near the target. Its precision
    is the share whose observed difficulty lies within 0.25 of the target; both scores of the
    choice are NaN where a label has fewer samples than a group.

    Args:
        predicted_M: Predicted difficulty, in [0, 1].
        variance_M: Its stated variance; 0 where none is claimed.
        correct_M: Right ones of the recorded rollouts.
        samples_M: Recorded rollouts, at least 1.
        config: How to judge.
        generator: Of the choice.
    """
    observed_M = 1.0 - correct_M / samples_M
    logits_M = selection_logits(
        predicted_M, target=config.target_difficulty, temperature=config.selection_temperature
    )
    chosen_B = gumbel_top_k(logits_M, min(config.choose, len(logits_M)), generator)
    chance_B = effective_chance(correct_M[chosen_B], samples_M[chosen_B], config.group_size)
    near_B = np.abs(observed_M[chosen_B] - config.target_difficulty) <= NEAR
    return {
        "pearson": pearson(predicted_M, observed_M),
        "spearman": spearman(predicted_M, observed_M),
        "mean_absolute_error": mean_absolute_error(predicted_M, observed_M),
        "calibration_error": reliability(predicted_M, observed_M).error,
        "precision": float(np.where(np.isnan(chance_B), np.nan, near_B).mean()),
        "effective_fraction": float(chance_B.mean()),
        "standardised_error": standardised_error(predicted_M, variance_M, observed_M, samples_M),
    }


def draw_true_rates(
    correct_M: Int[np.ndarray, " M"],
    samples_M: Int[np.ndarray, " M"],
    generator: np.random.Generator,
) -> Float[np.ndarray, " M"]:
    """Success rates that could lie behind the labels: draws from a Beta posterior of each.

    Its prior is fitted to all labels by moments: mean m and, sampling noise taken off, variance
    v give a + b = m (1 - m) / v - 1. Labels of one sample say nothing of v: all NaN.
    """
    rate_M = correct_M / samples_M
    if samples_M.min() < 2:
        return np.full(len(rate_M), np.nan)
    noise = sampling_noise(correct_M, samples_M).mean()
    mean = np.clip(rate_M.mean(), 1e-3, 1 - 1e-3)
    variance = np.clip(rate_M.var() - noise, 1e-4, 0.999 * mean * (1 - mean))
    strength = mean * (1 - mean) / variance - 1.0
    return generator.beta(
        strength * mean + correct_M, strength * (1 - mean) + samples_M - correct_M
    )

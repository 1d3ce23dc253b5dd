"""How good predicted difficulty is, against labels that are noisy themselves."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

BINS = 10  # of the reliability curve, equally wide


def pearson(left_N: Float[np.ndarray, " N"], right_N: Float[np.ndarray, " N"]) -> float:
    """Correlation in [-1, 1]; NaN where either side does not vary."""
    if len(left_N) < 2:
        return float("nan")
    left_N = left_N.astype(np.float64) - left_N.mean(dtype=np.float64)
    right_N = right_N.astype(np.float64) - right_N.mean(dtype=np.float64)
    scale = np.sqrt(np.square(left_N).sum() * np.square(right_N).sum())
    return float((left_N * right_N).sum() / scale) if scale > 0 else float("nan")


def spearman(left_N: Float[np.ndarray, " N"], right_N: Float[np.ndarray, " N"]) -> float:
    """Correlation of the ranks, ties at their mean rank; in [-1, 1], NaN where a side is flat."""
    return pearson(_ranks(left_N), _ranks(right_N))


def mean_absolute_error(
    predicted_N: Float[np.ndarray, " N"], observed_N: Float[np.ndarray, " N"]
) -> float:
    """Mean |predicted - observed|, in [0, 1]."""
    return float(np.abs(predicted_N.astype(np.float64) - observed_N).mean())


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions in equally wide bins; empty bins are left out.

    Attributes:
        predicted_R: Mean prediction of each bin.
        observed_R: Mean observation of each bin.
        count_R: Questions in each bin.
    """

    predicted_R: Float[np.ndarray, " R"]
    observed_R: Float[np.ndarray, " R"]
    count_R: Int[np.ndarray, " R"]

    @property
    def error(self) -> float:
        """Expected calibration error: mean |predicted - observed| of the bins, by count."""
        gap_R = np.abs(self.predicted_R - self.observed_R)
        return float((gap_R * self.count_R).sum() / self.count_R.sum())


def reliability(
    predicted_N: Float[np.ndarray, " N"], observed_N: Float[np.ndarray, " N"], bins: int = BINS
) -> Reliability:
    """Gather predictions in [0, 1] into bins."""
    bin_N = np.minimum((predicted_N.astype(np.float64) * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_N, minlength=bins)
    kept = count > 0
    means = [
        np.bincount(bin_N, weights=values_N, minlength=bins)[kept] / count[kept]
        for values_N in (predicted_N, observed_N)
    ]
    return Reliability(means[0], means[1], count[kept])


def standardised_error(
    predicted_N: Float[np.ndarray, " N"],
    variance_N: Float[np.ndarray, " N"],
    observed_N: Float[np.ndarray, " N"],
    samples_N: Int[np.ndarray, " N"],
) -> float:
    """Mean squared error over the stated one: near 1 where stated uncertainty is true.

    A failure rate of mean d and variance v, observed with n samples, is off by v + E[p (1 - p)] /
    n in the mean square, E[p (1 - p)] = d (1 - d) - v. Above 1, predictions are surer than they
    may be. NaN where no uncertainty is claimed of any question.

    Args:
        predicted_N: Expected failure rate, in [0, 1].
        variance_N: Its variance.
        observed_N: Observed failure rate, in [0, 1].
        samples_N: Rollouts n behind each observation, at least 1.
    """
    if not variance_N.any():
        return float("nan")
    predicted_N, variance_N = predicted_N.astype(np.float64), variance_N.astype(np.float64)
    signal_N = np.maximum(predicted_N * (1.0 - predicted_N) - variance_N, 0.0)
    stated_N = np.maximum(variance_N + signal_N / samples_N, np.finfo(np.float32).tiny)
    return float((np.square(observed_N - predicted_N) / stated_N).mean())


def effective_chance(
    correct_N: Int[np.ndarray, " N"], samples_N: Int[np.ndarray, " N"], group_size: int
) -> Float[np.ndarray, " N"]:
    """Chance that `group_size` of the recorded rollouts, drawn at random, are not all alike.

    1 - [C(k, G) + C(n - k, G)] / C(n, G), the unbiased estimate of 1 - p^G - (1 - p)^G. With
    n = G it says whether the recorded group was effective. NaN where n < G.
    """
    right_N = _all_drawn(correct_N, samples_N, group_size)
    wrong_N = _all_drawn(samples_N - correct_N, samples_N, group_size)
    return np.where(samples_N >= group_size, 1.0 - right_N - wrong_N, np.nan)


def sampling_noise(
    correct_N: Int[np.ndarray, " N"], samples_N: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    """Unbiased estimate of the sampling variance p(1 - p) / n of each label; NaN where n < 2."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate_N = correct_N / samples_N
        return np.where(samples_N > 1, rate_N * (1 - rate_N) / (samples_N - 1), np.nan)


def noise_ceiling(correct_N: Int[np.ndarray, " N"], samples_N: Int[np.ndarray, " N"]) -> float:
    """Pearson correlation of the true failure rates with the labels, at which a predictor ends.

    sqrt(var(true) / var(labels)), var(true) = var(labels) - mean sampling variance. NaN where
    the labels have a single sample, which cannot tell noise from difference.
    """
    rate_N = correct_N / samples_N
    total = float(rate_N.var())
    noise = float(sampling_noise(correct_N, samples_N).mean())
    if not np.isfinite(noise) or total == 0.0:
        return float("nan")
    return float(np.sqrt(max(0.0, total - noise) / total))


def _all_drawn(
    kind_N: Int[np.ndarray, " N"], samples_N: Int[np.ndarray, " N"], group_size: int
) -> Float[np.ndarray, " N"]:
    """Chance that all of `group_size` draws without replacement are of one kind."""
    chance_N = np.ones(len(kind_N))
    for drawn in range(group_size):
        left_N = np.maximum(samples_N - drawn, 1)
        chance_N *= np.maximum(kind_N - drawn, 0) / left_N
    return chance_N


def _ranks(values_N: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    _, place_N, count = np.unique(values_N, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place_N]

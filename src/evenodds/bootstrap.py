"""Intervals by resampling."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its bootstrap interval; all NaN where nothing was measured.

    Attributes:
        mean: Of the values.
        low: Lower end.
        high: Upper end.
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return "-" if np.isnan(self.mean) else f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def columns(scores: Mapping[str, Interval]) -> dict[str, float | None]:
    """JSON-able columns NAME, NAME_low and NAME_high of each score; null where there is none."""
    return {
        f"{name}{end}": value if np.isfinite(value) else None
        for name, interval in scores.items()
        for end, value in (
            ("", interval.mean),
            ("_low", interval.low),
            ("_high", interval.high),
        )
    }


def bootstrap_mean(values_R: Float[np.ndarray, " R"], seed: int = 0) -> Interval:
    """95 % percentile interval of the mean over R independent repeats; NaN ones are left out."""
    known = values_R[~np.isnan(values_R)].astype(np.float64)
    if not len(known):
        return Interval(float("nan"), float("nan"), float("nan"))
    drawn = np.random.default_rng(seed).integers(len(known), size=(RESAMPLES, len(known)))
    means = known[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(known.mean()), float(low), float(high))

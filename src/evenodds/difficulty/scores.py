"""How good predicted difficulties are."""

import numpy as np
from jaxtyping import Float


def pearson(predicted_N: Float[np.ndarray, " N"], observed_N: Float[np.ndarray, " N"]) -> float:
    """Pearson correlation in [-1, 1]; NaN where it is undefined (fewer than 2, or no spread)."""
    if len(predicted_N) < 2 or np.ptp(predicted_N) == 0 or np.ptp(observed_N) == 0:
        return float("nan")
    return float(np.corrcoef(predicted_N.astype(float), observed_N.astype(float))[0, 1])

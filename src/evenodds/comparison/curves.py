"""From noisy evaluations to when a score was first reached."""

import numpy as np
from jaxtyping import Float


def smooth(
    x_E: Float[np.ndarray, " E"], y_E: Float[np.ndarray, " E"], bandwidth: float
) -> Float[np.ndarray, " E"]:
    """Local linear regression with a Gaussian kernel; a straight line stays as it is.

    At each point, the line that fits best with weights exp(-(x - x_0)^2 / (2 bandwidth^2)). Unlike
    a moving average it is not drawn down at the end of a rising curve.

    Args:
        x_E: Increasing places.
        y_E: Values there.
        bandwidth: Standard deviation of the kernel, in units of x; 0 smooths nothing.
    """
    if bandwidth <= 0 or len(x_E) < 3:
        return y_E.astype(np.float64)
    distance_EE = x_E[None, :] - x_E[:, None]
    weight_EE = np.exp(-0.5 * np.square(distance_EE / bandwidth))
    s0, s1, s2 = (
        (weight_EE * distance_EE**power).sum(axis=1, keepdims=True) for power in (0, 1, 2)
    )
    kernel_EE = weight_EE * (s2 - s1 * distance_EE)
    return (kernel_EE @ y_E) / (s0 * s2 - s1**2)[:, 0]


def first_reach(x_E: Float[np.ndarray, " E"], y_E: Float[np.ndarray, " E"], target: float) -> float:
    """Where the polyline through the points first is at `target` or above; infinite if nowhere."""
    above = np.flatnonzero(y_E >= target)
    if not len(above):
        return float("inf")
    at = int(above[0])
    if at == 0:
        return float(x_E[0])
    share = (target - y_E[at - 1]) / (y_E[at] - y_E[at - 1])
    return float(x_E[at - 1] + share * (x_E[at] - x_E[at - 1]))

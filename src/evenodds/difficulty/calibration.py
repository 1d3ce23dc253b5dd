"""Calibration of predicted difficulty (method, step 3): d_cal = sigmoid(w logit(d_hat) + b).

`GroupPlatt` reads w and b off the reference set's mean and spread with a small trained network.
`fit_platt` fits them on the reference set itself, for when nothing was trained.
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-4  # difficulty is kept this far from 0 and 1, so that its logit is finite
LEAST_SLOPE = 0.05  # w > 0: calibration never reverses the order of the questions


def platt(
    difficulty_N: Float[Tensor, " N"], slope: Tensor | float, shift: Tensor | float
) -> Float[Tensor, " N"]:
    """sigmoid(w logit(d) + b), with d kept within [1e-4, 1 - 1e-4]."""
    return torch.sigmoid(slope * torch.logit(difficulty_N, eps=EPSILON) + shift)


class GroupPlatt(nn.Module):
    """w and b from the mean and standard deviation of the reference difficulties.

    A network of 2 -> 10 -> 2 units with ReLU. w is made positive by softplus and starts near 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 2))

    def forward(self, difficulty_K: Float[Tensor, " K"]) -> tuple[Tensor, Tensor]:
        """(w, b), both scalars."""
        spread = difficulty_K.std(correction=0)
        raw_slope, shift = self.layers(torch.stack([difficulty_K.mean(), spread]))
        return functional.softplus(raw_slope + math.log(math.e - 1.0)), shift


def fit_platt(
    predicted_K: Float[np.ndarray, " K"],
    observed_K: Float[np.ndarray, " K"],
    *,
    strength: float = 1.0,
) -> tuple[float, float]:
    """w and b that minimise the cross-entropy to the observed difficulties.

    A ridge of `strength` pulls toward w = 1, b = 0, so that all-0 or all-1 references stay
    finite. w is at least 0.05. The predictions must not contain their own labels.

    Args:
        predicted_K: d_hat, each made without its own label.
        observed_K: Observed difficulty, in [0, 1].
        strength: Ridge, in observations.
    """
    kept_K = np.clip(predicted_K.astype(np.float64), EPSILON, 1 - EPSILON)
    logits_K = np.log(kept_K / (1 - kept_K))
    observed_K = observed_K.astype(np.float64)
    start = np.array([1.0, 0.0])
    design_K2 = np.stack([logits_K, np.ones_like(logits_K)], axis=1)
    slope, shift = _logistic_ridge(design_K2, observed_K, start, strength)
    if slope < LEAST_SLOPE:
        slope = LEAST_SLOPE
        offset_K = slope * logits_K
        (shift,) = _logistic_ridge(design_K2[:, 1:], observed_K, start[1:], strength, offset_K)
    return float(slope), float(shift)


def spread(
    predicted_K: Float[np.ndarray, " K"],
    observed_K: Float[np.ndarray, " K"],
    samples_K: Int[np.ndarray, " K"],
) -> float:
    """How far true difficulties lie from their predictions d, as a share c of d (1 - d).

    A failure rate is taken to have mean d and variance c d (1 - d), as a Beta distribution of
    strength 1/c - 1 has; c = 0 is a perfect predictor and c = 1 one that knows the mean only. An
    observation of n rollouts then has variance d (1 - d) (c + (1 - c) / n), which is solved for c
    with the squared errors of the references.

    Args:
        predicted_K: Predicted difficulty in (0, 1), each made without its own label.
        observed_K: Observed difficulty, in [0, 1].
        samples_K: Rollouts n behind each observation.

    Returns:
        c in [0, 1]; 1 where it cannot be told: every n is 1, or every prediction 0 or 1.
    """
    scale_K = predicted_K.astype(np.float64) * (1.0 - predicted_K)
    several_K = samples_K > 1
    if not several_K.any():
        return 1.0
    errors_K = np.square(observed_K.astype(np.float64) - predicted_K)
    noise = (scale_K / samples_K)[several_K].sum()
    room = (scale_K * (1.0 - 1.0 / samples_K))[several_K].sum()
    if room == 0.0:  # every prediction is at 0 or 1
        return 1.0
    return float(np.clip((errors_K[several_K].sum() - noise) / room, 0.0, 1.0))


def _logistic_ridge(
    design_KD: Float[np.ndarray, "K D"],
    target_K: Float[np.ndarray, " K"],
    start_D: Float[np.ndarray, " D"],
    strength: float,
    offset_K: Float[np.ndarray, " K"] | float = 0.0,
) -> Float[np.ndarray, " D"]:
    """Newton's method with step halving on a strictly convex problem."""

    def objective(theta_D: Float[np.ndarray, " D"]) -> float:
        logits_K = design_KD @ theta_D + offset_K
        fit = np.logaddexp(0.0, logits_K) - target_K * logits_K
        return float(fit.sum() + 0.5 * strength * np.square(theta_D - start_D).sum())

    theta_D = start_D
    for _ in range(50):
        chance_K = 0.5 * (1.0 + np.tanh(0.5 * (design_KD @ theta_D + offset_K)))
        gradient_D = design_KD.T @ (chance_K - target_K) + strength * (theta_D - start_D)
        weighted_KD = (chance_K * (1 - chance_K))[:, None] * design_KD
        curvature_DD = design_KD.T @ weighted_KD + strength * np.eye(len(theta_D))
        step_D = np.linalg.solve(curvature_DD, gradient_D)
        scale = 1.0
        while objective(theta_D - scale * step_D) > objective(theta_D) and scale > 1e-6:
            scale /= 2
        theta_D = theta_D - scale * step_D
        if np.abs(step_D).max() < 1e-10:
            break
    return theta_D

"""Calibration of predicted difficulty (method, step 3): d_cal = sigmoid(w logit(d_hat) + b).

`GroupPlatt` reads w and b off the reference set's mean and spread with a small trained network.
`fit_platt` fits them on the reference set itself, for when nothing was trained.
"""

import math

import torch
from jaxtyping import Float
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
    predicted_K: Float[Tensor, " K"],
    observed_K: Float[Tensor, " K"],
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
    logits_K = torch.logit(predicted_K.double(), eps=EPSILON)
    design_K2 = torch.stack([logits_K, torch.ones_like(logits_K)], dim=1)
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    slope, shift = _logistic_ridge(design_K2, observed_K.double(), start, strength).tolist()
    if slope < LEAST_SLOPE:
        slope = LEAST_SLOPE
        shifted_K = slope * logits_K
        shift = _logistic_ridge(
            design_K2[:, 1:], observed_K.double(), start[1:], strength, offset_K=shifted_K
        ).item()
    return slope, shift


def _logistic_ridge(
    design_KD: Float[Tensor, "K D"],
    target_K: Float[Tensor, " K"],
    start_D: Float[Tensor, " D"],
    strength: float,
    offset_K: Float[Tensor, " K"] | float = 0.0,
) -> Float[Tensor, " D"]:
    """Newton's method with step halving on a strictly convex problem."""

    def objective(theta_D: Tensor) -> Tensor:
        logits_K = design_KD @ theta_D + offset_K
        fit = functional.binary_cross_entropy_with_logits(logits_K, target_K, reduction="sum")
        return fit + 0.5 * strength * (theta_D - start_D).square().sum()

    theta_D = start_D
    for _ in range(50):
        chance_K = torch.sigmoid(design_KD @ theta_D + offset_K)
        gradient_D = design_KD.T @ (chance_K - target_K) + strength * (theta_D - start_D)
        weight_K = chance_K * (1 - chance_K)
        curvature_DD = design_KD.T @ (weight_K[:, None] * design_KD)
        curvature_DD = curvature_DD + strength * torch.eye(len(theta_D), dtype=torch.float64)
        step_D = torch.linalg.solve(curvature_DD, gradient_D)
        scale = 1.0
        while objective(theta_D - scale * step_D) > objective(theta_D) and scale > 1e-6:
            scale /= 2
        theta_D = theta_D - scale * step_D
        if step_D.abs().max() < 1e-10:
            break
    return theta_D

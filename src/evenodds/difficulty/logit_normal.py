"""A success rate whose logit is Gaussian: its moments, and what a scored group does to it.

The logistic function is, within 4.5e-5, a mixture of three normal distribution functions
(the idea of Monahan and Stefanski 1992, with weights of our own fit). A Gaussian of a normal
distribution function has a closed form, so the moments need no quadrature over the pool.
"""

import math

import numpy as np
import torch
from jaxtyping import Float

# sigmoid(x) = sum_i w_i Phi(s_i x): the least largest error, over all x.
WEIGHTS = (0.16226967, 0.58472518, 0.25300515)
SCALES = (0.36395894, 0.57747853, 0.90736048)
NEWTON_STEPS = 12  # at most
CONVERGED = 1e-9  # of a Newton step, in nats: the next one would be as nothing
NODES_M = np.linspace(-7.0, 7.0, 41)  # on either side of the mode, in standard deviations there
CHUNK = 65536  # questions at once, so that temporaries stay in the cache


def success_moments(
    mean_N: Float[np.ndarray, " N"], variance_N: Float[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Mean and variance of p = sigmoid(x), x ~ N(mean, variance).

    With a_i = s_i / sqrt(1 + s_i^2 variance): E[p] = sum_i w_i Phi(a_i mean), and its derivative
    in the mean is E[p (1 - p)] = sum_i w_i a_i phi(a_i mean). So Var[p] = E[p] (1 - E[p]) -
    E[p (1 - p)].

    Args:
        mean_N: Of the logit, in nats.
        variance_N: Of the logit, at least 0.

    Returns:
        Mean in [0, 1], and variance between 0 and mean (1 - mean), both float32.
    """
    rate_N = np.empty(len(mean_N), dtype=np.float32)
    spread_N = np.empty_like(rate_N)
    for start in range(0, len(mean_N), CHUNK):
        part = slice(start, start + CHUNK)
        rate_N[part], spread_N[part] = _moments(mean_N[part], variance_N[part])
    return rate_N, spread_N


def binomial_posterior(
    mean_K: Float[np.ndarray, " K"],
    variance_K: Float[np.ndarray, " K"],
    solved_K: Float[np.ndarray, " K"],
    samples_K: Float[np.ndarray, " K"],
) -> tuple[
    Float[np.ndarray, " K"],
    Float[np.ndarray, " K"],
    Float[np.ndarray, " K"],
]:
    """What `solved` successes of `samples` make of a Gaussian logit, moments matched.

    The posterior is proportional to N(x; mean, variance) sigmoid(x)^solved
    sigmoid(-x)^(samples - solved). It is log-concave: Newton's method finds its mode, and sums
    over nodes around the mode, exact to about one part in a thousand, its mean and variance.

    Args:
        mean_K: Of the logit, before.
        variance_K: Of the logit, before; above 0.
        solved_K: Successes, between 0 and `samples`; need not be whole.
        samples_K: Rollouts.

    Returns:
        Mean, variance (at most that before), and log of the evidence in nats, the binomial
        coefficient left out.
    """
    mode_K = mean_K.astype(np.float64)
    for _ in range(NEWTON_STEPS):
        rate_K = _sigmoid(mode_K)
        curvature_K = 1.0 / variance_K + samples_K * rate_K * (1.0 - rate_K)
        slope_K = solved_K - samples_K * rate_K - (mode_K - mean_K) / variance_K
        step_K = np.minimum(np.maximum(slope_K / curvature_K, -2.0), 2.0)
        mode_K = mode_K + step_K
        if np.abs(step_K).max(initial=0.0) < CONVERGED:
            break
    rate_K = _sigmoid(mode_K)
    width_K = 1.0 / np.sqrt(1.0 / variance_K + samples_K * rate_K * (1.0 - rate_K))
    x_KM = mode_K[:, None] + width_K[:, None] * NODES_M
    log_KM = (
        solved_K[:, None] * x_KM
        - samples_K[:, None] * np.logaddexp(0.0, x_KM)
        - 0.5 * np.square(x_KM - mean_K[:, None]) / variance_K[:, None]
    )
    top_K = log_KM.max(axis=1)
    weight_KM = np.exp(log_KM - top_K[:, None])
    total_K = weight_KM.sum(axis=1)
    after_K = (weight_KM * x_KM).sum(axis=1) / total_K
    spread_K = (weight_KM * np.square(x_KM - after_K[:, None])).sum(axis=1) / total_K
    apart_K = width_K * (NODES_M[1] - NODES_M[0])
    evidence_K = top_K + np.log(total_K * apart_K) - 0.5 * np.log(2 * np.pi * variance_K)
    return after_K, np.minimum(spread_K, variance_K), evidence_K


def _moments(
    mean_M: Float[np.ndarray, " M"], variance_M: Float[np.ndarray, " M"]
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    mean_M, variance_M = mean_M.astype(np.float32), variance_M.astype(np.float32)
    rate_M, signal_M = np.zeros_like(mean_M), np.zeros_like(mean_M)
    for weight, scale in zip(WEIGHTS, SCALES, strict=True):
        slope_M = scale / np.sqrt(1.0 + scale**2 * variance_M)
        at_M = slope_M * mean_M
        rate_M += weight * torch.special.ndtr(torch.from_numpy(at_M)).numpy()
        signal_M += (weight / math.sqrt(2.0 * math.pi)) * slope_M * np.exp(-0.5 * at_M * at_M)
    rate_M = np.clip(rate_M, 0.0, 1.0)
    most_M = rate_M * (1.0 - rate_M)
    return rate_M, np.minimum(np.maximum(most_M - signal_M, 0.0), most_M)


def _sigmoid(x_K: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    return 0.5 * (1.0 + np.tanh(0.5 * x_K))

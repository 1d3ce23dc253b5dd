"""Stage 8. Advantages and the off-policy GRPO loss, as pure functions.

Per token: mu is the policy that sampled it (behaviour), pi_old the policy at the start of this
step, pi the policy that is optimised. Everything in nats. Fresh rollouts have mu = pi_old, and
both loss forms are then plain GRPO.
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

AdvantageForm = Literal["mean", "std"]
LossForm = Literal["decoupled", "paper"]


def group_advantages(
    rewards_BG: Float[np.ndarray, "B G"], form: AdvantageForm
) -> Float[np.ndarray, "B G"]:
    """Advantage of each rollout in its group.

    Args:
        rewards_BG: Rewards, a row a group.
        form: `mean`: A = r - mean(r) (arXiv 2506.05316, Eq. 1); `std`: that divided by
            std(r) + 1e-6, std with G - 1 degrees of freedom (the authors' released code).
    """
    centred = rewards_BG - rewards_BG.mean(axis=1, keepdims=True)
    if form == "mean":
        return centred
    return centred / (rewards_BG.std(axis=1, ddof=1, keepdims=True) + 1e-6)


def importance_ratio(
    logprobs: Float[Tensor, "*shape"], behaviour_logprobs: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """pi / mu for each token."""
    return torch.exp(logprobs - behaviour_logprobs)


def second_moment_mask(log_ratios_X: Float[Tensor, " X"], bound: float) -> Bool[Tensor, " X"]:
    """Which tokens stay when the largest |log ratio| leave until mean (log ratio)^2 <= bound.

    The second moment of the log ratios bounds how far the behaviour policy is from the present
    one; leaving out its few largest terms keeps most stale tokens (after arXiv 2510.01161).

    Args:
        log_ratios_X: log pi_old / mu of replayed tokens, in nats.
        bound: Largest second moment, in nats squared.
    """
    squares, order = torch.sort(log_ratios_X.double().square())
    counts = torch.arange(1, len(squares) + 1, device=squares.device)
    mask = torch.zeros(len(squares), dtype=torch.bool, device=squares.device)
    mask[order] = squares.cumsum(0) <= bound * counts
    return mask


def off_policy_loss(
    logprobs_BT: Float[Tensor, "B T"],
    old_logprobs_BT: Float[Tensor, "B T"],
    behaviour_logprobs_BT: Float[Tensor, "B T"],
    advantages_B: Float[Tensor, " B"],
    *,
    form: LossForm = "decoupled",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Float[Tensor, "B T"]:
    """Clipped policy loss of each token; mask and average it as your trainer does.

    With r = pi / mu and r_old = pi_old / mu:

    - `paper`: -min(r A, clip(r, 1 - e_low, 1 + e_high) A) (arXiv 2506.05316, Eq. 5).
    - `decoupled`: -min(r A, clip(r, r_old (1 - e_low), r_old (1 + e_high)) A), which is r_old
      times the PPO loss of pi / pi_old (Hilton et al. 2022, arXiv 2110.00641).

    Args:
        logprobs_BT: log pi, with gradient.
        old_logprobs_BT: log pi_old.
        behaviour_logprobs_BT: log mu, stored when the tokens were sampled.
        advantages_B: Advantage of each rollout.
        form: Where the clipping range is centred.
        clip_low: e_low >= 0.
        clip_high: e_high >= 0.
    """
    ratio = importance_ratio(logprobs_BT, behaviour_logprobs_BT)
    old_ratio = importance_ratio(old_logprobs_BT, behaviour_logprobs_BT).detach()
    centre = old_ratio if form == "decoupled" else torch.ones_like(old_ratio)
    clipped = torch.clamp(ratio, centre * (1 - clip_low), centre * (1 + clip_high))
    advantages = advantages_B[:, None]
    return -torch.minimum(ratio * advantages, clipped * advantages)

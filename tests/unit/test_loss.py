import numpy as np
import pytest
import torch

from evenodds.loss import (
    group_advantages,
    importance_ratio,
    off_policy_loss,
    second_moment_mask,
)


def logs(*ratios):
    return torch.log(torch.tensor([ratios], dtype=torch.float64))


def loss(ratio, old_ratio, advantage, **settings):
    """One token with pi / mu = ratio and pi_old / mu = old_ratio."""
    zero = logs(1.0)
    return off_policy_loss(
        logs(ratio),
        logs(old_ratio),
        zero,
        torch.tensor([advantage], dtype=torch.float64),
        **settings,
    ).item()


def test_advantages_by_hand():
    rewards = np.array([[1.0, 0.0, 0.0, 0.0]])
    assert group_advantages(rewards, "mean").tolist() == [[0.75, -0.25, -0.25, -0.25]]
    # standard deviation with 3 degrees of freedom: sqrt(0.75 / 3) = 0.5
    assert group_advantages(rewards, "std")[0] == pytest.approx(
        [0.75 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001]
    )


@pytest.mark.parametrize("form", ["mean", "std"])
def test_equal_rewards_have_no_advantage(form):
    assert group_advantages(np.full((2, 8), 0.3), form) == pytest.approx(np.zeros((2, 8)))


def test_importance_ratio():
    assert importance_ratio(logs(0.6), logs(0.2)).item() == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("ratio", "old_ratio", "advantage", "form", "expected"),
    [
        (1.5, 1.2, 1.0, "decoupled", -1.44),  # clipped at 1.2 * 1.2
        (1.5, 1.2, 1.0, "paper", -1.2),  # clipped at 1.2
        (1.3, 1.2, 1.0, "decoupled", -1.3),  # inside [0.96, 1.44]
        (0.5, 1.0, -1.0, "decoupled", 0.8),  # clipped at 0.8: min(-0.5, -0.8) = -0.8
        (0.5, 1.0, 1.0, "decoupled", -0.5),  # a fall with a positive advantage is not clipped
        (3.0, 2.0, -1.0, "decoupled", 3.0),  # a rise with a negative advantage is not clipped
        (1.5, 0.5, 2.0, "decoupled", -1.2),  # clipped at 0.5 * 1.2
        (1.5, 0.5, 2.0, "paper", -2.4),
    ],
)
def test_loss_by_hand(ratio, old_ratio, advantage, form, expected):
    assert loss(ratio, old_ratio, advantage, form=form) == pytest.approx(expected)


def test_uneven_clipping_range():
    assert loss(2.0, 1.0, 1.0, clip_low=0.2, clip_high=0.28) == pytest.approx(-1.28)
    assert loss(0.1, 1.0, -1.0, clip_low=0.3, clip_high=0.28) == pytest.approx(0.7)


@pytest.mark.parametrize("form", ["decoupled", "paper"])
def test_fresh_rollouts_have_plain_grpo_loss(form):
    torch.manual_seed(0)
    old = torch.randn(4, 6, dtype=torch.float64)
    new = (old + 0.3 * torch.randn(4, 6)).requires_grad_()
    advantages = torch.randn(4, dtype=torch.float64)
    ours = off_policy_loss(new, old, old, advantages, form=form)
    ratio = torch.exp(new - old)
    plain = -torch.min(
        ratio * advantages[:, None], torch.clamp(ratio, 0.8, 1.2) * advantages[:, None]
    )
    assert torch.allclose(ours, plain)
    (gradient,) = torch.autograd.grad(ours.sum(), new, retain_graph=True)
    (plain_gradient,) = torch.autograd.grad(plain.sum(), new)
    assert torch.allclose(gradient, plain_gradient)


def test_decoupled_loss_is_r_old_times_ppo():
    torch.manual_seed(1)
    behaviour, old, new = (torch.randn(3, 5, dtype=torch.float64) for _ in range(3))
    advantages = torch.randn(3, dtype=torch.float64)
    ours = off_policy_loss(new, old, behaviour, advantages)
    ppo = off_policy_loss(new, old, old, advantages)
    assert torch.allclose(ours, torch.exp(old - behaviour) * ppo)


def test_clipped_tokens_have_no_gradient():
    new = logs(1.5).requires_grad_()
    value = off_policy_loss(new, logs(1.0), logs(1.0), torch.tensor([1.0], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(value.sum(), new)
    assert gradient.item() == 0.0


@pytest.mark.parametrize("success", [0.1, 0.3, 0.5, 0.8])
def test_expected_squared_gradient_is_largest_at_even_odds(success):
    """Theorem 1: E|g|^2 is proportional to p (1 - p) (1 - 1/G), on a softmax bandit.

    A uniform policy over many arms of which a share p is rewarded: the score of arm a is
    e_a - pi, of squared norm 1 - 1/M for every arm. Then
    E|g|^2 = p (1 - p) (1 - 1/G) / G, but for terms of order 1/M.
    """
    arms, group, trials = 2000, 8, 40_000
    generator = np.random.default_rng(3)
    chosen = generator.integers(arms, size=(trials, group))
    rewards = (chosen < success * arms).astype(float)
    advantages = group_advantages(rewards, "mean")
    # |sum_i A_i (e_{a_i} - pi)|^2 with sum_i A_i = 0: only equal arms share a coordinate
    same = chosen[:, :, None] == chosen[:, None, :]
    squared = np.einsum("ti,tj,tij->t", advantages, advantages, same) / group**2
    expected = success * (1 - success) * (1 - 1 / group) / group
    assert squared.mean() == pytest.approx(expected, rel=0.03)


def test_the_second_moment_is_bounded_by_hand():
    # squares 0.01, 0.04, 0.09, 1: their running means 0.01, 0.025, 0.0467, 0.285
    ratios = torch.tensor([0.3, -1.0, 0.1, -0.2])
    assert second_moment_mask(ratios, 0.05).tolist() == [True, False, True, True]
    assert second_moment_mask(ratios, 0.03).tolist() == [False, False, True, True]
    assert second_moment_mask(ratios, 1.0).all()
    assert not second_moment_mask(ratios, 0.001).any()
    assert len(second_moment_mask(torch.empty(0), 0.1)) == 0

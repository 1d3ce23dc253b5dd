"""Small records for tests."""

import numpy as np
import torch

from evenodds.types import Group, Observation, Rollout


def make_group(question, rewards=(0.0, 1.0), step=0, length=3, masked=False):
    rewards = np.array(rewards, dtype=np.float32)
    rollouts = tuple(
        Rollout(
            completion_ids=torch.arange(length + i, dtype=torch.int32) + question,
            behaviour_logprobs=-torch.rand(length + i),
            loss_mask=torch.arange(length + i) % 2 == 0 if masked else None,
            reference_logprobs=-torch.rand(length + i) if masked else None,
        )
        for i in range(len(rewards))
    )
    return Group(
        question=question,
        step=step,
        rewards_G=rewards,
        advantages_G=rewards - rewards.mean(),
        prompt_ids=torch.arange(4, dtype=torch.int32),
        rollouts=rollouts,
    )


def same_group(left, right):
    """Whether two groups hold the same numbers."""
    if (left.question, left.step) != (right.question, right.step):
        return False
    same = np.array_equal(left.rewards_G, right.rewards_G)
    same &= np.array_equal(left.advantages_G, right.advantages_G)
    same &= torch.equal(left.prompt_ids, right.prompt_ids)
    for one, two in zip(left.rollouts, right.rollouts, strict=True):
        for name in vars(one):
            a, b = getattr(one, name), getattr(two, name)
            same &= (a is None) == (b is None) and (a is None or torch.equal(a, b))
    return bool(same)


def observation(rows, difficulty, samples=8):
    """What was seen of some questions; a group is effective unless it is at 0 or 1."""
    values = np.array(difficulty, dtype=np.float32)
    return Observation(
        questions_K=np.array(rows, dtype=np.int64),
        difficulty_K=values,
        effective_K=(values > 0) & (values < 1),
        samples_K=np.full(len(values), samples, dtype=np.int64),
    )

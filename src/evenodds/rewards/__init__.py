"""Rewards: how a completion is scored. Built-in ones, and the user's own functions.

reward = make_reward(RewardConfig(kind="math"))
reward.check(pool.answers, pool.ids)
reward(prompts, completions, answer=answers)  # [1.0, 0.0, ...]
"""

from evenodds.rewards.config import RewardConfig
from evenodds.rewards.make import make_reward
from evenodds.rewards.reward import Reward

__all__ = ["Reward", "RewardConfig", "make_reward"]

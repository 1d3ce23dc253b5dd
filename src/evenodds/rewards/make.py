"""From settings to a reward."""

import importlib.util

from evenodds.errors import ConfigError
from evenodds.rewards.config import RewardConfig
from evenodds.rewards.reward import AnswerReward, Reward


def make_reward(config: RewardConfig) -> Reward:
    """The reward that a config names, in the form TRL calls.

    Returns:
        `reward(prompts, completions, **columns) -> list[float]`, where completions are texts or
        message lists and columns are those of the questions; awaited, where the user's function
        is `async`. Its `check(answers)` is to be called once, before training.

    Raises:
        ConfigError: a package is missing, or the user's function cannot be imported.
    """
    if config.kind == "math":
        return _math()
    if config.kind == "exact":
        from evenodds.rewards import exact

        return AnswerReward("exact", exact.grade, exact.fault)
    if config.kind == "choice":
        from evenodds.rewards import choice

        return AnswerReward("choice", choice.grade, choice.fault)
    if config.kind == "reasoning_gym":
        return _reasoning_gym()
    return _function(config)


def _math() -> Reward:
    from evenodds.rewards.math import MathGrader

    _need("math_verify", "math-verify", "math")
    grader = MathGrader()
    return AnswerReward("math", grader.grade, grader.fault)


def _reasoning_gym() -> Reward:
    from evenodds.rewards.reasoning_gym import ReasoningGymReward

    _need("reasoning_gym", "reasoning-gym", "reasoning_gym")
    return ReasoningGymReward()


def _function(config: RewardConfig) -> Reward:
    from evenodds.rewards.function import (
        AsyncFunctionReward,
        FunctionReward,
        is_async,
        load_function,
    )

    function = load_function(config.kind)
    wrapper = AsyncFunctionReward if is_async(function) else FunctionReward
    return wrapper(function, config.kind.rpartition(":")[2], config.range)


def _need(module: str, package: str, kind: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ConfigError(
            f"the {kind} reward needs the package {package}", fix=f"pip install {package}"
        )

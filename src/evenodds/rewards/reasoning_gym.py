"""The reasoning-gym reward: each generated question is scored by the task that made it.

A question's whole entry travels with it as text in the column `reasoning_gym`. Of a completion,
`given_answer` is scored: the `<answer>` tag, or as many last lines as the task's answer has, or the
last number in them where that is a number. Many tasks give part of the reward for an answer that
is nearly right.
"""

import functools
import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from evenodds.errors import RewardError
from evenodds.rewards.reward import Reward
from evenodds.rewards.sandbox import Sandbox
from evenodds.rewards.text import (
    NUMBER,
    completion_text,
    final_answer,
    last_number,
    num_lines,
)

ENTRY_COLUMN = "reasoning_gym"


class ReasoningGymReward(Reward):
    """Scores of the tasks' own `score_answer`, in [0, 1]; an answer it trips over gets 0."""

    def __init__(self, time_limit_s: float = 5.0) -> None:
        super().__init__("reasoning_gym")
        self.sandbox = Sandbox("evenodds.rewards.reasoning_gym:judge", time_limit_s)

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        """Score a batch in TRL's form.

        Raises:
            RewardError: the questions were not made by reasoning-gym.
        """
        texts = columns.get(ENTRY_COLUMN)
        if texts is None or None in texts:
            raise RewardError(
                "the reasoning_gym reward scores generated questions only",
                got="questions without their reasoning-gym entry",
                expected=f"the column `{ENTRY_COLUMN}`",
                fix='set data.source = "reasoning_gym", or choose another reward.kind',
            )
        rewards = [
            self._score(completion_text(completion), json.loads(text))
            for completion, text in zip(completions, texts, strict=True)
        ]
        return self.checked(rewards, completions, columns)

    def _score(self, completion: str, stored: dict[str, Any]) -> float:
        answer = given_answer(completion, stored["entry"]["answer"])
        return self.sandbox.ask({**stored, "answer": answer}) or 0.0


def given_answer(completion: str, reference: str | None) -> str:
    """The answer in a completion: `final_answer`, or its last number where a number is asked for.

    Args:
        completion: What the model wrote.
        reference: The task's own answer, which shows the form that is asked for.
    """
    answer = final_answer(completion, num_lines(reference))
    if reference is None or not NUMBER.fullmatch(reference.strip()):
        return answer
    return last_number(answer) or answer


def judge(request: dict[str, Any] | None) -> float:
    """The score of `answer` by the task of a stored entry; runs in the sandbox."""
    import reasoning_gym  # noqa: F401  (what the first call is for)

    if request is None:
        return 0.0
    task = _task(request["task"], json.dumps(request["config"]))
    return float(task.score_answer(request["answer"], _unpacked(request["entry"])))


@functools.lru_cache(maxsize=128)
def _task(name: str, config: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, **{"seed": 0, "size": 1, **json.loads(config)})


def entry_text(task: str, config: dict[str, Any], entry: dict[str, Any]) -> str:
    """What scoring needs, as JSON text.

    Args:
        task: Name of the task.
        config: Its settings, where they differ from the defaults.
        entry: The question with its answer and metadata, as reasoning-gym made it.

    Raises:
        TypeError: the entry holds an object that cannot be kept as text.
    """
    return json.dumps({"task": task, "config": config, "entry": _packed(entry)})


# JSON has no tuples, sets, fractions and no numbers as keys, but scoring can depend on them.


def _packed(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _packed(item) for key, item in value.items()}
        return {"$pairs": [[_packed(key), _packed(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [_packed(item) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_packed(item) for item in value]}
    if isinstance(value, set):
        return {"$set": [_packed(item) for item in sorted(value, key=repr)]}
    if isinstance(value, Fraction):
        return {"$fraction": str(value)}
    raise TypeError(f"a {type(value).__name__} cannot be kept as text")


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    for tag, make in UNPACK.items():
        if tag in value:
            return make(_unpacked(value[tag]))
    return {key: _unpacked(item) for key, item in value.items()}


UNPACK = {"$pairs": dict, "$tuple": tuple, "$set": set, "$fraction": Fraction}

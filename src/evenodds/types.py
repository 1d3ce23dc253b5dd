"""The vocabulary: records that travel between the stages. Read this file first.

Axis letters, the same everywhere: N questions of the pool, K references, B groups of a batch,
G rollouts of a group, P prompt tokens, T completion tokens, E embedding, H adapter width.
Questions are named by their row in the pool, 0 <= question < N.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from evenodds.errors import RewardError


@dataclass(frozen=True, eq=False)
class Rollout:
    """One sampled completion, unpadded and on the CPU.

    Attributes:
        completion_ids: Token ids, with the end-of-sequence token where one was sampled.
        behaviour_logprobs: Log-probability of each token under the policy that sampled it (mu),
            in nats; stored when it was sampled and never recomputed.
        loss_mask: False for tokens that are in the context but not the policy's own (tool
            results); none when all of them are.
        reference_logprobs: Log-probabilities under the frozen reference model, in nats, where
            the loss has a KL term.
    """

    completion_ids: Int[Tensor, " T"]
    behaviour_logprobs: Float[Tensor, " T"]
    loss_mask: Bool[Tensor, " T"] | None = None
    reference_logprobs: Float[Tensor, " T"] | None = None


@dataclass(frozen=True, eq=False)
class Group:
    """A question with its G scored rollouts.

    Attributes:
        question: Row in the pool.
        step: Rollout step at which it was generated, from 0.
        rewards_G: Rewards mapped to [0, 1].
        advantages_G: Advantage of each rollout within the group.
        prompt_ids: Token ids of the prompt.
        rollouts: The G completions.
    """

    question: int
    step: int
    rewards_G: Float[np.ndarray, " G"]
    advantages_G: Float[np.ndarray, " G"]
    prompt_ids: Int[Tensor, " P"]
    rollouts: tuple[Rollout, ...]

    @property
    def difficulty(self) -> float:
        """Observed failure rate, 1 - mean reward, in [0, 1]."""
        return 1.0 - float(self.rewards_G.mean())

    @property
    def effective(self) -> bool:
        """Whether the rewards differ, so that the advantages are not all zero."""
        return bool(self.rewards_G.max() > self.rewards_G.min())

    @property
    def num_bytes(self) -> int:
        """Memory of its tensors, in bytes."""
        tensors = [self.prompt_ids]
        for rollout in self.rollouts:
            tensors += [rollout.completion_ids, rollout.behaviour_logprobs]
            tensors += [t for t in (rollout.loss_mask, rollout.reference_logprobs) if t is not None]
        arrays = self.rewards_G.nbytes + self.advantages_G.nbytes
        return arrays + sum(tensor.element_size() * tensor.numel() for tensor in tensors)


@dataclass(frozen=True, eq=False)
class Observation:
    """What was seen of some questions at one step: evidence, without the rollouts.

    Attributes:
        questions_K: Rows in the pool.
        difficulty_K: Observed failure rate of each, in [0, 1].
        effective_K: Whether the rewards of each group differed.
        samples_K: Scored rollouts of each.
    """

    questions_K: Int[np.ndarray, " K"]
    difficulty_K: Float[np.ndarray, " K"]
    effective_K: Bool[np.ndarray, " K"]
    samples_K: Int[np.ndarray, " K"]

    def where(self, kept_K: Bool[np.ndarray, " K"]) -> "Observation":
        """The part of it of these questions."""
        return Observation(
            self.questions_K[kept_K],
            self.difficulty_K[kept_K],
            self.effective_K[kept_K],
            self.samples_K[kept_K],
        )

    @staticmethod
    def of_rewards(
        questions_K: Int[np.ndarray, " K"], rewards_KG: Float[np.ndarray, "K G"]
    ) -> "Observation":
        """Observed difficulty d = mean(1 - r) of each question.

        Args:
            questions_K: Rows in the pool.
            rewards_KG: Rewards in [0, 1], a row a question.

        Raises:
            RewardError: a reward is not a number or lies outside [0, 1].
        """
        if not np.all((rewards_KG >= 0) & (rewards_KG <= 1)):  # also false for NaN
            bad = np.argwhere(~((rewards_KG >= 0) & (rewards_KG <= 1)))[0]
            raise RewardError(
                f"a reward of question {questions_K[bad[0]]} cannot be used",
                got=rewards_KG[tuple(bad)],
                expected="a number in [0, 1]",
                fix="return a number for every completion, or declare `reward_range`",
            )
        return Observation(
            questions_K=np.asarray(questions_K, dtype=np.int64),
            difficulty_K=(1.0 - rewards_KG.mean(axis=1)).astype(np.float32),
            effective_K=rewards_KG.max(axis=1) > rewards_KG.min(axis=1),
            samples_K=np.full(len(rewards_KG), rewards_KG.shape[1], dtype=np.int64),
        )


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """One batch: what to generate now, and what to take from the buffer.

    Attributes:
        num_fresh: Groups that this process generates now.
        questions: Their rows in the pool, in order; empty where the host chooses.
        replayed: Stored groups that complete the batch of this process.
    """

    num_fresh: int
    questions: Int[np.ndarray, " B"]
    replayed: tuple[Group, ...] = field(default=())


def normalise_rewards(
    rewards: Float[np.ndarray, "*shape"], reward_range: tuple[float, float]
) -> Float[np.ndarray, "*shape"]:
    """Map rewards from their declared range to [0, 1].

    Raises:
        RewardError: a reward lies outside the declared range or is not a number.
    """
    low, high = reward_range
    tolerance = 1e-5 * (high - low)
    inside = (rewards >= low - tolerance) & (rewards <= high + tolerance)
    if not np.all(inside):
        raise RewardError(
            "a reward lies outside its declared range",
            got=float(rewards[~inside].flat[0]),
            expected=f"a number in [{low}, {high}]",
            fix="set `reward_range` to the lowest and highest reward that can occur",
        )
    return np.clip((rewards - low) / (high - low), 0.0, 1.0).astype(np.float32)


def observation_of_groups(groups: Iterable[Group]) -> Observation:
    """The evidence in whole groups."""
    listed = list(groups)
    return Observation(
        questions_K=np.array([group.question for group in listed], dtype=np.int64),
        difficulty_K=np.array([group.difficulty for group in listed], dtype=np.float32),
        effective_K=np.array([group.effective for group in listed], dtype=bool),
        samples_K=np.array([len(group.rewards_G) for group in listed], dtype=np.int64),
    )

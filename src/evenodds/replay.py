"""Stage 7. A bounded first-in, first-out buffer of rollout groups (method, steps 6 and 8).

The paper replays uniformly. Beside that stand an age bound, a limit of uses, and a priority
|A| exp(-age / scale): groups with large advantages first, as long as they are young (plain
priority is reported to do worse than none, arXiv 2604.16918).
"""

from collections.abc import Collection, Iterable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from evenodds.selection import gumbel_top_k
from evenodds.state import State
from evenodds.types import Group, Rollout

_TOKEN_FIELDS = ("completion_ids", "behaviour_logprobs", "loss_mask", "reference_logprobs")


class ReplayBuffer:
    """The most recent effective groups, one a question.

    Args:
        capacity: C, most groups kept; the oldest are dropped first.
        generator: Owned and seeded by the caller; used by `sample`.
        age_scale: Steps in which the priority of a group falls to 1 / e; none samples uniformly.
        max_age: Steps after which a group is dropped; none keeps it.
        max_uses: Times a group is replayed at most; none sets no limit.
    """

    def __init__(
        self,
        capacity: int,
        generator: np.random.Generator,
        *,
        age_scale: float | None = None,
        max_age: int | None = None,
        max_uses: int | None = None,
    ) -> None:
        self.capacity = capacity
        self.generator = generator
        self.age_scale = age_scale
        self.max_age = max_age
        self.max_uses = max_uses
        self._groups: dict[int, Group] = {}  # by question, oldest first
        self._uses: dict[int, int] = {}  # of each that was replayed

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def groups(self) -> tuple[Group, ...]:
        """What is stored, oldest first."""
        return tuple(self._groups.values())

    @property
    def num_bytes(self) -> int:
        """Memory of the stored tensors, in bytes."""
        return sum(group.num_bytes for group in self._groups.values())

    def add(self, groups: Iterable[Group]) -> None:
        """Store the groups whose rewards differ; the newest of a question wins."""
        for group in groups:
            if group.effective:
                self._drop(group.question)
                self._groups[group.question] = group
        while len(self._groups) > self.capacity:
            self._drop(next(iter(self._groups)))

    def discard(self, questions: Collection[int]) -> None:
        """Drop what is stored of `questions`, because newer rollouts of them lie elsewhere."""
        for question in questions:
            self._drop(int(question))

    def expire(self, step: int) -> None:
        """Drop what is older than the age bound at this step."""
        if self.max_age is not None:
            old = [q for q, group in self._groups.items() if step - group.step > self.max_age]
            self.discard(old)

    def sample(
        self, count: int, step: int = 0, excluded: Collection[int] = ()
    ) -> tuple[Group, ...]:
        """`count` different groups, each as likely as any other or by priority.

        Args:
            count: At most the number of stored groups that are not excluded.
            step: The present one, for their ages.
            excluded: Questions whose groups are left.
        """
        groups = [group for question, group in self._groups.items() if question not in excluded]
        assert count <= len(groups), (count, len(groups))
        if self.age_scale is None:
            rows = self.generator.choice(len(groups), size=count, replace=False)
        else:
            rows = gumbel_top_k(
                priority_logits(groups, step, self.age_scale), count, self.generator
            )
        chosen = tuple(groups[row] for row in rows)
        self._count_uses(chosen)
        return chosen

    def uses(self, question: int) -> int:
        """How often the stored group of a question was replayed."""
        return self._uses.get(question, 0)

    def _count_uses(self, chosen: Collection[Group]) -> None:
        for group in chosen:
            self._uses[group.question] = self.uses(group.question) + 1
            if self.max_uses is not None and self.uses(group.question) >= self.max_uses:
                self._drop(group.question)

    def _drop(self, question: int) -> None:
        self._groups.pop(question, None)
        self._uses.pop(question, None)

    def state(self) -> State:
        """Every stored group, packed into a few flat tensors."""
        packed = pack_groups(self.groups)
        uses = [self.uses(question) for question in self._groups]
        packed.tensors["uses"] = torch.tensor(uses, dtype=torch.int64)
        return packed

    def restore(self, state: State) -> None:
        """Take over a saved state, in its order; a smaller capacity drops the oldest."""
        self._groups, self._uses = {}, {}
        groups = unpack_groups(state)
        self.add(groups)
        for group, uses in zip(groups, state.tensors["uses"].tolist(), strict=True):
            if uses and group.question in self._groups:
                self._uses[group.question] = uses


def priority_logits(
    groups: Collection[Group], step: int, age_scale: float
) -> Float[np.ndarray, " M"]:
    """log of mean |A| exp(-age / scale) of each group.

    Args:
        groups: Effective ones, so that |A| > 0.
        step: The present rollout step.
        age_scale: Steps, above 0.
    """
    size_M = np.array([np.abs(group.advantages_G).mean() for group in groups], dtype=np.float64)
    age_M = np.array([step - group.step for group in groups], dtype=np.float64)
    return np.log(np.maximum(size_M, np.finfo(np.float32).tiny)) - age_M / age_scale


def pack_groups(groups: Collection[Group]) -> State:
    """Groups as flat tensors with their lengths: what safetensors can hold."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    tensors: dict[str, Tensor] = {
        "question": torch.tensor([group.question for group in groups], dtype=torch.int64),
        "step": torch.tensor([group.step for group in groups], dtype=torch.int64),
        "group_size": torch.tensor([len(group.rollouts) for group in groups], dtype=torch.int64),
        "rewards": _concatenate([torch.from_numpy(group.rewards_G) for group in groups]),
        "advantages": _concatenate([torch.from_numpy(group.advantages_G) for group in groups]),
        "prompt_ids": _concatenate([group.prompt_ids for group in groups]),
        "prompt_length": _lengths([group.prompt_ids for group in groups]),
        "completion_length": _lengths([rollout.completion_ids for rollout in rollouts]),
    }
    for name in _TOKEN_FIELDS:
        present = [getattr(rollout, name) for rollout in rollouts]
        if present and all(value is not None for value in present):
            tensors[name] = _concatenate(present)
        else:
            assert all(value is None for value in present), f"{name} on some rollouts only"
    return State(tensors=tensors)


def unpack_groups(state: State) -> list[Group]:
    """The groups of `pack_groups`, in their order."""
    tensors = state.tensors
    sizes = tensors["group_size"].tolist()
    prompts = tensors["prompt_ids"].split(tensors["prompt_length"].tolist())
    lengths = tensors["completion_length"].tolist()
    columns = {name: tensors[name].split(lengths) for name in _TOKEN_FIELDS if name in tensors}
    rewards = tensors["rewards"].split(sizes)
    advantages = tensors["advantages"].split(sizes)
    starts = np.cumsum([0, *sizes])
    return [
        Group(
            question=question,
            step=step,
            rewards_G=rewards[row].numpy().copy(),
            advantages_G=advantages[row].numpy().copy(),
            prompt_ids=prompts[row].clone(),
            rollouts=tuple(
                Rollout(**{name: column[at].clone() for name, column in columns.items()})
                for at in range(starts[row], starts[row + 1])
            ),
        )
        for row, (question, step) in enumerate(
            zip(tensors["question"].tolist(), tensors["step"].tolist(), strict=True)
        )
    ]


def _concatenate(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors) if tensors else torch.empty(0)


def _lengths(tensors: list[Tensor]) -> Tensor:
    return torch.tensor([len(tensor) for tensor in tensors], dtype=torch.int64)

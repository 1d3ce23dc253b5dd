"""Stage 7. A bounded first-in, first-out buffer of rollout groups (method, steps 6 and 8)."""

from collections.abc import Collection, Iterable

import numpy as np
import torch
from torch import Tensor

from evenodds.state import State
from evenodds.types import Group, Rollout

_TOKEN_FIELDS = ("completion_ids", "behaviour_logprobs", "loss_mask", "reference_logprobs")


class ReplayBuffer:
    """The most recent effective groups, one a question.

    Args:
        capacity: C, most groups kept; the oldest are dropped first.
        generator: Owned and seeded by the caller; used by `sample`.
    """

    def __init__(self, capacity: int, generator: np.random.Generator) -> None:
        self.capacity = capacity
        self.generator = generator
        self._groups: dict[int, Group] = {}  # by question, oldest first

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
                self._groups.pop(group.question, None)
                self._groups[group.question] = group
        while len(self._groups) > self.capacity:
            del self._groups[next(iter(self._groups))]

    def discard(self, questions: Collection[int]) -> None:
        """Drop what is stored of `questions`, because newer rollouts of them lie elsewhere."""
        for question in questions:
            self._groups.pop(int(question), None)

    def sample(self, count: int) -> tuple[Group, ...]:
        """`count` different groups, each as likely as any other.

        Args:
            count: At most the number of stored groups.
        """
        assert count <= len(self), (count, len(self))
        chosen = self.generator.choice(len(self), size=count, replace=False)
        groups = self.groups
        return tuple(groups[row] for row in chosen)

    def state(self) -> State:
        """Every stored group, packed into a few flat tensors."""
        return pack_groups(self.groups)

    def restore(self, state: State) -> None:
        """Take over a saved state, in its order; a smaller capacity drops the oldest."""
        self._groups = {}
        self.add(unpack_groups(state))


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

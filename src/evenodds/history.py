"""What each question has been through: when it was seen last, and how often it failed in a row."""

import numpy as np
import torch
from jaxtyping import Bool, Int

from evenodds.state import State
from evenodds.types import Observation

NEVER = -1


class QuestionHistory:
    """O(N) memory, O(K) time for K observed questions.

    Args:
        num_questions: N, size of the pool.
    """

    def __init__(self, num_questions: int) -> None:
        self.seen_N: Int[np.ndarray, " N"] = np.full(num_questions, NEVER, dtype=np.int64)
        self.failed_N: Int[np.ndarray, " N"] = np.zeros(num_questions, dtype=np.int32)

    def observe(self, observation: Observation, step: int) -> None:
        """Take in groups of a step; a group that failed altogether adds to a row of failures."""
        rows = observation.questions_K[observation.samples_K > 0]
        failed = observation.difficulty_K[observation.samples_K > 0] >= 1.0
        self.seen_N[rows] = step
        self.failed_N[rows] = np.where(failed, self.failed_N[rows] + 1, 0)

    def parked(self, step: int, *, after: int, retest: int) -> Bool[np.ndarray, " N"]:
        """Questions that failed `after` times in a row, until `retest` steps after the last time.

        Args:
            step: The present one.
            after: Groups in a row without a success; 0 parks nothing.
            retest: Steps until such a question is tried again.
        """
        if not after:
            return np.zeros(len(self.seen_N), dtype=bool)
        return (self.failed_N >= after) & (step - self.seen_N < retest)

    def oldest(self, count: int, generator: np.random.Generator) -> Int[np.ndarray, " count"]:
        """The questions that were not seen for longest, those never seen first, ties at random."""
        shuffled = generator.permutation(len(self.seen_N))
        return shuffled[np.argsort(self.seen_N[shuffled], kind="stable")[:count]]

    def state(self) -> State:
        """Both columns."""
        return State(
            tensors={
                "seen": torch.from_numpy(self.seen_N.copy()),
                "failed": torch.from_numpy(self.failed_N.copy()),
            }
        )

    def restore(self, state: State) -> None:
        """Take over a saved state."""
        self.seen_N = state.tensors["seen"].numpy().copy()
        self.failed_N = state.tensors["failed"].numpy().copy()

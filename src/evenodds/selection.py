"""Stage 5. From difficulty to the questions to train on.

P(q) is proportional to exp(-|d_q - alpha| / tau), without replacement (method, step 4).
"""

import numpy as np
import torch
from jaxtyping import Float, Int

from evenodds.state import State


def selection_logits(
    difficulty_N: Float[np.ndarray, " N"], *, target: float, temperature: float
) -> Float[np.ndarray, " N"]:
    """Unnormalised log-probability of each question, -|d - alpha| / tau.

    Args:
        difficulty_N: Difficulty in [0, 1].
        target: alpha, the preferred difficulty.
        temperature: tau > 0, in units of difficulty.
    """
    return -np.abs(difficulty_N - target) / temperature


def gumbel_top_k(
    logits_N: Float[np.ndarray, " N"], count: int, generator: np.random.Generator
) -> Int[np.ndarray, " count"]:
    """Draw `count` different questions one after the other, P proportional to exp(logit).

    Adding Gumbel noise to the logits and taking the largest is exact sampling without
    replacement, in the order of the draws (Kool et al. 2019, arXiv 1903.06059). O(N).

    Args:
        logits_N: Unnormalised log-probabilities, of any scale.
        count: How many to draw, at most N.
        generator: Owned and seeded by the caller.

    Returns:
        Rows in the pool, first draw first.
    """
    assert 0 <= count <= len(logits_N), (count, len(logits_N))
    if count == 0:
        return np.empty(0, dtype=np.int64)
    keys = logits_N + generator.gumbel(size=len(logits_N))
    chosen = np.argpartition(-keys, count - 1)[:count]
    return chosen[np.argsort(-keys[chosen], kind="stable")].astype(np.int64)


class QuestionQueue:
    """Questions that were drawn and not yet used, in the order of the draws."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self._waiting = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._waiting)

    def refill(self, logits_N: Float[np.ndarray, " N"], count: int) -> None:
        """Forget what waits and draw `count` questions anew (all, if there are fewer)."""
        self._waiting = gumbel_top_k(logits_N, min(count, len(logits_N)), self.generator)

    def extend(self, logits_N: Float[np.ndarray, " N"]) -> None:
        """Let the whole pool, drawn anew, wait behind the questions that still do.

        Those come last in the new order, so that no batch holds a question twice. A question that
        already waits twice, because it was excluded for long, is not added again.
        """
        order = gumbel_top_k(logits_N, len(logits_N), self.generator)
        waits = np.bincount(self._waiting, minlength=len(logits_N))[order]
        self._waiting = np.concatenate([self._waiting, order[waits == 0], order[waits == 1]])

    def available(self, excluded: Int[np.ndarray, " X"] | None = None) -> int:
        """How many different questions wait that are not excluded."""
        return len(self._waiting) if excluded is None else len(self._places(excluded))

    def take(
        self, count: int, excluded: Int[np.ndarray, " X"] | None = None
    ) -> Int[np.ndarray, " count"]:
        """The next `count` questions, all different; the excluded go on waiting."""
        places = np.arange(len(self)) if excluded is None else self._places(excluded)
        places = places[:count]
        assert len(places) == count, (count, len(self), excluded)
        taken, self._waiting = self._waiting[places], np.delete(self._waiting, places)
        return taken

    def _places(self, excluded: Int[np.ndarray, " X"]) -> Int[np.ndarray, " W"]:
        """Where each question that is not excluded waits first."""
        free = np.flatnonzero(~np.isin(self._waiting, excluded))
        _, first = np.unique(self._waiting[free], return_index=True)
        return free[np.sort(first)]

    def state(self) -> State:
        """What waits; the generator belongs to its owner."""
        return State(tensors={"waiting": torch.from_numpy(self._waiting.copy())})

    def restore(self, state: State) -> None:
        """Take over a saved state."""
        self._waiting = state.tensors["waiting"].numpy().copy()

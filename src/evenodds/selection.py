"""Stage 5. From difficulty to the questions to train on.

The paper's criterion: P(q) is proportional to exp(-|d_q - alpha| / tau), without replacement
(method, step 4). Beside it stand the expected signal and Thompson sampling, which look at how
sure an estimate is, and batches in which several orders of the questions have a share.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from evenodds.state import State


def selection_logits(
    difficulty_N: Float[np.ndarray, " N"], *, target: float, temperature: float
) -> Float[np.ndarray, " N"]:
    """Unnormalised log-probability of each question, `-|d - alpha| / tau`.

    Args:
        difficulty_N: Difficulty in [0, 1].
        target: alpha, the preferred difficulty.
        temperature: tau > 0, in units of difficulty.
    """
    return -np.abs(difficulty_N - target) / temperature


def expected_signal(
    difficulty_N: Float[np.ndarray, " N"], variance_N: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    """E[p (1 - p)] = m (1 - m) - v of an uncertain rate p with mean m and variance v.

    The squared norm of a group's policy gradient is proportional to p (1 - p) (arXiv 2506.05316,
    Theorem 1). A question that is merely unknown has a smaller expected signal than one that is
    known to lie at even odds.

    Args:
        difficulty_N: m, or 1 - m, in [0, 1].
        variance_N: v, at most m (1 - m); cut to that.
    """
    difficulty_N = difficulty_N.astype(np.float64)
    return np.maximum(difficulty_N * (1.0 - difficulty_N) - variance_N, 0.0)


def drawn_difficulty(
    difficulty_N: Float[np.ndarray, " N"],
    variance_N: Float[np.ndarray, " N"],
    generator: np.random.Generator,
) -> Float[np.ndarray, " N"]:
    """A draw from each posterior, as a Beta with this mean and variance (Thompson sampling).

    Beta(m k, (1 - m) k) with k = m (1 - m) / v - 1. The mean itself where no uncertainty is
    claimed, and a coin of 0 and 1 where the variance is as large as it can be.
    """
    mean_N = difficulty_N.astype(np.float64)
    drawn_N = mean_N.copy()
    most_N = mean_N * (1.0 - mean_N)
    uncertain_N = (variance_N > 0) & (most_N > 0)
    mean, most = mean_N[uncertain_N], most_N[uncertain_N]
    strength = np.maximum(most / variance_N[uncertain_N] - 1.0, 1e-3)
    drawn_N[uncertain_N] = generator.beta(mean * strength, (1.0 - mean) * strength)
    return drawn_N


def compose(
    orders: Sequence[tuple[float, Int[np.ndarray, " _"]]], count: int
) -> Int[np.ndarray, " count"]:
    """One order of `count` different questions in which each given order has its share.

    At each place the order that is furthest behind its share gives its next question that was not
    taken yet; one that has no more leaves its places to the others.

    Args:
        orders: Shares above 0, and different questions in each; the last holds `count` questions
            at least, or all there are.
        count: Places.
    """
    places = [iter(order.tolist()) for _, order in orders]
    given = [0] * len(orders)
    shares = [share for share, _ in orders]
    taken: dict[int, None] = {}
    open_orders = set(range(len(orders)))
    while len(taken) < count and open_orders:
        at = max(
            open_orders, key=lambda place: (shares[place] * (len(taken) + 1) - given[place], -place)
        )
        for question in places[at]:
            if question not in taken:
                taken[question] = None
                given[at] += 1
                break
        else:
            open_orders.discard(at)
    return np.fromiter(taken, dtype=np.int64, count=len(taken))


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
        self.put(gumbel_top_k(logits_N, min(count, len(logits_N)), self.generator))

    def put(self, questions: Int[np.ndarray, " M"]) -> None:
        """Forget what waits and let these wait, in their order."""
        self._waiting = questions

    def extend(self, order: Int[np.ndarray, " N"]) -> None:
        """Let the whole pool, in this order, wait behind the questions that still do.

        Those come last in the new order, so that no batch holds a question twice. A question that
        already waits twice, because it was excluded for long, is not added again.
        """
        waits = np.bincount(self._waiting, minlength=len(order))[order]
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

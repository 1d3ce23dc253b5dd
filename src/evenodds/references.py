"""Stage 3. Which questions to probe so that the difficulty of all others can be estimated."""

import math

import numpy as np
from jaxtyping import Float, Int

from evenodds.state import State
from evenodds.types import Observation

SURPRISE = 2.0  # mean z^2 from which an estimate counts as wrong; 1 is what it should be
MEMORY = 0.8  # of the running mean, per step
LEAST_VARIANCE = 1e-3  # of an observation, so that a sure estimate is not undone by one rollout


def draw_references(
    num_questions: int,
    num_references: int,
    generator: np.random.Generator,
    excluded: Int[np.ndarray, " X"] | None = None,
) -> Int[np.ndarray, " K"]:
    """K different questions, each as likely as any other (method, step 1).

    Args:
        num_questions: N, size of the pool.
        num_references: K, how many to draw; at most N, less the excluded.
        generator: Owned and seeded by the caller.
        excluded: Questions that may not be drawn now.

    Returns:
        Rows in the pool, in random order.
    """
    candidates = num_questions
    if excluded is not None:
        candidates = np.setdiff1d(np.arange(num_questions), excluded)
    return generator.choice(candidates, size=num_references, replace=False)


class ProbeRule:
    """How many questions to probe: fewer as the estimate grows sure, again many when it errs.

    K times the share of the first uncertainty that is left above what is enough,
    (v - e^2) / (v_0 - e^2) cut to [0, 1], with v the mean variance of the pool now, v_0 that at the
    start and e the standard deviation that is enough. All K where observations lie further from
    the estimate than it says: where the running mean of z^2 = (observed - m)^2 / var is above
    `SURPRISE`, var = v + (m (1 - m) - v) / n being that of n rollouts.

    Args:
        num_references: K.
        enough: e, a standard deviation of the failure rate in (0, 0.5].
    """

    def __init__(self, num_references: int, enough: float) -> None:
        self.num_references = num_references
        self.enough = enough
        self.first: float | None = None  # v_0
        self.surprise = 1.0

    def count(self, variance_N: Float[np.ndarray, " N"]) -> int:
        """Questions to probe now, in [0, K].

        Args:
            variance_N: Variance of every question's failure rate.
        """
        now, enough = float(variance_N.mean()), self.enough**2
        if self.first is None:
            self.first = now
        if self.surprise > SURPRISE:
            return self.num_references
        if now <= enough or self.first <= enough:
            return 0
        return math.ceil(self.num_references * min(1.0, (now - enough) / (self.first - enough)))

    def learn(
        self,
        mean_F: Float[np.ndarray, " F"],
        variance_F: Float[np.ndarray, " F"],
        observation: Observation,
    ) -> None:
        """Compare what was observed with what had been estimated.

        Args:
            mean_F: Estimated failure rates, before anything of this step was observed.
            variance_F: Their variances.
            observation: Of the same questions.
        """
        scored = observation.samples_K > 0
        if not scored.any():
            return
        mean, variance = mean_F[scored].astype(np.float64), variance_F[scored]
        noise = np.maximum(mean * (1 - mean) - variance, 0.0) / observation.samples_K[scored]
        error = np.square(observation.difficulty_K[scored] - mean)
        now = float((error / np.maximum(variance + noise, LEAST_VARIANCE)).mean())
        self.surprise = MEMORY * self.surprise + (1 - MEMORY) * now

    def state(self) -> State:
        """What it has seen."""
        return State(values={"first": self.first, "surprise": self.surprise})

    def restore(self, state: State) -> None:
        """Take over a saved state."""
        self.first, self.surprise = state.values["first"], state.values["surprise"]

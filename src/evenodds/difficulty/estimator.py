"""What the loop asks of an estimate of difficulty, whatever it is made from."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from evenodds.state import State
from evenodds.types import Observation


@dataclass(frozen=True, eq=False)
class Estimate:
    """What is known of every question of the pool.

    Attributes:
        difficulty_N: Expected failure rate, in [0, 1].
        variance_N: Variance of the failure rate; 0 where no uncertainty is claimed.
    """

    difficulty_N: Float[np.ndarray, " N"]
    variance_N: Float[np.ndarray, " N"]


@runtime_checkable
class DifficultyEstimator(Protocol):
    """Turns observations into an estimate of every question.

    Attributes:
        needs_references: Whether it estimates nothing before a reference set was probed.
    """

    needs_references: bool

    def probe(self, references: Observation) -> None:
        """Take in a reference set, drawn uniformly."""
        ...

    def observe(self, fresh: Observation) -> None:
        """Take in the groups of a batch, which were selected."""
        ...

    def estimate(self) -> Estimate:
        """What is known now."""
        ...

    def state(self) -> State:
        """Everything it has taken in."""
        ...

    def restore(self, state: State) -> None:
        """Take over a state of `state`."""
        ...

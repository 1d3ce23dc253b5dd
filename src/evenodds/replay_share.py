"""How much is replayed, lowered by itself when the stored rollouts fit the policy badly."""

import logging
import math

from evenodds.state import State

logger = logging.getLogger(__name__)

LOWER, RAISE = 0.5, 1.25  # factor of the replayed share after a bad and after a good step
LEAST = 0.125


class ReplayShare:
    """A factor of the replayed share, from the importance ratios of each step.

    Two signs that replayed rollouts no longer stand for the policy: a small effective sample size,
    (sum r)^2 / (n sum r^2) over the n replayed tokens with ratios r = pi_old / mu, and a mean ratio
    away from 1, its expectation under mu.

    Args:
        min_ess: Least share of an effective sample, in [0, 1]; 0 watches nothing.
        max_drift: Most |mean ratio - 1|; none watches nothing.
    """

    def __init__(self, min_ess: float = 0.0, max_drift: float | None = None) -> None:
        self.min_ess = min_ess
        self.max_drift = max_drift
        self.factor = 1.0

    def note(self, ess: float, mean_ratio: float) -> None:
        """Take in the ratios of a step; NaN where nothing was replayed.

        Args:
            ess: Effective share of the replayed tokens, in [0, 1].
            mean_ratio: Mean importance ratio.
        """
        reason = None
        if ess < self.min_ess:
            reason = f"effective sample {ess:.2f} of the replayed tokens, least {self.min_ess:.2f}"
        elif self.max_drift is not None and abs(mean_ratio - 1.0) > self.max_drift:
            reason = f"mean importance ratio {mean_ratio:.3f}, at most {self.max_drift} from 1"
        before = self.factor
        if reason is not None:
            self.factor = max(LEAST, LOWER * self.factor)
        elif not math.isnan(ess):
            self.factor = min(1.0, RAISE * self.factor)
        if reason is not None and self.factor != before:
            logger.warning("replaying less (%.0f %%): %s", 100 * self.factor, reason)
        elif self.factor == 1.0 != before:
            logger.warning("replaying as much as at first again")

    def of(self, count: int) -> int:
        """Groups to replay where `count` would be."""
        return math.floor(self.factor * count)

    def state(self) -> State:
        """The factor."""
        return State(values={"factor": self.factor})

    def restore(self, state: State) -> None:
        """Take over a factor."""
        self.factor = state.values["factor"]


def ratios_of_totals(total: float, squares: float, count: float) -> dict[str, float]:
    """Mean, standard deviation and effective share of importance ratios; NaN where none are.

    Args:
        total: Sum of the ratios r.
        squares: Sum of r^2.
        count: n. The effective share is (sum r)^2 / (n sum r^2).
    """
    if not count:
        names = ("replay/ratio_mean", "replay/ratio_std", "replay/ess")
        return dict.fromkeys(names, float("nan"))
    mean = total / count
    return {
        "replay/ratio_mean": mean,
        "replay/ratio_std": max(0.0, squares / count - mean**2) ** 0.5,
        "replay/ess": total**2 / (count * squares),
    }

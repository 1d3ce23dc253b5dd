"""How well a policy answers held-out questions: the mean reward of sampled completions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from evenodds.questions import QuestionPool
from evenodds.run_config import EvaluationSection
from evenodds.sampling import Generate, Sampler


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of a question set.

    Attributes:
        scores_NS: Reward of each of S completions of N questions.
    """

    scores_NS: Float[np.ndarray, "N S"]

    @property
    def accuracy(self) -> float:
        """Mean reward."""
        return float(self.scores_NS.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the accuracy, clustered by question; NaN for a single question.

        With m_i the mean of question i: sqrt(sum_i (m_i - mean(m))^2 / (N - 1) / N).
        """
        means_N = self.scores_NS.mean(axis=1)
        if len(means_N) < 2:
            return float("nan")
        return float(means_N.std(ddof=1) / math.sqrt(len(means_N)))


class Evaluator(Sampler):
    """A sampler with the settings of a run's held-out questions.

    Args:
        pool: The held-out questions.
        reward: In TRL's form; may be asynchronous.
        tokenizer: The policy's, padding on the left.
        config: Samples, seed and batch size.
    """

    def __init__(
        self, pool: QuestionPool, reward: Any, tokenizer: Any, config: EvaluationSection
    ) -> None:
        super().__init__(
            pool,
            reward,
            tokenizer,
            samples=config.samples,
            batch_size=config.batch_size,
            seed=config.seed,
        )

    def score(
        self, generate: Generate, rows: Sequence[int], device: torch.device
    ) -> Float[np.ndarray, "M S"]:
        """Rewards of the completions of these questions.

        Args:
            generate: Samples completions, settings included.
            rows: M questions.
            device: Where the policy is.
        """
        scores = [
            answered.scores
            for number, block in enumerate(self.blocks(rows))
            for answered in self.answer(generate, number, block, device)
        ]
        return np.array(scores, dtype=np.float64).reshape(len(rows), self.samples)

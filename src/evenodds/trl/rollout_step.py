"""What the trainer keeps of one rollout step while it generates and trains on it."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from evenodds.trl.batch import Batch

PARTS = ("time/generate_s", "time/reference_s", "time/select_s", "time/logprobs_s")


class RolloutStep:
    """Times, counts and log-probabilities, from generating to the last update.

    Attributes:
        step_seconds: Wall time of the whole step, without evaluating, logging and saving.
        rollouts: Completions generated, references included, over all processes.
        tokens: Tokens generated, likewise.
        trained_rows: Rollouts of this process that the update is made of.
        reward_mean: Mean reward of the fresh rollouts of all processes.
        losses: What each micro-batch gave.
        fresh: The generated batch, its questions and their rewards in [0, 1], until stored.
    """

    def __init__(self) -> None:
        self.step_seconds = 0.0
        self._seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._nested = 0.0
        self.rollouts = 0
        self.tokens = 0
        self.trained_rows = 0
        self.reward_mean = float("nan")
        self.losses: list[Tensor] = []
        self.fresh: tuple[Batch, Int[np.ndarray, " B"], Float[np.ndarray, "B G"]] | None = None
        self._logps_RT: Tensor | None = None
        self._ratio_totals = (0.0, 0.0, 0)

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the wall time of a part of the step; a part within a part counts once."""
        outer, self._nested = self._nested, 0.0
        start = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - start
            self._seconds[part] += took - self._nested
            self._nested = outer + took

    def times(self) -> dict[str, float]:
        """Seconds of the step and of its parts; the update is what remains."""
        update = self.step_seconds - sum(self._seconds.values())
        return {"time/step_s": self.step_seconds, **self._seconds, "time/update_s": update}

    def keep_logps(
        self, rows_R: Int[Tensor, " R"], replayed_R: Bool[Tensor, " R"], logps_RT: Tensor
    ) -> None:
        """Keep the log-probabilities that the training forward gave the fresh rows.

        It runs before the first update, so they are those of the policy that generated the rows.
        """
        if self._logps_RT is None:
            assert self.fresh is not None
            rows = len(self.fresh[0]["completion_ids"])
            self._logps_RT = logps_RT.new_zeros(rows, logps_RT.shape[1])
        fresh_R = ~replayed_R
        self._logps_RT[rows_R[fresh_R]] = logps_RT[fresh_R]

    def behaviour_logps(self) -> Float[Tensor, "R T"]:
        """Log-probabilities of the fresh rows under the policy that sampled them.

        The sampler's own where it gave any, else the host's at generation, else those of the
        training forward.
        """
        assert self.fresh is not None
        batch = self.fresh[0]
        if (given := batch.get("sampling_per_token_logps")) is not None:
            old = batch.get("old_per_token_logps", self._logps_RT)
            width = given.shape[1]
            return given if old is None else torch.where(given.isnan(), old[:, :width], given)
        if (old := batch.get("old_per_token_logps")) is not None:
            return old
        assert self._logps_RT is not None, "the host trained on every row"
        return self._logps_RT[:, : batch["completion_ids"].shape[1]]

    def note_ratios(self, ratios: Float[Tensor, " X"]) -> None:
        """Count importance ratios pi_old / mu of replayed tokens."""
        total, squares, count = self._ratio_totals
        exact = ratios.double()
        self._ratio_totals = (
            total + float(exact.sum()),
            squares + float(exact.square().sum()),
            count + ratios.numel(),
        )

    @property
    def ratio_totals(self) -> tuple[float, float, int]:
        """Sum, sum of squares and number of the ratios noted by this process."""
        return self._ratio_totals


@contextlib.contextmanager
def untouched(metrics: dict[str, list[float]], logs: dict[str, Any]) -> Iterator[None]:
    """Put the host's metrics and completion logs back as they were.

    Args:
        metrics: The host's `_metrics["train"]`.
        logs: The host's `_logs`: deques, and dictionaries of deques.
    """
    saved_metrics = {name: list(values) for name, values in metrics.items()}
    saved_logs = {
        name: entry.copy()
        if isinstance(entry, deque)
        else {key: values.copy() for key, values in entry.items()}
        for name, entry in logs.items()
    }
    try:
        yield
    finally:
        metrics.clear()
        metrics.update(saved_metrics)
        for name, saved in saved_logs.items():
            if isinstance(saved, deque):
                logs[name] = saved
            else:
                logs[name].clear()
                logs[name].update(saved)

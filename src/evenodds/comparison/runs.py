"""One run as its folder tells it: also of a run that goes on, or of someone's own script."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from evenodds.errors import DataError
from evenodds.files import read_json, read_lines
from evenodds.recorder import METRICS, SELECTIONS, summarise

PARTS = ("reference", "generate", "select", "logprobs", "update")


@dataclass(frozen=True, eq=False)
class Run:
    """The recorded lines of a run.

    Attributes:
        name: The folder's, or the run's own.
        folder: Where it lies.
        lines: Of `metrics.jsonl`; the one of step 0, if any, holds an evaluation alone.
        selections: Of `selections.jsonl`, a line a step.
        config: The resolved settings, where the run came from a config.
    """

    name: str
    folder: Path
    lines: tuple[dict[str, Any], ...]
    selections: tuple[dict[str, Any], ...]
    config: dict[str, Any] | None = None

    @property
    def steps(self) -> tuple[dict[str, Any], ...]:
        """The lines of training steps."""
        return tuple(line for line in self.lines if line["step"] > 0)

    @property
    def evaluations(self) -> tuple[dict[str, Any], ...]:
        """The lines with an accuracy on held-out questions."""
        return tuple(line for line in self.lines if line.get("eval/accuracy") is not None)

    @property
    def step_S(self) -> Float[np.ndarray, " S"]:
        """Rollout steps done after each line of `steps`."""
        return np.array([line["rollout_step"] for line in self.steps], dtype=np.float64)

    def column(self, key: str) -> Float[np.ndarray, " S"]:
        """A metric at each step; NaN where it was not measured."""
        return _column(self.steps, key)

    @property
    def seconds_S(self) -> Float[np.ndarray, " S"]:
        """Seconds of training up to each step, with embedding, without evaluating and saving."""
        embedding = np.nan_to_num(self.column("time/embed_s"))
        return np.cumsum(self.column("time/step_s") + embedding)

    @property
    def generated_S(self) -> Float[np.ndarray, " S"]:
        """Groups generated at each step, references included."""
        references_S = np.nan_to_num(self.column("select/num_references"))
        return self.column("select/num_fresh") + references_S

    @property
    def trained_S(self) -> Float[np.ndarray, " S"]:
        """Groups trained on at each step; those of the whole batch where it was not recorded."""
        batch_S = self.column("select/num_fresh") + np.nan_to_num(
            self.column("replay/num_replayed")
        )
        recorded_S = self.column("train/num_groups")
        return np.where(np.isnan(recorded_S), batch_S, recorded_S)

    @property
    def accuracy(self) -> tuple[Float[np.ndarray, " E"], Float[np.ndarray, " E"]]:
        """Rollout steps of the evaluations, and the accuracies on held-out questions."""
        steps_E = _column(self.evaluations, "rollout_step")
        return steps_E, _column(self.evaluations, "eval/accuracy")

    @property
    def evaluation_seconds(self) -> float:
        """Seconds spent on evaluating, which are no part of training."""
        return float(np.nansum(_column(self.lines, "time/evaluate_s")))

    def summary(self) -> dict[str, Any]:
        """Means and totals, as `evenodds train` prints them."""
        return summarise(self.lines)

    def pairs(self, *kinds: str) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]:
        """Predicted and observed difficulty of every group of these kinds that has both.

        Args:
            kinds: `fresh`, `reference`.
        """
        pairs = [
            (predicted, observed)
            for line in self.selections
            for kind in kinds
            for predicted, observed in zip(
                line[kind]["predicted"], line[kind]["observed"], strict=True
            )
            if predicted is not None and observed is not None
        ]
        both = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        return both[:, 0], both[:, 1]


def read_run(folder: Path) -> Run:
    """Read a run folder, of whatever trainer wrote it.

    Raises:
        DataError: there are no metrics in it.
        CheckpointError: a file of it is damaged.
    """
    if not (folder / METRICS).exists():
        raise DataError(
            "this is not a run folder",
            got=folder,
            expected=f"a folder with {METRICS}, as `evenodds train` and the trainers write it",
        )
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else None
    if not (isinstance(config, dict) and isinstance(config.get("run"), dict)):
        config = None
    lines = tuple(read_lines(folder / METRICS))
    for number, line in enumerate(lines):
        if not isinstance(line, dict) or not {"step", "rollout_step"} <= set(line):
            raise DataError(
                f"line {number + 1} of {METRICS} is not one of evenodds",
                got=folder / METRICS,
                expected="`step` and `rollout_step` in each line",
            )
    return Run(
        name=folder.resolve().name,
        folder=folder,
        lines=lines,
        selections=tuple(read_lines(folder / SELECTIONS)),
        config=config,
    )


def find_runs(paths: list[Path]) -> Iterator[Run]:
    """The runs in these folders; a folder of run folders stands for all of them."""
    for path in paths:
        inner = sorted(entry.parent for entry in path.glob(f"*/{METRICS}"))
        folders = [path] if (path / METRICS).exists() or not inner else inner
        yield from (read_run(folder) for folder in folders)


def _column(lines: tuple[dict[str, Any], ...], key: str) -> Float[np.ndarray, " L"]:
    values = [line.get(key) for line in lines]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

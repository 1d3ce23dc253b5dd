"""The run folder's two line files: `metrics.jsonl` and `selections.jsonl`.

Both are appended to, a line a step, and cut back to a checkpoint's step when a run is resumed,
so that a run that was killed leaves the same lines as one that was not.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenodds.files import append_line, read_lines, write_text
from evenodds.loop import StepRecord

METRICS = "metrics.jsonl"
SELECTIONS = "selections.jsonl"


class RunRecorder:
    """Writes what each step measured and chose.

    Args:
        folder: The run folder; made when first written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> None:
        """Begin a new run; files of an earlier one in the same folder are kept under a number."""
        for name in (METRICS, SELECTIONS):
            path = self.folder / name
            if path.exists():
                path.rename(_free_name(path))

    def resume(self, step: int) -> None:
        """Drop the lines behind the checkpoint of `step`."""
        for name in (METRICS, SELECTIONS):
            path = self.folder / name
            if path.exists():
                kept = [line for line in read_lines(path) if line["step"] <= step]
                write_text(path, "".join(json.dumps(line) + "\n" for line in kept))

    def metrics(self, values: Mapping[str, float | int | None]) -> None:
        """Append a line of metrics; what is not a number becomes null."""
        append_line(self.folder / METRICS, {key: _number(value) for key, value in values.items()})

    def selection(self, step: int, record: StepRecord, id_of: Callable[[int], str]) -> None:
        """Append a line of what a step chose.

        Args:
            step: Optimizer steps done after it.
            record: The choice and what was observed.
            id_of: Content id of a question's row.
        """

        def ids(rows: Sequence[int] | np.ndarray) -> list[str]:
            return [id_of(int(row)) for row in rows]

        references = record.references
        line: dict[str, Any] = {
            "step": step,
            "fresh": {
                "id": ids(record.fresh.questions_K),
                "predicted": _rounded(record.fresh_prediction_F),
                "observed": _rounded(record.fresh.difficulty_K),
            },
            "replayed": {
                "id": ids(record.replayed),
                "age": record.replayed_ages.tolist(),
                "observed": _rounded(record.replayed_difficulty),
                "uses": record.replayed_uses.tolist(),
            },
            "reference": {"id": [], "predicted": [], "observed": []},
            "references_in_batch": record.in_batch,
            "pool": None if record.pool_bins is None else record.pool_bins.tolist(),
        }
        if references is not None:
            assert record.reference_prediction_K is not None
            line["reference"] = {
                "id": ids(references.questions_K),
                "predicted": _rounded(record.reference_prediction_K),
                "observed": _rounded(references.difficulty_K),
            }
        append_line(self.folder / SELECTIONS, line)


def summarise(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """First and last accuracy, means over the steps, and totals.

    Args:
        lines: Of `metrics.jsonl`.
    """
    steps = [line for line in lines if line["step"] > 0]
    accuracies = [line["eval/accuracy"] for line in lines if line.get("eval/accuracy") is not None]
    probed = [
        line for line in steps if line.get("select/num_references") or line.get("select/num_joined")
    ]
    last = steps[-1] if steps else {}
    return {
        "steps": len(steps),
        "eval/accuracy_first": accuracies[0] if accuracies else None,
        "eval/accuracy_last": accuracies[-1] if accuracies else None,
        "reward/mean_first": steps[0]["reward/mean"] if steps else None,
        "reward/mean_last": last.get("reward/mean"),
        "select/effective_fraction": _mean_of(steps, "select/effective_fraction"),
        "select/pearson": _mean_of(probed, "select/pearson"),
        "select/num_fresh": _total_of(steps, "select/num_fresh"),
        "select/num_references": _total_of(steps, "select/num_references"),
        "replay/num_replayed": _total_of(steps, "replay/num_replayed"),
        "replay/ratio_mean": _mean_of(steps, "replay/ratio_mean"),
        "rollouts/total": last.get("rollouts/total"),
        "tokens/generated_total": last.get("tokens/generated_total"),
        "time/train_s": _total_of(steps, "time/step_s"),
        "time/evaluate_s": _total_of(lines, "time/evaluate_s"),
        **{
            f"time/{part}_s": _mean_of(steps, f"time/{part}_s")
            for part in ("step", "reference", "generate", "select", "logprobs", "update")
        },
    }


def _free_name(path: Path) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    return candidate


def _number(value: float | int | None) -> float | int | None:
    return None if value is None or not math.isfinite(value) else value


def _rounded(values: np.ndarray) -> list[float | None]:
    return [_number(round(float(value), 4)) for value in values]


def _mean_of(lines: Sequence[dict[str, Any]], key: str) -> float | None:
    values = [line[key] for line in lines if line.get(key) is not None]
    return float(np.mean(values)) if values else None


def _total_of(lines: Sequence[dict[str, Any]], key: str) -> float:
    return float(sum(line[key] for line in lines if line.get(key) is not None))

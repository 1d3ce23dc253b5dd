"""The numbers behind the pictures of training runs, as plain arrays.

An arm is a name with its runs, one a seed. Curves end at the last step that all of these have; a
run without a step or an evaluation holds none of the others back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from evenodds.comparison.curves import smooth
from evenodds.comparison.runs import PARTS, Run
from evenodds.comparison.savings import ArmResult

Arm = tuple[str, Sequence[Run]]
PICTURED_COSTS = ("seconds", "steps", "rollouts")
WINDOW = 5  # steps of a running mean
RATES = 9  # failure rates that a group of 8 can show
FEW_PAIRS = 2  # below this there is nothing to correlate
ESTIMATED_COLUMNS, OBSERVED_COLUMNS = 60, 12  # of the difficulty map; observed ones are noisy


@dataclass(frozen=True, eq=False)
class Course:
    """Accuracy of an arm after the steps at which all of its runs were evaluated.

    Attributes:
        name: Of the arm.
        evaluated_E: Those rollout steps.
        accuracy_SE: A row a run.
        curve_SE: The same, smoothed; their mean is the smoothed mean.
        costs_SE: Of each cost, what was spent up to there: seconds, steps, rollouts.
    """

    name: str
    evaluated_E: Float[np.ndarray, " E"]
    accuracy_SE: Float[np.ndarray, "S E"]
    curve_SE: Float[np.ndarray, "S E"]
    costs_SE: dict[str, Float[np.ndarray, "S E"]]


def course_of(arm: Arm) -> Course | None:
    """The accuracy of an arm; none where no run was evaluated, or never after the same step."""
    name, runs = arm
    evaluated = [run for run in runs if len(run.accuracy[0])]
    if not evaluated:
        return None
    evaluated_E = reduce(np.intersect1d, [run.accuracy[0] for run in evaluated])
    if not len(evaluated_E):
        return None
    accuracy_SE = np.array([np.interp(evaluated_E, *run.accuracy) for run in evaluated])
    return Course(
        name=name,
        evaluated_E=evaluated_E,
        accuracy_SE=accuracy_SE,
        curve_SE=_smoothed(evaluated_E, accuracy_SE, None),
        costs_SE={
            cost: np.array([_spent(run, cost, evaluated_E) for run in evaluated])
            for cost in PICTURED_COSTS
        },
    )


def course_of_result(result: ArmResult, bandwidth: float | None = None) -> Course:
    """The accuracy of an arm, smoothed as it was compared: with the same bandwidth."""
    courses = result.courses
    return Course(
        name=result.name,
        evaluated_E=courses.evaluated_E,
        accuracy_SE=courses.accuracy_SE,
        curve_SE=_smoothed(courses.evaluated_E, courses.accuracy_SE, bandwidth),
        costs_SE={cost: courses.costs_SE[cost] for cost in PICTURED_COSTS},
    )


def metric_of(
    runs: Sequence[Run], key: str
) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "R S"]]:
    """A metric at the rollout steps that all runs have: steps, and a row a run.

    Runs that never measured it are left out; a value that a run lacks is NaN.
    """
    measured = [run for run in runs if np.isfinite(run.column(key)).any()]
    if not measured:
        return np.empty(0), np.empty((0, 0))
    step_S = reduce(np.intersect1d, [run.step_S for run in measured])
    rows = [run.column(key)[np.isin(run.step_S, step_S)] for run in measured]
    return step_S, np.array(rows).reshape(len(measured), len(step_S))


def running_mean(values_S: Float[np.ndarray, " S"], window: int = WINDOW) -> np.ndarray:
    """Mean over the `window` steps around each, fewer at the ends; NaN ones are left out."""
    known_S = np.isfinite(values_S)
    middle = slice(window // 2, window // 2 + len(values_S))
    count_S = np.convolve(known_S, np.ones(window))[middle]
    total_S = np.convolve(np.where(known_S, values_S, 0.0), np.ones(window))[middle]
    return np.where(count_S > 0, total_S / np.maximum(count_S, 1), np.nan)


def pairs_of(runs: Sequence[Run]) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"], str]:
    """Predicted and observed difficulty, and of what.

    References are drawn at random from the whole pool; of an arm that probes none, the generated
    groups, which were chosen by this very prediction.
    """
    for kind in ("reference", "fresh"):
        pairs = [run.pairs(kind) for run in runs]
        predicted, observed = (np.concatenate(side) for side in zip(*pairs, strict=True))
        if len(predicted) >= FEW_PAIRS:
            return predicted, observed, kind
    return np.empty(0), np.empty(0), "none"


@dataclass(frozen=True, eq=False)
class DifficultyMap:
    """How difficult the pool was, column by column.

    Attributes:
        name: Of the arm.
        kind: `estimated` (of the whole pool), or observed on `reference` or `fresh` groups.
        steps_C: Edges of the columns, in rollout steps; one more than columns.
        bins_D: Edges of the rows, in failure rate; one more than rows.
        share_CD: Share of the questions in each column.
    """

    name: str
    kind: str
    steps_C: Float[np.ndarray, " C"]
    bins_D: Float[np.ndarray, " D"]
    share_CD: Float[np.ndarray, "W B"]

    @property
    def mean_C(self) -> Float[np.ndarray, " W"]:
        """Mean difficulty of each column, from the middle of its bins."""
        return self.share_CD @ ((self.bins_D[1:] + self.bins_D[:-1]) / 2)


def difficulty_map(arm: Arm) -> DifficultyMap | None:
    """How the difficulty of the pool moves; none where only chosen questions were seen."""
    name, runs = arm
    tenths = np.linspace(0, 1, 11)
    rates = (np.arange(RATES + 1) - 0.5) / (RATES - 1)
    sources: list[tuple[str, np.ndarray, int, Callable[[dict[str, Any]], Any]]] = [
        ("estimated", tenths, ESTIMATED_COLUMNS, lambda line: line.get("pool")),
        ("reference", rates, OBSERVED_COLUMNS, lambda line: _counts(line, "reference", rates)),
    ]
    if not any(_predicts(run) for run in runs):
        sources.append(
            ("fresh", rates, OBSERVED_COLUMNS, lambda line: _counts(line, "fresh", rates))
        )
    for kind, bins_D, columns, count in sources:
        counts = _counts_by_step(runs, count)
        if counts:
            end = max(len(run.selections) for run in runs)
            steps_C, share_CD = _columns(counts, columns, end)
            return DifficultyMap(name, kind, steps_C, bins_D, share_CD)
    return None


def ages_of(runs: Sequence[Run]) -> Int[np.ndarray, " A"]:
    """Age of every replayed group, in rollout steps."""
    ages = [age for run in runs for line in run.selections for age in line["replayed"]["age"]]
    return np.array(ages, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Visits:
    """How often the questions of a pool were used: generated, probed or replayed.

    Attributes:
        name: Of the arm.
        count_V: Mean over runs of the questions that were visited at least 1, 2, ... times.
        pool: Questions of the pool, where it is known.
    """

    name: str
    count_V: Float[np.ndarray, " V"]
    pool: int | None


def visits_of(arm: Arm) -> Visits | None:
    """How often each question was visited; none where no step was recorded."""
    name, runs = arm
    counted = [count for run in runs if len(count := _visits(run))]
    if not counted:
        return None
    most = max(count_Q.max() for count_Q in counted)
    levels_V = np.arange(1, most + 1)
    count_V = np.mean([(count_Q[None, :] >= levels_V[:, None]).sum(1) for count_Q in counted], 0)
    sizes = {sum(line["pool"]) for run in runs for line in run.selections if line.get("pool")}
    return Visits(name, count_V, sizes.pop() if len(sizes) == 1 else None)


def seconds_by_part(runs: Sequence[Run]) -> dict[str, float]:
    """Mean seconds of a step in each part, and in none of them; empty where no step was timed."""
    summaries = [run.summary() for run in runs]
    timed = [summary for summary in summaries if summary["time/step_s"] is not None]
    if not timed:
        return {}
    parts = {
        part: float(np.mean([summary[f"time/{part}_s"] or 0.0 for summary in timed]))
        for part in PARTS
    }
    whole = float(np.mean([summary["time/step_s"] for summary in timed]))
    return {**parts, "other": max(0.0, whole - sum(parts.values()))}


def _smoothed(
    evaluated_E: np.ndarray, accuracy_SE: np.ndarray, bandwidth: float | None
) -> Float[np.ndarray, "S E"]:
    """Each row smoothed, by default with the distance of two evaluations."""
    if bandwidth is None:
        bandwidth = float(np.median(np.diff(evaluated_E))) if len(evaluated_E) > 1 else 0.0
    return np.array([smooth(evaluated_E, accuracy_E, bandwidth) for accuracy_E in accuracy_SE])


def _spent(run: Run, cost: str, step_E: np.ndarray) -> Float[np.ndarray, " E"]:
    column_S = {
        "seconds": lambda: run.seconds_S,
        "steps": lambda: run.step_S,
        "rollouts": lambda: run.column("rollouts/total"),
    }[cost]()
    return np.interp(step_E, np.r_[0.0, run.step_S], np.r_[0.0, column_S])


def _predicts(run: Run) -> bool:
    """Whether groups of this run were chosen by a prediction."""
    return any(value is not None for line in run.selections for value in line["fresh"]["predicted"])


def _counts(line: dict[str, Any], kind: str, bins_D: np.ndarray) -> np.ndarray | None:
    observed = [value for value in line[kind]["observed"] if value is not None]
    return np.histogram(observed, bins_D)[0] if observed else None


def _counts_by_step(
    runs: Sequence[Run], count: Callable[[dict[str, Any]], Any]
) -> dict[int, np.ndarray]:
    """Questions in each bin, by rollout step, all runs together."""
    counts: dict[int, np.ndarray] = {}
    for run in runs:
        for step, line in _by_rollout_step(run):
            counted = count(line)
            if counted is not None:
                counts[step] = counts.get(step, 0) + np.array(counted)
    return counts


def _by_rollout_step(run: Run) -> Iterable[tuple[int, dict[str, Any]]]:
    """The lines of selections with their rollout steps: one each, whatever the updates a step."""
    return enumerate(run.selections, start=1)


def _columns(
    counts: dict[int, np.ndarray], columns: int, end: int
) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, "W B"]]:
    """At most `columns` of them, each from its first step to where the next or the run ends."""
    steps = np.array(sorted(counts))
    parts = np.array_split(steps, min(columns, len(steps)))
    total_CD = np.array([sum(counts[step] for step in part) for part in parts], dtype=np.float64)
    edges_C = np.array([*(part[0] - 1 for part in parts), end], dtype=np.float64)
    return edges_C, total_CD / total_CD.sum(axis=1, keepdims=True)


def _visits(run: Run) -> Int[np.ndarray, " Q"]:
    """How often each question that the run saw was visited."""
    ids = Counter(
        question
        for line in run.selections
        for kind in ("fresh", "reference", "replayed")
        if not (kind == "reference" and line.get("references_in_batch"))  # they are fresh ones
        for question in line[kind]["id"]
    )
    return np.array(list(ids.values()), dtype=np.int64)

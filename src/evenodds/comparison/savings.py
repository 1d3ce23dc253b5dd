"""The paper's reading of a comparison: when does each arm reach plain GRPO's last score?

Curves are means over seeds, smoothed; costs are means over seeds. Intervals come from drawing the
seeds anew, the same ones for every arm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from evenodds.bootstrap import LEVEL, RESAMPLES, Interval, bootstrap_mean, columns
from evenodds.comparison.curves import first_reach, smooth
from evenodds.comparison.runs import PARTS, Run
from evenodds.errors import DataError

COSTS = ("steps", "seconds", "rollouts", "tokens")
GENERATION_SHARES = (0.47, 0.46, 0.54)  # of a step, in the paper's runs of 1.5B, 3B and 7B


@dataclass(frozen=True, eq=False)
class Courses:
    """The runs of one arm as arrays, a row a seed.

    Attributes:
        name: Of the arm.
        seeds: In the order of the rows.
        evaluated_E: Rollout steps after which accuracy was measured, 0 first.
        accuracy_SE: Accuracy on held-out questions.
        costs_SE: What each was reached at: steps, seconds of training, rollouts, tokens.
        groups_SE: Groups generated up to each evaluation, references included.
        trained_SE: Groups trained on up to each evaluation.
        runs: Where they come from.
    """

    name: str
    seeds: tuple[int, ...]
    evaluated_E: Float[np.ndarray, " E"]
    accuracy_SE: Float[np.ndarray, "S E"]
    costs_SE: dict[str, Float[np.ndarray, "S E"]]
    groups_SE: Float[np.ndarray, "S E"]
    trained_SE: Float[np.ndarray, "S E"]
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Saving:
    """Share of a cost that was saved, with a bootstrap interval over seeds.

    Attributes:
        mean: Of the curves of all seeds; -infinity where the score was not reached.
        low: Lower end; -infinity where more than a part of the drawn sets of seeds did not reach
            the score.
        high: Upper end.
        reached: Share of the drawn sets of seeds that reached the score.
    """

    mean: float
    low: float
    high: float
    reached: float

    def __str__(self) -> str:
        if not np.isfinite(self.mean):
            return "not reached"
        return f"{_percent(self.mean)} [{_percent(self.low)}, {_percent(self.high)}]"


@dataclass(frozen=True, eq=False)
class ArmResult:
    """What one arm did.

    Attributes:
        courses: Its runs.
        target: The score that plain GRPO has at its last step.
        curve_E: Mean accuracy over seeds, smoothed.
        costs: At which the curve first reaches the score; infinite where it does not.
        savings: Of each cost in `COSTS`, against all that plain GRPO spent.
        modelled: Saving of time that the same counts would mean at each generation share.
        step_saving: Share of plain GRPO's time per step that is saved.
        final: Accuracy at the last evaluation.
        means: Further means over the run: effective fraction, correlation, parts of a step.
    """

    courses: Courses
    target: float
    curve_E: Float[np.ndarray, " E"]
    costs: dict[str, float]
    savings: dict[str, Saving]
    modelled: dict[float, Saving]
    step_saving: Interval
    final: Interval
    means: dict[str, Interval]

    @property
    def name(self) -> str:
        """Of the arm."""
        return self.courses.name

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values; null where the score was not reached."""
        return {
            "arm": self.name,
            "seeds": list(self.courses.seeds),
            "target": self.target,
            **{f"{name}_to_target": _finite(value) for name, value in self.costs.items()},
            **{f"{name}_saving": _as_dict(value) for name, value in self.savings.items()},
            "modelled_time_saving": {
                f"{share}": _as_dict(value) for share, value in self.modelled.items()
            },
            **columns({"step_time_saving": self.step_saving, "final_accuracy": self.final}),
            **columns(self.means),
            "evaluated": self.courses.evaluated_E.tolist(),
            "accuracy": self.courses.accuracy_SE.tolist(),
            "smoothed": self.curve_E.tolist(),
        }


def courses_of(name: str, seeds: Sequence[int], runs: Sequence[Run]) -> Courses:
    """The runs of an arm, cut to the evaluations that all of them have.

    Raises:
        DataError: a run has no evaluations, or another number of steps.
    """
    grids = [run.accuracy for run in runs]
    count = min(len(steps_E) for steps_E, _ in grids)
    if count < 2:
        raise DataError(
            f"the runs of {name} have no evaluations to compare",
            got=f"{count} in {runs[int(np.argmin([len(g[0]) for g in grids]))].folder}",
            expected="at least 2: one at the start, one later",
            fix="set evaluation.every",
        )
    evaluated_E = grids[0][0][:count]
    for run, (steps_E, _) in zip(runs, grids, strict=True):
        if not np.array_equal(steps_E[:count], evaluated_E):
            raise DataError(
                "the runs of an arm were evaluated after different steps",
                got=f"{steps_E.tolist()} in {run.folder}",
                expected=f"{evaluated_E.tolist()}",
            )
    costs = {
        "steps": [run.step_S for run in runs],
        "seconds": [run.seconds_S for run in runs],
        "rollouts": [run.column("rollouts/total") for run in runs],
        "tokens": [run.column("tokens/generated_total") for run in runs],
    }

    def at_evaluations(columns_S: Sequence[np.ndarray]) -> Float[np.ndarray, "S E"]:
        return np.array(
            [
                np.interp(evaluated_E, np.r_[0.0, run.step_S], np.r_[0.0, column_S])
                for run, column_S in zip(runs, columns_S, strict=True)
            ]
        )

    return Courses(
        name=name,
        seeds=tuple(seeds),
        evaluated_E=evaluated_E,
        accuracy_SE=np.array([accuracy_E[:count] for _, accuracy_E in grids]),
        costs_SE={key: at_evaluations(value) for key, value in costs.items()},
        groups_SE=at_evaluations([np.cumsum(run.generated_S) for run in runs]),
        trained_SE=at_evaluations([np.cumsum(run.trained_S) for run in runs]),
        runs=tuple(runs),
    )


def compare_arms(
    arms: Sequence[Courses], baseline: str, *, bandwidth: float | None = None, seed: int = 0
) -> list[ArmResult]:
    """Read every arm against the baseline's last score.

    Args:
        arms: With the same seeds in the same order.
        baseline: Name of the arm of plain GRPO.
        bandwidth: Of the smoothing, in rollout steps; by default the distance of evaluations.
        seed: Of the bootstrap.

    Raises:
        DataError: the baseline is missing, or the arms have different seeds.
    """
    by_name = {courses.name: courses for courses in arms}
    if baseline not in by_name:
        raise DataError(
            "there is no plain GRPO to compare with",
            got=f"arms {', '.join(by_name)}",
            expected=f"an arm {baseline!r}",
        )
    plain = by_name[baseline]
    for courses in arms:
        if courses.seeds != plain.seeds:
            raise DataError(
                "the arms have different seeds",
                got=f"{courses.name}: {list(courses.seeds)}",
                expected=f"{list(plain.seeds)}, as {baseline}",
            )
    if bandwidth is None:
        bandwidth = float(np.median(np.diff(plain.evaluated_E)))
    count = len(plain.seeds)
    drawn_RS = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    return [_result(courses, plain, bandwidth, drawn_RS) for courses in arms]


def _result(
    courses: Courses, plain: Courses, bandwidth: float, drawn_RS: Int[np.ndarray, "R S"]
) -> ArmResult:
    everyone = np.arange(len(plain.seeds))
    target, costs, spent, modelled = _read(courses, plain, bandwidth, everyone)
    savings = {name: [] for name in COSTS}
    models = {share: [] for share in GENERATION_SHARES}
    for drawn_S in drawn_RS:
        _, costs_r, spent_r, modelled_r = _read(courses, plain, bandwidth, drawn_S)
        for name in COSTS:
            savings[name].append(1 - costs_r[name] / spent_r[name])
        for share in GENERATION_SHARES:
            models[share].append(modelled_r[share])
    per_step = courses.costs_SE["seconds"][:, -1] / courses.evaluated_E[-1]
    plain_step = plain.costs_SE["seconds"][:, -1] / plain.evaluated_E[-1]
    return ArmResult(
        courses=courses,
        target=target,
        curve_E=smooth(courses.evaluated_E, courses.accuracy_SE.mean(axis=0), bandwidth),
        costs=costs,
        savings={name: _saving(1 - costs[name] / spent[name], savings[name]) for name in COSTS},
        modelled={share: _saving(modelled[share], models[share]) for share in models},
        step_saving=bootstrap_mean(1 - per_step / plain_step),
        final=bootstrap_mean(courses.accuracy_SE[:, -1]),
        means=_means(courses.runs),
    )


def _read(
    courses: Courses, plain: Courses, bandwidth: float, drawn_S: Int[np.ndarray, " S"]
) -> tuple[float, dict[str, float], dict[str, float], dict[float, float]]:
    """For these seeds: the score, what this arm took to reach it, what plain GRPO spent in all.

    The last is the modelled saving, 1 - [g generated + (1 - g) trained] with the groups that this
    arm generated and trained on as shares of those of plain GRPO.
    """
    plain_E = smooth(plain.evaluated_E, plain.accuracy_SE[drawn_S].mean(axis=0), bandwidth)
    target = float(plain_E[-1])
    own_E = smooth(courses.evaluated_E, courses.accuracy_SE[drawn_S].mean(axis=0), bandwidth)
    step = first_reach(courses.evaluated_E, own_E, target)
    spent: dict[str, float] = {
        name: float(plain.costs_SE[name][drawn_S, -1].mean()) for name in COSTS
    }
    if not np.isfinite(step):
        unreached: dict[str, float] = dict.fromkeys(COSTS, float("inf"))
        return target, unreached, spent, dict.fromkeys(GENERATION_SHARES, float("-inf"))
    costs = {
        name: float(np.interp(step, courses.evaluated_E, values_SE[drawn_S].mean(axis=0)))
        for name, values_SE in courses.costs_SE.items()
    }
    generated, trained = (
        np.interp(step, courses.evaluated_E, own_SE[drawn_S].mean(axis=0))
        / plain_SE[drawn_S, -1].mean()
        for own_SE, plain_SE in (
            (courses.groups_SE, plain.groups_SE),
            (courses.trained_SE, plain.trained_SE),
        )
    )
    modelled = {
        share: float(1 - (share * generated + (1 - share) * trained)) for share in GENERATION_SHARES
    }
    return target, costs, spent, modelled


def _saving(mean: float, drawn: Sequence[float]) -> Saving:
    drawn_R = np.array(drawn)
    low, high = np.quantile(
        drawn_R, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf"
    )  # an order statistic: one that was not reached stays infinite
    return Saving(mean, float(low), float(high), float(np.isfinite(drawn_R).mean()))


def _means(runs: Sequence[Run]) -> dict[str, Interval]:
    """Over seeds, of each run's mean over its steps."""
    summaries: list[Mapping[str, Any]] = [run.summary() for run in runs]
    keys = (
        "select/effective_fraction",
        "select/pearson",
        "replay/ratio_mean",
        "rollouts/total",
        "tokens/generated_total",
        "time/train_s",
        "time/evaluate_s",
        "time/step_s",
        *(f"time/{part}_s" for part in PARTS),
    )
    return {
        key: bootstrap_mean(
            np.array([np.nan if s[key] is None else s[key] for s in summaries], dtype=np.float64)
        )
        for key in keys
    }


def _as_dict(saving: Saving) -> dict[str, float | None]:
    return {
        "mean": _finite(saving.mean),
        "low": _finite(saving.low),
        "high": _finite(saving.high),
        "reached": saving.reached,
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if np.isfinite(share) else "not reached"

"""The pictures of a page of runs: each with its caption, or why there is none."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from evenodds.comparison.savings import ArmResult
from evenodds.difficulty.scores import reliability
from evenodds.report import plots, run_data, run_plots
from evenodds.report.page import Page
from evenodds.report.run_data import Arm

Picture = tuple[Any, str] | str  # a figure with its caption, or why there is none
RATIOS = (  # metric, label, what it would be if the policy had not moved
    ("replay/ratio_mean", "mean importance ratio", 1.0),
    ("replay/ratio_std", "standard deviation of the ratio", None),
    ("replay/ess", "effective sample size (share)", 1.0),
)
NOTHING_PREDICTED = "no run has predicted a difficulty and then observed it"
BANDS = "The bands span the runs of an arm."


def add_pictures(
    page: Page,
    arms: Sequence[Arm],
    courses: Sequence[run_data.Course | None],
    results: Sequence[ArmResult] = (),
    baseline: str = "grpo",
) -> None:
    """Every picture that can be drawn; of each other one, why it cannot."""
    page.heading("Accuracy")
    drawn = [
        (f"accuracy-{name}", _accuracy(arms, courses, cost, results, baseline))
        for cost, name in run_plots.COST_NAMES.items()
    ]
    _show(page, drawn)
    sections: list[tuple[str, list[tuple[str, Callable[[Sequence[Arm]], Picture]]]]] = [
        ("Effective groups", [("effective-fraction", _effective)]),
        (
            "Predicted against observed difficulty",
            [("predicted-observed", _predicted), ("reliability", _reliability)],
        ),
        ("Difficulty of the pool", [("difficulty", _difficulty)]),
        ("Replay", [("replay-age", _ages), ("importance-ratio", _ratios)]),
        ("Time of a step", [("time-split", _time)]),
        ("Visits", [("visits", partial(_visits, same_pool=bool(results)))]),
    ]
    for heading, pictures in sections:
        page.heading(heading)
        _show(page, [(name, draw(arms)) for name, draw in pictures])


def _show(page: Page, pictures: Sequence[tuple[str, Picture]]) -> None:
    """Add these pictures; of each one that there is not, why, and that once."""
    for name, picture in pictures:
        if not isinstance(picture, str):
            page.picture(*picture, name)
    for reason in dict.fromkeys(picture for _, picture in pictures if isinstance(picture, str)):
        page.text(f"No picture: {reason}.")


def _accuracy(
    arms: Sequence[Arm],
    courses: Sequence[run_data.Course | None],
    cost: str,
    results: Sequence[ArmResult],
    baseline: str,
) -> Picture:
    known = [
        (place, course)
        for place, course in enumerate(courses)
        if course is not None and np.isfinite(course.costs_SE[cost]).all()
    ]
    name = run_plots.COST_NAMES[cost]
    if not known and any(courses):
        return f"no run recorded its {name} at every step"
    if not known:
        return "no run has an accuracy on held-out questions yet"
    several = any(len(course.accuracy_SE) > 1 for _, course in known)
    caption = (
        f"Accuracy against {name}. Lines: {'mean over runs, ' if several else ''}smoothed over "
        f"steps; points: each evaluation.{f' {BANDS}' if several else ''}"
    )
    caption += _reached(results, baseline)
    caption += _without(arms, [place for place, _ in known], "no evaluation to show")
    return run_plots.accuracy(known, cost, results, baseline), caption


def _reached(results: Sequence[ArmResult], baseline: str) -> str:
    """What the lines of a comparison mean, and which arms have not reached the score."""
    if not results:
        return ""
    text = (
        f" Dashed: what {baseline} has at its last step. Dotted: where an arm first reaches it, "
        f"and where {baseline} ends."
    )
    missed = [each.name for each in results if not np.isfinite(each.costs["steps"])]
    if len(missed) < len(results) - 1:
        text += " The arrow is what the best arm saves."
    return text + (f" Not reached: {', '.join(missed)}." if missed else "")


def _effective(arms: Sequence[Arm]) -> Picture:
    measured = _measured(arms, "select/effective_fraction")
    if not measured:
        return "no step was recorded yet"
    caption = (
        "Share of the generated groups with both right and wrong rollouts, which alone move the "
        f"policy; running mean over {run_data.WINDOW} steps."
    )
    if any(len(value_RS) > 1 for *_, value_RS in measured):
        caption += f" {BANDS}"
    caption += _without(arms, [place for place, *_ in measured], "not measured")
    return run_plots.effective_fraction(measured), caption


def _predicted(arms: Sequence[Arm]) -> Picture:
    known = _known_pairs(arms)
    if not known:
        return NOTHING_PREDICTED
    caption = (
        "Predicted against observed difficulty, all steps together; on the dotted line they agree. "
    )
    caption += _which_pairs(known)
    caption += _without(arms, [place for place, *_ in known], "predicts nothing")
    pairs = [(name, predicted_P, observed_P) for _, name, predicted_P, observed_P, _ in known]
    return run_plots.predicted_panels(pairs), caption


def _reliability(arms: Sequence[Arm]) -> Picture:
    known = _known_pairs(arms)
    if not known:
        return NOTHING_PREDICTED
    curves = [(name, reliability(p_P, o_P)) for _, name, p_P, o_P, _ in known]
    errors = ", ".join(f"{name} {curve.error:.3f}" for name, curve in curves)
    return plots.reliability_curves(curves, [place for place, *_ in known]), (
        "Reliability: mean observed difficulty in tenths of the predicted. On the diagonal, "
        f"predictions mean what they say; larger points hold more groups. {_which_pairs(known)} "
        f"Mean distance from the diagonal (calibration error): {errors}."
    )


def _known_pairs(
    arms: Sequence[Arm],
) -> list[tuple[int, str, np.ndarray, np.ndarray, str]]:
    """Place, name, predicted and observed difficulty, and of what, of each arm that predicts."""
    pairs = [(place, name, *run_data.pairs_of(runs)) for place, (name, runs) in enumerate(arms)]
    return [each for each in pairs if len(each[2])]


def _which_pairs(known: Sequence[tuple[int, str, np.ndarray, np.ndarray, str]]) -> str:
    chosen = [name for _, name, *_, kind in known if kind == "fresh"]
    text = (
        ""
        if len(chosen) == len(known)
        else (
            "Measured on the references, drawn from the whole pool, each predicted without its own "
            "label."
        )
    )
    if chosen:
        text += f" Of {', '.join(chosen)}: on generated groups, chosen by this prediction."
    return text.strip()


def _difficulty(arms: Sequence[Arm]) -> Picture:
    maps = [run_data.difficulty_map(arm) for arm in arms]
    drawn = [each for each in maps if each is not None]
    if not drawn:
        return (
            "only chosen questions were observed, which say nothing about the whole pool"
            if any(run.selections for _, runs in arms for run in runs)
            else "no choices were recorded"
        )
    sources = {
        "estimated": "estimated for the whole pool",
        "reference": "observed on references, drawn at random",
        "fresh": "observed on generated groups, drawn at random",
    }
    kinds = {kind: [each.name for each in drawn if each.kind == kind] for kind in sources}
    told = [
        sources[kind] if len(names) == len(drawn) else f"{sources[kind]} ({', '.join(names)})"
        for kind, names in kinds.items()
        if names
    ]
    caption = (
        "How the difficulty of the pool moves as the policy learns: each column is the "
        f"distribution at that time, the orange line its mean; {'; '.join(told)}."
    )
    places = [place for place, each in enumerate(maps) if each is not None]
    caption += _without(arms, places, "observes only chosen questions")
    return run_plots.difficulty_maps(drawn), caption


def _ages(arms: Sequence[Arm]) -> Picture:
    ages = [(place, name, run_data.ages_of(runs)) for place, (name, runs) in enumerate(arms)]
    known = [each for each in ages if len(each[2])]
    if not known:
        return "nothing was replayed"
    caption = "How old replayed groups were when they were used."
    caption += _without(arms, [place for place, *_ in known], "replays nothing")
    return run_plots.replay_ages(known), caption


def _ratios(arms: Sequence[Arm]) -> Picture:
    panels = [
        (label, ideal, measured)
        for key, label, ideal in RATIOS
        if (measured := _measured(arms, key))
    ]
    if not panels:
        return "no importance ratio was recorded"
    caption = (
        "Importance ratios of replayed tokens at the update: the policy's probability of a token "
        "over that of the policy that generated it; 1 where nothing has moved. Running "
        f"means over {run_data.WINDOW} steps."
    )
    if any(len(value_RS) > 1 for _, _, measured in panels for *_, value_RS in measured):
        caption += f" {BANDS}"
    return run_plots.over_steps(panels), caption


def _time(arms: Sequence[Arm]) -> Picture:
    split = [(name, run_data.seconds_by_part(runs)) for name, runs in arms]
    known = [(name, parts) for name, parts in split if parts]
    if not known:
        return "no step was timed yet"
    places = [place for place, (_, parts) in enumerate(split) if parts]
    return run_plots.time_split(known), (
        "Where the time of a step goes, mean over steps and runs. Evaluations and checkpoints "
        f"are not counted.{_without(arms, places, 'not timed')}"
    )


def _visits(arms: Sequence[Arm], *, same_pool: bool) -> Picture:
    counted = [run_data.visits_of(arm) for arm in arms]
    if same_pool:
        counted = _with_shared_pool(counted)
    known = [(place, each) for place, each in enumerate(counted) if each is not None]
    if not known:
        return "no choices were recorded"
    caption = (
        "How often questions were visited in a run: how many at least once, twice, and so on; "
        "flat and far to the right means that the same questions came again."
    )
    if not all(each.pool for _, each in known):
        caption += " Where the size of the pool is not recorded, those never visited are left out."
    caption += _without(arms, [place for place, _ in known], "recorded no choices")
    return run_plots.visits(known), caption


def _with_shared_pool(visits: Sequence[run_data.Visits | None]) -> list[run_data.Visits | None]:
    """Where all sizes that are known agree, it is that of the runs which did not record it."""
    sizes = {each.pool for each in visits if each is not None and each.pool is not None}
    if len(sizes) != 1:
        return list(visits)
    (size,) = sizes
    return [None if each is None else dataclasses.replace(each, pool=size) for each in visits]


def _measured(arms: Sequence[Arm], key: str) -> list[run_plots.Measured]:
    """Place, name, steps and values of each arm that has this metric."""
    values = [
        (place, name, *run_data.metric_of(runs, key)) for place, (name, runs) in enumerate(arms)
    ]
    return [each for each in values if len(each[2])]


def _without(arms: Sequence[Arm], places: Sequence[int], reason: str) -> str:
    """Which arms a picture leaves out, and why."""
    absent: dict[str, list[str]] = {}
    for place, (name, runs) in enumerate(arms):
        if place not in places:
            begun = any(run.steps for run in runs)
            absent.setdefault(reason if begun else "no step yet", []).append(name)
    told = [f"{', '.join(names)} ({why})" for why, names in absent.items()]
    return f" Left out: {'; '.join(told)}." if told else ""

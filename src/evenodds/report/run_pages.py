"""Pages of training runs: one run, several, or arms against plain GRPO."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenodds.comparison.runs import PARTS
from evenodds.comparison.savings import ArmResult, Saving
from evenodds.report import run_data, run_plots
from evenodds.report.page import Page, number
from evenodds.report.run_data import Arm
from evenodds.report.run_pictures import add_pictures

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def runs_page(arms: Sequence[Arm], title: str, note: str = "") -> Page:
    """What can be seen of any runs, also of those that have only begun.

    Args:
        arms: Names with their runs, one a seed.
        title: Of the page.
        note: A line under it.
    """
    page = Page(title, note)
    page.table(*run_rows(arms))
    add_pictures(page, arms, [run_data.course_of(arm) for arm in arms])
    return page


def comparison_page(
    results: Sequence[ArmResult],
    note: str = "",
    *,
    title: str = "Comparison with plain GRPO",
    baseline: str = "grpo",
    bandwidth: float | None = None,
) -> Page:
    """What each arm took to reach the last score of plain GRPO, and all pictures of the runs.

    Args:
        results: Of `compare_arms`.
        note: A line under the title.
        title: Of the page.
        baseline: Name of the arm of plain GRPO.
        bandwidth: As given to `compare_arms`.
    """
    page = Page(title, note)
    add_comparison(page, results, baseline)
    arms = [(result.name, result.courses.runs) for result in results]
    courses = [run_data.course_of_result(result, bandwidth) for result in results]
    add_pictures(page, arms, courses, results, baseline)
    return page


def add_comparison(page: Page, results: Sequence[ArmResult], baseline: str = "grpo") -> None:
    """The tables of a comparison, and how to read them."""
    seeds = len(results[0].courses.seeds)
    page.heading(f"What it took to reach {results[0].target:.3f}")
    page.text(
        f"The score is the accuracy of {baseline} on held-out questions at its last step: mean of "
        f"{_count(seeds, 'seed')}, smoothed over steps. Savings are shares of all that {baseline} "
        "spent; an arm whose smoothed curve stays below the score has not reached it. "
        + (
            "In brackets: 95 % bootstrap intervals over seeds."
            if seeds > 1
            else "With one seed the intervals are empty: they say nothing about chance."
        )
    )
    page.table(*target_rows(results))
    page.heading(f"What was saved of all that {baseline} spent")
    page.table(*saving_rows(results))
    page.heading("What a step yields, and what it takes")
    page.table(*yield_rows(results))
    page.table(*step_rows(results))
    page.heading("Modelled, not measured: where generation is dear")
    page.text(
        "The same counts of steps and generated groups, put into a cost model: a step takes "
        "g × generated groups / groups of a batch + (1 − g) of a plain one, g being the share of "
        "generation. The shares are those of a step of plain GRPO with policies of 1.5, 3 and 7 "
        "billion parameters."
    )
    page.table(*modelled_rows(results))


# Tables


def comparison_rows(results: Sequence[ArmResult]) -> Table:
    """A line an arm with all that matters, for a terminal; `comparison_note` explains it."""
    unit, name = _time_unit(results)
    columns = (
        "arm",
        "final",
        "steps",
        name,
        "rollouts",
        "tokens",
        "time saved",
        "steps saved",
        "effective",
        "r",
        "s/step",
        "modelled at g = " + " / ".join(f"{share:g}" for share in _shares(results)),
    )
    rows = [
        (
            result.name,
            number(result.final.mean),
            *_costs(result, unit),
            _short(result.savings["seconds"]),
            _short(result.savings["steps"]),
            number(result.means["select/effective_fraction"].mean, 2),
            number(result.means["select/pearson"].mean, 2),
            number(result.means["time/step_s"].mean, 2),
            _modelled(result),
        )
        for result in results
    ]
    return columns, rows


def comparison_note(results: Sequence[ArmResult], baseline: str = "grpo") -> str:
    """How to read `comparison_rows`."""
    return (
        f"steps to tokens: until an arm first has {results[0].target:.3f}, the smoothed accuracy "
        f"of {baseline} at its last step. saved: of all that {baseline} spent, with 95 % bootstrap "
        "intervals over seeds. modelled: time saved if generation were the share g of a step."
    )


def comparison_markdown(
    results: Sequence[ArmResult], note: str = "", *, baseline: str = "grpo"
) -> str:
    """`comparison_rows` as a table for a README, with how to read it and how it was timed."""
    columns, rows = comparison_rows(results)
    lines = [columns, ("---",) * len(columns), *rows]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f"{table}\n\n{comparison_note(results, baseline)}\n\n{note}\n"


def target_rows(results: Sequence[ArmResult]) -> Table:
    """Final accuracy, and what each arm took to reach the score."""
    unit, name = _time_unit(results)
    columns = (
        "arm",
        "final accuracy",
        "steps",
        name,
        "rollouts",
        "tokens",
    )
    rows = [(result.name, str(result.final), *_costs(result, unit)) for result in results]
    return columns, rows


def saving_rows(results: Sequence[ArmResult]) -> Table:
    """What each arm saved of all that plain GRPO spent, until it reached the score."""
    costs = ("seconds", "steps", "rollouts", "tokens")
    columns = ("arm", "time saved", "steps saved", "rollouts saved", "tokens saved")
    return columns, [
        (result.name, *(str(result.savings[cost]) for cost in costs)) for result in results
    ]


def yield_rows(results: Sequence[ArmResult]) -> Table:
    """How well each arm chooses: means over all steps and seeds."""
    columns = (
        "arm",
        "effective fraction of generated groups",
        "r of predicted with observed difficulty",
        "importance ratio of replayed tokens",
    )
    keys = ("select/effective_fraction", "select/pearson", "replay/ratio_mean")
    return columns, [(result.name, *(str(result.means[key]) for key in keys)) for result in results]


def step_rows(results: Sequence[ArmResult]) -> Table:
    """The time of a step and of its parts: means over all steps and seeds."""
    columns = (
        "arm",
        "seconds a step",
        *(f"{run_plots.PART_NAMES[part]} (s)" for part in PARTS),
        "saved of a step's time",
    )
    rows = [
        (
            result.name,
            number(result.means["time/step_s"].mean),
            *(number(result.means[f"time/{part}_s"].mean) for part in PARTS),
            _percents(result.step_saving),
        )
        for result in results
    ]
    return columns, rows


def modelled_rows(results: Sequence[ArmResult]) -> Table:
    """The saving of time that the same counts would mean where generation is dear."""
    shares = _shares(results)
    columns = ("arm", *(f"time saved at g = {share:g} (modelled)" for share in shares))
    rows = [(result.name, *(str(result.modelled[share]) for share in shares)) for result in results]
    return columns, rows


def run_rows(arms: Sequence[Arm]) -> Table:
    """A line an arm: how far its runs are, and means over them."""
    columns = (
        "run",
        "seeds",
        "steps",
        "accuracy: first",
        "last",
        "effective fraction",
        "r",
        "rollouts",
        "tokens",
        "seconds a step",
        "seconds of training",
        "of evaluating",
    )
    return columns, [_run_row(name, [run.summary() for run in runs]) for name, runs in arms]


def _run_row(name: str, summaries: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    def mean(key: str, digits: int = 3) -> str:
        known = [summary[key] for summary in summaries if summary[key] is not None]
        text = number(float(np.mean(known)) if known else None, digits)
        return f"{float(text):,.0f}" if known and digits == 0 else text

    steps = sorted({summary["steps"] for summary in summaries})
    return (
        name,
        f"{len(summaries)}",
        f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}",
        mean("eval/accuracy_first"),
        mean("eval/accuracy_last"),
        mean("select/effective_fraction"),
        mean("select/pearson"),
        mean("rollouts/total", 0),
        mean("tokens/generated_total", 0),
        mean("time/step_s"),
        mean("time/train_s", 1),
        mean("time/evaluate_s", 1),
    )


def _time_unit(results: Sequence[ArmResult]) -> tuple[float, str]:
    spent = max(float(each.courses.costs_SE["seconds"].max()) for each in results)
    return run_plots.time_unit(spent)


def _costs(result: ArmResult, unit: float) -> tuple[str, ...]:
    """Steps, time, rollouts and tokens at which the score is first reached."""
    if not np.isfinite(result.costs["steps"]):
        return ("not reached",) * 4
    costs = result.costs
    return (
        f"{costs['steps']:.1f}",
        f"{costs['seconds'] / unit:.1f}",
        f"{costs['rollouts']:,.0f}",
        f"{costs['tokens']:,.0f}",
    )


def _shares(results: Sequence[ArmResult]) -> tuple[float, ...]:
    return tuple(results[0].modelled)


def _modelled(result: ArmResult) -> str:
    means = [saving.mean for saving in result.modelled.values()]
    if not np.isfinite(means).all():
        return "not reached"
    return " / ".join(f"{100 * mean:.0f}" for mean in means) + " %"


def _short(saving: Saving) -> str:
    """Without the signs in the brackets, so that a line holds it."""
    if not np.isfinite(saving.mean):
        return "not reached"
    low, high = (
        f"{100 * end:.1f}" if np.isfinite(end) else "not reached"
        for end in (saving.low, saving.high)
    )
    return f"{100 * saving.mean:.1f} % [{low}, {high}]"


def _percents(interval: Any) -> str:
    if not np.isfinite(interval.mean):
        return "-"
    mean, low, high = (100 * end for end in (interval.mean, interval.low, interval.high))
    return f"{mean:.1f} % [{low:.1f} %, {high:.1f} %]"


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"

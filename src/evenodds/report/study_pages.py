"""Pages of `fit`, `predict`, `evaluate` and `simulate`."""

import numpy as np

from evenodds.bootstrap import Interval
from evenodds.report import plots
from evenodds.report.page import Page, number
from evenodds.study import Evaluation, Fitted, Prediction, Simulation
from evenodds.study.evaluation import METRICS as EVALUATION_METRICS
from evenodds.study.simulation import METRICS as SIMULATION_METRICS

DRAWN = 4  # reliability curves in one picture, so that each can be seen


def fit_page(fitted: Fitted, name: str) -> Page:
    """The learning curve of a predictor, and what was held out."""
    report = fitted.report
    page = Page(f"Predictor {name}", f"trained on labels of {len(fitted.policies)} policies")
    page.table(
        ("epoch kept", "training loss (nats)", "validation loss (nats)", "validation Pearson r"),
        [
            (
                f"{report.best_epoch + 1} of {len(report.loss)}",
                number(report.loss[report.best_epoch]),
                number(report.validation_loss[report.best_epoch]),
                number(report.validation_pearson[report.best_epoch]),
            )
        ],
    )
    page.picture(
        plots.learning_curve(report),
        "Learning curve. Validation labels are never trained on; the epoch with the lowest "
        "validation loss is kept.",
    )
    page.heading("Held out")
    page.text(
        f"By {fitted.split.kind}: {len(fitted.split.policies)} policies and "
        f"{len(fitted.split.questions)} questions."
    )
    return page


def prediction_page(prediction: Prediction, name: str) -> Page:
    """How difficult a pool is, and how sure that is."""
    page = Page(
        f"Difficulty of {name}",
        f"{len(prediction.ids)} questions from {prediction.num_references} references; predicted "
        f"against observed on the references, each without its own label: r = "
        f"{number(prediction.pearson)}",
    )
    page.picture(
        plots.histogram(prediction.difficulty_N, x_label="predicted difficulty (failure rate)"),
        "How difficult the questions are for the policy.",
    )
    page.picture(
        plots.histogram(
            prediction.deviation_N, x_label="standard deviation of the failure rate", high=0.5
        ),
        "How far the true failure rate may lie from its prediction.",
    )
    return page


def evaluation_rows(evaluation: Evaluation, *, intervals: bool = True) -> list[tuple[str, ...]]:
    """A line of the table a predictor."""
    return [
        (row.name, *(_cell(row.scores[metric], intervals) for metric in EVALUATION_METRICS))
        for row in evaluation.rows
    ]


def evaluation_page(evaluation: Evaluation, name: str) -> Page:
    """All predictors side by side."""
    config = evaluation.config
    held = {
        "policy": "policies that were not trained on",
        "question": "questions that were not trained on",
        "both": "policies and questions that were not trained on",
        "time": "later policies than those that were trained on",
    }[evaluation.split.kind]
    page = Page(
        f"Predictor {name}, judged on {held}",
        f"{len(evaluation.policies)} policies, {evaluation.num_questions:.0f} questions each, "
        f"{config.num_references} references, {config.draws} reference sets; 95 % bootstrap "
        "intervals over reference sets",
    )
    page.table(("predictor", *EVALUATION_METRICS.values()), evaluation_rows(evaluation), first=True)
    for metric, ceiling in (
        ("pearson", evaluation.noise_ceiling),
        ("effective_fraction", None),
        ("calibration_error", None),
    ):
        scores = [row.scores[metric] for row in evaluation.rows]
        page.picture(
            plots.bars_with_intervals(
                [row.name for row in evaluation.rows],
                [score.mean for score in scores],
                [score.low for score in scores],
                [score.high for score in scores],
                label=EVALUATION_METRICS[metric],
                ceiling=ceiling,
            ),
            _EXPLAINED[metric],
        )
    page.picture(
        plots.predicted_against_observed(evaluation.predicted, evaluation.observed),
        "Predicted against observed difficulty of the first reference set, all policies. Labels "
        "are noisy themselves: a group of 8 rollouts can only show nine values.",
    )
    page.picture(
        plots.reliability_curves([(row.name, row.reliability) for row in evaluation.rows[:DRAWN]]),
        "Reliability: where a curve lies on the diagonal, predictions mean what they say. Larger "
        "points hold more questions.",
    )
    page.heading("What the columns mean")
    for metric, text in _EXPLAINED.items():
        page.text(f"{EVALUATION_METRICS[metric]}: {text}")
    return page


def simulation_rows(simulation: Simulation, *, intervals: bool = True) -> list[tuple[str, ...]]:
    """A line of the table a strategy."""
    rows = []
    for course in simulation.courses:
        summary = course.summary()
        rows.append(
            (
                course.strategy,
                *(
                    f"{summary[metric].mean:.0f}"
                    if metric == "rollouts"
                    else _cell(summary[metric], intervals)
                    for metric in SIMULATION_METRICS
                ),
            )
        )
    return rows


def simulation_page(simulation: Simulation, name: str) -> Page:
    """All strategies side by side, and visit by visit."""
    config = simulation.config
    page = Page(
        f"Strategies on {name}",
        f"{simulation.visits} visits of {simulation.num_questions} questions, {config.budget} "
        f"observed a visit, {config.seeds} seeds; means over visits from 1 on, 95 % bootstrap "
        "intervals over seeds",
    )
    page.table(("strategy", *SIMULATION_METRICS.values()), simulation_rows(simulation))
    visits = np.arange(simulation.visits)
    for metric, label in (
        ("pearson", "Pearson r on the hidden quarter"),
        ("effective_fraction", "effective fraction of what was picked"),
        ("calibration_error", "calibration error on the hidden quarter"),
        ("standardised_error", "squared error over the stated one, on the hidden quarter"),
        ("visited", "share of the pool visited so far"),
    ):
        page.picture(
            plots.curves_with_bands(
                [(course.strategy, course.values[metric]) for course in simulation.courses],
                visits,
                x_label="visit (about one epoch of the recorded run)",
                y_label=label,
            ),
            f"{label[0].upper()}{label[1:]}, visit by visit; bands span the seeds.",
        )
    page.picture(
        plots.reliability_curves([(c.strategy, c.reliability) for c in simulation.courses]),
        "Reliability over all visits from 1 on. Larger points hold more questions.",
    )
    page.text(
        "At each visit a strategy sees only the labels of what it probes and picks there. Its "
        "estimate is scored on a random quarter of the pool that no strategy may pick at that "
        "visit, the same for all. Where the squared error over the stated one is near 1, stated "
        "uncertainty is true; above, an estimate is surer than it may be."
    )
    return page


def _cell(interval: Interval, with_ends: bool) -> str:
    return str(interval) if with_ends else number(interval.mean)


_EXPLAINED = {
    "pearson": "linear correlation of predicted with observed difficulty. The noise ceiling is "
    "what the true failure rates would reach against labels with this sampling noise.",
    "spearman": "correlation of the ranks.",
    "mean_absolute_error": "mean distance of the prediction from the label.",
    "calibration_error": "mean distance between predicted and observed difficulty in ten bins of "
    "the prediction.",
    "precision": "share of the questions chosen near the target difficulty whose observed "
    "difficulty lies within 0.25 of it.",
    "effective_fraction": "share of the chosen questions whose group of rollouts has both right "
    "and wrong ones, and so gives a gradient.",
    "standardised_error": "squared error over the one that the stated uncertainty and the labels' "
    "sampling noise account for; 1 where uncertainty is stated rightly, above it where "
    "predictions are surer than they may be. None where no uncertainty is stated.",
}

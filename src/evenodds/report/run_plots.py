"""Pictures of training runs. An arm has the same colour and line in all of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from evenodds.comparison.savings import ArmResult
from evenodds.difficulty.scores import pearson
from evenodds.report.plots import (
    COLOURS,
    draw_predicted_against_observed,
    legend_beside,
    new_figure,
)
from evenodds.report.run_data import Course, DifficultyMap, Visits, running_mean

# Place of an arm, its name, rollout steps, and a row of values a run.
Measured = tuple[int, str, Float[np.ndarray, " S"], Float[np.ndarray, "R S"]]
STYLES = ("-", "--", "-.", ":")
PART_NAMES = {
    "reference": "references",
    "generate": "generation",
    "select": "selection",
    "logprobs": "log-probs",
    "update": "update",
    "other": "other",
}
PART_COLOURS = ("#E69F00", "#0072B2", "#000000", "#CC79A7", "#56B4E9", "#C8C8C8")
MANY_AGES, MANY_ARMS = 12, 8  # above which curves are clearer than bars
DARK_PARTS = ("generate", "select")  # which carry white text
INK, PALE = "#222222", "#777777"
COST_NAMES = {"seconds": "time", "steps": "steps", "rollouts": "rollouts"}


def style_of(place: int) -> dict[str, Any]:
    """Colour and line of the arm at this place."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": STYLES[(place // len(COLOURS)) % len(STYLES)],
    }


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which that many seconds are read easily: its seconds, and its name."""
    if seconds < 600:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")


# Accuracy


def accuracy(
    courses: Sequence[tuple[int, Course]],
    cost: str,
    results: Sequence[ArmResult] = (),
    baseline: str = "grpo",
) -> Any:
    """Accuracy against what was spent: smoothed mean, range over runs, and what was measured.

    Args:
        courses: Of each arm, with the place that gives its colour.
        cost: `seconds`, `steps` or `rollouts`.
        results: Of a comparison: then the score to reach, where each arm reaches it, and what the
            best arm saves are drawn.
        baseline: The arm that the score is from.
    """
    figure, axes = new_figure((8.8, 4.8))
    largest = max(float(course.costs_SE[cost].max()) for _, course in courses)
    unit, label = _cost_axis(cost, largest)
    for place, course in courses:
        _draw_course(axes, course, course.costs_SE[cost] / unit, style_of(place))
    if results:
        _draw_target(axes, results, cost, unit, baseline)
    axes.set_xlabel(label)
    axes.set_ylabel("accuracy on held-out questions")
    axes.set_xlim(left=-0.015 * largest / unit)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if len(courses) > 1 or results:
        legend_beside(axes)
    return figure


def _cost_axis(cost: str, largest: float) -> tuple[float, str]:
    if cost == "seconds":
        unit, name = time_unit(largest)
        return unit, f"training time ({name}, without evaluations)"
    return 1.0, {
        "steps": "rollout steps",
        "rollouts": "rollouts generated (references included)",
    }[cost]


def _draw_course(axes: Any, course: Course, x_SE: np.ndarray, style: dict[str, Any]) -> None:
    x_E = x_SE.mean(axis=0)
    axes.scatter(x_SE, course.accuracy_SE, color=style["color"], s=18, alpha=0.55, linewidth=0)
    axes.plot(x_E, course.curve_SE.mean(axis=0), linewidth=2, label=course.name, **style)
    if len(course.curve_SE) > 1:
        low_E, high_E = course.curve_SE.min(axis=0), course.curve_SE.max(axis=0)
        axes.fill_between(x_E, low_E, high_E, color=style["color"], alpha=0.13, linewidth=0)


def _draw_target(
    axes: Any, results: Sequence[ArmResult], cost: str, unit: float, baseline: str
) -> None:
    """The score, a drop where each arm first reaches it, and an arrow over what is saved."""
    target = results[0].target
    low, high = axes.get_ylim()
    low -= 0.14 * (high - low)
    axes.set_ylim(low, high)
    score = f"{baseline} at its\nlast step: {target:.3f}"
    axes.axhline(target, color=INK, linestyle=(0, (5, 3)), linewidth=1.1, label=score)
    ends = {
        place: float(result.courses.costs_SE[cost][:, -1].mean())
        if result.name == baseline
        else result.costs[cost]
        for place, result in enumerate(results)
    }
    for place, end in ends.items():
        if np.isfinite(end):
            colour = style_of(place)["color"]
            axes.vlines(end / unit, low, target, color=colour, linestyle=":", linewidth=1.4)
            axes.plot(end / unit, target, "o", color=colour, markersize=6, markeredgecolor="white")
    _draw_saving(axes, results, ends, cost, unit, baseline)


def _draw_saving(
    axes: Any,
    results: Sequence[ArmResult],
    ends: dict[int, float],
    cost: str,
    unit: float,
    baseline: str,
) -> None:
    """An arrow from the end of the baseline to where the best arm reaches the score."""
    others = [place for place, result in enumerate(results) if result.name != baseline]
    reached = [place for place in others if np.isfinite(ends[place])]
    start = next(end for place, end in ends.items() if place not in others)
    low, high = axes.get_ylim()
    if not reached:
        if others:
            axes.text(
                0.01,
                0.03,
                "no other arm reaches this score",
                transform=axes.transAxes,
                fontsize=9,
                color=INK,
            )
        return
    best = min(reached, key=lambda place: ends[place])
    height = low + 0.05 * (high - low)
    axes.annotate(
        "",
        xy=(ends[best] / unit, height),
        xytext=(start / unit, height),
        arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0},
    )
    change = f"{-100 * results[best].savings[cost].mean:+.0f} %".replace("-", "\u2212")
    axes.text(
        (ends[best] + start) / 2 / unit,
        height + 0.015 * (high - low),
        f"{change} {COST_NAMES[cost]}",
        ha="center",
        va="bottom",
        fontsize=11,
        fontweight="bold",
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )


# Metrics over steps


def effective_fraction(
    measured: Sequence[Measured],
) -> Any:
    """Share of effective groups: running means over steps, their mean and range over runs.

    Args:
        measured: The arms.
    """
    figure, axes = new_figure((8.8, 4.2))
    for place, name, step_S, value_RS in measured:
        smooth_RS = np.array([running_mean(value_S) for value_S in value_RS])
        if len(measured) == 1 and len(value_RS) == 1:
            axes.plot(step_S, value_RS[0], ".", color=COLOURS[0], alpha=0.35, markersize=5)
        _curve_with_band(axes, step_S, smooth_RS, name, style_of(place))
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("rollout step")
    axes.set_ylabel("share of generated groups\nthat are effective")
    _whole_steps(axes)
    if len(measured) > 1:
        legend_beside(axes)
    return figure


def over_steps(panels: Sequence[tuple[str, float | None, Sequence[Measured]]]) -> Any:
    """Running means of metrics over steps, a panel each: their mean and range over runs.

    Args:
        panels: Of each its label, where a dotted line shows what would be ideal, and the arms.
    """
    size = (8.8 if len(panels) == 1 else 1.2 + 4.1 * len(panels), 3.9)
    figure, axes = new_figure(size, columns=len(panels))
    every = list(np.atleast_1d(axes))
    for each, (label, ideal, measured) in zip(every, panels, strict=True):
        if ideal is not None:
            each.axhline(ideal, color=PALE, linestyle=":", linewidth=1.2)
        for place, name, step_S, value_RS in measured:
            smooth_RS = np.array([running_mean(value_S) for value_S in value_RS])
            _curve_with_band(each, step_S, smooth_RS, name, style_of(place))
        each.set_xlabel("rollout step")
        each.set_ylabel(label)
        _whole_steps(each)
    if any(len(measured) > 1 for *_, measured in panels):
        legend_beside(every[-1], every[0])
    return figure


def _curve_with_band(
    axes: Any, x_S: np.ndarray, value_RS: np.ndarray, name: str, style: dict[str, Any]
) -> None:
    """Mean of runs, and their range where there are several."""
    axes.plot(x_S, _mean(value_RS), linewidth=1.8, label=name, **style)
    if len(value_RS) > 1:
        known = np.isfinite(value_RS)
        low_S = np.where(known, value_RS, np.inf).min(axis=0)
        high_S = np.where(known, value_RS, -np.inf).max(axis=0)
        some = known.any(axis=0)
        axes.fill_between(
            x_S[some], low_S[some], high_S[some], color=style["color"], alpha=0.15, linewidth=0
        )


# Difficulty


def predicted_panels(
    pairs: Sequence[tuple[str, Float[np.ndarray, " P"], Float[np.ndarray, " P"]]],
) -> Any:
    """Predicted against observed difficulty, a panel an arm; darker where there is more."""
    figure, panels = _panels(len(pairs), (3.9, 3.4) if len(pairs) > 1 else (6.0, 4.6))
    for axes, (name, predicted_P, observed_P) in zip(panels, pairs, strict=True):
        cells = draw_predicted_against_observed(axes, predicted_P, observed_P)
        correlation = pearson(predicted_P, observed_P)
        axes.set_title(f"{name}: r = {correlation:.2f}, {len(predicted_P):,} groups", fontsize=10)
        bar = figure.colorbar(cells, ax=axes, label="groups (log scale)")
        _plain_numbers(bar.ax.yaxis)
    return figure


def difficulty_maps(maps: Sequence[DifficultyMap]) -> Any:
    """How the difficulty of the pool moves: a column of shares a time, and its mean."""
    figure, panels = _panels(len(maps), (3.9, 3.1) if len(maps) > 1 else (8.0, 4.0))
    largest = max(float(each.share_CD.max()) for each in maps)
    cells = None
    for axes, each in zip(panels, maps, strict=True):
        axes.grid(visible=False)
        cells = axes.pcolormesh(
            each.steps_C, each.bins_D, each.share_CD.T, cmap="Blues", vmin=0, vmax=largest
        )
        _draw_mean(axes, each)
        axes.set_ylim(each.bins_D[0], each.bins_D[-1])
        axes.set_xlabel("rollout step")
        axes.set_ylabel("difficulty (failure rate)")
        axes.set_title(each.name, fontsize=10)
    figure.colorbar(cells, ax=list(panels), label="share of the questions")
    return figure


def _draw_mean(axes: Any, each: DifficultyMap) -> None:
    from matplotlib import patheffects

    (line,) = axes.plot(
        (each.steps_C[1:] + each.steps_C[:-1]) / 2,
        each.mean_C,
        color=COLOURS[1],
        linewidth=2,
        marker="o" if len(each.mean_C) == 1 else None,
    )
    line.set_path_effects([patheffects.withStroke(linewidth=4, foreground="white")])


# Replay, time and visits


def replay_ages(ages: Sequence[tuple[int, str, Int[np.ndarray, " A"]]]) -> Any:
    """How old replayed groups were: share of them at each age."""
    figure, axes = new_figure((8.8, 3.8))
    most = max(int(age_A.max()) for _, _, age_A in ages)
    levels = np.arange(1, most + 1)
    width = 0.8 / len(ages)
    for number, (place, name, age_A) in enumerate(ages):
        share = np.bincount(age_A, minlength=most + 1)[1:] / len(age_A)
        label = f"{name}: median {np.median(age_A):g}, oldest {age_A.max()}"
        if most > MANY_AGES or len(ages) > MANY_ARMS:
            axes.plot(levels, share, marker=".", linewidth=1.6, label=label, **style_of(place))
            continue
        offset = (number - (len(ages) - 1) / 2) * width
        axes.bar(levels + offset, share, width=width, color=style_of(place)["color"], label=label)
    axes.set_xlabel("age of a replayed group (rollout steps since it was generated)")
    axes.set_ylabel("share of replayed groups")
    _whole_steps(axes)
    axes.grid(axis="x", visible=False)
    legend_beside(axes)
    return figure


def time_split(arms: Sequence[tuple[str, dict[str, float]]]) -> Any:
    """Seconds of a step in each of its parts, a bar an arm, the first at the top."""
    figure, axes = new_figure((8.8, 1.9 + 0.45 * len(arms)))
    places = np.arange(len(arms))[::-1]
    left = np.zeros(len(arms))
    largest = max(sum(parts.values()) for _, parts in arms)
    for colour, (part, name) in zip(PART_COLOURS, PART_NAMES.items(), strict=True):
        seconds = np.array([parts[part] for _, parts in arms])
        if not seconds.any() or (part == "other" and (seconds < 0.01 * largest).all()):
            continue
        axes.barh(places, seconds, left=left, height=0.62, color=colour, label=name)
        ink = "white" if part in DARK_PARTS else "black"
        for place, start, length in zip(places, left, seconds, strict=True):
            if length > 0.06 * largest:
                _inside(axes, start + length / 2, place, f"{length:.2f}", ink)
        left = left + seconds
    for place, total in zip(places, left, strict=True):
        axes.text(total, place, f"  {total:.2f} s", va="center", fontsize=9)
    axes.set_yticks(places, [name for name, _ in arms])
    axes.set_ylim(-0.6, len(arms) - 0.4)
    axes.set_xlim(0, 1.12 * largest)
    axes.set_xlabel("seconds a step (mean)")
    axes.grid(axis="y", visible=False)
    figure.legend(
        *axes.get_legend_handles_labels(),
        frameon=False,
        fontsize=9,
        ncols=6,
        loc="outside upper center",
    )
    return figure


def _inside(axes: Any, x: float, y: float, text: str, ink: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=9, color=ink)


def visits(counted: Sequence[tuple[int, Visits]]) -> Any:
    """How many questions were visited at least once, twice, ...; of the pool, where it is known."""
    figure, axes = new_figure((8.8, 4.2))
    shares = all(each.pool for _, each in counted)
    for place, each in counted:
        count_V = each.count_V / each.pool if shares and each.pool else each.count_V
        levels = np.arange(1, len(count_V) + 1)
        axes.plot(
            levels, count_V, linewidth=1.8, marker=".", label=_visits_name(each), **style_of(place)
        )
    axes.set_yscale("log")
    axes.set_xlabel("visits (generated, probed as a reference, or replayed)")
    axes.set_ylabel(f"{'share of the pool' if shares else 'questions'}\nvisited at least so often")
    _plain_numbers(axes.yaxis, 100 if shares else 1, " %" if shares else "")
    _whole_steps(axes)
    legend_beside(axes)
    return figure


def _visits_name(each: Visits) -> str:
    if each.pool is None:
        return f"{each.name}: {each.count_V[0]:,.0f} questions"
    return f"{each.name}: {100 * (1 - each.count_V[0] / each.pool):.0f} % never visited"


def _panels(count: int, size: tuple[float, float]) -> tuple[Any, list[Any]]:
    """As many axes as needed, at most three in a row; the others are taken away."""
    columns = min(3, count)
    rows = -(-count // columns)
    figure, axes = new_figure((size[0] * columns, size[1] * rows), columns=columns, rows=rows)
    every = list(np.atleast_1d(axes).flat)
    for axis in every[count:]:
        axis.remove()
    return figure, every[:count]


def _mean(value_RS: np.ndarray) -> np.ndarray:
    """Mean of the known values of each step; NaN where there is none."""
    known = np.isfinite(value_RS)
    count_S = known.sum(axis=0)
    total_S = np.where(known, value_RS, 0.0).sum(axis=0)
    return np.where(count_S > 0, total_S / np.maximum(count_S, 1), np.nan)


def _plain_numbers(axis: Any, scale: float = 1, unit: str = "") -> None:
    """Numbers of a logarithmic axis without powers; between those of ten only if there is room."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{scale * x:,.4g}{unit}" if super().__call__(x, pos) else ""

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain())


def _whole_steps(axes: Any) -> None:
    axes.xaxis.get_major_locator().set_params(integer=True)

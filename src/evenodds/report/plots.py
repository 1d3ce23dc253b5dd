"""Plots in one style: labelled axes, colours that colour-blind readers can tell apart.

Figures are made without a display and without pyplot's global state.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from evenodds.errors import ConfigError

# Okabe and Ito's palette, without its yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
WIDE = (8.0, 4.2)
RATES = 9  # failure rates that a group of 8 can show
LINE = 0.2  # inches that a line of a legend takes


def check_matplotlib() -> None:
    """Refuse to begin where plots cannot be drawn.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "the page needs matplotlib", fix='pip install "evenodds[predictor]"'
        ) from error


def new_figure(
    size: tuple[float, float] = WIDE, columns: int = 1, rows: int = 1
) -> tuple[Any, Any]:
    """A figure, and its axes (an array of them where there are several)."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns)
    for each in np.atleast_1d(axes).flat:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25, linewidth=0.6)
        each.set_axisbelow(True)
    return figure, axes


def legend_beside(axes: Any, source: Any = None) -> None:
    """Names beside the axes, where they hide nothing; the figure grows until all have room.

    Args:
        axes: To the right of which they stand.
        source: The axes whose names they are; by default the same.
    """
    handles, names = (source or axes).get_legend_handles_labels()
    figure = axes.figure
    lines = sum(1 + name.count("\n") for name in names)
    figure.set_figheight(max(figure.get_figheight(), 0.4 + LINE * lines))
    axes.legend(
        handles, names, frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0)
    )


def bars_with_intervals(
    names: Sequence[str],
    means: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    *,
    label: str,
    ceiling: float | None = None,
    ceiling_name: str = "noise ceiling",
) -> Any:
    """Horizontal bars with intervals, the first at the top; rows without a number are named."""
    figure, axes = new_figure((8.0, 1.2 + 0.42 * len(names)))
    places = np.arange(len(names))[::-1]
    for place, mean, low, high in zip(places, means, lows, highs, strict=True):
        if not np.isfinite(mean):
            axes.text(0.0, place, " not defined", va="center", color="#555", fontsize=9)
            continue
        first = place == len(names) - 1
        axes.barh(place, mean, color=COLOURS[0] if first else COLOURS[4], height=0.62)
        axes.errorbar(
            mean, place, xerr=[[mean - low], [high - mean]], color="#222", capsize=3, linewidth=1.2
        )
        inside = mean > 0.5 * np.nanmax(means)
        axes.text(
            0.0 if inside else max(high, 0.0),
            place,
            f"  {mean:.3f}",
            va="center",
            fontsize=9,
            color="white" if inside and first else "black",
        )
    axes.set_yticks(places, names)
    axes.set_xlabel(label)
    axes.margins(x=0.12)
    axes.set_ylim(-0.6, len(names) - 0.1)
    if ceiling is not None and np.isfinite(ceiling):
        axes.axvline(ceiling, color=COLOURS[1], linestyle="--", linewidth=1.4)
        axes.text(
            ceiling, len(names) - 0.45, f"{ceiling_name} ", color=COLOURS[1], ha="right", fontsize=9
        )
    axes.grid(axis="y", visible=False)
    return figure


def reliability_curves(
    curves: Sequence[tuple[str, Any]], places: Sequence[int] | None = None
) -> Any:
    """Mean observed against mean predicted difficulty; points as large as they have questions.

    Args:
        curves: Names and curves.
        places: In the palette, where the colours are shared with other pictures.
    """
    figure, axes = new_figure((8.2, 4.8))
    axes.plot([0, 1], [0, 1], color="#999", linewidth=1, linestyle=":")
    for place, (name, curve) in zip(places or range(len(curves)), curves, strict=True):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(curve.predicted_R, curve.observed_R, color=colour, linewidth=1.5, label=name)
        share = curve.count_R / max(1, curve.count_R.sum())
        axes.scatter(curve.predicted_R, curve.observed_R, color=colour, s=12 + 260 * share)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_xlabel("predicted difficulty (failure rate)")
    axes.set_ylabel("observed difficulty (failure rate)")
    legend_beside(axes)
    return figure


def predicted_against_observed(
    predicted_N: Float[np.ndarray, " N"], observed_N: Float[np.ndarray, " N"]
) -> Any:
    """How many questions lie where, darker where there are more."""
    figure, axes = new_figure((6.4, 4.8))
    cells = draw_predicted_against_observed(axes, predicted_N, observed_N)
    figure.colorbar(cells, ax=axes, label="questions (log scale)")
    return figure


def draw_predicted_against_observed(
    axes: Any, predicted_N: Float[np.ndarray, " N"], observed_N: Float[np.ndarray, " N"]
) -> Any:
    """The cells of such a picture, drawn into given axes; returned for a colour bar."""
    edges_y = (np.arange(RATES + 1) - 0.5) / (RATES - 1)
    counts, edges_x, _ = np.histogram2d(
        predicted_N, observed_N, bins=(np.linspace(0, 1, 26), edges_y)
    )
    cells = axes.pcolormesh(
        edges_x, edges_y, np.where(counts, counts, np.nan).T, norm="log", cmap="viridis_r"
    )
    axes.plot([0, 1], [0, 1], color="#222", linewidth=1.2, linestyle=":")
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.07, 1.07))
    axes.set_xlabel("predicted difficulty (failure rate)")
    axes.set_ylabel("observed difficulty (failure rate)")
    return cells


def curves_with_bands(
    curves: Sequence[tuple[str, Float[np.ndarray, "S X"]]],
    x: Float[np.ndarray, " X"],
    *,
    x_label: str,
    y_label: str,
) -> Any:
    """Mean over seeds with the range of the seeds as a band."""
    figure, axes = new_figure((8.6, 4.4))
    styles = ("-", "--", "-.", ":")
    for place, (name, values_SX) in enumerate(curves):
        colour = COLOURS[place % len(COLOURS)]
        style = styles[(place // len(COLOURS)) % len(styles)]
        axes.plot(x, values_SX.mean(axis=0), color=colour, linestyle=style, label=name)
        axes.fill_between(
            x, values_SX.min(axis=0), values_SX.max(axis=0), color=colour, alpha=0.15, linewidth=0
        )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    legend_beside(axes)
    return figure


def learning_curve(report: Any) -> Any:
    """Loss and validation correlation of a fit, epoch by epoch."""
    figure, (left, right) = new_figure((9.0, 3.8), columns=2)
    epochs = np.arange(1, len(report.loss) + 1)
    left.plot(epochs, report.loss, color=COLOURS[0], label="training")
    if report.validation_loss:
        left.plot(epochs, report.validation_loss, color=COLOURS[1], label="validation")
        right.plot(epochs, report.validation_pearson, color=COLOURS[1])
        for axes in (left, right):
            axes.axvline(report.best_epoch + 1, color="#999", linestyle=":", linewidth=1.2)
    left.set_xlabel("epoch")
    left.set_ylabel("cross-entropy (nats)")
    left.legend(frameon=False, fontsize=9)
    right.set_xlabel("epoch (dotted: kept)")
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    right.set_ylabel("validation Pearson r")
    return figure


def histogram(values_N: Float[np.ndarray, " N"], *, x_label: str, high: float = 1.0) -> Any:
    """How many questions have which value in [0, high]."""
    figure, axes = new_figure((7.0, 3.6))
    axes.hist(values_N, bins=25, range=(0, high), color=COLOURS[0])
    axes.set_xlabel(x_label)
    axes.set_ylabel("questions")
    return figure

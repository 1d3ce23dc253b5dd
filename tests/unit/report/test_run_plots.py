"""What the pictures of runs draw."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from evenodds.comparison.runs import read_run
from evenodds.comparison.savings import compare_arms, courses_of
from evenodds.report import run_data, run_plots

from run_folders import write_run

pytestmark = pytest.mark.usefixtures("quick_pages")
PLAIN = (0.1, 0.2, 0.3, 0.4, 0.5)
FAST = (0.1, 0.3, 0.5, 0.7, 0.9)  # at 0.5 after half of the steps
FAIR = (0.1, 0.25, 0.4, 0.55, 0.7)  # after two thirds
SLOW = (0.1, 0.15, 0.2, 0.25, 0.3)


def compared(folder, **arms):
    courses = []
    for name, accuracies in arms.items():
        runs = [
            read_run(write_run(folder / name / f"seed-{seed}", accuracies, seconds=10.0))
            for seed in range(2)
        ]
        courses.append(courses_of(name, range(2), runs))
    return compare_arms(courses, "grpo")


def draw_accuracy(results, cost):
    courses = list(enumerate(map(run_data.course_of_result, results)))
    return run_plots.accuracy(courses, cost, results).axes[0]


def labelled(figure):
    """Axes of data have names on both sides; those of colour bars on one."""
    return all(
        axes.get_ylabel() and (axes.get_xlabel() or axes.get_label() == "<colorbar>")
        for axes in figure.axes
    )


def texts(axes):
    return [text.get_text() for text in axes.texts]


def line(axes, name):
    (found,) = [line for line in axes.lines if line.get_label() == name]
    return found


def test_accuracy_shows_the_score_the_drops_and_the_saving(tmp_path):
    results = compared(tmp_path, grpo=PLAIN, fair=FAIR, fast=FAST, slow=SLOW)
    axes = draw_accuracy(results, "steps")
    (score,) = [line for line in axes.lines if list(line.get_xdata()) == [0, 1]]
    assert list(score.get_ydata()) == pytest.approx([0.5, 0.5])
    reached = {line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"}
    assert sorted(reached) == pytest.approx([4.0, 16 / 3, 8.0])  # fast, fair, the end of grpo
    assert "−50 % steps" in texts(axes)
    assert score.get_label() == "grpo at its\nlast step: 0.500"
    assert labelled(axes.figure)


def test_accuracy_in_time_and_rollouts(tmp_path):
    results = compared(tmp_path, grpo=PLAIN, fast=FAST)
    seconds = draw_accuracy(results, "seconds")
    assert list(line(seconds, "fast").get_xdata()) == pytest.approx([0, 20, 40, 60, 80])
    assert list(line(seconds, "fast").get_ydata()) == pytest.approx(FAST)
    assert "seconds" in seconds.get_xlabel()
    assert "−50 % time" in texts(seconds)
    rollouts = draw_accuracy(results, "rollouts")
    assert list(line(rollouts, "grpo").get_xdata()) == pytest.approx([0, 64, 128, 192, 256])


def test_accuracy_says_that_nobody_reaches_the_score(tmp_path):
    axes = draw_accuracy(compared(tmp_path, grpo=PLAIN, slow=SLOW), "steps")
    assert "no other arm reaches this score" in texts(axes)
    assert not any("%" in text for text in texts(axes))


def test_a_later_arm_costs_more(tmp_path):
    results = compared(tmp_path, grpo=PLAIN, fast=FAST)
    late = [results[0], results[1]]
    late[1].costs["steps"] = 10.0
    object.__setattr__(late[1].savings["steps"], "mean", -0.25)
    assert "+25 % steps" in texts(draw_accuracy(late, "steps"))


def test_bands_span_the_runs(tmp_path):
    runs = [read_run(write_run(tmp_path / name, a)) for name, a in (("a", PLAIN), ("b", FAST))]
    course = run_data.course_of(("arm", runs))
    axes = run_plots.accuracy([(0, course)], "steps").axes[0]
    assert list(line(axes, "arm").get_ydata()) == pytest.approx(np.add(PLAIN, FAST) / 2)
    (band,) = [each for each in axes.collections if isinstance(each, PolyCollection)]
    last = [y for x, y in band.get_paths()[0].vertices if x == pytest.approx(8)]
    assert (min(last), max(last)) == pytest.approx((0.5, 0.9))


@pytest.mark.parametrize(
    ("seconds", "unit"), [(599, "seconds"), (600, "minutes"), (3 * 3600, "hours")]
)
def test_time_has_a_unit_that_reads_well(seconds, unit):
    assert run_plots.time_unit(seconds)[1] == unit


def test_effective_fraction(tmp_path):
    step_S, value_RS = np.arange(1.0, 4), np.array([[0.2, 0.4, 0.6], [0.4, 0.6, 0.8]])
    figure = run_plots.effective_fraction([(1, "arm", step_S, value_RS)])
    drawn = line(figure.axes[0], "arm")
    assert list(drawn.get_ydata()) == pytest.approx([0.5, 0.5, 0.5])
    assert drawn.get_color() == run_plots.COLOURS[1]
    assert labelled(figure)


def test_metrics_share_a_legend_and_leave_out_what_was_not_measured():
    step_S = np.arange(1.0, 4)
    measured = [
        (0, "one", step_S, np.array([[np.nan, 1.0, 1.2], [np.nan, 1.2, 1.2]])),
        (2, "two", step_S, np.array([[1.0, 1.0, 1.0]])),
    ]
    figure = run_plots.over_steps([("ratio", 1.0, measured), ("ess", None, measured[:1])])
    assert list(line(figure.axes[0], "one").get_ydata()) == pytest.approx([1.15] * 3)
    assert list(line(figure.axes[0], "two").get_ydata()) == pytest.approx([1.0] * 3)
    named = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert named == ["one", "two"]
    assert labelled(figure)


def test_difficulty_maps(tmp_path):
    arms = [("arm", [read_run(write_run(tmp_path / "run", pool=50))])]
    figure = run_plots.difficulty_maps([run_data.difficulty_map(arms[0])] * 4)
    axes = figure.axes[0]
    assert axes.collections[0].get_array().shape == (10, 2)
    assert list(axes.lines[0].get_ydata()) == pytest.approx([0.15, 0.35])
    assert list(axes.lines[0].get_xdata()) == [1, 3]
    assert labelled(figure)
    assert len(figure.axes) == 4 + 1


def test_predicted_panels_name_the_correlation():
    side = np.array([0.0, 0.5, 1.0])
    figure = run_plots.predicted_panels([("arm", side, side), ("other", side, 1 - side)])
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["arm: r = 1.00, 3 groups", "other: r = -1.00, 3 groups"]
    assert figure.axes[0].collections[0].get_array().sum() == 3
    assert labelled(figure)


def test_ages_are_shares():
    figure = run_plots.replay_ages([(0, "arm", np.array([1, 1, 1, 3]))])
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == [0.75, 0.0, 0.25]
    (named,) = figure.axes[0].get_legend().get_texts()
    assert named.get_text() == "arm: median 1, oldest 3"
    assert labelled(figure)


def test_many_ages_are_curves():
    axes = run_plots.replay_ages([(3, "arm", np.array([1, 20]))]).axes[0]
    assert not axes.patches
    assert list(axes.lines[0].get_xdata()) == list(range(1, 21))
    assert list(axes.lines[0].get_ydata()) == [0.5, *[0.0] * 18, 0.5]


def test_time_split_stacks_what_takes_time():
    parts = dict.fromkeys(run_plots.PART_NAMES, 0.0) | {"generate": 3.0, "update": 1.0}
    figure = run_plots.time_split([("arm", parts), ("other", parts | {"reference": 2.0})])
    axes = figure.axes[0]
    assert axes.get_legend_handles_labels()[1] == ["references", "generation", "update"]
    assert [bar.get_width() for bar in axes.patches] == [0.0, 2.0, 3.0, 3.0, 1.0, 1.0]
    assert [bar.get_x() for bar in axes.patches] == [0.0, 0.0, 0.0, 2.0, 3.0, 5.0]
    assert "  6.00 s" in texts(axes)
    assert axes.get_xlabel() == "seconds a step (mean)"


def test_visits_are_shares_where_the_pool_is_known():
    visits = run_data.Visits("arm", np.array([10.0, 4.0]), 40)
    figure = run_plots.visits([(0, visits)])
    assert list(figure.axes[0].lines[0].get_ydata()) == [0.25, 0.1]
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "arm: 75 % never visited"
    assert "share of the pool" in figure.axes[0].get_ylabel()
    ticks = figure.axes[0].yaxis.get_major_formatter()
    assert [ticks(0.1), ticks(0.001)] == ["10 %", "0.1 %"]
    unknown = run_plots.visits([(0, visits), (1, run_data.Visits("b", np.array([5.0]), None))])
    assert list(unknown.axes[0].lines[0].get_ydata()) == [10.0, 4.0]
    assert unknown.axes[0].get_ylabel().startswith("questions")


def test_the_names_of_many_arms_have_room():
    few, many = (
        [(place, f"arm {place}", np.arange(1, 4), np.full((2, 3), 0.5)) for place in range(count)]
        for count in (3, 40)
    )
    for measured in (few, many):
        figure = run_plots.effective_fraction(measured)
        figure.canvas.draw()
        axes = figure.axes[0]
        legend, page = axes.get_legend().get_window_extent(), figure.bbox
        assert page.y0 <= legend.y0
        assert max(legend.y1 - page.y1, legend.x1 - page.x1) <= 0
        assert axes.get_window_extent().height > 0.5 * page.height

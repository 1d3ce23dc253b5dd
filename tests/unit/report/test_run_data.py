"""The numbers that pictures of runs show, worked out by hand."""

import numpy as np
import pytest

from evenodds.comparison.runs import read_run
from evenodds.report import run_data

from run_folders import write_lines, write_run


def arm(*folders, name="arm"):
    return name, [read_run(folder) for folder in folders]


def test_course_ends_where_all_runs_were_evaluated(tmp_path):
    whole = write_run(tmp_path / "whole", (0.1, 0.3, 0.5, 0.7))
    half = write_run(tmp_path / "half", (0.3, 0.5), steps=3, seconds=20.0)
    begun = write_run(tmp_path / "begun", (), steps=0)
    course = run_data.course_of(arm(whole, half, begun))
    assert course.evaluated_E.tolist() == [0, 2]
    assert course.accuracy_SE.tolist() == [[0.1, 0.3], [0.3, 0.5]]
    assert course.costs_SE["seconds"].tolist() == [[0, 20], [0, 40]]
    assert course.costs_SE["rollouts"].tolist() == [[0, 64], [0, 64]]
    assert course.costs_SE["steps"].tolist() == [[0, 2], [0, 2]]


def test_straight_courses_stay_straight(tmp_path):
    run = write_run(tmp_path / "run", (0.1, 0.2, 0.3, 0.4, 0.5))
    course = run_data.course_of(arm(run))
    assert course.curve_SE[0] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_no_evaluation_no_course(tmp_path):
    assert run_data.course_of(arm(write_run(tmp_path / "run", (), steps=0))) is None


def test_running_mean_leaves_unknown_values_out():
    values = np.array([1.0, 2.0, np.nan, 4.0, 5.0, 6.0])
    expected = [1.5, 7 / 3, 3.0, 17 / 4, 5.0, 5.0]
    assert run_data.running_mean(values).tolist() == pytest.approx(expected)
    assert run_data.running_mean(np.array([3.0])).tolist() == [3.0]
    assert run_data.running_mean(np.array([3.0, 5.0])).tolist() == [4.0, 4.0]
    assert np.isnan(run_data.running_mean(np.array([np.nan]))).all()


def test_metric_is_cut_to_shared_steps(tmp_path):
    long = write_run(tmp_path / "long", steps=4, effective=0.5)
    short = write_run(tmp_path / "short", steps=2, effective=0.7)
    step_S, value_RS = run_data.metric_of(arm(long, short)[1], "select/effective_fraction")
    assert step_S.tolist() == [1, 2]
    assert value_RS.tolist() == [[0.5, 0.5], [0.7, 0.7]]
    assert len(run_data.metric_of(arm(long)[1], "replay/ess")[0]) == 0


def test_pairs_are_of_references_where_there_are_any(tmp_path):
    predicted, observed, kind = run_data.pairs_of(arm(write_run(tmp_path / "run"))[1])
    assert kind == "reference"
    assert predicted.tolist() == [0.25, 0.75] * 2
    assert observed.tolist() == [0, 1] * 2


def test_pairs_of_an_arm_without_references_are_of_what_it_chose(tmp_path):
    write_run(tmp_path / "run", steps=1)
    fresh = {"id": ["a", "b"], "predicted": [0.4, None], "observed": [0.5, 0.5]}
    none = {"id": [], "predicted": [], "observed": [], "age": []}
    line = {"step": 1, "fresh": fresh, "replayed": none, "reference": none}
    write_lines(tmp_path / "run" / "selections.jsonl", [line, line])
    predicted, observed, kind = run_data.pairs_of(arm(tmp_path / "run")[1])
    assert (predicted.tolist(), observed.tolist(), kind) == ([0.4, 0.4], [0.5, 0.5], "fresh")
    assert run_data.difficulty_map(arm(tmp_path / "run")) is None


def test_difficulty_of_the_whole_pool_comes_first(tmp_path):
    found = run_data.difficulty_map(arm(write_run(tmp_path / "run", pool=50)))
    assert found.kind == "estimated"
    assert found.steps_C.tolist() == [0, 2, 4]
    assert found.share_CD.tolist() == [np.eye(10)[1].tolist(), np.eye(10)[3].tolist()]
    assert found.mean_C.tolist() == pytest.approx([0.15, 0.35])


def test_else_difficulty_is_observed_on_what_was_drawn_at_random(tmp_path):
    references = run_data.difficulty_map(arm(write_run(tmp_path / "run")))
    assert references.kind == "reference"
    assert references.share_CD[0].tolist() == [0.5, *[0] * 7, 0.5]
    assert references.mean_C.tolist() == [0.5, 0.5]
    plain = run_data.difficulty_map(arm(write_run(tmp_path / "plain", predicts=False)))
    assert plain.kind == "fresh"
    assert plain.share_CD[0].tolist() == [0.25, 0, 0, 0, 0.5, 0, 0, 0, 0.25]
    assert plain.steps_C.tolist() == [0, 1, 2, 3, 4]


def test_many_steps_are_gathered_into_few_columns(tmp_path):
    run = write_run(tmp_path / "long", (0.1, 0.2), every=100, predicts=False)
    found = run_data.difficulty_map(arm(run))
    assert len(found.share_CD) == run_data.OBSERVED_COLUMNS
    assert (found.steps_C[0], found.steps_C[-1]) == (0, 100)


def test_visits_count_every_use(tmp_path):
    """Of 4 steps: a is generated 4 times and probed twice; b generated and replayed 4 times."""
    visits = run_data.visits_of(arm(write_run(tmp_path / "run", pool=50)))
    assert visits.pool == 50
    # a 6, b 8, c 4; f1 to f4, r1 and r3 once each
    assert visits.count_V.tolist() == [9, 3, 3, 3, 2, 2, 1, 1]
    assert run_data.visits_of(arm(write_run(tmp_path / "begun", (), steps=0))) is None
    assert run_data.visits_of(arm(write_run(tmp_path / "other"))).pool is None


def test_visits_are_means_over_runs(tmp_path):
    runs = arm(write_run(tmp_path / "one"), write_run(tmp_path / "two", replays=False))
    assert run_data.visits_of(runs).count_V.tolist() == [9, 3, 3, 3, 1.5, 1.5, 0.5, 0.5]


def test_ages(tmp_path):
    assert run_data.ages_of(arm(write_run(tmp_path / "run"))[1]).tolist() == [1, 2, 3, 4]


def test_seconds_by_part_add_up(tmp_path):
    runs = arm(write_run(tmp_path / "one"), write_run(tmp_path / "two", seconds=20.0))[1]
    parts = run_data.seconds_by_part(runs)
    assert parts["generate"] == pytest.approx(3.0)
    assert sum(parts.values()) == pytest.approx(15.0)
    assert run_data.seconds_by_part(arm(write_run(tmp_path / "begun", (), steps=0))[1]) == {}


def test_time_in_no_part_is_other(tmp_path):
    write_run(tmp_path / "run", steps=1)
    line = {"step": 1, "rollout_step": 1, "time/step_s": 5.0, "time/generate_s": 3.0}
    write_lines(tmp_path / "run" / "metrics.jsonl", [line | {"reward/mean": 0.5}])
    parts = run_data.seconds_by_part(arm(tmp_path / "run")[1])
    assert (parts["generate"], parts["update"], parts["other"]) == (3.0, 0.0, 2.0)

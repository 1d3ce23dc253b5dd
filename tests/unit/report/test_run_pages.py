"""Pages of runs that are whole, half-finished, compared, or somebody's own."""

import re

import pytest

from evenodds.comparison.runs import read_run
from evenodds.comparison.savings import compare_arms, courses_of
from evenodds.report import run_pages

from run_folders import write_lines, write_run

PLAIN = (0.1, 0.2, 0.3, 0.4, 0.5)
FAST = (0.1, 0.3, 0.5, 0.7, 0.9)
SLOW = (0.1, 0.15, 0.2, 0.25, 0.3)


@pytest.fixture(scope="module")
def results(tmp_path_factory, quick_pages):
    folder = tmp_path_factory.mktemp("arms")
    courses = []
    for name, accuracies, whole in (
        ("grpo", PLAIN, False),
        ("fast", FAST, True),
        ("slow", SLOW, False),
    ):
        folders = [
            write_run(
                folder / name / f"seed-{seed}",
                accuracies,
                predicts=whole,
                replays=whole,
                pool=50 if whole else None,
            )
            for seed in range(2)
        ]
        courses.append(courses_of(name, range(2), [read_run(each) for each in folders]))
    return compare_arms(courses, "grpo")


def html(page, folder):
    page.write(folder / "page.html")
    return (folder / "page.html").read_text()


def rows_of(table):
    columns, rows = table
    assert all(len(row) == len(columns) for row in rows)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_rows_say_what_each_arm_took(results):
    plain, fast, slow = rows_of(run_pages.target_rows(results))
    assert plain["steps"] == "8.0"
    assert (fast["steps"], fast["seconds"], fast["rollouts"]) == ("4.0", "40.0", "128")
    assert fast["tokens"] == "1,280"
    assert slow["final accuracy"].startswith("0.300")
    assert {slow[cost] for cost in ("steps", "seconds", "rollouts", "tokens")} == {"not reached"}
    _, saved, missed = rows_of(run_pages.saving_rows(results))
    assert saved["time saved"] == "50.0 % [50.0 %, 50.0 %]"
    assert missed["tokens saved"] == "not reached"


def test_rows_for_the_terminal_have_all_that_matters(results):
    plain, fast, slow = rows_of(run_pages.comparison_rows(results))
    assert fast["time saved"] == "50.0 % [50.0, 50.0]"
    assert (fast["final"], fast["effective"], fast["r"]) == ("0.900", "0.50", "0.90")
    assert (plain["r"], fast["s/step"]) == ("-", "10.00")
    assert slow["steps"] == slow["modelled at g = 0.47 / 0.46 / 0.54"] == "not reached"
    # In 4 of 8 steps, 20 groups generated and 24 trained on, of 32: 1 - (g 20 + (1 - g) 24) / 32.
    assert fast["modelled at g = 0.47 / 0.46 / 0.54"] == "31 / 31 / 32 %"
    assert "0.500" in run_pages.comparison_note(results)


def test_rows_of_a_step(results):
    _, fast, _ = rows_of(run_pages.step_rows(results))
    assert fast["seconds a step"] == "10.000"
    assert fast["references (s)"] == fast["log-probs (s)"] == "2.000"
    assert fast["saved of a step's time"] == "0.0 % [0.0 %, 0.0 %]"
    _, fast, _ = rows_of(run_pages.modelled_rows(results))
    assert all("modelled" in column for column in fast if column != "arm")


def test_a_comparison_page_shows_everything(results, tmp_path):
    page = run_pages.comparison_page(results, "a note")
    text = html(page, tmp_path)
    assert list(page.pictures) == [
        "accuracy-time",
        "accuracy-steps",
        "accuracy-rollouts",
        "effective-fraction",
        "predicted-observed",
        "reliability",
        "difficulty",
        "replay-age",
        "importance-ratio",
        "time-split",
        "visits",
    ]
    assert text.count("data:image/png;base64,") == 11
    assert "http" not in re.sub(r'src="data:[^"]+"', "", text)
    assert "Not reached: slow." in text
    assert "Left out: grpo, slow (replays nothing)." in text
    assert "Modelled, not measured" in text
    assert "estimated for the whole pool (fast)" in text
    assert "Where the size of the pool is not recorded" not in text  # the same pool for all arms


def test_a_run_that_has_only_begun(tmp_path):
    begun = read_run(write_run(tmp_path / "run", (), steps=0))
    page = run_pages.runs_page([("run", [begun])], "run")
    assert not page.pictures
    text = html(page, tmp_path)
    assert text.count("No picture: no run has an accuracy on held-out questions yet.") == 1
    for reason in (
        "no step was recorded yet",
        "no choices were recorded",
        "nothing was replayed",
        "no step was timed yet",
        "no run has predicted a difficulty and then observed it",
    ):
        assert f"No picture: {reason}." in text


def test_a_half_finished_run_beside_a_whole_one(tmp_path):
    half = read_run(write_run(tmp_path / "half", PLAIN, steps=3))
    begun = read_run(write_run(tmp_path / "begun", PLAIN, steps=0))
    page = run_pages.runs_page([("half", [half]), ("begun", [begun])], "two")
    text = html(page, tmp_path)
    assert len(page.pictures) == 11
    assert "Left out: begun (no step yet)." in text
    _, *rows = re.findall(r"<tr>(.*?)</tr>", text)
    assert "<td>3</td><td>0.100</td><td>0.200</td>" in rows[0]
    assert "<td>0</td><td>0.100</td><td>0.100</td><td>-</td>" in rows[1]


def test_a_run_that_recorded_only_metrics(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "run" / "selections.jsonl").unlink()
    page = run_pages.runs_page([("run", [read_run(tmp_path / "run")])], "run")
    assert {"accuracy-time", "effective-fraction", "importance-ratio", "time-split"} <= set(
        page.pictures
    )
    assert "visits" not in page.pictures


def test_a_run_without_times_or_counts(tmp_path):
    lines = [
        {"step": step, "rollout_step": step, "reward/mean": 0.5, "eval/accuracy": step / 10}
        for step in range(3)
    ]
    (tmp_path / "run").mkdir()
    write_lines(tmp_path / "run" / "metrics.jsonl", lines)
    page = run_pages.runs_page([("run", [read_run(tmp_path / "run")])], "run")
    assert list(page.pictures) == ["accuracy-steps"]
    text = html(page, tmp_path)
    assert "No picture: no run recorded its time at every step." in text
    assert "No picture: no run recorded its rollouts at every step." in text


def test_an_arm_without_replay_or_prediction(tmp_path):
    run = read_run(write_run(tmp_path / "run", predicts=False, replays=False))
    page = run_pages.runs_page([("run", [run])], "run")
    assert {"predicted-observed", "reliability", "replay-age", "importance-ratio"}.isdisjoint(
        page.pictures
    )
    assert "observed on generated groups, drawn at random" in html(page, tmp_path)


def test_the_table_for_a_readme(results):
    lines = run_pages.comparison_markdown(results, "two runs at a time").splitlines()
    columns, rows = run_pages.comparison_rows(results)
    assert lines[0] == "| " + " | ".join(columns) + " |"
    assert lines[1].count("---") == len(columns)
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| grpo", "| fast", "| slow"]
    assert lines[4].count("not reached") == rows[2].count("not reached") > 0
    assert lines[-1] == "two runs at a time"

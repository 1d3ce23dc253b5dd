import pytest

from evenodds.comparison.arms import parse_arms
from evenodds.comparison.execution import steps_done
from evenodds.comparison.plan import make_plan, read_plan, save_plan
from evenodds.comparison.results import results_of
from evenodds.errors import CheckpointError, ConfigError, DataError
from evenodds.files import append_line, write_json

TABLES = {
    "run": {"name": "mine", "steps": 20},
    "model": {"path": "toy"},
    "data": {"source": "toy"},
    "reward": {"kind": "exact"},
    "evaluation": {"every": 5},
}


def plan(folder, arms=("grpo", "dots", "rr"), seeds=(3, 4), tables=TABLES, **options):
    options = {"at_once": 2, "cores": 2, **options}
    return make_plan(folder, tables, parse_arms(list(arms)), seeds, **options)


def test_arms_take_turns_in_beginning_a_round(tmp_path):
    made = plan(tmp_path, seeds=(3, 4, 5, 6))
    order = [(run.seed, run.arm) for run in made.runs]
    assert order[:6] == [
        (3, "grpo"), (3, "dots"), (3, "rr"), (4, "dots"), (4, "rr"), (4, "grpo"),
    ]  # fmt: skip
    assert order[9] == (6, "grpo")


def test_runs_share_the_cores_evenly(tmp_path):
    assert {run.config.run.threads for run in plan(tmp_path).runs} == {1}
    assert {run.config.run.threads for run in plan(tmp_path, at_once=1).runs} == {2}
    assert {run.config.run.threads for run in plan(tmp_path, at_once=2, cores=8).runs} == {4}


def test_other_arms_than_plain_grpo_may_run_longer(tmp_path):
    steps = {run.arm: run.config.run.steps for run in plan(tmp_path, longer=1.25).runs}
    assert steps == {"grpo": 20, "dots": 25, "rr": 25}
    decaying = {**TABLES, "training": {"schedule": "cosine"}}
    with pytest.raises(ConfigError, match="learning rate"):
        plan(tmp_path, tables=decaying, longer=1.25)
    plan(tmp_path, tables=decaying)


def test_an_arm_with_steps_of_its_own_keeps_them(tmp_path):
    fragment = tmp_path / "small.toml"
    fragment.write_text("[run]\nsteps = 33\n[generation]\ngroups_per_step = 16\n")
    made = plan(tmp_path, arms=("grpo", "dots", str(fragment)), longer=1.25)
    assert {run.arm: run.config.run.steps for run in made.runs} == {
        "grpo": 20, "dots": 25, "small": 33,
    }  # fmt: skip
    decaying = {**TABLES, "training": {"schedule": "cosine"}}
    with pytest.raises(ConfigError, match="33 and 20 steps"):
        plan(tmp_path, arms=("grpo", str(fragment)), tables=decaying)


def test_a_saved_plan_is_read_back(tmp_path):
    save_plan(plan(tmp_path))
    found = read_plan(tmp_path)
    assert (found.arms, found.seeds, found.at_once) == (("grpo", "dots", "rr"), (3, 4), 2)
    assert {(r.arm, r.seed): r.config for r in found.runs} == {
        (r.arm, r.seed): r.config for r in plan(tmp_path).runs
    }


def test_a_comparison_can_grow_and_cannot_change(tmp_path):
    save_plan(plan(tmp_path))
    save_plan(plan(tmp_path, seeds=(3, 4, 5)))
    assert read_plan(tmp_path).seeds == (3, 4, 5)
    other = {**TABLES, "training": {"learning_rate": 1e-3}}
    with pytest.raises(CheckpointError, match=r"training\.learning_rate"):
        save_plan(plan(tmp_path, tables=other))


def test_runs_can_become_longer_and_not_shorter(tmp_path):
    made = plan(tmp_path, longer=1.5)
    save_plan(made)
    for run in made.runs:
        write_json(run.folder / "summary.json", {"steps": run.config.run.steps})
    longer = plan(tmp_path, longer=2.0)
    save_plan(longer)
    assert [run.is_done for run in longer.runs] == [run.arm == "grpo" for run in longer.runs]
    assert {run.config.run.steps for run in read_plan(tmp_path).runs} == {20, 40}
    with pytest.raises(CheckpointError, match=r"run\.steps = 40 there, 30 here"):
        save_plan(made)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    made = plan(tmp_path)
    append_line(made.runs[0].folder / "metrics.jsonl", {"step": 1})
    with pytest.raises(CheckpointError, match="in use"):
        save_plan(made)
    assert not (tmp_path / "plan.json").exists()


def test_progress_counts_recorded_and_finished_steps(tmp_path):
    made = plan(tmp_path, seeds=(3,))
    save_plan(made)
    write_json(made.runs[0].folder / "summary.json", {"steps": 20})
    for step in range(3):
        append_line(made.runs[1].folder / "metrics.jsonl", {"step": step})
    assert steps_done(made.runs) == 20 + 3


def test_a_table_needs_every_run(tmp_path):
    made = plan(tmp_path)
    save_plan(made)
    with pytest.raises(DataError, match="6 of 6 runs are missing"):
        results_of(made)


def test_what_cannot_be_compared_is_refused(tmp_path):
    blind = {key: table for key, table in TABLES.items() if key != "evaluation"}
    with pytest.raises(ConfigError, match="held-out"):
        plan(tmp_path, tables=blind)
    with pytest.raises(CheckpointError, match=r"plan\.json"):
        read_plan(tmp_path)
    write_json(tmp_path / "plan.json", {"arms": ["grpo"]})
    with pytest.raises(CheckpointError, match="not the plan"):
        read_plan(tmp_path)

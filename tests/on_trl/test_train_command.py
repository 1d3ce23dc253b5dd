"""`evenodds train` from the command line, on questions in a file."""

import json
import shutil
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from evenodds.cli import main
from evenodds.files import locked

from tiny import save_policy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A policy, questions and a reward, as a user has them."""
    folder = tmp_path_factory.mktemp("user")
    save_policy(folder / "policy")
    rows = [{"question": f"{i}+{i % 7}=", "answer": str(i % 10)} for i in range(60)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "questions.jsonl").write_text(lines)
    mixed = "".join(
        json.dumps({**row, "more": [i, str(i)][i % 2]}) + "\n" for i, row in enumerate(rows)
    )
    (folder / "mixed.jsonl").write_text(mixed)
    (folder / "scoring.py").write_text(
        "def first_digit(completions, answer, **columns):\n"
        "    return [float(c[:1].isdigit() and c[0] >= a) for c, a in zip(completions, answer)]\n"
    )
    (folder / "run.toml").write_text(
        f"""
[run]
name = "small"
steps = 4
save_every = 2
threads = 1
[model]
path = "{folder}/policy"
[data]
source = "{folder}/questions.jsonl"
[reward]
kind = "scoring:first_digit"
[generation]
group_size = 4
groups_per_step = 8
max_new_tokens = 4
[training]
learning_rate = 1e-3
micro_batch = 16
[efficiency]
num_references = 8
capacity = 8
selection_temperature = 0.05
[evaluation]
limit = 12
every = 2
"""
    )
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


METRICS = {
    "step",
    "time/step_s",
    "time/generate_s",
    "time/reference_s",
    "time/select_s",
    "time/update_s",
    "reward/mean",
    "select/num_fresh",
    "select/num_references",
    "select/predicted_difficulty_mean",
    "select/observed_difficulty_mean",
    "select/pearson",
    "select/effective_fraction",
    "replay/num_replayed",
    "replay/size",
    "replay/age_mean",
    "replay/ratio_mean",
    "loss/policy",
    "rollouts/total",
    "tokens/generated_total",
}


def test_a_run_leaves_its_folder(folder, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "run.toml", "--out", str(out), "--set", "run.seed=3"]) == 0
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "config.json",
        "metrics.jsonl",
        "selections.jsonl",
        "checkpoints",
        "final",
        "summary.json",
        "report.html",
    }
    config = json.loads((out / "config.json").read_text())
    assert config["run"]["seed"] == 3
    assert config["efficiency"]["steps_per_selection"] == 2  # resolved, with the defaults
    metrics = read(out / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2, 3, 4]
    for line in metrics[1:]:
        assert set(line) >= METRICS
    assert ["eval/accuracy" in line for line in metrics] == [True, False, True, False, True]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["eval/accuracy_last"] == metrics[-1]["eval/accuracy"]
    assert summary["rollouts/total"] == metrics[-1]["rollouts/total"]
    pool = 60 - 12
    printed = capsys.readouterr().out
    assert f"{pool} questions" in printed
    assert f"The report lies in {out / 'report.html'}" in printed
    assert "accuracy-steps.png" in {path.name for path in (out / "report-pictures").iterdir()}
    chosen = read(out / "selections.jsonl")
    parts = {"fresh", "replayed", "reference", "references_in_batch", "pool", "step"}
    assert parts == set(chosen[0])
    assert (out / "final/model.safetensors").exists()
    assert not list(out.rglob("*.bin"))
    assert not list(out.rglob("*.pt*"))


def test_held_out_questions_are_not_trained_on(folder, tmp_path):
    from evenodds.questions import load_pool
    from evenodds.run_config import read_config

    out = tmp_path / "run"
    assert main(["train", "run.toml", "--out", str(out)]) == 0
    held_out = set(load_pool(read_config("run.toml").evaluation_data).ids)
    assert len(held_out) == 12
    for line in read(out / "selections.jsonl"):
        assert not held_out & {*line["fresh"]["id"], *line["reference"]["id"]}


def test_a_longer_run_goes_on_from_a_shorter_one(folder, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", "run.toml", "--out", str(whole), "--set", "run.steps=6"]) == 0
    assert main(["train", "run.toml", "--out", str(parts)]) == 0
    assert main(["train", "--resume", str(parts), "--set", "run.steps=6"]) == 0

    def without_times(path):
        drop = ("time/", "eval/")  # the short run evaluates at its own end
        return [
            {k: v for k, v in line.items() if not k.startswith(drop)}
            for line in read(path / "metrics.jsonl")
        ]

    assert without_times(whole) == without_times(parts)
    left = load_file(whole / "final/model.safetensors")
    right = load_file(parts / "final/model.safetensors")
    assert all((left[name] == right[name]).all() for name in left)


def test_a_finished_run_has_nothing_left_to_do(folder, tmp_path):
    out = tmp_path / "run"
    assert main(["train", "run.toml", "--out", str(out)]) == 0
    before = {name: (out / name).read_bytes() for name in ("metrics.jsonl", "summary.json")}
    weights = load_file(out / "final/model.safetensors")
    (out / "final/model.safetensors").unlink()  # killed while it was written
    assert main(["train", "--resume", str(out)]) == 0
    assert before == {name: (out / name).read_bytes() for name in before}
    again = load_file(out / "final/model.safetensors")
    assert all((weights[name] == again[name]).all() for name in weights)


def test_a_run_killed_before_its_first_checkpoint_begins_anew(folder, tmp_path):
    out = tmp_path / "run"
    assert main(["train", "run.toml", "--out", str(out), "--set", "run.save_every=0"]) == 0
    partial = out / "checkpoints/checkpoint-4/trainer_state.json"
    partial.write_text(partial.read_text()[:50])
    (out / "summary.json").unlink()
    assert main(["train", "--resume", str(out)]) == 0
    assert [line["step"] for line in read(out / "metrics.jsonl")] == [0, 1, 2, 3, 4]


def test_a_resumed_run_stays_the_run_it_was(folder, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "run.toml", "--out", str(out)]) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    for change, message in (
        ("efficiency.preset=grpo", "cannot change while a run goes on"),
        ("data.limit=20", "cannot change while a run goes on"),
        ("run.seed=1", "cannot change while a run goes on"),
    ):
        assert main(["train", "--resume", str(out), "--set", change]) == 2
        assert message in capsys.readouterr().err
    questions = folder / "questions.jsonl"
    lines = questions.read_text()
    questions.write_text("\n".join(reversed(lines.split("\n"))))
    try:
        assert main(["train", "--resume", str(out), "--set", "run.steps=6"]) == 2
    finally:
        questions.write_text(lines)
    assert "belongs to a run with other questions" in capsys.readouterr().err
    with locked(out):
        assert main(["train", "--resume", str(out), "--set", "run.steps=6"]) == 2
    assert "the run folder is in use" in capsys.readouterr().err
    assert before == {name: (out / name).read_bytes() for name in before}
    assert main(["train", "--resume", str(out), "--set", "run.steps=6"]) == 0
    assert json.loads((out / "config.json").read_text())["run"]["steps"] == 6
    shutil.rmtree(out / "checkpoints")
    assert main(["train", "--resume", str(out), "--set", "run.steps=8"]) == 2
    assert "has no checkpoint to go on from" in capsys.readouterr().err


def test_group_sizes_that_do_not_divide_the_hosts_default_batch(folder, tmp_path):
    out = tmp_path / "run"
    changes = ["generation.group_size=3", "training.micro_batch=24", "run.steps=1"]
    options = [part for change in changes for part in ("--set", change)]
    assert main(["train", "run.toml", "--out", str(out), *options]) == 0


def test_a_policy_that_diverges_is_not_saved(folder, tmp_path, capsys):
    out = tmp_path / "run"
    changes = ["training.learning_rate=1e300", "run.steps=1", "evaluation.every=0"]
    options = [part for change in changes for part in ("--set", change)]
    assert main(["train", "run.toml", "--out", str(out), *options]) == 2
    assert "the policy has diverged" in capsys.readouterr().err
    assert not (out / "final").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run.toml", "--set", "efficiency.num_references=100"], "100 references, 48 questions"),
        (["run.toml", "--set", "generation.groups_per_step=64"], "64 groups a step, 48 questions"),
        (["run.toml", "--set", "training.micro_batch=5"], "cannot be cut evenly"),
        (["run.toml", "--set", "data.source=questions.json"], "did you mean 'questions.jsonl'"),
        (["run.toml", "--set", "data.question_column=query"], "there is no column 'query'"),
        (["run.toml", "--set", "reward.kind=scoring:second_digit"], "no 'second_digit'"),
        (["run.toml", "--set", "model.path=no-such-policy"], "'no-such-policy' cannot be loaded"),
        (["run.toml", "--set", "efficiency.predictor=gone.safetensors"], "gone.safetensors"),
        (["run.toml", "--set", "training.host.colour=1"], "unexpected keyword argument 'colour'"),
        (["run.toml", "--set", "training.host.max_steps=2"], "max_steps is set by evenodds"),
        (["run.toml", "--set", "run.seed=4294967296"], "at most 4294967295"),
        (["run.toml", "--set", "run.name=../x"], "cannot name a folder"),
        (["run.toml", "--set", "model.lora_targets=['q']"], "needs a rank"),
        (["run.toml", "--set", "efficiency.reward_range=[0.0, 2.0]"], "said twice"),
        (["run.toml", "--set", "data.source=mixed.jsonl"], "cannot be put into a table"),
        (["run.toml", "--set", "efficiency.fresh_fraction=0.99"], "at least one group of each"),
        (["run.toml", "--set", "data.max_prompt_tokens=2"], "prompts are too long"),
        (["run.toml", "--set", "evaluation.limit=60"], "every question is held out"),
        (["quickstat"], "did you mean 'quickstart'"),
        ([], "no config was named"),
        (["--resume", "."], "this is not a run folder"),
        (["run.toml", "--out", "policy"], "the run folder is in use"),
    ],
)
def test_mistakes_end_in_one_message(folder, capsys, arguments, message):
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("evenodds: ")
    assert message in error
    assert "Traceback" not in error
    assert not (folder / "runs").exists(), "nothing was begun"


def test_help_is_quick_because_it_loads_nothing():
    code = (
        "import sys; from evenodds.cli import make_parser; make_parser();"
        "print([name for name in ('torch', 'transformers', 'trl', 'datasets', 'numpy', 'rich')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

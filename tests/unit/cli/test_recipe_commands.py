"""Recipes as a user types them; nothing of a model is imported."""

import json
import sys

import pytest

from evenodds.cli import main
from evenodds.run_config import recipes


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Small files in place of all that the recipes read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name, answer in (("math", "{}"), ("deepscaler", "{}"), ("orz", "{}"), ("deepmath", "{}")):
        rows = [{"question": f"{name} {n}", "answer": answer.format(n)} for n in range(600)]
        (tmp_path / f"data/{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    choices = [{"question": f"science {n}", "answer": "ABCD"[n % 4]} for n in range(600)]
    for name, rows in (("scp25k", choices), ("mmlu-science", choices[:5])):
        (tmp_path / f"data/{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    held_out = [{"question": "held out", "answer": "1"}, {"question": "math 0", "answer": "0"}]
    (tmp_path / "data/math500.jsonl").write_text("\n".join(map(json.dumps, held_out)))


def test_recipes_are_listed(capsys):
    assert main(["recipes"]) == 0
    shown = capsys.readouterr().out
    for name in recipes():
        assert name in shown
    assert "8 x L40S, 48 GiB" in shown
    assert "186 k" in shown  # (512 + 59 * 256 + 30 * 256) * 8 = 186,368


@pytest.mark.parametrize("name", [*recipes(), "math-1.5b/grpo", "science-3b/evenodds"])
def test_every_recipe_runs_dry(name, data, capsys):
    assert main(["train", name, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "everything that can be checked without the weights is fine" in shown
    assert "accelerate launch --num_processes 8" in shown
    assert f"-m evenodds train {name} --out runs/{name.replace('/', '-')}" in shown
    assert f"evenodds verl-command {name}\n" in shown


def test_verls_command_is_printed_for_every_recipe_and_twin(data, capsys):
    for name in recipes():
        for twin in (name, f"{name}/grpo", f"{name}/evenodds"):
            assert main(["verl-command", twin]) == 0
            assert "verl" in capsys.readouterr().out


def test_held_out_questions_are_not_counted(data, capsys):
    assert main(["train", "math-1.5b", "--dry-run"]) == 0
    assert "data/math.jsonl: 599" in capsys.readouterr().out


def test_a_missing_file_names_its_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "orz-1.5b", "--dry-run"]) == 2
    told = capsys.readouterr()
    assert "98.0 MiB, 12.3 MiB on each process" in told.out  # 102,793,216 bytes
    assert "evenodds prepare orz" in told.err
    assert "launch" not in told.out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["hardware.gpus_per_node=7"], "cannot share"),
        (["efficiency.predictor=no.safetensors"], "there is no file no.safetensors"),
        (['reward.kind="choice"'], "the choice reward cannot grade"),
    ],
)
def test_the_first_problem_is_said(changes, words, data, capsys):
    sets = [part for change in changes for part in ("--set", change)]
    assert main(["train", "math-1.5b", "--dry-run", *sets]) == 2
    assert words in capsys.readouterr().err


def test_changes_are_in_the_command(data, capsys):
    change = ["--set", "run.seed=3", "--set", "hardware.nodes=2", "--out", "runs/my run"]
    assert main(["train", "deepscaler-7b", "--dry-run", *change]) == 0
    shown = capsys.readouterr().out
    assert (
        "accelerate launch --num_processes 16 --num_machines 2 --use_deepspeed --zero_stage 3 -m "
        "evenodds train deepscaler-7b --set run.seed=3 --set hardware.nodes=2 --out 'runs/my run'"
    ) in shown


def test_prepare_says_what_became_of_the_rows(tmp_path, capsys):
    rows = [{"problem": "q", "answer": "1"}] * 2
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    local = ["--from", str(tmp_path / "in.jsonl"), "--out", str(tmp_path), "--any-size"]
    assert main(["prepare", "math500", *local]) == 0
    assert "math500.jsonl: 1 questions of 2 rows (1 repeated)" in capsys.readouterr().out
    assert main(["prepare", "math500", *local[:-1]]) == 2
    assert "expected: 500 rows" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dry_run_imports_no_model(tmp_path):
    import subprocess

    code = (
        "import sys; from evenodds.cli import main; main(['train', 'quickstart', '--dry-run']);"
        "assert not {'transformers', 'trl', 'vllm', 'accelerate'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=300, cwd=tmp_path)

"""A run that was killed and resumed ends with the metrics and weights of one that was not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

SCRIPT = Path(__file__).parent / "resumable_run.py"
KILLED = -9

pytestmark = pytest.mark.slow


def run(policy, folder, *options, processes=1):
    command = [sys.executable, str(SCRIPT), policy, str(folder), *options]
    if processes > 1:
        # `--multi_gpu` starts the processes on a machine without GPUs too; `--cpu` starts one.
        launch = ["-m", "accelerate.commands.launch", "--multi_gpu"]
        launch += ["--num_processes", str(processes)]
        launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        launch += ["--main_process_port", "0"]
        command = [sys.executable, *launch, *command[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def finish(*args, **kwargs):
    done = run(*args, **kwargs)
    assert done.returncode == 0, done.stderr[-3000:]


def lines_without_times(folder, name="metrics.jsonl"):
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if not key.startswith("time/")} for line in lines
    ]


def assert_same_run(one, two):
    for name in ("metrics.jsonl", "selections.jsonl"):
        assert lines_without_times(one, name) == lines_without_times(two, name)
    left = load_file(one / "final-0/model.safetensors")
    right = load_file(two / "final-0/model.safetensors")
    assert left.keys() == right.keys()
    assert all(torch.equal(left[key], right[key]) for key in left)


@pytest.fixture(scope="module")
def unbroken(policy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    finish(policy, folder)
    return folder


@pytest.mark.parametrize(
    "where",
    [
        "_compute_loss:9",  # step 5, after the first of two micro-batches
        "_generate_groups:4",  # between a reference set and its batch
        "append_line:9:half",  # in the middle of the metrics line of step 5
        "_save_optimizer_and_scheduler:2:half",  # the optimizer of checkpoint 4 is half written
        "write_manifest:2",  # all files of checkpoint 4 but the last two
    ],
)
def test_killed_and_resumed(policy, tmp_path, unbroken, where):
    killed = run(policy, tmp_path, "--kill", where)
    assert killed.returncode == KILLED, killed.stderr[-3000:]
    finish(policy, tmp_path, "--resume")
    assert_same_run(unbroken, tmp_path)


def test_preset_grpo_resumes_over_the_end_of_a_pass(policy, tmp_path):
    """48 questions in batches of 8: the seventh step begins the second order of the host."""
    options = ("--preset", "grpo", "--steps", "11")
    finish(policy, tmp_path / "unbroken", *options)
    killed = run(policy, tmp_path / "killed", *options, "--kill", "_compute_loss:17")
    assert killed.returncode == KILLED
    finish(policy, tmp_path / "killed", *options, "--resume")
    assert_same_run(tmp_path / "unbroken", tmp_path / "killed")


@pytest.mark.parametrize("where", ["_compute_loss:13", "_save_optimizer_and_scheduler:2:half"])
def test_every_switch_at_once(policy, tmp_path, where):
    options = ("--preset", "everything", "--steps", "9")
    finish(policy, tmp_path / "unbroken", *options)
    killed = run(policy, tmp_path / "killed", *options, "--kill", where)
    assert killed.returncode == KILLED
    finish(policy, tmp_path / "killed", *options, "--resume")
    assert_same_run(tmp_path / "unbroken", tmp_path / "killed")


@pytest.mark.parametrize("where", ["_compute_loss:9", "_save_optimizer_and_scheduler:2:half"])
def test_two_processes(policy, tmp_path, where):
    finish(policy, tmp_path / "unbroken", processes=2)
    killed = run(policy, tmp_path / "killed", "--kill", where, processes=2)
    assert killed.returncode != 0
    finish(policy, tmp_path / "killed", "--resume", processes=2)
    assert_same_run(tmp_path / "unbroken", tmp_path / "killed")


def test_checkpoints_hold_safetensors_and_json_only(unbroken):
    (checkpoint,) = unbroken.glob("checkpoint-*")
    suffixes = {path.suffix for path in checkpoint.rglob("*") if path.is_file()}
    assert suffixes <= {".safetensors", ".json", ".jinja"}


def test_a_damaged_checkpoint_is_refused_by_name(policy, tmp_path):
    finish(policy, tmp_path)
    (checkpoint,) = tmp_path.glob("checkpoint-*")
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    failed = run(policy, tmp_path, "--resume")
    assert failed.returncode == 1
    assert "model.safetensors" in failed.stderr
    assert "no complete checkpoint to resume from" in failed.stderr


def test_another_number_of_processes_is_refused(policy, tmp_path):
    finish(policy, tmp_path, processes=2)
    failed = run(policy, tmp_path, "--resume")
    assert "launch with --num_processes 2" in failed.stderr

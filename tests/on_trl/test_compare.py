"""`evenodds compare` with a tiny policy: the table, and going on after it was killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from evenodds.cli import main
from evenodds.files import read_json, read_lines

from tiny import save_policy

pytestmark = pytest.mark.slow

ARMS = ("grpo", "rr")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    save_policy(folder / "policy")
    rows = [{"question": f"{i}+{i % 7}=", "answer": str(i % 10)} for i in range(60)]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "scoring.py").write_text(
        "def first_digit(completions, answer, **columns):\n"
        "    return [float(c[:1].isdigit() and c[0] >= a) for c, a in zip(completions, answer)]\n"
    )
    (folder / "run.toml").write_text(
        f"""
[run]
name = "small"
steps = 6
save_every = 2
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
[efficiency]
capacity = 8
[evaluation]
limit = 12
every = 2
"""
    )
    return folder / "run.toml"


def command(config, out):
    options = ["--arms", ",".join(ARMS), "--seeds", "2", "--first-seed", "5", "--out", str(out)]
    return ["compare", str(config), *options]


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(config.parent))
        patch.syspath_prepend(config.parent)
        assert main(command(config, out)) == 0
    return out


def lines_without_times(folder):
    return [
        {key: value for key, value in line.items() if not key.startswith("time/")}
        for line in read_lines(folder / "metrics.jsonl")
    ]


def test_every_arm_is_in_the_table_and_on_the_page(finished):
    table = read_json(finished / "table.json")
    assert [arm["arm"] for arm in table["arms"]] == list(ARMS)
    assert table["seeds"] == [5, 6]
    assert "2 runs at a time" in table["how_timed"]
    plain = table["arms"][0]
    assert plain["steps_saving"]["mean"] is not None
    assert plain["evaluated"] == [0, 2, 4, 6]
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert all(arm in page for arm in ARMS)
    assert all(f"| {arm} |" in (finished / "table.md").read_text(encoding="utf-8") for arm in ARMS)
    assert "http://" not in page.replace("http://www.w3.org", "")
    for arm in ARMS:
        for seed in (5, 6):
            assert (finished / "runs" / arm / f"seed-{seed}" / "summary.json").exists()


def test_the_table_can_be_made_anew_from_the_runs(finished, capsys):
    before = read_json(finished / "table.json")
    (finished / "table.json").unlink()
    assert main(["compare", "--from", str(finished)]) == 0
    assert read_json(finished / "table.json") == before
    assert "grpo" in capsys.readouterr().out


def test_the_table_is_read_from_the_recorded_lines(finished):
    accuracies = [
        line["eval/accuracy"]
        for line in read_lines(finished / "runs/grpo/seed-5/metrics.jsonl")
        if "eval/accuracy" in line
    ]
    assert read_json(finished / "table.json")["arms"][0]["accuracy"][0] == accuracies


def test_a_comparison_that_was_killed_goes_on(config, finished, tmp_path):
    out = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": str(config.parent)}
    start = [sys.executable, "-m", "evenodds", *command(config, out)]
    process = subprocess.Popen(start, env=environment, start_new_session=True)
    metrics = out / "runs/grpo/seed-5/metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.exists() and len(read_lines(metrics)) > 3):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)  # its runs live on for a while
    process.wait()
    done = subprocess.run(start, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    for arm in ARMS:
        for seed in (5, 6):
            folder = f"runs/{arm}/seed-{seed}"
            assert lines_without_times(out / folder) == lines_without_times(finished / folder)


def compare(config, old, new, out, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(config.parent))
    monkeypatch.syspath_prepend(config.parent)
    changed = config.parent / f"{out.name}.toml"
    changed.write_text(config.read_text().replace(old, new))
    return main(["compare", str(changed), "--arms", "grpo", "--seeds", "1", "--out", str(out)])


def test_a_run_that_fails_is_named(config, tmp_path, capsys, monkeypatch):
    (config.parent / "failing.py").write_text(
        "def fails(completions, answer, **columns):\n    raise ArithmeticError('on purpose')\n"
    )
    out = tmp_path / "fails"
    assert compare(config, "scoring:first_digit", "failing:fails", out, monkeypatch) == 2
    printed = capsys.readouterr().err
    assert "a run of grpo failed" in printed
    assert "on purpose" in printed


def test_wrong_settings_are_refused_before_anything_runs(config, tmp_path, capsys, monkeypatch):
    out = tmp_path / "wrong"
    assert compare(config, "scoring:first_digit", "nowhere:to_be_found", out, monkeypatch) == 2
    assert "nowhere" in capsys.readouterr().err
    assert not out.exists()


def test_a_comparison_can_become_longer(config, finished, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(config.parent))
    monkeypatch.syspath_prepend(config.parent)
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    assert main([*command(config, out), "--longer", "1.5"]) == 0
    before, after = (lines_without_times(each / "runs/rr/seed-5") for each in (finished, out))
    assert after[: len(before)] == before
    assert after[-1]["step"] == 9
    assert lines_without_times(out / "runs/grpo/seed-5") == lines_without_times(
        finished / "runs/grpo/seed-5"
    )
    arms = {arm["arm"]: arm["evaluated"] for arm in read_json(out / "table.json")["arms"]}
    assert arms["rr"][-1] == 9
    assert arms["grpo"][-1] == 6

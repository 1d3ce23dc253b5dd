"""The packaged quickstart, shortened."""

import json

import numpy as np
import pytest

from evenodds.cli import main
from evenodds.run_config import packaged_configs, read_config

pytestmark = pytest.mark.slow


def run(folder, *changes):
    short = ["run.steps=4", "run.threads=1", "evaluation.every=0", "evaluation.limit=64", *changes]
    options = [part for change in short for part in ("--set", change)]
    assert main(["train", "quickstart", "--out", str(folder), *options]) == 0
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_quickstart_is_packaged_and_uses_the_papers_setting():
    assert "quickstart" in packaged_configs()
    config = read_config("quickstart")
    paper = config.efficiency
    assert (paper.selection, paper.loss, paper.advantage) == ("difficulty", "decoupled", "mean")
    assert (paper.fresh_fraction, paper.steps_per_selection) == (0.5, 2)


def test_selection_finds_more_effective_groups_than_the_hosts_order(tmp_path, capsys):
    paper = run(tmp_path / "paper")
    plain = run(tmp_path / "plain", "efficiency.preset=grpo", "efficiency.predictor=''")
    effective = [line["select/effective_fraction"] for line in paper[1:]]
    uniform = [line["select/effective_fraction"] for line in plain[1:]]
    assert np.mean(effective) > np.mean(uniform) + 0.2
    assert paper[1]["select/pearson"] > 0.7
    assert [line["replay/num_replayed"] for line in paper[1:]] == [0, 32, 32, 32]
    assert [line["select/num_references"] for line in paper[1:]] == [32, 0, 32, 0]
    printed = capsys.readouterr().out
    assert "predicted against observed" in printed
    assert str(tmp_path / "paper") in printed

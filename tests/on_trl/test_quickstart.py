"""The packaged quickstart, shortened."""

import json

import numpy as np
import pytest

from evenodds.cli import main
from evenodds.config import EfficiencyConfig
from evenodds.run_config import packaged_configs, read_config

pytestmark = pytest.mark.slow


def run(folder, *changes):
    short = ["run.steps=4", "run.threads=1", "evaluation.every=0", "evaluation.limit=64", *changes]
    options = [part for change in short for part in ("--set", change)]
    assert main(["train", "quickstart", "--out", str(folder), *options]) == 0
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_quickstart_is_packaged_and_uses_what_measured_best():
    assert "quickstart" in packaged_configs()
    config = read_config("quickstart")
    best = EfficiencyConfig.preset("evenodds").as_dict()
    own = {"num_references", "capacity", "predictor"}
    found = config.efficiency.as_dict()
    assert {key for key in best if found[key] != best[key]} == own


def test_the_preset_generates_a_quarter_and_probes_within_it(tmp_path, capsys):
    lines = run(tmp_path / "short")[1:]
    assert [line["select/num_fresh"] for line in lines] == [16] * 4
    assert [line["select/num_references"] for line in lines] == [0] * 4
    assert lines[0]["select/num_joined"] == 16
    assert all(line["train/num_groups"] < 16 for line in lines)
    assert "report" in capsys.readouterr().out


def test_the_paper_finds_more_effective_groups_than_the_hosts_order(tmp_path, capsys):
    paper = run(tmp_path / "paper", "efficiency.preset=paper")
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

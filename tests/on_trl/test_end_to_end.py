"""The example that goes from policies to labels, a predictor, a run, and its evaluation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evenodds.labels import read_labels

SCRIPT = Path(__file__).parents[2] / "examples/end_to_end.sh"


@pytest.mark.slow
def test_the_example_goes_from_labels_to_a_report(tmp_path):
    command = tmp_path / "bin/evenodds"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m evenodds "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", str(SCRIPT)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    labels = read_labels(tmp_path / "labels.parquet")
    assert labels.policies == ("step-1", "step-2", "step-3")
    assert labels.samples_LN.tolist() == [[4] * 256] * 3
    lines = (tmp_path / "run/selections.jsonl").read_text().splitlines()
    chosen = {name for line in lines for name in json.loads(line)["fresh"]["id"]}
    assert chosen <= set(labels.ids), "the run trains on the questions that were labelled"
    results = json.loads((tmp_path / "evals/results.json").read_text())["benchmarks"]["toy"]
    assert (results["questions"], results["samples"]) == (64, 2)
    assert results["accuracy"] > 0.1
    assert (tmp_path / "report.html").exists()

"""What a run writes is what the reference of metrics lists."""

import json
import re
from pathlib import Path

import pytest

from evenodds.cli import main

PAGE = Path(__file__).parent.parent / "docs/metrics.md"


def documented(title):
    part = PAGE.read_text(encoding="utf-8").split(f"## `{title}`")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(.*?)`", row)}


@pytest.mark.slow
def test_every_key_is_listed_and_every_listed_key_is_written(tmp_path):
    changes = ["run.steps=2", "run.threads=1", "evaluation.limit=16", "evaluation.every=1"]
    options = [part for change in changes for part in ("--set", change)]
    assert main(["train", "quickstart", "--out", str(tmp_path / "run"), *options]) == 0

    def keys(name):
        lines = (tmp_path / "run" / name).read_text().splitlines()
        return {key for line in lines for key in json.loads(line)}

    assert keys("metrics.jsonl") == documented("metrics.jsonl")
    assert keys("selections.jsonl") == documented("selections.jsonl")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert set(summary) - {"name"} == documented("summary.json")

"""The README's own code and configs are run."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from evenodds.run_config import RunConfig

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def run(code, folder):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_the_script_for_trl(tmp_path):
    (code,) = [block for block in blocks("python") if "GRPOConfig" in block]
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (tmp_path / "runs/mine/metrics.jsonl").read_text().splitlines()
    assert len(lines) == 4
    changed = [line for line in code.splitlines() if "evenodds.trl" in line or "efficiency" in line]
    assert len(changed) == 2, "the import and the argument"


@pytest.mark.slow
def test_the_loop_for_another_trainer(tmp_path):
    (code,) = [block for block in blocks("python") if "DataEfficientLoop" in block]
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    printed = done.stdout.strip().splitlines()
    assert len(printed) == 4
    assert "'replay/num_replayed': 8.0" in printed[-1]


def test_configs_are_accepted():
    for block in blocks("toml"):
        RunConfig.from_mapping(tomllib.loads(block))


def test_the_two_commands_come_first():
    assert blocks("sh")[0].split("\n")[0].startswith("make train")
    assert blocks("sh")[0].split("\n")[1].startswith("make test")

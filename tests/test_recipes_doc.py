"""docs/recipes.md says what is: recipes, sources, and what a dry run prints."""

import re
from pathlib import Path

from evenodds.cli import main
from evenodds.preparation import SOURCES
from evenodds.run_config import config_tables, recipes

DOC = (Path(__file__).parent.parent / "docs/recipes.md").read_text(encoding="utf-8")


def test_tables_list_every_recipe_and_source():
    listed = re.findall(r"^\| `([\w.-]+)` \|", DOC, flags=re.MULTILINE)
    assert sorted(listed) == sorted([*recipes(), *SOURCES])
    for source in SOURCES.values():
        assert (source.hub or "none known") in DOC


def test_configs_named_in_commands_exist():
    named = re.findall(r"evenodds (?:train|compare) ([\w./-]+)", DOC)
    assert len(named) >= 3
    for name in named:
        assert config_tables(name)["efficiency"]["preset"] in ("paper", "grpo")


def test_the_printed_dry_run_is_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "deepscaler-1.5b", "--dry-run"]) == 2
    for line in capsys.readouterr().out.splitlines():
        assert line.strip() in DOC

"""Every block of the documentation is run, or marked as needing what a test has not.

Comments right before a block say how: `<!-- needs a GPU -->` and `<!-- needs a download -->` are
not run; `<!-- file: NAME -->` is written to a file; `<!-- the test adds: OPTIONS -->` shortens a
command.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from evenodds.comparison.arms import parse_arms
from evenodds.run_config import SECTIONS, RunConfig, config_text

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"((?:<!-- .*? -->\n)*)```(sh|python|toml)\n(.*?)```", re.DOTALL)
NEEDS = ("needs a GPU", "needs a download")


def blocks(page):
    for comments, language, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        yield re.findall(r"<!-- (.*?) -->", comments), language, body


def noted(marks, start):
    return "".join(mark.removeprefix(start) for mark in marks if mark.startswith(start))


def commands(body):
    return body.replace("\\\n", " ").strip().splitlines()


def run(command, folder):
    found = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert found.returncode == 0, (command, found.stderr[-2000:])


def run_command(line, added, folder):
    words = shlex.split(line, comments=True)
    if words[0] == "evenodds":
        run([sys.executable, "-m", *words, *shlex.split(added)], folder)
    elif words[0] == "make":
        run(["make", "-n", *words[1:]], ROOT)
    elif words[:2] == ["pip", "install"]:
        check_extras(line)
    else:
        assert words[0] == "python", line
        run([sys.executable, *words[1:]], folder)


def check_extras(line):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for names in re.findall(r"\[(.*?)\]", line):
        assert set(names.split(",")) <= set(project["optional-dependencies"]), line


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_from_top_to_bottom(page, tmp_path, monkeypatch):
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    for marks, language, body in blocks(page):
        if any(mark in NEEDS for mark in marks):
            continue
        if name := noted(marks, "file: "):
            (tmp_path / name).write_text(body, encoding="utf-8")
        if language == "sh":
            for line in commands(body):
                run_command(line, noted(marks, "the test adds: "), tmp_path)
        elif language == "python":
            run([sys.executable, "-W", "ignore", "-c", body], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_configs_and_names_of_settings_exist(page, tmp_path):
    for _, language, body in blocks(page):
        if language == "toml":
            tables = tomllib.loads(body)
            if "arms" in tables:
                (tmp_path / "arms.toml").write_text(body, encoding="utf-8")
                assert parse_arms([str(tmp_path / "arms.toml")])
                continue
            base = {} if "model" in tables else tomllib.loads(config_text("quickstart"))
            RunConfig.from_mapping({**base, **tables})
    for section, key in re.findall(r"`(\w+)\.(\w+)(?:`| =)", page.read_text(encoding="utf-8")):
        if section in SECTIONS and key not in ("preset", "jsonl", "json", "html"):
            assert key in SECTIONS[section].__dataclass_fields__, f"{section}.{key}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_that_is_named_exists(page):
    import pkgutil

    for name in re.findall(r"`(evenodds(?:\.\w+)+)`", page.read_text(encoding="utf-8")):
        if name == "evenodds.verl":  # imports verl, which has an environment of its own
            assert importlib.util.find_spec(name)
        elif not name.endswith((".safetensors", ".json")):
            pkgutil.resolve_name(name)

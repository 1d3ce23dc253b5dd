"""One process runs everything once; a hang ends it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MOST_SECONDS = 900


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("verl")


@pytest.fixture(scope="session")
def outcome(folder):
    paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "runs.py", str(folder)],
            cwd=HERE,
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            process.wait(timeout=MOST_SECONDS)
        finally:
            process.kill()
    results = folder / "results.json"
    assert results.exists(), log.read_text(errors="replace")[-4000:]
    return json.loads(results.read_text())


@pytest.fixture
def result(outcome):
    def of(name):
        assert name in outcome["results"], outcome["errors"][name]
        return outcome["results"][name]

    return of

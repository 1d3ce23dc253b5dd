"""Wheel and sdist hold all that a run needs, and the wheel trains from an empty folder."""

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DATA = (
    "evenodds/configs/quickstart.toml",
    "evenodds/toy/assets/model.safetensors",
    "evenodds/toy/assets/predictor.safetensors",
)


def run(*command, folder):
    found = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 0, found.stderr[-2000:] + found.stdout[-1000:]
    return found.stdout


@pytest.mark.slow
def test_the_wheel_trains_in_an_environment_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    dist = tmp_path / "dist"
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT, folder=tmp_path)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        assert set(DATA) <= set(file.namelist())
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {f"src/{name}" for name in DATA} <= names

    run(sys.executable, "-m", "venv", tmp_path / "venv", folder=tmp_path)
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel, folder=tmp_path)
    site = Path(run(python, "-c", "import sysconfig as s; print(s.get_path('purelib'))",
                    folder=tmp_path).strip())  # fmt: skip
    # A path alone: editable installs of the other environment are not followed.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    where = run(python, "-c", "import evenodds; print(evenodds.__file__)", folder=empty)
    assert where.startswith(str(site))
    changes = ["run.steps=1", "run.threads=1", "evaluation.limit=16"]
    options = [part for change in changes for part in ("--set", change)]
    command = tmp_path / "venv/bin/evenodds"
    run(command, "train", "quickstart", "--out", "run", *options, folder=empty)
    assert (empty / "run/summary.json").exists()

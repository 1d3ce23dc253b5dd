"""`evenodds report`, as a user types it."""

import subprocess
import sys

import pytest

from evenodds.cli import main, report
from evenodds.comparison.runs import read_run
from evenodds.report import plots

from run_folders import write_run

pytestmark = pytest.mark.usefixtures("quick_pages")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def nothing_drawn(monkeypatch):
    def fail(*_):
        raise AssertionError("drawn before everything was checked")

    monkeypatch.setattr(report, "page_of", fail)


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr("evenodds.report.run_pages.add_pictures", lambda *_: None)


def test_one_run_gets_its_page(tmp_path, capsys):
    folder = write_run(tmp_path / "run", planned=9)
    assert main(["report", str(folder)]) == 0
    text = (folder / "report.html").read_text()
    assert f"The report lies in {folder / 'report.html'}" in capsys.readouterr().out
    assert "is at step 4 of 9" in text
    pictures = list((folder / "report-pictures").iterdir())
    assert len(pictures) == 11
    assert all(picture.read_bytes().startswith(PNG) for picture in pictures)
    assert all(picture.suffix == ".png" for picture in pictures)


@pytest.mark.usefixtures("no_pictures")
def test_arms_are_compared_with_plain_grpo(tmp_path, monkeypatch):
    for seed in (0, 1):
        write_run(tmp_path / "out/runs/fast" / f"seed-{seed}", (0.1, 0.5, 0.9))
        write_run(tmp_path / "out/runs/grpo" / f"seed-{seed}", (0.1, 0.3, 0.5))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "out"]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "What it took to reach 0.500" in text
    assert "50.0 % [50.0 %, 50.0 %]" in text
    assert "4 runs." in text


@pytest.mark.usefixtures("no_pictures")
def test_arms_with_other_seeds_are_shown_and_not_compared(tmp_path):
    write_run(tmp_path / "runs/grpo/seed-0")
    write_run(tmp_path / "runs/fast/seed-1")
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert "Savings are not shown: the arms have different seeds" in out.read_text()


def names_of(*folders):
    arms = report.group([read_run(folder) for folder in folders])
    return [(name, [run.folder for run in runs]) for name, runs in arms]


def test_seeds_make_an_arm_and_other_runs_stand_alone(tmp_path):
    folders = [
        write_run(tmp_path / name)
        for name in ("a/runs/dots/seed-10", "a/runs/dots/seed-2", "b/mine", "c/mine", "grpo/seed-0")
    ]
    ten, two, one, other, plain = folders
    assert names_of(*folders) == [
        ("grpo", [plain]),
        ("dots", [two, ten]),
        ("b/mine", [one]),
        ("c/mine", [other]),
    ]


def test_a_run_that_is_named_twice_counts_once(tmp_path):
    folder = write_run(tmp_path / "arm/seed-0")
    assert [run.folder for run in report.find([folder, tmp_path])] == [folder]


@pytest.mark.usefixtures("nothing_drawn")
def test_what_is_no_run_is_refused(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    assert main(["report", str(run), str(tmp_path / "empty")]) == 2
    assert "this is not a run folder" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_drawn")
def test_a_page_that_cannot_be_written_is_refused(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert main(["report", str(run), "--out", str(tmp_path)]) == 2
    assert "the page is a folder" in capsys.readouterr().err
    assert main(["report", str(run), "--out", str(run / "metrics.jsonl" / "page.html")]) == 2
    assert "the page cannot be written" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_drawn")
def test_without_matplotlib_nothing_begins(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "matplotlib" in capsys.readouterr().err


def test_after_training_a_missing_matplotlib_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    report.show_report(write_run(tmp_path / "run"))
    (line,) = capsys.readouterr().out.splitlines()
    assert 'pip install "matplotlib' in line
    assert f"evenodds report {tmp_path / 'run'}" in line


def test_after_training_a_failing_picture_is_one_line(tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no canvas")

    monkeypatch.setattr(plots, "new_figure", fail)
    monkeypatch.setattr("evenodds.report.run_plots.new_figure", fail)
    report.show_report(write_run(tmp_path / "run"))
    (line,) = capsys.readouterr().out.splitlines()
    assert "RuntimeError: no canvas" in line
    assert not (tmp_path / "run" / "report.html").exists()


def test_help_needs_nothing_heavy():
    code = (
        "import sys; from evenodds.cli import make_parser; make_parser().format_help();"
        "print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]"

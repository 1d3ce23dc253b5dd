"""`evenodds report`: a page of pictures of any training runs."""

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evenodds.errors import ConfigError, DataError

if TYPE_CHECKING:
    from evenodds.comparison.runs import Run
    from evenodds.comparison.savings import ArmResult
    from evenodds.report.page import Page
    from evenodds.report.run_data import Arm

PAGE = "report.html"
BASELINE = "grpo"
DEPTH = 3  # folders above a run that may stand for it: OUT/runs/ARM
_SEED = re.compile(r"seed[-_]?(\d+)")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "report",
        help="make a page of pictures of training runs",
        description="Show what training runs did, whatever trainer wrote them and also while "
        "they go on. Folders ARM/seed-N are seeds of one arm; beside an arm called grpo, what the "
        "others saved is shown too.",
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run folder, or a folder of them"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"the page; by default {PAGE} in the run folder, of several runs here",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Read the runs, draw them, and say where the page lies."""
    from evenodds.report.plots import check_matplotlib

    check_matplotlib()
    runs = find(options.runs)
    path = options.out or (runs[0].folder / PAGE if len(runs) == 1 else Path(PAGE))
    check_writable(path)
    write_report(runs, path)
    return 0


def find(paths: Sequence[Path]) -> "list[Run]":
    """The runs in these folders and below, each once.

    Raises:
        DataError: there is none in one of them, or it is damaged.
    """
    from evenodds.comparison.runs import find_runs
    from evenodds.recorder import METRICS

    folders: dict[Path, Path] = {}
    for path in paths:
        found = [path] if (path / METRICS).exists() else _below(path)
        for folder in found or [path]:
            folders.setdefault(folder.resolve(), folder)
    return list(find_runs(list(folders.values())))


def check_writable(path: Path) -> None:
    """Refuse a page that could not be written, before anything is drawn.

    Raises:
        ConfigError: it is a folder, or its folder cannot be written to.
    """
    from evenodds.report.page import pictures_folder

    if path.is_dir():
        raise ConfigError("the page is a folder", got=path, expected="a file such as page.html")
    pictures = pictures_folder(path)
    try:
        pictures.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, pictures):
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise ConfigError(
            "the page cannot be written",
            got=f"{path}: {error.strerror}",
            fix="name another place with --out FILE.html",
        ) from error


def write_report(runs: "Sequence[Run]", path: Path) -> None:
    """Write the page of these runs with its pictures, and say where they lie."""
    from evenodds.report.page import pictures_folder

    page_of(runs).write(path, pictures=True)
    print(f"The report lies in {path}, its pictures in {pictures_folder(path)}")


def show_report(folder: Path) -> None:
    """The report of a run that has ended; whatever goes wrong here, the run stays what it is."""
    try:
        from evenodds.report.plots import check_matplotlib

        check_matplotlib()
    except ConfigError:
        print(f'No report: pip install "matplotlib>=3.10", then evenodds report {folder}')
        return
    try:
        write_report(find([folder]), folder / PAGE)
    except Exception as error:
        print(f"No report: {type(error).__name__}: {error}; the run itself is complete")


def page_of(runs: "Sequence[Run]") -> "Page":
    """The page of any runs: with what was saved, where they can be compared."""
    from evenodds.report.run_pages import comparison_page, runs_page

    arms = group(runs)
    results, reason = _compared(arms)
    names = ", ".join(name for name, _ in arms)
    title = arms[0][0] if len(arms) == 1 else f"{len(arms)} arms: {names}"
    note = _told(runs)
    if results:
        return comparison_page(results, note, title=title, baseline=BASELINE)
    return runs_page(arms, title, f"{note} {reason}".strip())


def group(runs: "Sequence[Run]") -> "list[Arm]":
    """Runs in ARM/seed-N are seeds of one arm, in their order; any other stands alone.

    Arms of one name are told apart by their paths. Plain GRPO comes first.
    """
    arms: dict[Path, list[Run]] = {}
    for each in runs:
        folder = each.folder.resolve()
        arms.setdefault(folder.parent if _seed_of(each) is not None else folder, []).append(each)
    names = _distinct(list(arms))
    grouped = [
        (name, sorted(seeds, key=lambda each: _seed_of(each) or 0))
        for name, seeds in zip(names, arms.values(), strict=True)
    ]
    return sorted(grouped, key=lambda arm: arm[0] != BASELINE)


def _compared(arms: "Sequence[Arm]") -> "tuple[list[ArmResult], str]":
    """What was saved against plain GRPO, or why that cannot be said."""
    if len(arms) < 2 or BASELINE not in [name for name, _ in arms]:
        return [], ""
    from evenodds.comparison.savings import compare_arms, courses_of

    try:
        courses = [courses_of(name, _seeds(runs), runs) for name, runs in arms]
        return compare_arms(courses, BASELINE), ""
    except DataError as error:
        return [], "Savings are not shown: " + " ".join(str(error).split()) + "."


def _seeds(runs: "Sequence[Run]") -> list[int]:
    return [_seed_of(each) or 0 for each in runs]


def _seed_of(each: "Run") -> int | None:
    """The seed in the name of the run's folder."""
    found = _SEED.fullmatch(each.folder.resolve().name)
    return None if found is None else int(found[1])


def _distinct(paths: Sequence[Path]) -> list[str]:
    """The last parts of these paths, longer where two would be alike."""
    names = [path.name for path in paths]
    for length in range(2, max(len(path.parts) for path in paths) + 1):
        count = Counter(names)
        if max(count.values()) == 1:
            break
        names = [
            "/".join(path.parts[-length:]) if count[name] > 1 else name
            for path, name in zip(paths, names, strict=True)
        ]
    return names


def _below(path: Path) -> list[Path]:
    from evenodds.recorder import METRICS

    for depth in range(1, DEPTH + 1):
        found = sorted(entry.parent for entry in path.glob("/".join(["*"] * depth + [METRICS])))
        if found:
            return found
    return []


def _told(runs: "Sequence[Run]") -> str:
    """How many runs, and which of them have not got as far as they were set to go."""
    going = [
        f"{each.folder} is at step {int(each.step_S[-1]) if len(each.step_S) else 0} of {planned}"
        for each in runs
        if each.config is not None
        and (planned := each.config["run"].get("steps")) is not None
        and (int(each.step_S[-1]) if len(each.step_S) else 0) < planned
    ]
    counted = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    return f"{counted}; {'; '.join(going)}." if going else f"{counted}."

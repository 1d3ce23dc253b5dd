"""`evenodds compare`: several settings over several seeds, and what each saved."""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from evenodds.errors import ConfigError
from evenodds.files import locked, write_json, write_text
from evenodds.run_config import apply_change, config_tables, packaged_configs

if TYPE_CHECKING:
    from evenodds.comparison.plan import Plan

ARMS = "grpo,dots,rr,dots+rr,evenodds"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "compare",
        help="run several settings over several seeds, and see what each saves",
        description="Train every arm and seed from the same start weights, questions and "
        "evaluation, and read off when each arm reaches the last score of plain GRPO. Runs that "
        "have ended are kept; the same command goes on with a comparison that was killed.",
        epilog=f"packaged configs: {', '.join(packaged_configs())}",
    )
    parser.add_argument("config", nargs="?", help="a TOML file, a packaged config, or a recipe")
    parser.add_argument(
        "--arms",
        default=ARMS,
        metavar="ARM,...",
        help=f"presets, or TOML files with the sections that an arm changes ({ARMS})",
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds of each arm (5)")
    parser.add_argument(
        "--first-seed", type=int, default=0, metavar="N", help="the others follow it (0)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a setting of all arms; can be repeated",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the comparison")
    parser.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help="runs at a time; by default two with a thread each on a CPU of two cores or more, "
        "one with a GPU",
    )
    parser.add_argument(
        "--longer",
        type=float,
        default=1.0,
        metavar="X",
        help="other arms than plain GRPO take X times its steps, as theirs may cost less (1)",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="run nothing: make table and page of DIR anew from what its runs recorded",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Plan, run what has not been run, and show the table."""
    from evenodds.report.plots import check_matplotlib

    check_matplotlib()
    if options.source is not None:
        if options.config is not None or options.out is not None:
            raise ConfigError(
                "--from runs nothing", got="a config or --out besides it", fix="leave them out"
            )
        return _show(options.source)
    folder = _run_all(options)
    return _show(folder)


def _run_all(options: argparse.Namespace) -> Path:
    """Every run of the comparison, those that have ended excepted."""
    from evenodds.cli.progress import make_progress
    from evenodds.comparison.arms import parse_arms
    from evenodds.comparison.execution import execute, steps_done
    from evenodds.comparison.plan import make_plan, save_plan

    if options.config is None:
        raise ConfigError(
            "no config was named",
            expected=f"a TOML file or one of {', '.join(packaged_configs())}",
            fix="evenodds compare quickstart",
        )
    for name, value in (("--seeds", options.seeds), ("--at-once", options.at_once or 1)):
        if value < 1:
            raise ConfigError(f"{name} is out of range", got=value, expected="at least 1")
    if not 1.0 <= options.longer <= 10.0:
        raise ConfigError("--longer is out of range", got=options.longer, expected="1 to 10")
    if options.first_seed < 0:
        raise ConfigError("--first-seed is negative", got=options.first_seed, expected="0 or more")
    tables = config_tables(options.config)
    for change in options.set:
        apply_change(tables, change)
    name = tables.get("run", {}).get("name", "run")
    folder = options.out or Path("runs") / f"compare-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cores = len(os.sched_getaffinity(0))
    plan = make_plan(
        folder,
        tables,
        parse_arms([name for name in options.arms.split(",") if name]),
        seeds,
        at_once=options.at_once or _default_at_once(cores),
        cores=cores,
        longer=options.longer,
    )
    _check_arms(plan)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), make_progress() as progress:
        save_plan(plan)
        total = sum(run.config.run.steps for run in plan.runs)
        progress.console.print(
            f"{plan.name}: {len(plan.arms)} arms, {len(plan.seeds)} seeds, {total} steps in all; "
            f"folder {folder}"
        )
        done = steps_done(plan.runs)
        task = progress.add_task("Steps of all runs", total=total, completed=done)
        shown = done

        def on_progress(steps: int) -> None:
            """The bar; on no terminal a line now and then."""
            nonlocal shown
            progress.update(task, completed=steps)
            if not progress.console.is_terminal and steps - shown >= total / 20:
                shown = steps
                ended = sum(run.is_done for run in plan.runs)
                progress.console.print(
                    f"{steps} of {total} steps, {ended} of {len(plan.runs)} runs ended"
                )

        execute(plan, on_progress)
    return folder


def _check_arms(plan: "Plan") -> None:
    """Refuse what any arm would refuse, before the first one is run."""
    from evenodds.cli.train import quieten
    from evenodds.trl.run import prepare

    quieten(plan.runs[0].config)
    for run in plan.runs[: len(plan.arms)]:
        prepare(run.config, run.folder)


def _show(folder: Path) -> int:
    """The table and the page of a comparison, from its runs."""
    from evenodds.cli.progress import show_table
    from evenodds.comparison.plan import read_plan
    from evenodds.comparison.results import MARKDOWN, PAGE, TABLE, results_of, table_record
    from evenodds.report.page import pictures_folder
    from evenodds.report.run_pages import comparison_markdown, comparison_page, comparison_rows

    plan = read_plan(folder)
    results = results_of(plan)
    write_json(folder / TABLE, table_record(plan, results))
    write_text(folder / MARKDOWN, comparison_markdown(results, plan.how_timed))
    columns, rows = comparison_rows(results)
    show_table(f"{plan.name}, {len(plan.seeds)} seeds", columns, rows, plan.how_timed)
    page = folder / PAGE
    comparison_page(results, plan.how_timed).write(page, pictures=True)
    print(
        f"The page lies in {page}, its pictures in {pictures_folder(page)}; every number comes "
        f"from {folder / 'runs'}"
    )
    return 0


def _default_at_once(cores: int) -> int:
    import torch

    return 1 if torch.cuda.is_available() or cores < 2 else 2

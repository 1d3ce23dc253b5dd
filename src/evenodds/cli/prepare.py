"""`evenodds prepare`: the question file of a recipe, from the hub or from local files."""

import argparse
from pathlib import Path

from evenodds.preparation import SOURCES, prepare_pool


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "prepare",
        help="write the question file of a recipe",
        description="Read a source of questions from the Hugging Face hub or from local files, "
        "check its columns and sizes, and write what the recipes train on or evaluate with.",
    )
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(SOURCES)}")
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE_OR_FOLDER",
        help="read this instead of the hub: .jsonl, .json, .parquet or .csv with the columns of "
        "the hub, a folder of such files, or a folder of `save_to_disk`",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("data"), metavar="DIR", help="folder to write to (data)"
    )
    parser.add_argument(
        "--exclude",
        type=Path,
        metavar="FILE",
        help="leave the questions of this file out; `math` needs MATH500 here, where it is read "
        "from local files",
    )
    parser.add_argument(
        "--any-size", action="store_true", help="take any number of rows and questions"
    )
    parser.add_argument(
        "--drop-conflicts",
        action="store_true",
        help="leave questions out that the source gives several answers to",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the draw from a larger source (0)"
    )
    parser.add_argument(
        "--verl", action="store_true", help="write NAME.verl.parquet besides, for verl alone"
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Write the file, and show what became of the rows."""
    made = prepare_pool(
        options.name,
        options.out,
        local=options.source,
        exclude=options.exclude,
        any_size=options.any_size,
        drop_conflicts=options.drop_conflicts,
        seed=options.seed,
        verl=options.verl,
    )
    parts = [
        f"{count:,} {what}"
        for count, what in (
            (made.num_filtered, "filtered out"),
            (made.num_excluded, "held out"),
            (made.num_conflicting, "with several answers"),
            (made.num_merged, "repeated"),
        )
        if count
    ]
    left_out = f" ({', '.join(parts)})" if parts else ""
    print(f"{made.path}: {made.num_questions:,} questions of {made.num_rows:,} rows{left_out}")
    return 0

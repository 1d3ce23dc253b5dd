"""The command line. Nothing heavy is imported before a command needs it."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from evenodds import __version__
from evenodds.errors import EvenoddsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    # Idle threads sleep: beside another busy process, spinning ones make work many times longer.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("evenodds").setLevel(logging.INFO if _is_main() else logging.ERROR)
    try:
        return options.command(options)
    except EvenoddsError as error:
        print(f"evenodds: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"evenodds: {_spell(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("evenodds: interrupted", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    from evenodds.cli import (
        compare,
        embed,
        prepare,
        recipes,
        report,
        sampling,
        study,
        train,
        verl_command,
    )

    parser = argparse.ArgumentParser(
        prog="evenodds", description="Train language models on questions with even odds."
    )
    parser.add_argument("--version", action="version", version=f"evenodds {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    train.add_parser(commands)
    compare.add_parser(commands)
    recipes.add_parser(commands)
    prepare.add_parser(commands)
    sampling.add_parsers(commands)
    embed.add_parser(commands)
    study.add_parsers(commands)
    report.add_parser(commands)
    verl_command.add_parser(commands)
    return parser


def _is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _spell(error: OSError) -> str:
    """A file system's error in one line: which file, and what is wrong."""
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}"

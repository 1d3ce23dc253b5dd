"""`evenodds train`: run a config, or go on with a run folder."""

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

from evenodds.cli.report import show_report
from evenodds.errors import CheckpointError, ConfigError
from evenodds.files import locked, read_json, write_json
from evenodds.run_config import RunConfig, apply_change, packaged_configs, read_config, recipes

CONFIG = "config.json"
CHANGEABLE = {"run": ("steps", "save_every", "keep_checkpoints", "threads", "report_to")}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "train",
        help="train a policy with GRPO, selection and replay",
        description="Train a policy with GRPO on TRL, choosing questions by predicted difficulty "
        "and replaying recent rollouts.",
        epilog=f"packaged configs: {', '.join(packaged_configs())}; "
        f"recipes: {', '.join(recipes())}",
    )
    parser.add_argument(
        "config",
        nargs="?",
        help="a TOML file, a packaged config such as quickstart, or a recipe; /PRESET behind a "
        "name takes that preset",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a setting; can be repeated",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="run folder; must be new or empty")
    parser.add_argument(
        "--resume", type=Path, metavar="DIR", help="go on from the newest checkpoint of a run"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything without loading weights, show what the run will take and how to "
        "launch it",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Check, train, and show how it went."""
    if options.dry_run:
        return _dry_run(options)
    config, folder = _config_and_folder(options)
    resume = options.resume is not None and _has_checkpoint(folder)
    quieten(config)
    from evenodds.cli.display import TrainingDisplay
    from evenodds.trl.run import prepare, train

    is_main = os.environ.get("RANK", "0") == "0"
    prepared = prepare(config, folder)
    if not is_main:
        train(prepared, folder, resume=resume)
        return 0
    display = TrainingDisplay(config, len(prepared.pool), folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if not resume:
            write_json(folder / CONFIG, config.as_dict())

        def on_step(metrics: dict[str, Any]) -> None:
            """The checkpoint fits: from here on the run is the one with these settings."""
            if read_json(folder / CONFIG) != config.as_dict():
                write_json(folder / CONFIG, config.as_dict())
            display.update(metrics)

        with display:
            summary = train(prepared, folder, resume=resume, on_step=on_step, track=display.track)
    display.summary(summary)
    show_report(folder)
    return 0


def _dry_run(options: argparse.Namespace) -> int:
    from evenodds.cli.dry_run import show_dry_run

    if options.resume is not None:
        raise ConfigError(
            "--dry-run looks at a new run",
            got=f"--resume {options.resume}",
            fix="leave one of the two out",
        )
    config, _ = _config_and_folder(options)
    show_dry_run(options.config, config, options.set, options.out)
    return 0


def _config_and_folder(options: argparse.Namespace) -> tuple[RunConfig, Path]:
    if options.resume is not None:
        if options.config is not None or options.out is not None:
            raise ConfigError(
                "--resume goes on with a run as it was",
                got="a config or --out besides it",
                fix="evenodds train --resume DIR [--set run.steps=N]",
            )
        return _resumed(options.resume, options.set), options.resume
    if options.config is None:
        raise ConfigError(
            "no config was named",
            expected=f"a TOML file or one of {', '.join(packaged_configs())}",
            fix="evenodds train quickstart",
        )
    config = read_config(options.config, options.set)
    folder = options.out or Path("runs") / f"{config.run.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            "the run folder is in use",
            got=folder,
            expected="a new or empty folder",
            fix=f"evenodds train --resume {folder}, or another --out",
        )
    return config, folder


def _resumed(folder: Path, changes: list[str]) -> RunConfig:
    if not (folder / CONFIG).exists():
        raise CheckpointError(
            "this is not a run folder", got=folder, expected=f"a folder with {CONFIG}"
        )
    tables = read_json(folder / CONFIG)
    if not isinstance(tables, dict) or not {"run", "model", "data"} <= set(tables):
        raise CheckpointError(
            "this is not a run folder", got=folder / CONFIG, expected=f"the {CONFIG} of a run"
        )
    for change in changes:
        section, _, key = change.partition("=")[0].strip().partition(".")
        if key not in CHANGEABLE.get(section, ()):
            raise ConfigError(
                "this setting cannot change while a run goes on",
                got=change,
                expected=f"a change of {', '.join(f'run.{name}' for name in CHANGEABLE['run'])}",
                fix="start a new run",
            )
        apply_change(tables, change)
    return RunConfig.from_mapping(tables)


def _has_checkpoint(folder: Path) -> bool:
    """Whether any checkpoint was written to the end; a run killed before that begins anew.

    Raises:
        CheckpointError: the run was finished, and its checkpoints are gone.
    """
    found = any(
        _is_json(path / "trainer_state.json")
        for path in (folder / "checkpoints").glob("checkpoint-*")
    )
    if not found and (folder / "summary.json").exists():
        raise CheckpointError(
            "the run was finished, and has no checkpoint to go on from",
            got=folder / "checkpoints",
            fix="start a new run; this folder is left as it is",
        )
    return found


def _is_json(path: Path) -> bool:
    try:
        read_json(path)
    except CheckpointError:
        return False
    return True


def quieten(config: RunConfig) -> None:
    """Leave the screen to our own display, and set the threads before torch starts any."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    warnings.filterwarnings("ignore", category=FutureWarning, module="trl")
    import torch

    from evenodds.cli.progress import quieten_transformers

    quieten_transformers()
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)

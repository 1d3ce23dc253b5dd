"""`evenodds recipes`: the settings that come with evenodds, at a glance."""

import argparse
from typing import TYPE_CHECKING

from evenodds.config import PRESETS
from evenodds.run_config import RunConfig, config_tables, recipes

if TYPE_CHECKING:
    from evenodds.preparation import Source

TWINS = ("grpo", "evenodds")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "recipes",
        help="list the settings of the paper, with their twins",
        description="List the recipes: model, data, GPUs, and the rollouts that each generates, "
        "beside its twin of plain GRPO and its twin of the preset evenodds.",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Show the table."""
    from evenodds.cli.progress import show_table

    show_table(
        "Recipes",
        (
            "recipe",
            "model",
            "data",
            "questions",
            "GPUs",
            "steps",
            "rollouts of the run",
            *(f"of /{twin}" for twin in TWINS),
        ),
        [_row(name) for name in recipes()],
        note="Rollouts are those generated, in thousands, references included.\n"
        "evenodds train RECIPE/grpo is plain GRPO, RECIPE/evenodds our own preset, all else "
        f"alike; so is RECIPE/PRESET for {', '.join(PRESETS)}.\n"
        "evenodds train RECIPE --dry-run checks everything before anything is loaded.",
    )
    return 0


def _row(name: str) -> tuple[str, ...]:
    from evenodds.forecast import forecast
    from evenodds.preparation import source_of_file

    config = RunConfig.from_mapping(config_tables(name))
    source = source_of_file(config.data.source)
    most = None if source is None else source.most
    twins = [RunConfig.from_mapping(config_tables(f"{name}/{twin}")) for twin in TWINS]
    totals = [forecast(each, most or each.generation.groups_per_step) for each in (config, *twins)]
    return (
        name,
        config.model.path,
        config.data.source if source is None else source.title,
        "as prepared" if source is None or most is None else _size(source),
        gpus(config),
        str(config.run.steps),
        *(f"{each.total_rollouts / 1000:,.0f} k" for each in totals),
    )


def _size(source: "Source") -> str:
    return f"{source.size:,}" if source.size else f"up to {source.most:,}"


def gpus(config: RunConfig) -> str:
    """The hardware in words."""
    hardware = config.hardware
    if hardware is None:
        return "any"
    nodes = "" if hardware.nodes == 1 else f"{hardware.nodes} x "
    memory = "" if hardware.gpu_memory is None else f", {hardware.gpu_memory:g} GiB"
    return f"{nodes}{hardware.gpus_per_node} x {hardware.gpu or 'GPU'}{memory}"

"""`evenodds verl-command`: the command that starts a config's run on verl."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from evenodds.run_config import packaged_configs, read_config

if TYPE_CHECKING:
    from evenodds.run_config import RunConfig


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "verl-command",
        help="print the command that starts a config's run on verl",
        description="Translate a config into the settings of verl 0.9 with the plug-in "
        "evenodds.verl, and print the launch command. verl need not be installed here.",
        epilog=f"packaged configs: {', '.join(packaged_configs())}",
    )
    parser.add_argument("config", help="a TOML file, or a packaged config")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a setting; can be repeated",
    )
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="machines (those of [hardware], or 1)"
    )
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="GPUs of each (those of [hardware], or 8)"
    )
    parser.add_argument(
        "--tensor-parallel", type=int, default=1, metavar="N", help="GPUs of a sampler (1)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="where train.parquet and test.parquet of verl lie (data/NAME)",
    )
    parser.add_argument(
        "--write-data",
        action="store_true",
        help="write these files from the questions of the config",
    )
    parser.add_argument("--out", default=None, metavar="DIR", help="run folder (runs/NAME)")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Check, write the data where asked, and print."""
    from evenodds.verl_command import Cluster, command, data_files, efficiency_for_verl

    config = read_config(options.config, options.set)
    meant = config.hardware
    cluster = Cluster(
        nodes=(meant.nodes if meant else 1) if options.nodes is None else options.nodes,
        gpus=(meant.gpus_per_node if meant else 8) if options.gpus is None else options.gpus,
        tensor_parallel=options.tensor_parallel,
    )
    files = data_files(config, options.data or Path("data") / config.run.name)
    text = command(config, cluster, files, options.out or f"runs/{config.run.name}")
    _, left_out = efficiency_for_verl(config.efficiency)
    if options.write_data:
        _write_data(config, files)
    for name in left_out:
        print(f"evenodds: {name} is left out: verl cannot have it", file=sys.stderr)
    missing = [path for path in files.values() if not Path(path).exists()]
    if missing:
        print(
            f"evenodds: {' and '.join(missing)} are not there yet; --write-data writes them",
            file=sys.stderr,
        )
    print(text)
    return 0


def _write_data(config: "RunConfig", files: dict[str, str]) -> None:
    from datasets import Dataset

    from evenodds.files import replacing
    from evenodds.questions import load_pool
    from evenodds.verl_command import verl_row

    held_out = config.evaluation_data
    assert held_out is not None, "checked with the files"
    for split, data in (("train", config.data), ("test", held_out)):
        pool = load_pool(data)
        rows = [
            verl_row(row, number, config.run.name, split) for number, row in enumerate(pool.rows())
        ]
        path = Path(files[split])
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            Dataset.from_list(rows).to_parquet(str(temporary))
        print(f"evenodds: {len(rows)} rows in {path}", file=sys.stderr)

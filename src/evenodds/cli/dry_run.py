"""`evenodds train --dry-run`: what a run will take, with no weights and no GPU."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from evenodds.cli.progress import show_table
from evenodds.cli.recipes import gpus
from evenodds.errors import DataError, EvenoddsError
from evenodds.forecast import WIDEST, Forecast, forecast
from evenodds.preparation import Source, source_of_file
from evenodds.questions import DataConfig, QuestionPool, load_pool
from evenodds.resources import resolved_path
from evenodds.rewards import make_reward
from evenodds.run_config import RunConfig

R = TypeVar("R")

Row = tuple[str, str]


class Checks:
    """Runs one check after the other, and keeps the first problem for the end."""

    def __init__(self) -> None:
        self.problem: EvenoddsError | None = None

    def run(self, check: Callable[[], R]) -> R | None:
        """What `check` gives; none where it finds a problem."""
        try:
            return check()
        except EvenoddsError as error:
            self.problem = self.problem or error
            return None


def show_dry_run(
    name: str, config: RunConfig, changes: Sequence[str] = (), folder: Path | None = None
) -> None:
    """Show what a run will take and how to launch it.

    Args:
        name: Of the config, as it was typed.
        config: The whole run.
        changes: Those of `--set`.
        folder: Its run folder; none takes one of its name.

    Raises:
        EvenoddsError: the first problem that was found, after all is shown.
    """
    checks = Checks()
    questions, rows = _questions(config, checks)
    foreseen = checks.run(lambda: forecast(config, questions))
    rows += _files(config, checks)
    if foreseen is not None:
        rows += [*_batch(config, foreseen), *_memory(config, foreseen), *_times(foreseen)]
    show_table(f"Dry run of {name}", ("", ""), rows, note=_note(config))
    if checks.problem is not None:
        raise checks.problem
    print("everything that can be checked without the weights is fine\n")
    print("launch on TRL:")
    print(f"  {launch_command(name, config, changes, folder)}")
    print("launch on verl, this prints how:")
    on_verl = shlex.join(["evenodds", "verl-command", name, *_sets(changes)])
    print(f"  {on_verl}")


def launch_command(
    name: str, config: RunConfig, changes: Sequence[str] = (), folder: Path | None = None
) -> str:
    """How to start the run on TRL, on the machines that its config names."""
    out = folder or Path("runs") / config.run.name
    command = ["evenodds", "train", name, *_sets(changes), "--out", str(out)]
    hardware = config.hardware
    if hardware is None or hardware.processes == 1:
        return shlex.join(command)
    launcher = ["accelerate", "launch", "--num_processes", str(hardware.processes)]
    if hardware.nodes > 1:
        launcher += ["--num_machines", str(hardware.nodes)]
    return shlex.join([*launcher, *hardware.launch, "-m", *command])


def _sets(changes: Sequence[str]) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


def _questions(config: RunConfig, checks: Checks) -> tuple[int, list[Row]]:
    """Size of the pool, known or expected, and what is said about questions and reward."""
    pool = checks.run(lambda: _pool(config.data))
    held_out_data = config.evaluation_data
    held_out = None
    if held_out_data is not None:
        held_out = checks.run(lambda: _pool(held_out_data))
    if pool is not None and held_out is not None:
        taken = set(held_out.ids)
        pool = pool.take([row for row, name in enumerate(pool.ids) if name not in taken])
    rows = [("policy", config.model.path), ("questions", _spell_pool(config.data, pool))]
    if held_out_data is not None:
        rows.append(("held-out questions", _spell_pool(held_out_data, held_out)))
    rows.append(("reward", _reward(config, [each for each in (pool, held_out) if each], checks)))
    if pool is not None:
        return len(pool), rows
    source = source_of_file(config.data.source)
    least = max(config.generation.groups_per_step, config.efficiency.num_references)
    return (source and source.most) or least, rows


def _pool(data: DataConfig) -> QuestionPool:
    """The questions; a file that is not there is named with the command that makes it."""
    source = source_of_file(data.source)
    if source is None or Path(data.source).expanduser().exists():
        return load_pool(data)
    raise DataError(
        f"there is no file {data.source}",
        got=f"nothing at {Path(data.source).expanduser().absolute()}",
        expected=f"questions of {source.title}",
        fix=_prepare(source, data.source),
    )


def _prepare(source: Source, path: str) -> str:
    folder = Path(path).parent
    out = "" if folder == Path("data") else f" --out {shlex.quote(str(folder))}"
    local = " --from FILE_OR_FOLDER" if source.hub is None else ""
    return f"evenodds prepare {source.name}{local}{out}"


def _spell_pool(data: DataConfig, pool: QuestionPool | None) -> str:
    if pool is not None:
        return f"{data.source}: {len(pool):,}"
    source = source_of_file(data.source)
    taken = "" if source is None or source.most is None else f"; {source.most:,} taken to be there"
    return f"{data.source}: not usable{taken}"


def _reward(config: RunConfig, pools: Sequence[QuestionPool], checks: Checks) -> str:
    reward = checks.run(lambda: make_reward(config.reward))
    if reward is None or not pools:
        return f"{config.reward.kind}, not checked"
    for pool in pools:
        checks.run(lambda pool=pool: reward.check(pool.answers, pool.ids))
    return f"{config.reward.kind}, reference answers checked"


def _files(config: RunConfig, checks: Checks) -> list[Row]:
    efficiency = config.efficiency
    for path in (efficiency.predictor, efficiency.prior_labels):
        if path is not None:
            checks.run(lambda path=path: _exists(path))
    if not efficiency.predicts:
        return []
    predictor = efficiency.predictor or "none: the embeddings as they are"
    return [("difficulty predictor", predictor), ("embeddings of", efficiency.embeddings)]


def _exists(path: str) -> None:
    if not resolved_path(path).exists():
        raise DataError(
            f"there is no file {path}",
            got=f"nothing at {resolved_path(path).absolute()}",
            fix="evenodds fit makes a predictor; leave efficiency.predictor out to go without",
        )


def _batch(config: RunConfig, foreseen: Forecast) -> list[Row]:
    each = foreseen.groups // foreseen.processes
    smaller = foreseen.groups - foreseen.fresh - foreseen.replayed
    left = f"; {smaller} left out" if smaller else ""
    references = "none"
    if foreseen.references:
        efficiency = config.efficiency
        references = (
            f"{efficiency.num_references} every {efficiency.steps_per_selection} steps, "
            f"{foreseen.references:g} a step"
        )
    elif config.efficiency.predicts and config.efficiency.references == "batch":
        references = "part of the batch"
    return [
        ("GPUs", gpus(config)),
        ("groups of a batch", f"{foreseen.groups}, {each} for each of {foreseen.processes}"),
        ("of these", f"{foreseen.fresh} generated, {foreseen.replayed} replayed{left}"),
        ("reference groups", references),
        (
            "updates a step",
            f"{foreseen.updates}, each of {foreseen.micro_batches * foreseen.micro_batch} rollouts "
            f"on each GPU, {foreseen.micro_batch} in a pass" + (", if full" if smaller else ""),
        ),
        ("rollouts generated a step", f"{foreseen.rollouts:,.0f}"),
        ("tokens generated a step, at most", f"{foreseen.tokens / 1e6:,.2f} million"),
        ("rollouts trained on a step", f"{foreseen.trained:,}"),
        (
            f"rollouts generated in {config.run.steps} steps, references included",
            f"{foreseen.total_rollouts:,.0f}",
        ),
    ]


def _memory(config: RunConfig, foreseen: Forecast) -> list[Row]:
    whole = foreseen.buffer_bytes
    buffer = "no replay"
    if whole:
        buffer = f"{_mebi(whole)}, {_mebi(whole / foreseen.processes)} on each process"
    predictions = "nothing is predicted"
    if foreseen.prediction_bytes:
        assumed = "" if foreseen.width_is_known else f", if they have {WIDEST} numbers each"
        predictions = f"{_mebi(foreseen.prediction_bytes)} on process 0{assumed}"
    return [
        ("memory of the replay buffer (CPU), at most", buffer),
        ("memory of embeddings and predictions (CPU)", predictions),
    ]


def _times(foreseen: Forecast) -> list[Row]:
    first, last = foreseen.shares[0], foreseen.shares[-1]
    return [
        ("modelled: references, of a step's time", _range(first.references, last.references)),
        ("modelled: saved by replay, of a plain step", _range(first.replay, last.replay)),
        ("modelled: time of a step, of a plain one", _range(first.step, last.step)),
    ]


def _note(config: RunConfig) -> str:
    known = None if config.hardware is None else config.hardware.generation_share
    share = f"{known:g}" if known is not None else "0.46 to 0.54"
    return (
        f"Modelled times take generating to be {share} of a step of plain GRPO, and a step's time "
        "to follow\nthe groups that are generated and trained on. They were not measured."
    )


def _range(low: float, high: float) -> str:
    low, high = sorted((low, high))
    return f"{low:.1%}" if f"{low:.1%}" == f"{high:.1%}" else f"{low:.1%} to {high:.1%}"


def _mebi(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"

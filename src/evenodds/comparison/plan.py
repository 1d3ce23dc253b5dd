"""Which runs a comparison is made of, in which order, and where they lie. Free of torch."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenodds.comparison.arms import Arm
from evenodds.errors import CheckpointError, ConfigError
from evenodds.files import read_json, write_json
from evenodds.run_config import RunConfig

PLAN = "plan.json"
CONFIG = "config.json"
SUMMARY = "summary.json"
BASELINE = "grpo"


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One arm and one seed.

    Attributes:
        arm: Name of the arm.
        seed: Of everything random.
        folder: Its run folder.
        config: Every setting of it.
    """

    arm: str
    seed: int
    folder: Path
    config: RunConfig

    @property
    def is_done(self) -> bool:
        """Whether the run has ended, with as many steps as it shall have."""
        path = self.folder / SUMMARY
        return path.exists() and read_json(path)["steps"] >= self.config.run.steps


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that makes a comparison.

    Attributes:
        folder: Of the comparison.
        name: Of the config.
        arms: Their names, in the order of tables.
        seeds: The same for every arm.
        at_once: Runs at a time.
        threads: CPU threads of each.
        runs: In the order in which they are started.
    """

    folder: Path
    name: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    at_once: int
    threads: int
    runs: tuple[PlannedRun, ...]

    @property
    def how_timed(self) -> str:
        """How times became comparable, for tables and pages."""
        runs = "one run" if self.at_once == 1 else f"{self.at_once} runs"
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return (
            f"{runs} at a time, {threads} each; seed by seed, all arms of a seed one after the "
            "other, beginning with another arm each time. Training time is without evaluating, "
            "saving and loading, and with embedding the questions"
        )


def run_folder(folder: Path, arm: str, seed: int) -> Path:
    """Where a run of a comparison lies."""
    return folder / "runs" / arm / f"seed-{seed}"


def make_plan(
    folder: Path,
    tables: Mapping[str, Any],
    arms: Sequence[Arm],
    seeds: Sequence[int],
    *,
    at_once: int,
    cores: int,
    longer: float = 1.0,
) -> Plan:
    """All runs, with their settings checked.

    Args:
        folder: Of the comparison.
        tables: The shared config, as parsed from TOML.
        arms: At least one.
        seeds: Of the runs, the same for every arm.
        at_once: Runs at a time.
        cores: That they share.
        longer: Steps of other arms than plain GRPO, over its steps, where they have none of their
            own. With a constant learning rate the steps up to there stay what they were.

    Raises:
        ConfigError: a setting is wrong, nothing is evaluated, or runs of another length would have
            another learning rate.
    """
    threads = max(1, cores // at_once)
    shared = {**tables, "run": {**tables.get("run", {}), "threads": threads}}
    usual = RunConfig.from_mapping(shared).run.steps
    runs = []
    for place, seed in enumerate(seeds):
        first = place % len(arms)
        for arm in [*arms[first:], *arms[:first]]:
            config = arm.config(shared, seed)
            if arm.steps is not None:
                config = _with_steps(config, arm.steps, usual)
            elif arm.name != BASELINE:
                config = _with_steps(config, round(longer * usual), usual)
            if config.evaluation is None:
                raise ConfigError(
                    "a comparison needs held-out questions",
                    got="a config without [evaluation]",
                    fix="add [evaluation] with `every`",
                )
            runs.append(PlannedRun(arm.name, seed, run_folder(folder, arm.name, seed), config))
    return Plan(
        folder=folder,
        name=runs[0].config.run.name,
        arms=tuple(arm.name for arm in arms),
        seeds=tuple(seeds),
        at_once=at_once,
        threads=threads,
        runs=tuple(runs),
    )


def _with_steps(config: RunConfig, steps: int, usual: int) -> RunConfig:
    """The config with another number of steps, each of which stays what it was."""
    if steps != usual and not config.training.schedule.startswith("constant"):
        raise ConfigError(
            "longer or shorter runs would have another learning rate at each step",
            got=f"training.schedule = {config.training.schedule!r}, {steps} and {usual} steps",
            expected="a constant one",
            fix="leave --longer and an arm's own run.steps out",
        )
    return dataclasses.replace(config, run=config.run.replace(steps=steps))


def save_plan(plan: Plan) -> None:
    """Write the plan and a config for each run; runs that are there can become longer only.

    Raises:
        CheckpointError: a run in the folder has other settings.
    """
    for run in plan.runs:
        settings = run.config.as_dict()
        if (run.folder / CONFIG).exists():
            found = read_json(run.folder / CONFIG)
            if not _can_become(found, settings):
                raise CheckpointError(
                    f"the folder holds a run of {run.arm} with other settings",
                    got=f"{run.folder / CONFIG}: {_difference(found, settings)}",
                    expected="the settings of this comparison",
                    fix="use another --out",
                )
        elif any(run.folder.glob("*")):
            raise CheckpointError(
                "a run folder of the comparison is in use",
                got=run.folder,
                fix="use another --out",
            )
    for run in plan.runs:
        write_json(run.folder / CONFIG, run.config.as_dict())
    record = {
        "name": plan.name,
        "arms": list(plan.arms),
        "seeds": list(plan.seeds),
        "at_once": plan.at_once,
        "threads": plan.threads,
    }
    write_json(plan.folder / PLAN, record)


def read_plan(folder: Path) -> Plan:
    """The plan of a comparison that was begun.

    Raises:
        CheckpointError: there is none.
    """
    found = read_json(folder / PLAN)
    try:
        names, seeds = found["arms"], found["seeds"]
        runs = [
            PlannedRun(arm, seed, run_folder(folder, arm, seed), _saved(folder, arm, seed))
            for seed in seeds
            for arm in names
        ]
        return Plan(
            folder,
            found["name"],
            tuple(names),
            tuple(seeds),
            found["at_once"],
            found["threads"],
            tuple(runs),
        )
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{PLAN} is not the plan of a comparison", got=f"{folder / PLAN}: {error!r}"
        ) from error


def _saved(folder: Path, arm: str, seed: int) -> RunConfig:
    return RunConfig.from_mapping(read_json(run_folder(folder, arm, seed) / CONFIG))


def _can_become(found: Any, wanted: dict[str, Any]) -> bool:
    """Whether a run goes on as before, if for longer."""
    if not isinstance(found, dict) or not isinstance(found.get("run"), dict):
        return False
    steps = found["run"].get("steps")
    if not isinstance(steps, int) or steps > wanted["run"]["steps"]:
        return False
    return {**found, "run": {**found["run"], "steps": wanted["run"]["steps"]}} == wanted


def _difference(found: Any, wanted: dict[str, Any]) -> str:
    """The first setting that differs."""
    if not isinstance(found, dict):
        return "not a config"
    for section, table in wanted.items():
        for key, value in table.items():
            other = (found.get(section) or {}).get(key)
            if other != value:
                return f"{section}.{key} = {other!r} there, {value!r} here"
    return "settings that are not here"

"""The arms of a comparison: presets of the method, or fragments of a config. Free of torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenodds.config import PRESETS, unknown_key
from evenodds.errors import ConfigError
from evenodds.run_config import RunConfig, config_text, parse_toml

SHARED = ("model", "data", "reward", "evaluation", "run", "hardware")  # what no arm may change


@dataclass(frozen=True)
class Arm:
    """A name, and what it changes in the config that all arms share.

    Attributes:
        name: Of the arm, and of its folder.
        sections: Tables that are laid over those of the config.
    """

    name: str
    sections: Mapping[str, Mapping[str, Any]]

    @property
    def steps(self) -> int | None:
        """Its own number of steps, where it has one and changes nothing else of the run."""
        own = self.sections.get("run", {})
        return own["steps"] if set(own) == {"steps"} else None

    def config(self, tables: Mapping[str, Any], seed: int) -> RunConfig:
        """The whole config of one run.

        A preset of the arm takes the place of the config's own; what the config sets besides its
        preset (sizes, files) stays, unless the arm's preset says otherwise.

        Args:
            tables: The shared config, as parsed from TOML.
            seed: Of the run.
        """
        merged = {name: dict(table) for name, table in tables.items()}
        for name, table in self.sections.items():
            own = merged.setdefault(name, {})
            if name == "efficiency" and "preset" in table:
                own.pop("preset", None)
                own.update(PRESETS[table["preset"]])
            own.update({key: value for key, value in table.items() if key != "preset"})
        merged.setdefault("run", {})["seed"] = seed
        return RunConfig.from_mapping(merged)


def parse_arms(names: Sequence[str]) -> list[Arm]:
    """Arms by name: a preset, or a TOML file.

    A file holds sections to change, and gives one arm of its name; or tables `[arms.NAME.SECTION]`,
    and gives an arm a name.

    Raises:
        ConfigError: a name is unknown or said twice, or an arm changes what all must share.
    """
    arms = [arm for name in names for arm in _arms(name)]
    for place, arm in enumerate(arms):
        if not re.fullmatch(r"[\w.+-]*\w[\w.+-]*", arm.name):
            raise ConfigError(
                "an arm's name cannot name a folder",
                got=repr(arm.name),
                expected="letters, digits, -, +, _ and .",
            )
        if arm.name in [other.name for other in arms[:place]]:
            raise ConfigError(f"the arm {arm.name!r} is there twice", fix="give it another name")
        for section in arm.sections:
            if section in SHARED and not (section == "run" and arm.steps is not None):
                raise ConfigError(
                    f"the arm {arm.name!r} changes [{section}]",
                    got=sorted(arm.sections[section]),
                    expected="changes of [efficiency], [training] or [generation]: arms share "
                    "the policy, the questions, the evaluation and the seeds; of [run] an arm "
                    "may set `steps` alone",
                )
    if not arms:
        raise ConfigError("no arm was named", expected=f"some of {', '.join(PRESETS)}")
    return arms


def _arms(name: str) -> list[Arm]:
    if name in PRESETS:
        return [Arm(name, {"efficiency": {"preset": name}})]
    if not name.endswith(".toml"):
        raise unknown_key(name, [*PRESETS, "FILE.toml"], kind="arm")
    tables = parse_toml(config_text(name), name)
    inner = tables.get("arms")
    found = {Path(name).stem: tables} if inner is None else inner
    if not isinstance(found, dict) or (inner is not None and len(tables) > 1):
        raise ConfigError(
            f"{name} mixes arms with sections", expected="[arms.NAME.SECTION] tables alone"
        )
    return [Arm(arm, _checked(arm, sections)) for arm, sections in found.items()]


def _checked(arm: str, sections: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(sections, dict) or not all(isinstance(t, dict) for t in sections.values()):
        raise ConfigError(
            f"the arm {arm!r} is not made of tables",
            got=repr(sections),
            expected=f"[arms.{arm}.efficiency] with key = value lines",
        )
    preset = sections.get("efficiency", {}).get("preset")
    if preset is not None and preset not in PRESETS:
        raise unknown_key(str(preset), list(PRESETS), kind="preset")
    return sections

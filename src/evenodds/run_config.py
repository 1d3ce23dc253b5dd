"""A whole run in one TOML file, checked before anything is loaded. Free of torch."""

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal

from evenodds.config import PRESETS, EfficiencyConfig, Settings, setting, unknown_key
from evenodds.errors import ConfigError
from evenodds.questions import DataConfig
from evenodds.rewards.config import RewardConfig


@dataclass(frozen=True, kw_only=True)
class RunSection(Settings):
    """How long, how often, and from which seed."""

    section: ClassVar[str] = "run"

    name: str = setting("run", "of the run's folder; letters, digits and -_. only")
    steps: int = setting(60, "rollout steps", low=1)
    seed: int = setting(0, "of everything random", low=0, high=2**32 - 1)
    save_every: int = setting(10, "steps between checkpoints; 0 saves at the end only", low=0)
    keep_checkpoints: int = setting(2, "newest checkpoints that are kept", low=1)
    threads: int | None = setting(None, "CPU threads; none leaves it to torch", low=1, high=1024)
    report_to: tuple[str, ...] = setting(
        (), "where TRL reports to besides the run folder: `tensorboard`, `wandb`, `trackio`"
    )

    def check(self) -> None:
        """Refuse a name that is no name of a folder."""
        if not re.fullmatch(r"[\w.-]*\w[\w.-]*", self.name):
            raise ConfigError(
                "run.name cannot name a folder",
                got=repr(self.name),
                expected="letters, digits, -, _ and .",
            )


@dataclass(frozen=True, kw_only=True)
class ModelSection(Settings):
    """The policy."""

    section: ClassVar[str] = "model"

    path: str = setting(
        MISSING,
        "`toy`, a Hugging Face name or folder, a .gguf file, or `package:NAME/FILE` for a file "
        "in an installed package",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = setting("float32", "of the weights")
    lora_rank: int | None = setting(None, "train LoRA adapters of this rank instead", low=1)
    lora_targets: tuple[str, ...] = setting((), "modules with adapters; none takes PEFT's default")

    def check(self) -> None:
        """Refuse targets without adapters."""
        if self.lora_targets and self.lora_rank is None:
            raise ConfigError(
                "model.lora_targets needs a rank",
                got=list(self.lora_targets),
                fix="set model.lora_rank",
            )


@dataclass(frozen=True, kw_only=True)
class GenerationSection(Settings):
    """How rollouts are sampled."""

    section: ClassVar[str] = "generation"

    group_size: int = setting(8, "G: rollouts of a question", low=2)
    groups_per_step: int = setting(64, "B: question groups of a step, over all processes", low=2)
    max_new_tokens: int = setting(512, "longest completion", low=1, unit="tokens")
    temperature: float = setting(1.0, "of sampling", above=0.0)
    top_p: float = setting(1.0, "nucleus sampling", above=0.0, high=1.0)
    use_vllm: bool = setting(False, "generate with vLLM, which must be installed")


@dataclass(frozen=True, kw_only=True)
class TrainingSection(Settings):
    """The updates."""

    section: ClassVar[str] = "training"

    learning_rate: float = setting(1e-6, "of AdamW", above=0.0)
    schedule: str = setting("constant", "of the learning rate, by transformers' names")
    warmup_steps: int = setting(0, "steps until the full learning rate", low=0)
    weight_decay: float = setting(0.0, "of AdamW", low=0.0)
    max_grad_norm: float = setting(1.0, "gradients are clipped to this norm", above=0.0)
    loss_type: Literal["dapo", "grpo", "dr_grpo", "bnpo"] = setting(
        "dapo", "how TRL averages token losses"
    )
    scale_rewards: Literal["none", "group", "batch"] = setting(
        "none", "what the host divides r - mean by, where efficiency.advantage is `host`"
    )
    clip_low: float = setting(0.2, "epsilon below 1", low=0.0, high=1.0)
    clip_high: float = setting(0.2, "epsilon above 1", low=0.0)
    kl_coefficient: float = setting(0.0, "beta: weight of the KL to the start policy", low=0.0)
    updates_per_step: int = setting(1, "optimizer updates on each batch of rollouts", low=1)
    micro_batch: int | None = setting(
        None, "rollouts in one forward and backward pass; none takes a whole update", low=1
    )
    host: dict[str, Any] | None = setting(  # noqa: RUF009
        None, "further arguments of trl.GRPOConfig"
    )


@dataclass(frozen=True, kw_only=True)
class EvaluationSection(Settings):
    """Held-out questions, scored now and then with the reward of the run."""

    section: ClassVar[str] = "evaluation"

    every: int = setting(0, "steps between evaluations; 0 evaluates at start and end only", low=0)
    source: str | None = setting(None, "as data.source; none takes that")
    subset: str | None = setting(None, "as data.subset; none takes that")
    split: str = setting("test", "as data.split")
    tasks: dict[str, Any] | None = setting(None, "as data.tasks; none takes those")  # noqa: RUF009
    limit: int | None = setting(None, "as data.limit", low=1)
    seed: int = setting(1, "as data.seed, and of sampling", low=0)
    samples: int = setting(1, "completions of each question; accuracy is their mean", low=1)
    temperature: float = setting(0.6, "of sampling; 0 is greedy", low=0.0)
    top_p: float = setting(0.95, "nucleus sampling", above=0.0, high=1.0)
    batch_size: int = setting(64, "completions generated at once", low=1)


@dataclass(frozen=True, kw_only=True)
class HardwareSection(Settings):
    """The machines that a run is meant for; launch commands and dry runs go by it."""

    section: ClassVar[str] = "hardware"

    gpus_per_node: int = setting(1, "GPUs of each machine, a process on each", low=1, high=1024)
    nodes: int = setting(1, "machines", low=1, high=1024)
    gpu: str | None = setting(None, "kind of GPU, for people to read")
    gpu_memory: float | None = setting(None, "memory of each GPU", above=0.0, unit="GiB")
    generation_share: float | None = setting(
        None,
        "share of a step of plain GRPO that goes into generating, as measured on these machines; "
        "for modelled times",
        above=0.0,
        high=1.0,
    )
    launch: tuple[str, ...] = setting(
        (), "further arguments of `accelerate launch`, such as how to shard the policy"
    )

    @property
    def processes(self) -> int:
        """One for each GPU."""
        return self.gpus_per_node * self.nodes


@dataclass(frozen=True, kw_only=True)
class SamplingSection(Settings):
    """How `evenodds eval` and `evenodds label` sample; no section of a run."""

    section: ClassVar[str] = "sampling"

    samples: int = setting(1, "n: completions of each question", low=1)
    temperature: float = setting(0.6, "of sampling; 0 is greedy", low=0.0)
    top_p: float = setting(0.95, "nucleus sampling", above=0.0, high=1.0)
    max_new_tokens: int = setting(3072, "longest completion", low=1, unit="tokens")
    batch_size: int = setting(64, "completions generated at once", low=1)
    seed: int = setting(0, "of sampling", low=0, high=2**32 - 1)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All sections of a run."""

    model: ModelSection
    data: DataConfig
    reward: RewardConfig
    run: RunSection = dataclasses.field(default_factory=RunSection)
    generation: GenerationSection = dataclasses.field(default_factory=GenerationSection)
    training: TrainingSection = dataclasses.field(default_factory=TrainingSection)
    efficiency: EfficiencyConfig = dataclasses.field(default_factory=EfficiencyConfig)
    evaluation: EvaluationSection | None = None
    hardware: HardwareSection | None = None

    @property
    def processes(self) -> int:
        """Processes that the run is meant for; 1 where the config names no hardware."""
        return 1 if self.hardware is None else self.hardware.processes

    @property
    def evaluation_data(self) -> DataConfig | None:
        """Where the held-out questions come from; none where nothing is evaluated."""
        if self.evaluation is None:
            return None
        own = {
            name: getattr(self.evaluation, name)
            for name in ("source", "subset", "tasks")
            if getattr(self.evaluation, name) is not None
        }
        if "source" in own and own["source"] != self.data.source:
            own = {"tasks": None, "subset": None, **own}
        shared = {"split": self.evaluation.split, "limit": self.evaluation.limit}
        return self.data.replace(seed=self.evaluation.seed, **shared, **own)

    def as_dict(self) -> dict[str, Any]:
        """The resolved config as JSON-able tables."""
        sections = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: part.as_dict() for name, part in sections.items() if part is not None}

    @staticmethod
    def from_mapping(tables: dict[str, Any]) -> "RunConfig":
        """Check a parsed TOML or JSON file.

        Raises:
            ConfigError: a section or setting is unknown, missing or wrong.
        """
        for name in tables:
            if name not in SECTIONS:
                raise unknown_key(name, list(SECTIONS), kind="section")
        for name in ("model", "data", "reward"):
            if name not in tables:
                raise ConfigError(
                    f"the config has no section [{name}]",
                    got=f"sections {', '.join(tables) or 'none'}",
                    fix=f"add [{name}]; `evenodds train quickstart` shows a whole config in the "
                    "run folder's config.json",
                )
        made: dict[str, Any] = {
            name: SECTIONS[name].from_mapping(table) for name, table in tables.items()
        }
        return RunConfig(**made)


SECTIONS: dict[str, type[Settings]] = {
    "run": RunSection,
    "model": ModelSection,
    "data": DataConfig,
    "reward": RewardConfig,
    "generation": GenerationSection,
    "training": TrainingSection,
    "efficiency": EfficiencyConfig,
    "evaluation": EvaluationSection,
    "hardware": HardwareSection,
}


def read_config(name: str, changes: Sequence[str] = ()) -> RunConfig:
    """Read a TOML file, a packaged config or a recipe, with `section.key=value` changes.

    Args:
        name: As `config_tables` takes it.
        changes: Each `section.key=value`; the value in TOML, or else text. An empty value unsets.
    """
    tables = config_tables(name)
    for change in changes:
        apply_change(tables, change)
    return RunConfig.from_mapping(tables)


def packaged_configs() -> list[str]:
    """Names of the configs that come with evenodds, recipes apart."""
    return _names("configs")


def recipes() -> list[str]:
    """Names of the recipes: the settings of the paper's table, and one for science."""
    return _names("recipes")


def config_tables(name: str) -> dict[str, Any]:
    """The tables of a config file, of a packaged config, or of a recipe.

    Args:
        name: A path; or the name of a packaged config or recipe, alone or with `/PRESET` behind
            it. `math-1.5b/grpo` is the recipe `math-1.5b` with that preset in place of its own.

    Raises:
        ConfigError: there is no such file, name or preset, or it is not TOML.
    """
    base, slash, preset = name.partition("/")
    if not slash or name.endswith(".toml") or base not in packaged_configs() + recipes():
        return parse_toml(config_text(name), name)
    if preset not in PRESETS:
        raise unknown_key(name, [f"{base}/{known}" for known in PRESETS], kind="config")
    tables = parse_toml(config_text(base), base)
    tables["efficiency"] = with_preset(tables.get("efficiency", {}), preset)
    run = tables.setdefault("run", {})
    run["name"] = f"{run.get('name', base)}-{preset}"
    return tables


def with_preset(table: Mapping[str, Any], preset: str) -> dict[str, Any]:
    """An [efficiency] table with another preset; of the others, what it does not say stays."""
    kept = {key: value for key, value in table.items() if key not in PRESETS[preset]}
    return {**kept, "preset": preset}


def config_text(name: str) -> str:
    """The text of a config file, of a packaged config, or of a recipe."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("the config cannot be read", got=f"{path}: {error}") from error
    for folder in ("configs", "recipes"):
        if name in _names(folder):
            return (resources.files("evenodds") / folder / f"{name}.toml").read_text("utf-8")
    known = packaged_configs() + recipes()
    raise unknown_key(name, known, kind="config (no such file either)")


def _names(folder: str) -> list[str]:
    """TOML files that come with evenodds, in the order of their names."""
    entries = (resources.files("evenodds") / folder).iterdir()
    names = (entry.name for entry in entries if entry.name.endswith(".toml"))
    return sorted(name.removesuffix(".toml") for name in names)


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse TOML; a mistake in it is a `ConfigError` with its line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not TOML", got=error) from error


def apply_change(tables: dict[str, Any], change: str) -> None:
    """Set `section.key=value` in parsed tables; further dots go into tables within."""
    place, equals, text = change.partition("=")
    *path, key = place.strip().split(".")
    if not equals or not path or not key:
        raise ConfigError(
            "a change is not of the form section.key=value",
            got=repr(change),
            expected="for example run.steps=20",
        )
    table = tables
    for name in path:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{place} goes into a setting that is no table", got=repr(table))
    table[key] = _value(text.strip())


def batch_split(config: RunConfig, processes: int) -> dict[str, int]:
    """How the rollouts of a step are cut: by process, by update, by micro-batch.

    Returns:
        By the names of TRL's arguments.

    Raises:
        ConfigError: they cannot be cut evenly.
    """
    rows = config.generation.groups_per_step * config.generation.group_size
    updates = config.training.updates_per_step
    micro = config.training.micro_batch or max(1, rows // (processes * updates))
    if rows % (processes * updates * micro):
        raise ConfigError(
            "the rollouts of a step cannot be cut evenly",
            got=f"{rows} rollouts, {processes} processes, {updates} updates, micro-batches of "
            f"{micro}",
            expected="processes times updates times micro_batch to divide the rollouts",
            fix="change generation.groups_per_step, training.updates_per_step or "
            "training.micro_batch",
        )
    parts = rows // (processes * micro)
    return {
        "per_device_train_batch_size": micro,
        "steps_per_generation": parts,
        "gradient_accumulation_steps": parts // updates,
    }


def _value(text: str) -> Any:
    """A TOML value, or plain text where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text

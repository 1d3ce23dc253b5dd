"""Settings: frozen, keyword-only, checked when they are made, and free of torch.

`EfficiencyConfig` holds every knob of the method. `Settings` is what all config records of
evenodds derive from: it checks types and ranges, refuses unknown keys and suggests the nearest.
"""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from evenodds.errors import ConfigError

S = TypeVar("S", bound="Settings")


def setting(
    default: Any,
    help: str,  # noqa: A002  (the word a reader looks for)
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    unit: str | None = None,
) -> Any:
    """A field of a `Settings` record: default, one line of help, allowed range and unit."""
    metadata = {"help": help, "low": low, "high": high, "above": above, "unit": unit}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A config record that checks itself. Derive, and declare fields with `setting`."""

    section: ClassVar[str] = "settings"

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = _coerce(getattr(self, field.name), hints[field.name])
            object.__setattr__(self, field.name, value)
            _check_type(f"{self.section}.{field.name}", value, hints[field.name])
            _check_range(f"{self.section}.{field.name}", value, field.metadata)
        self.check()

    def check(self) -> None:
        """Refuse settings that contradict each other. Override where there are any."""

    @classmethod
    def from_mapping(cls: type[S], values: Mapping[str, Any]) -> S:
        """Make the record from a parsed TOML or JSON table.

        Raises:
            ConfigError: a key is unknown (the nearest known one is named), or a value is wrong.
        """
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"[{cls.section}] is not a table", got=repr(values), expected="key = value lines"
            )
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                raise unknown_key(f"{cls.section}.{key}", [f"{cls.section}.{k}" for k in known])
        missing = [
            field.name
            for field in dataclasses.fields(cls)
            if field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
            and field.name not in values
        ]
        if missing:
            raise ConfigError(
                f"[{cls.section}] lacks {', '.join(missing)}",
                expected=f"a value for {cls.section}.{missing[0]}",
                fix=f"add `{missing[0]} = ...` under [{cls.section}]",
            )
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON-able values, for `config.json`."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def replace(self: S, **changes: Any) -> S:
        """A copy with some settings changed, checked anew."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class EfficiencyConfig(Settings):
    """What to train on and what to replay; the defaults are the paper's (arXiv 2506.05316).

    Group size, batch size, clipping and the sampling of rollouts belong to the host.
    """

    section: ClassVar[str] = "efficiency"

    selection: Literal["host", "uniform", "difficulty"] = setting(
        "difficulty",
        "who chooses the questions: the host's own order, a reshuffled pass over the pool, or "
        "the predicted difficulty (DOTS)",
    )
    estimator: Literal["attention", "posterior"] = setting(
        "attention",
        "what knows the difficulty: attention to the last references (the paper), or a posterior "
        "from everything observed so far, with the attention predictor as prior",
    )
    prior_labels: str | None = setting(
        None, "label table of other policies; the posterior starts from their mean difficulty"
    )
    num_references: int = setting(
        256,
        "K: questions probed with a full group to learn the policy's level; 0 probes none, for "
        "estimators that learn from the batches alone",
        low=0,
    )
    references: Literal["separate", "batch"] = setting(
        "separate",
        "reference groups are generated besides the batch and thrown away (the paper), or are "
        "part of the batch and trained on",
    )
    adapt_references: bool = setting(
        False,
        "probe fewer questions as the posterior grows sure, down to none, and more if it errs",
    )
    enough_certainty: float = setting(
        0.2,
        "standard deviation of failure rates, mean over the pool, below which nothing is probed",
        above=0.0,
        high=0.5,
    )
    steps_per_selection: int = setting(
        2, "mu: rollout steps that share one reference set and one selection", low=1
    )
    criterion: Literal["target", "signal", "proportional", "thompson"] = setting(
        "target",
        "prefer difficulties near the target (the paper), the largest expected signal "
        "E[p (1 - p)], draw in proportion to a power of it, or prefer difficulties near the target "
        "as drawn from the posterior",
    )
    signal_power: float = setting(
        1.0, "with `proportional`, the power: 0 is uniform, large is `signal`", above=0.0
    )
    curiosity: float = setting(
        0.0,
        "with `signal` and `proportional`, add this many variances of the success rate: what a "
        "group teaches about its question, beside what it teaches the policy",
        low=0.0,
    )
    explore_share: float = setting(
        0.0, "share of the fresh groups for questions of high variance", low=0.0, high=1.0
    )
    revisit_share: float = setting(
        0.0,
        "share of the fresh groups for mastered questions, so that skills stay",
        low=0.0,
        high=1.0,
    )
    mastered_below: float = setting(
        0.1, "difficulty of a mastered question, at most", low=0.0, high=1.0
    )
    oldest_share: float = setting(
        0.0,
        "share of the fresh groups for the questions seen longest ago; above 0 all come round",
        low=0.0,
        high=1.0,
    )
    park_after: int = setting(
        0, "groups in a row without a success that park a question; 0 parks none", low=0
    )
    retest_after: int = setting(20, "steps until a parked question is tried again", low=1)
    target_difficulty: float = setting(
        0.5, "alpha: failure rate of the questions to prefer", low=0.0, high=1.0
    )
    selection_temperature: float = setting(
        1e-3, "tau: how sharply the target is preferred; large is uniform", above=0.0
    )
    predictor: str | None = setting(
        None, "file of a trained difficulty predictor; none uses the embeddings as they are"
    )
    embeddings: str = setting(
        "policy",
        "frozen question embeddings: `policy` (the start weights), a Hugging Face backbone, "
        "`sentence-transformers:NAME`, or `tfidf`",
    )
    embedding_batch_size: int = setting(32, "questions embedded at once", low=1)
    fresh_fraction: float = setting(
        0.5,
        "delta: share of each batch that is generated now; 1 is no replay",
        above=0.0,
        high=1.0,
    )
    replay_fraction: float | None = setting(
        None,
        "share of each batch that is replayed; none takes what `fresh_fraction` leaves. Where the "
        "two make less than 1 the batch is that much smaller",
        low=0.0,
        high=1.0,
    )
    refill: bool = setting(
        False, "replace fresh groups whose rewards are all alike by further stored ones"
    )
    drop_ineffective: bool = setting(
        False,
        "leave groups whose rewards are all alike out of the update: the gradient is the same, "
        "and takes less time",
    )
    capacity: int = setting(512, "C: most groups the replay buffer keeps", low=1, unit="groups")
    replay_policy: Literal["uniform", "priority"] = setting(
        "uniform", "which stored groups are replayed: any, or by |A| exp(-age / scale)"
    )
    priority_age_scale: float = setting(
        4.0, "rollout steps in which the priority falls to 1 / e", above=0.0
    )
    max_age: int | None = setting(
        None, "rollout steps after which a stored group is dropped; none keeps it", low=1
    )
    max_uses: int | None = setting(
        None, "times a stored group is replayed at most; none sets no limit", low=1
    )
    min_ess: float = setting(
        0.0,
        "effective share of the replayed tokens below which less is replayed; 0 watches nothing",
        low=0.0,
        high=1.0,
    )
    max_ratio_drift: float | None = setting(
        None,
        "distance of the mean importance ratio from 1 above which less is replayed; none watches "
        "nothing",
        above=0.0,
    )
    second_moment_bound: float | None = setting(
        None,
        "largest mean (log ratio)^2 of replayed tokens; the most off-policy ones leave the loss; "
        "none keeps all (M2PO has 0.04)",
        above=0.0,
    )
    advantage: Literal["host", "mean", "std"] = setting(
        "mean",
        "advantage of a rollout in its group: as the host computes it, r - mean (Eq. 1), or "
        "(r - mean) / (std + 1e-6)",
    )
    loss: Literal["decoupled", "paper"] = setting(
        "decoupled",
        "clip replayed ratios around the policy at the start of the step, or around 1 (paper)",
    )
    reward_range: tuple[float, float] = setting(
        (0.0, 1.0), "lowest and highest possible reward; mapped to [0, 1] for difficulty"
    )
    seed: int | None = setting(None, "seed of selection and replay; none takes the host's", low=0)

    def check(self) -> None:
        """Refuse an empty or inverted reward range, and a single reference."""
        if self.num_references == 1:
            raise ConfigError(
                "efficiency.num_references is out of range", got=1, expected="0, or at least 2"
            )
        if self.fresh_fraction + self.replay_share > 1.0 + 1e-9:
            raise ConfigError(
                "efficiency.fresh_fraction and efficiency.replay_fraction make more than a batch",
                got=f"{self.fresh_fraction} and {self.replay_fraction}",
                expected="at most 1 together",
            )
        self._check_shares()
        self._check_posterior()
        low, high = self.reward_range
        if not low < high:
            raise ConfigError(
                "efficiency.reward_range is empty",
                got=[low, high],
                expected="[lowest, highest] with lowest < highest",
            )

    def _check_shares(self) -> None:
        shares = ("explore_share", "revisit_share", "oldest_share")
        total = sum(getattr(self, name) for name in shares)
        if total > 1.0 + 1e-9:
            raise ConfigError(
                "the shares of the fresh groups make more than all of them",
                got=", ".join(f"{name} = {getattr(self, name)}" for name in shares),
                expected="at most 1 together; the rest goes to the criterion",
            )
        if self.refill and not self.replays:
            raise ConfigError(
                "efficiency.refill takes groups from the replay buffer",
                got="no replay",
                fix="set replay_fraction above 0, or refill to false",
            )

    def _check_posterior(self) -> None:
        if self.estimator == "posterior":
            return
        for name, used in (
            ("adapt_references", self.adapt_references),
            ("prior_labels", self.prior_labels is not None),
        ):
            if used:
                raise ConfigError(
                    f"efficiency.{name} needs the posterior",
                    got=f"estimator = {self.estimator!r}",
                    fix='set estimator = "posterior"',
                )

    @property
    def selects(self) -> bool:
        """Whether evenodds chooses the questions."""
        return self.selection != "host"

    @property
    def replays(self) -> bool:
        """Whether part of each batch comes from the buffer."""
        return self.replay_share > 0.0

    @property
    def replay_share(self) -> float:
        """Share of each batch that is replayed once the buffer holds enough."""
        return 1.0 - self.fresh_fraction if self.replay_fraction is None else self.replay_fraction

    @property
    def predicts(self) -> bool:
        """Whether difficulty is predicted, which needs references and embeddings."""
        return self.selection == "difficulty"

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "EfficiencyConfig":
        """A named setting with some values changed.

        Args:
            name: `paper` (DOTS and RR exactly as published; also `dots+rr`), `dots` or `rr` (one
                of them), `grpo` (neither), or `evenodds` (what measures best).
            changes: Settings that differ from the preset.
        """
        if name not in PRESETS:
            raise unknown_key(name, list(PRESETS), kind="preset")
        return cls.from_mapping({**PRESETS[name], **changes})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "EfficiencyConfig":
        """As `Settings.from_mapping`; a key `preset` names the values to start from."""
        if isinstance(values, Mapping) and "preset" in values:
            rest = {key: value for key, value in values.items() if key != "preset"}
            return cls.preset(str(values["preset"]), **rest)
        return super().from_mapping(values)


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "grpo": {"selection": "host", "fresh_fraction": 1.0, "advantage": "host"},
    "dots": {"fresh_fraction": 1.0},
    "rr": {"selection": "host"},
    "dots+rr": {},
    "evenodds": {
        "estimator": "posterior",
        "criterion": "proportional",
        "curiosity": 1.0,
        "references": "batch",
        "adapt_references": True,
        "steps_per_selection": 1,
        "fresh_fraction": 0.25,
        "replay_fraction": 0.0,
        "drop_ineffective": True,
    },
}


def unknown_key(name: str, known: list[str], kind: str = "setting") -> ConfigError:
    """The error for a name nobody knows, with the nearest known one."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return ConfigError(
        f"unknown {kind} {name!r}",
        expected=f"one of {', '.join(known)}",
        fix=f"did you mean {near[0]!r}?" if near else None,
    )


def _coerce(value: Any, annotation: Any) -> Any:
    """What TOML and JSON cannot spell: int as float, list as tuple, empty text as nothing."""
    if isinstance(value, bool):
        return value
    options = _options(annotation)
    if value == "" and types.NoneType in options:
        return None
    if isinstance(value, int) and float in options and int not in options:
        return float(value)
    for option in options:
        if isinstance(value, list) and typing.get_origin(option) is tuple:
            (element, *_) = typing.get_args(option)
            return tuple(_coerce(item, element) for item in value)
        if isinstance(value, tuple) and typing.get_origin(option) is tuple:
            (element, *_) = typing.get_args(option)
            return tuple(_coerce(item, element) for item in value)
    return value


def _options(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def _check_type(name: str, value: Any, annotation: Any) -> None:
    if not any(_matches(value, option) for option in _options(annotation)):
        raise ConfigError(
            f"{name} has the wrong type or value", got=repr(value), expected=_spell(annotation)
        )


def _matches(value: Any, option: Any) -> bool:
    origin, arguments = typing.get_origin(option), typing.get_args(option)
    if option is Any:
        return True
    if option is None or option is type(None):
        return value is None
    if origin is Literal:
        return value in arguments and not isinstance(value, bool)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return isinstance(value, tuple) and all(_matches(item, arguments[0]) for item in value)
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(map(_matches, value, arguments))
        )
    if origin is dict:
        return isinstance(value, dict)
    if option in (int, float):
        return isinstance(value, option) and not isinstance(value, bool)
    return isinstance(value, option)


def _spell(annotation: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    spelled = []
    for option in _options(annotation):
        if typing.get_origin(option) is Literal:
            spelled.append("one of " + ", ".join(map(repr, typing.get_args(option))))
        elif option is type(None):
            spelled.append("nothing")
        elif typing.get_origin(option) is tuple:
            spelled.append(f"a list ({', '.join(map(_spell_one, typing.get_args(option)))})")
        elif typing.get_origin(option) is dict:
            spelled.append("a table")
        else:
            spelled.append(words.get(option, _spell_one(option)))
    return " or ".join(spelled)


def _spell_one(option: Any) -> str:
    return "..." if option is Ellipsis else getattr(option, "__name__", str(option))


def _check_range(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not math.isfinite(value):
        raise ConfigError(f"{name} is not finite", got=value, expected="a finite number")
    low, high, above = limits.get("low"), limits.get("high"), limits.get("above")
    if (
        (low is not None and value < low)
        or (high is not None and value > high)
        or (above is not None and value <= above)
    ):
        bounds = [
            text
            for text, limit in (
                (f"at least {low}", low),
                (f"more than {above}", above),
                (f"at most {high}", high),
            )
            if limit is not None
        ]
        raise ConfigError(f"{name} is out of range", got=value, expected=" and ".join(bounds))


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.as_dict()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value

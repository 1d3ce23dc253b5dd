"""Settings of verl that the method needs, each refused with the line to change. Free of verl."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evenodds.config import EfficiencyConfig
from evenodds.errors import ConfigError
from evenodds.estimators import check_estimator
from evenodds.loop import batch_shares

NO_BOUND = 1e6  # an importance-ratio threshold this large truncates nothing


@dataclass(frozen=True)
class Need:
    """A setting of verl that must have one of some values.

    Attributes:
        key: Its dotted name.
        holds: Whether a value will do.
        line: The override to add to the command.
        why: What goes wrong otherwise.
    """

    key: str
    holds: Callable[[Any], bool]
    line: str
    why: str


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda found: found in values


def _is_boundless(found: Any) -> bool:
    try:
        return float(found) >= NO_BOUND
    except (TypeError, ValueError):
        return False


OFF = _is(None, False)

ALWAYS = (
    Need("trainer.use_v1", _is(True), "trainer.use_v1=True", "the older trainer has no seams"),
    Need(
        "algorithm.adv_estimator",
        _is("grpo"),
        "algorithm.adv_estimator=grpo",
        "difficulty is read off groups of rollouts",
    ),
    Need(
        "algorithm.filter_groups.enable",
        OFF,
        "algorithm.filter_groups.enable=False",
        "it evicts groups before their difficulty is seen, also of the references",
    ),
    Need(
        "trainer.v1.sampler.custom_sampler.path",
        _is(None),
        "trainer.v1.sampler.custom_sampler.path=null",
        "it would decide which groups are trained on",
    ),
    Need(
        "trainer.v1.sampler.sync_refill_failed_groups",
        OFF,
        "trainer.v1.sampler.sync_refill_failed_groups=False",
        "prompts are chosen in one place",
    ),
    Need(
        "trainer.v1.evenodds.parameter_sync_step",
        _is(None, 1),
        "trainer.v1.evenodds.parameter_sync_step=1",
        "the asynchronous modes train on a part of a batch at a time",
    ),
    Need(
        "actor_rollout_ref.hybrid_engine",
        _is(None, True),
        "actor_rollout_ref.hybrid_engine=True",
        "samplers of their own belong to the asynchronous modes",
    ),
    Need(
        "skip.rollout_tq.enable",
        OFF,
        "skip.rollout_tq.enable=False",
        "rollouts that are read from a file are those of other questions",
    ),
)

REPLAY = (
    Need(
        "algorithm.rollout_correction.rollout_is",
        _is("token"),
        "algorithm.rollout_correction.rollout_is=token",
        "replayed rollouts are off-policy",
    ),
    Need(
        "algorithm.rollout_correction.rollout_is_threshold",
        _is_boundless,
        "algorithm.rollout_correction.rollout_is_threshold=1e9",
        "it truncates the importance ratios of replayed tokens",
    ),
    Need(
        "algorithm.rollout_correction.rollout_is_batch_normalize",
        OFF,
        "algorithm.rollout_correction.rollout_is_batch_normalize=False",
        "it rescales the importance ratios",
    ),
    Need(
        "algorithm.rollout_correction.rollout_rs",
        _is(None),
        "algorithm.rollout_correction.rollout_rs=null",
        "it rejects stale rollouts",
    ),
    Need(
        "algorithm.rollout_correction.bypass_mode",
        OFF,
        "algorithm.rollout_correction.bypass_mode=False",
        "replayed ratios would be clipped around the policy that sampled them",
    ),
    Need(
        "actor_rollout_ref.rollout.calculate_log_probs",
        _is(True),
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "the sampler's log-probabilities are stored with each group",
    ),
    Need(
        "actor_rollout_ref.actor.policy_loss.loss_mode",
        _is(None, "vanilla"),
        "actor_rollout_ref.actor.policy_loss.loss_mode=vanilla",
        "importance ratios per token fit the clipped loss only",
    ),
    Need(
        "actor_rollout_ref.actor.router_replay.mode",
        _is(None, "disabled"),
        "actor_rollout_ref.actor.router_replay.mode=disabled",
        "the experts of each token are not stored",
    ),
)

# What verl's own settings cannot express.
NOT_HERE: tuple[tuple[str, Callable[[EfficiencyConfig], bool], str, str], ...] = (
    (
        "second_moment_bound",
        lambda config: config.second_moment_bound is not None,
        "+evenodds.second_moment_bound=null",
        "verl's loss has no such bound",
    ),
    (
        "loss",
        lambda config: config.loss != "decoupled",
        "+evenodds.loss=decoupled",
        "verl clips around the policy at the start of the step",
    ),
    (
        "drop_ineffective",
        lambda config: config.drop_ineffective,
        "+evenodds.drop_ineffective=False",
        "verl divides the loss by the tokens of the rollouts that are left",
    ),
)


def read_efficiency(config: Mapping[str, Any]) -> EfficiencyConfig:
    """The method's settings, from the section `evenodds` of verl's resolved config.

    Args:
        config: verl's config as plain dictionaries.

    Raises:
        ConfigError: a setting is unknown or wrong, or does not go together with verl's.
    """
    efficiency = EfficiencyConfig.from_mapping(config.get("evenodds") or {})
    check_config(config, efficiency)
    return efficiency


def check_config(config: Mapping[str, Any], efficiency: EfficiencyConfig) -> None:
    """Refuse settings of verl with which selection or replay would go wrong, before any work.

    Raises:
        ConfigError: names the setting, what goes wrong, and the line to change.
    """
    for name, is_set, line, why in NOT_HERE:
        if is_set(efficiency):
            raise ConfigError(
                f"evenodds.{name} cannot be had on verl: {why}",
                got=getattr(efficiency, name),
                fix=line,
            )
    for need in (*ALWAYS, *(REPLAY if efficiency.replays else ())):
        _check(config, need)
    check_estimator(efficiency)
    _check_advantage(config, efficiency)
    _check_reward_model(config)
    _check_sizes(config, efficiency)


def value_of(config: Mapping[str, Any], key: str) -> Any:
    """A setting by its dotted name; none where it or a section above it is missing."""
    found: Any = config
    for part in key.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def _check(config: Mapping[str, Any], need: Need) -> None:
    found = value_of(config, need.key)
    if not need.holds(found):
        raise ConfigError(f"{need.key} does not fit: {need.why}", got=repr(found), fix=need.line)


def _check_advantage(config: Mapping[str, Any], efficiency: EfficiencyConfig) -> None:
    """verl computes the advantages, of fresh and of replayed groups."""
    if efficiency.advantage == "host":
        return
    key = "algorithm.norm_adv_by_std_in_grpo"
    wanted = efficiency.advantage == "std"
    if value_of(config, key) is not wanted:
        raise ConfigError(
            f"{key} contradicts evenodds.advantage",
            got=f"{value_of(config, key)}, advantage = {efficiency.advantage!r}",
            fix=f"{key}={wanted}, or +evenodds.advantage=host",
        )


def _check_reward_model(config: Mapping[str, Any]) -> None:
    if value_of(config, "reward.reward_model.enable") and not value_of(
        config, "reward.reward_model.enable_resource_pool"
    ):
        raise ConfigError(
            "a reward model beside the policy scores groups only after they were sampled",
            got="reward.reward_model.enable=True, enable_resource_pool=False",
            expected="rewards that are there when a group has been generated",
            fix="reward.reward_model.enable_resource_pool=True, or a reward function",
        )


def _check_sizes(config: Mapping[str, Any], efficiency: EfficiencyConfig) -> None:
    rollouts = value_of(config, "actor_rollout_ref.rollout.n") or 0
    if rollouts < 2:
        raise ConfigError(
            "a group needs several rollouts", got=rollouts, fix="actor_rollout_ref.rollout.n=8"
        )
    batch = value_of(config, "data.train_batch_size")
    if value_of(config, "data.gen_batch_size") not in (None, batch):
        raise ConfigError(
            "data.gen_batch_size does not fit: a batch is submitted as a whole",
            got=value_of(config, "data.gen_batch_size"),
            fix="data.gen_batch_size=null",
        )
    update = value_of(config, "actor_rollout_ref.actor.ppo_mini_batch_size")
    groups = sum(batch_shares(efficiency, batch))
    if groups % update:
        raise ConfigError(
            "the updates do not divide the groups that are trained on, and verl would pad them",
            got=f"actor_rollout_ref.actor.ppo_mini_batch_size = {update}, {groups} groups "
            f"(data.train_batch_size = {batch}, fresh_fraction = {efficiency.fresh_fraction}, "
            f"{efficiency.replay_share:g} replayed)",
            fix=f"actor_rollout_ref.actor.ppo_mini_batch_size={groups}, or a divisor of it",
        )

"""From one of our configs to the command that starts the same run on verl. Free of verl."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenodds.config import EfficiencyConfig
from evenodds.errors import ConfigError
from evenodds.loop import batch_shares
from evenodds.run_config import RunConfig
from evenodds.verl_checks import NOT_HERE

PLUGIN = "evenodds.verl"
LOSSES = {
    "dapo": "token-mean",
    "bnpo": "token-mean",
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The machines of a run.

    Attributes:
        nodes: Machines.
        gpus: GPUs of each.
        tensor_parallel: GPUs that share one copy of the sampler.
    """

    nodes: int = 1
    gpus: int = 8
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus", "tensor_parallel"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is out of range", got=getattr(self, name), expected="1+")
        if self.gpus % self.tensor_parallel:
            raise ConfigError(
                "the GPUs of a machine cannot be shared by the samplers",
                got=f"{self.gpus} GPUs, {self.tensor_parallel} for each sampler",
            )


def efficiency_for_verl(config: EfficiencyConfig) -> tuple[EfficiencyConfig, list[str]]:
    """The settings as verl can have them, and the names of those that had to be left out.

    `drop_ineffective` saves time and changes no gradient, so it is switched off; whatever else
    verl cannot express is refused.

    Raises:
        ConfigError: a setting that changes the training cannot be had on verl.
    """
    left_out = []
    if config.drop_ineffective:
        config = config.replace(drop_ineffective=False)
        left_out.append("drop_ineffective")
    for name, is_set, line, why in NOT_HERE:
        if is_set(config):
            raise ConfigError(
                f"efficiency.{name} cannot be had on verl: {why}",
                got=getattr(config, name),
                fix=line.replace("+evenodds.", "efficiency.").replace("=", " = "),
            )
    return config, left_out


def overrides(
    config: RunConfig, cluster: Cluster, files: Mapping[str, str], folder: str
) -> list[str]:
    """verl's settings that make the same run, as `key=value`.

    Args:
        config: The run.
        cluster: The machines.
        files: Parquet files of verl's rows: `train` and `test`.
        folder: Where checkpoints and metrics go.

    Raises:
        ConfigError: the run cannot be had on verl.
    """
    _check_model(config)
    efficiency, _ = efficiency_for_verl(config.efficiency)
    efficiency = efficiency.replace(reward_range=config.reward.range)
    generation, training, evaluation = config.generation, config.training, config.evaluation
    groups = sum(batch_shares(efficiency, generation.groups_per_step))
    if groups % training.updates_per_step:
        raise ConfigError(
            "the updates do not divide the groups that are trained on",
            got=f"training.updates_per_step = {training.updates_per_step}, {groups} groups",
        )
    by_std = efficiency.advantage == "std" or (
        efficiency.advantage == "host" and training.scale_rewards == "group"
    )
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    settings: dict[str, Any] = {
        "data.train_files": files["train"],
        "data.val_files": files["test"],
        "data.train_batch_size": generation.groups_per_step,
        "data.max_prompt_length": config.data.max_prompt_tokens or 1024,
        "data.filter_overlong_prompts": config.data.drop_long,
        "data.max_response_length": generation.max_new_tokens,
        "data.seed": config.run.seed,
        "actor_rollout_ref.model.path": config.model.path,
        f"{actor}.ppo_mini_batch_size": groups // training.updates_per_step,
        f"{actor}.use_dynamic_bsz": training.micro_batch is None,
        f"{actor}.ppo_micro_batch_size_per_gpu": training.micro_batch,
        f"{actor}.optim.lr": training.learning_rate,
        f"{actor}.optim.lr_warmup_steps": training.warmup_steps,
        f"{actor}.optim.weight_decay": training.weight_decay,
        f"{actor}.grad_clip": training.max_grad_norm,
        f"{actor}.clip_ratio_low": training.clip_low,
        f"{actor}.clip_ratio_high": training.clip_high,
        f"{actor}.loss_agg_mode": LOSSES[training.loss_type],
        f"{actor}.use_kl_loss": training.kl_coefficient > 0,
        f"{actor}.kl_loss_coef": training.kl_coefficient,
        f"{rollout}.name": "vllm",
        f"{rollout}.n": generation.group_size,
        f"{rollout}.temperature": generation.temperature,
        f"{rollout}.top_p": generation.top_p,
        f"{rollout}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": training.micro_batch,
        f"{rollout}.calculate_log_probs": True,
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": by_std,
        "algorithm.rollout_correction.rollout_is": "token" if efficiency.replays else None,
        "algorithm.rollout_correction.rollout_is_threshold": 1e9 if efficiency.replays else None,
        "reward.custom_reward_function.path": f"pkg://{PLUGIN}.reward",
        "reward.custom_reward_function.name": "compute_score",
        "+reward.custom_reward_function.reward_kwargs.kind": config.reward.kind,
        "+reward.custom_reward_function.reward_kwargs.lowest": config.reward.range[0],
        "+reward.custom_reward_function.reward_kwargs.highest": config.reward.range[1],
        "trainer.v1.trainer_mode": "evenodds",
        "trainer.total_training_steps": config.run.steps,
        "trainer.total_epochs": 1_000_000,  # the steps end the run
        "trainer.save_freq": config.run.save_every or config.run.steps,
        "trainer.max_actor_ckpt_to_keep": config.run.keep_checkpoints,
        "trainer.test_freq": evaluation.every if evaluation and evaluation.every else -1,
        "trainer.val_before_train": evaluation is not None,
        "trainer.nnodes": cluster.nodes,
        "trainer.n_gpus_per_node": cluster.gpus,
        "trainer.project_name": "evenodds",
        "trainer.experiment_name": config.run.name,
        "trainer.default_local_dir": folder,
        "trainer.logger": ["console", *(n for n in config.run.report_to if n != "console")],
    }
    if evaluation is not None:
        settings |= {
            f"{rollout}.val_kwargs.n": evaluation.samples,
            f"{rollout}.val_kwargs.temperature": evaluation.temperature,
            f"{rollout}.val_kwargs.top_p": evaluation.top_p,
            f"{rollout}.val_kwargs.do_sample": evaluation.temperature > 0,
        }
    if cluster.nodes > 1:
        place = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES"
        settings[place] = PLUGIN
    own = efficiency.as_dict()
    unset = EfficiencyConfig().as_dict()
    settings |= {f"+evenodds.{key}": own[key] for key in own if own[key] != unset[key]}
    if not any(name.startswith("+evenodds.") for name in settings):
        settings["+evenodds.preset"] = "paper"
    optional = ("ppo_micro_batch_size_per_gpu", "log_prob_micro_batch_size_per_gpu", "rollout_is")
    return [
        f"{key}={_spell(value)}"
        for key, value in settings.items()
        if value is not None or not key.rpartition(".")[2].startswith(optional)
    ]


def command(config: RunConfig, cluster: Cluster, files: Mapping[str, str], folder: str) -> str:
    """The whole launch command, a setting a line."""
    lines = [
        f"VERL_USE_EXTERNAL_MODULES={PLUGIN} python -m verl.trainer.main_ppo",
        *(shlex.quote(line) for line in overrides(config, cluster, files, folder)),
    ]
    return " \\\n  ".join(lines)


def verl_row(row: Mapping[str, Any], number: int, source: str, split: str) -> dict[str, Any]:
    """A question of a pool as a row of verl's parquet files.

    Args:
        row: As `QuestionPool.row` gives it.
        number: Its place.
        source: Name of the data set.
        split: `train` or `test`.
    """
    prompt = row["prompt"]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    others = {k: v for k, v in row.items() if k not in ("prompt", "answer")}
    return {
        "data_source": source,
        "prompt": messages,
        "ability": "",
        "reward_model": {"ground_truth": row["answer"], "style": "rule"},
        "extra_info": {"index": number, "split": split, "columns": others},
    }


def data_files(config: RunConfig, folder: Path) -> dict[str, str]:
    """Where `verl-command --data` puts the rows of a run."""
    if config.evaluation is None:
        raise ConfigError(
            "verl needs validation rows", got="a config without [evaluation]", fix="add one"
        )
    return {name: str(folder / f"{name}.parquet") for name in ("train", "test")}


def _check_model(config: RunConfig) -> None:
    model = config.model
    if model.path == "toy" or model.path.startswith("package:") or model.path.endswith(".gguf"):
        raise ConfigError(
            "verl cannot load this policy",
            got=model.path,
            expected="a model on the Hugging Face hub, or a folder of one",
        )
    if model.lora_rank is not None:
        raise ConfigError(
            "adapters are not translated",
            got=f"model.lora_rank = {model.lora_rank}",
            fix="leave it out, and add actor_rollout_ref.model.lora_rank to the command",
        )
    if config.training.host:
        raise ConfigError(
            "training.host holds arguments of TRL",
            got=", ".join(config.training.host),
            fix="leave them out, and add verl's own to the command",
        )


def _spell(value: Any) -> str:
    """As Hydra reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(_spell(item) for item in value) + "]"
    if isinstance(value, str) and any(mark in value for mark in " =,:{}[]()'\"$"):
        if "://" in value and not any(mark in value for mark in " =,{}[]()'\"$"):
            return value
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{quoted}'"
    return str(value)

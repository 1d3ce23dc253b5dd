"""What evenodds holds on to in TRL and transformers, and the settings it cannot work with."""

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from datasets import Dataset
from transformers.trainer_utils import SaveStrategy
from trl import GRPOConfig

from evenodds.config import EfficiencyConfig
from evenodds.errors import ConfigError, HostError
from evenodds.estimators import check_estimator
from evenodds.loop import batch_shares, check_sizes
from evenodds.trl.trimming import check_trimmable

SUPPORTED_LOSSES = ("bnpo", "dapo", "dr_grpo", "grpo")

SEAMS: dict[str, tuple[str, ...]] = {
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_compute_loss": ("model", "inputs"),
    "_generate_and_score_completions": ("inputs",),
    "_get_output_dir": ("trial",),
    "_get_per_token_logps_and_entropies": (
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
    ),
    "_get_train_sampler": ("dataset",),
    "_load_from_checkpoint": ("resume_from_checkpoint",),
    "_load_optimizer_and_scheduler": ("checkpoint",),
    "_load_rng_state": ("checkpoint",),
    "_load_scaler": ("checkpoint",),
    "_save": ("output_dir", "state_dict"),
    "_save_checkpoint": ("model", "trial"),
    "_save_optimizer_and_scheduler": ("output_dir",),
    "_save_rng_state": ("output_dir",),
    "_save_scaler": ("output_dir",),
    "train": ("resume_from_checkpoint",),
    "training_step": ("model", "inputs", "num_items_in_batch"),
}


def check_seams(host: type) -> None:
    """Fail by name if the installed TRL lacks a method that the trainer overrides or calls.

    Raises:
        HostError: a method is gone or takes other arguments.
    """
    for name, arguments in SEAMS.items():
        method = getattr(host, name, None)
        found = () if method is None else tuple(inspect.signature(method).parameters)[1:]
        if found[: len(arguments)] != arguments:
            raise HostError(
                f"this version of TRL does not fit: GRPOTrainer.{name}",
                got="no such method" if method is None else f"arguments {', '.join(found)}",
                expected=f"arguments {', '.join(arguments)}",
                fix='pip install "trl>=1.16,<1.17"',
            )


def check_settings(config: EfficiencyConfig, args: GRPOConfig, num_questions: int) -> None:
    """Refuse settings that selection or replay would silently get wrong.

    Args:
        config: The method's settings.
        args: The host's settings.
        num_questions: Size of the pool; 0 where it is not known.
    """
    assert args.generation_batch_size is not None
    assert args.num_generations is not None
    groups = args.generation_batch_size // args.num_generations
    check_estimator(config)
    if config.selects or config.replays:
        _check_groups(args)
        _check_save_steps(args)
    check_sizes(config, num_questions, groups, args.world_size)
    _check_micro_batches(config, args)
    if config.drop_ineffective:
        check_trimmable(
            args.loss_type, args.beta, args.entropy_coef or float(args.use_adaptive_entropy)
        )
    if config.replays:
        _check_loss(args)


def checked_efficiency(given: Any) -> EfficiencyConfig:
    """The method's settings; the preset `evenodds` where none were given.

    Raises:
        ConfigError: they are something else, such as a dictionary.
    """
    if given is None:
        return EfficiencyConfig.preset("evenodds")
    if not isinstance(given, EfficiencyConfig):
        raise ConfigError(
            "`efficiency` is no EfficiencyConfig",
            got=repr(given),
            expected='EfficiencyConfig(...), or EfficiencyConfig.preset("paper")',
        )
    return given


def check_dataset(config: EfficiencyConfig, given: Mapping[str, Any]) -> int:
    """Refuse a training set that evenodds cannot choose from or replay.

    Args:
        config: The method's settings.
        given: The arguments of the trainer.

    Returns:
        Number of rows; 0 for a stream.
    """
    dataset = given.get("train_dataset")
    if config.selects:
        _check_indexable(dataset, given)
    if config.replays:
        _check_text_only(dataset)
    return len(dataset) if isinstance(dataset, Dataset) else 0


def _check_indexable(dataset: Any, given: Mapping[str, Any]) -> None:
    if not isinstance(dataset, Dataset):
        raise ConfigError(
            "selection needs a training set that can be indexed",
            got="no dataset" if dataset is None else type(dataset).__name__,
            expected="a datasets.Dataset",
            fix='turn the stream into a Dataset, or set selection="host"',
        )
    if given.get("environment_factory") is not None:
        raise ConfigError(
            "selection does not know the questions of an environment",
            got="environment_factory",
            fix='put the questions into train_dataset, or set selection="host"',
        )


def _check_groups(args: GRPOConfig) -> None:
    assert args.steps_per_generation is not None
    assert args.num_generations is not None
    rows = args.per_device_train_batch_size * args.steps_per_generation
    groups, rest = divmod(rows, args.num_generations)
    if rest or groups < 2:
        raise ConfigError(
            "each process must generate whole groups, and at least two",
            got=f"per_device_train_batch_size {args.per_device_train_batch_size} x "
            f"steps_per_generation {args.steps_per_generation} = {rows} rollouts a process, "
            f"num_generations {args.num_generations}",
            expected="a multiple of num_generations, at least twice as large",
            fix="raise per_device_train_batch_size or gradient_accumulation_steps",
        )


def _check_save_steps(args: GRPOConfig) -> None:
    """A checkpoint in the middle of a generated batch could not be resumed exactly."""
    assert args.steps_per_generation is not None
    every = args.steps_per_generation * args.num_iterations
    updates = math.lcm(every, args.gradient_accumulation_steps) // args.gradient_accumulation_steps
    save_steps = args.save_steps
    if 0 < save_steps < 1 and args.max_steps > 0:
        save_steps = math.ceil(args.max_steps * save_steps)
    if args.save_strategy == SaveStrategy.STEPS and save_steps % updates:
        raise ConfigError(
            "checkpoints would fall between two updates on one generated batch",
            got=f"save_steps = {save_steps}",
            expected=f"a multiple of {updates}, the optimizer steps of each generated batch",
        )


def _check_micro_batches(config: EfficiencyConfig, args: GRPOConfig) -> None:
    """A batch that is smaller than the host's must still be cut into its micro-batches."""
    assert args.steps_per_generation is not None
    assert args.num_generations is not None
    host_rows = args.per_device_train_batch_size * args.steps_per_generation
    fresh, replayed = batch_shares(config, host_rows // args.num_generations)
    for groups in (fresh + replayed, host_rows // args.num_generations):
        rows = groups * args.num_generations
        if rows % args.steps_per_generation:
            raise ConfigError(
                "the smaller batch cannot be cut into the host's micro-batches",
                got=f"{groups} groups of {args.num_generations}, {args.steps_per_generation} "
                "micro-batches",
                expected="rollouts that the number of micro-batches divides",
                fix="change fresh_fraction or replay_fraction",
            )


def _check_loss(args: GRPOConfig) -> None:
    if args.loss_type not in SUPPORTED_LOSSES:
        raise ConfigError(
            f"replay is not derived for loss_type={args.loss_type!r}",
            expected=f"one of {', '.join(SUPPORTED_LOSSES)}",
            fix="choose one of these, or set fresh_fraction to 1",
        )
    if args.importance_sampling_level != "token":
        raise ConfigError(
            "replay corrects each token, not whole sequences",
            got=f"importance_sampling_level={args.importance_sampling_level!r}",
            expected="'token'",
            fix="set it to 'token', or set fresh_fraction to 1",
        )
    if args.off_policy_mask_threshold is not None or args.sync_ref_model:
        raise ConfigError(
            "replayed rollouts keep the log-probabilities they were generated with",
            got=f"off_policy_mask_threshold={args.off_policy_mask_threshold!r}, "
            f"sync_ref_model={args.sync_ref_model!r}",
            expected="None and False",
            fix="leave them out, or set fresh_fraction to 1",
        )


def _check_text_only(dataset: Any) -> None:
    columns = set(getattr(dataset, "column_names", None) or ())
    if columns & {"image", "images"}:
        raise ConfigError(
            "images cannot be replayed yet",
            got=f"column {sorted(columns & {'image', 'images'})[0]!r}",
            fix="set fresh_fraction to 1",
        )


def check_batch(batch: dict[str, Any], rows: int) -> None:
    """The host's scored batch must be what replay knows how to extend.

    Args:
        batch: What `_generate_and_score_completions` returned.
        rows: How many rollouts were asked for.
    """
    known = {
        "advantages",
        "completion_ids",
        "completion_mask",
        "importance_sampling_ratio",
        "num_items_in_batch",
        "old_per_token_logps",
        "prompt_ids",
        "prompt_mask",
        "ref_per_token_logps",
        "sampling_per_token_logps",
        "tool_mask",
    }
    if unknown := sorted(set(batch) - known):
        raise HostError(
            "the host's batch has parts that cannot be replayed",
            got=", ".join(unknown),
            fix="set fresh_fraction to 1",
        )
    shape: torch.Size = batch["prompt_ids"].shape
    assert shape[0] == rows, (shape, rows)

"""A whole run from a config: load, check, train, evaluate, and leave a run folder."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from safetensors import SafetensorError
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig
from trl.models import unwrap_model_for_generation

from evenodds.config import EfficiencyConfig
from evenodds.difficulty import PredictorModel
from evenodds.embeddings import Track, check_embedding_model
from evenodds.engines import transformers_engine
from evenodds.errors import CheckpointError, ConfigError, DataError, EvenoddsError, HostError
from evenodds.evaluation import Evaluation, Evaluator
from evenodds.files import read_lines, write_json
from evenodds.policies import load_policy, load_tokenizer
from evenodds.questions import QuestionPool, check_prompt_lengths, load_pool
from evenodds.recorder import METRICS, summarise
from evenodds.resources import resolved_path
from evenodds.rewards import make_reward
from evenodds.run_config import RunConfig, batch_split
from evenodds.trl.checkpoint import last_complete
from evenodds.trl.seams import check_settings
from evenodds.trl.trainer import DataEfficientGRPOTrainer

logger = logging.getLogger(__name__)

OnStep = Callable[[dict[str, Any]], None]

# Arguments of GRPOConfig that follow from the sections of a run, besides those in `host_config`.
OWNED = {
    "eval_strategy",
    "generation_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "per_device_train_batch_size",
    "steps_per_generation",
}


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a run needs, checked, with no weights loaded yet."""

    config: RunConfig
    pool: QuestionPool
    held_out: QuestionPool | None
    reward: Any
    tokenizer: Any
    args: GRPOConfig
    dataset: Dataset


def prepare(config: RunConfig, folder: Path) -> Prepared:
    """Read the questions and check every setting, before a model is loaded.

    Args:
        config: The whole run.
        folder: Its run folder.

    Raises:
        EvenoddsError: whatever is wrong, with how to mend it.
    """
    args = host_config(config, folder)
    efficiency = _efficiency(config)
    if efficiency.predictor is not None:
        PredictorModel.load(Path(efficiency.predictor))
    check_embedding_model(efficiency.embeddings)
    pool, held_out = _pools(config)
    check_settings(efficiency, args, num_questions=len(pool))
    reward = make_reward(config.reward)
    reward.check(pool.answers, pool.ids)
    if held_out is not None:
        reward.check(held_out.answers, held_out.ids)
    tokenizer = load_tokenizer(config.model)
    _check_template(tokenizer, pool)
    if config.data.max_prompt_tokens is not None:
        limit, drop = config.data.max_prompt_tokens, config.data.drop_long
        pool = check_prompt_lengths(pool, tokenizer, limit, drop_long=drop)
        if held_out is not None:
            held_out = check_prompt_lengths(held_out, tokenizer, limit, drop_long=drop)
        check_settings(efficiency, args, num_questions=len(pool))
    return Prepared(config, pool, held_out, reward, tokenizer, args, _dataset(pool))


def _efficiency(config: RunConfig) -> EfficiencyConfig:
    """The method's settings, with the reward's range and the path of the predictor."""
    efficiency = config.efficiency
    unset = EfficiencyConfig().reward_range
    if efficiency.reward_range not in (unset, config.reward.range):
        raise ConfigError(
            "the range of rewards is said twice",
            got=f"efficiency.reward_range = {list(efficiency.reward_range)}, "
            f"reward.range = {list(config.reward.range)}",
            fix="set reward.range alone",
        )
    efficiency = efficiency.replace(reward_range=config.reward.range)
    if efficiency.predictor is not None:
        efficiency = efficiency.replace(predictor=str(resolved_path(efficiency.predictor)))
    return efficiency


def _check_template(tokenizer: Any, pool: QuestionPool) -> None:
    """Refuse messages where the policy has no chat template to write them with."""
    prompt = pool.prompt(0)
    if isinstance(prompt, str) or tokenizer.chat_template is not None:
        return
    raise ConfigError(
        "the policy has no chat template",
        got="questions as messages, or a system prompt",
        expected="a tokenizer with a chat template, or questions as plain text",
        fix="use an instruct model, or leave data.system_prompt out",
    )


def _dataset(pool: QuestionPool) -> Dataset:
    """The pool as the host takes it.

    Raises:
        DataError: a further column holds values of several types.
    """
    try:
        return Dataset.from_list(pool.rows())
    except (OverflowError, TypeError, ValueError) as error:  # Arrow's errors are these
        raise DataError(
            "the columns of the questions cannot be put into a table",
            got=str(error).splitlines()[0],
            expected="values of one type in each column",
            fix="leave the column out, or make all its values text",
        ) from error


def train(
    prepared: Prepared,
    folder: Path,
    *,
    resume: bool = False,
    on_step: OnStep | None = None,
    track: Track | None = None,
) -> dict[str, Any]:
    """Train, and leave checkpoints, `final/` and `summary.json` in the run folder.

    Args:
        prepared: From `prepare`.
        folder: The run folder.
        resume: Go on from the newest complete checkpoint in it.
        on_step: Called with the metrics of each step, step 0 included, on process 0.
        track: Shows how far the embedding of the questions is.

    Returns:
        The summary; empty on other processes.
    """
    checkpoint = str(last_complete(folder / "checkpoints")) if resume else None
    held_out = None if prepared.held_out is None else HeldOut(prepared, on_step)
    trainer = make_trainer(prepared, folder, [] if held_out is None else [held_out], track)
    if held_out is not None:
        held_out.trainer = trainer
    if on_step is not None:
        trainer.add_callback(_Watch(trainer, on_step))
    _run(trainer, folder, checkpoint)
    check_finite_weights(trainer.model)
    trainer.save_model(str(folder / "final"))
    summary: dict[str, Any] = {}
    if trainer.accelerator.is_main_process:
        summary = {"name": prepared.config.run.name, **summarise(read_lines(folder / METRICS))}
        write_json(folder / "summary.json", summary)
    leave_together(trainer)
    return summary


def leave_together(trainer: DataEfficientGRPOTrainer) -> None:
    """Wait for all processes, and close what they share; the trainer is of no more use.

    A process that exits with the group open can abort, whereupon the launcher ends the others.
    """
    if trainer.ranks.count > 1:
        trainer.accelerator.wait_for_everyone()
        trainer.accelerator.end_training()


def _run(trainer: DataEfficientGRPOTrainer, folder: Path, checkpoint: str | None) -> None:
    """Train; what stops a run on its way is said with how to go on."""
    go_on = f"evenodds train --resume {folder}"
    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    except KeyboardInterrupt:
        logger.warning("interrupted; go on from the last checkpoint with: %s", go_on)
        raise
    except RuntimeError:  # sampling from a policy that is not finite
        check_finite_weights(trainer.model)
        raise
    except SafetensorError as error:
        raise CheckpointError(
            "a file of the run cannot be written",
            got=error,
            expected=f"free space in {folder}",
            fix=f"free some, then {go_on}; what was saved before is whole",
        ) from error


def check_finite_weights(model: Any) -> None:
    """Refuse to save a policy that has diverged.

    Raises:
        HostError: a weight is not finite.
    """
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise HostError(
                "the policy has diverged",
                got=f"{name} has weights that are not finite",
                fix="lower training.learning_rate, and go on from an older checkpoint",
            )


def make_trainer(
    prepared: Prepared,
    folder: Path,
    callbacks: Sequence[TrainerCallback] = (),
    track: Track | None = None,
) -> DataEfficientGRPOTrainer:
    """The trainer of a run, with its policy loaded."""
    config = prepared.config
    model = load_policy(config.model)
    try:
        trainer = DataEfficientGRPOTrainer(
            model=model,
            reward_funcs=prepared.reward,
            args=prepared.args,
            train_dataset=prepared.dataset,
            processing_class=prepared.tokenizer,
            peft_config=_peft_config(config),
            callbacks=list(callbacks),
            efficiency=_efficiency(config),
            run_dir=folder,
            track=track,
        )
    except (ImportError, ValueError, RuntimeError) as error:
        if isinstance(error, EvenoddsError):
            raise
        raise ConfigError("TRL refuses the settings of this run", got=error) from error
    trainer.remove_callback(PrinterCallback)
    return trainer


def host_config(config: RunConfig, folder: Path) -> GRPOConfig:
    """TRL's own config, from ours.

    Raises:
        ConfigError: the batch cannot be cut into updates and micro-batches, or TRL refuses a
            setting of `training.host`.
    """
    run, generation, training = config.run, config.generation, config.training
    has_gpu = torch.cuda.is_available()
    updates = training.updates_per_step
    settings: dict[str, Any] = {
        "output_dir": str(folder / "checkpoints"),
        "seed": run.seed,
        "max_steps": run.steps * updates,
        "logging_steps": updates,
        "save_strategy": "steps",
        "save_steps": (run.save_every or run.steps) * updates,
        "save_total_limit": run.keep_checkpoints,
        "report_to": list(run.report_to) or "none",
        "disable_tqdm": True,
        "num_generations": generation.group_size,
        "max_completion_length": generation.max_new_tokens,
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        "use_vllm": generation.use_vllm,
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.schedule,
        "warmup_steps": training.warmup_steps,
        "weight_decay": training.weight_decay,
        "max_grad_norm": training.max_grad_norm,
        "loss_type": training.loss_type,
        "scale_rewards": training.scale_rewards,
        "epsilon": training.clip_low,
        "epsilon_high": training.clip_high,
        "beta": training.kl_coefficient,
        "use_cpu": not has_gpu,
        "bf16": has_gpu and config.model.dtype != "float16",
        "gradient_checkpointing": has_gpu,
    }
    host = training.host or {}
    if owned := sorted((settings.keys() | OWNED) & host.keys()):
        raise ConfigError(
            f"training.host.{owned[0]} is set by evenodds",
            got=f"{owned[0]} = {host[owned[0]]!r}",
            fix="use the setting of [run], [generation] or [training] that stands for it",
        )
    settings |= host
    try:
        group: dict[str, Any] = {
            "per_device_train_batch_size": generation.group_size,
            "steps_per_generation": 1,
        }
        world_size = GRPOConfig(**{**settings, **group}).world_size
        return GRPOConfig(**{**settings, **batch_split(config, world_size)})
    except (ImportError, OSError, TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError("TRL refuses the settings of this run", got=error) from error


def _pools(config: RunConfig) -> tuple[QuestionPool, QuestionPool | None]:
    """The questions to train on and the held-out ones, none of which is in both."""
    pool = load_pool(config.data)
    if config.evaluation_data is None:
        return pool, None
    held_out = load_pool(config.evaluation_data)
    taken = set(held_out.ids)
    kept = [row for row, name in enumerate(pool.ids) if name not in taken]
    if not kept:
        raise ConfigError(
            "every question is held out for evaluation",
            got=f"{len(pool)} questions",
            fix="set evaluation.split, evaluation.source or evaluation.limit",
        )
    if len(kept) < len(pool):
        logger.warning("%d held-out questions leave the pool", len(pool) - len(kept))
        pool = pool.take(kept)
    return pool, held_out


def _peft_config(config: RunConfig) -> Any:
    if config.model.lora_rank is None:
        return None
    from peft import LoraConfig

    targets = list(config.model.lora_targets) or None
    return LoraConfig(r=config.model.lora_rank, target_modules=targets)


class HeldOut(TrainerCallback):
    """Scores the held-out questions at the start, every so many steps, and at the end.

    Args:
        prepared: The run.
        on_step: Called with the metrics of step 0.
    """

    def __init__(self, prepared: Prepared, on_step: OnStep | None = None) -> None:
        assert prepared.held_out is not None
        assert prepared.config.evaluation is not None
        self.config = prepared.config.evaluation
        self.max_new_tokens = prepared.config.generation.max_new_tokens
        self.evaluator = Evaluator(
            prepared.held_out, prepared.reward, prepared.tokenizer, self.config
        )
        self.on_step = on_step
        self.trainer: DataEfficientGRPOTrainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before the first step."""
        if state.global_step == 0:
            metrics = {"step": 0, "rollout_step": 0, **self.measure()}
            if state.is_world_process_zero:
                self.trainer.recorder.metrics(metrics)
                if self.on_step is not None:
                    self.on_step(metrics)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After every so many rollout steps, and the last one."""
        step, rest = divmod(state.global_step, args.logging_steps)
        is_due = self.config.every and step % self.config.every == 0
        if rest == 0 and (is_due or state.global_step >= state.max_steps):
            self.trainer.note_metrics(self.measure())

    def measure(self) -> dict[str, float]:
        """Accuracy, its standard error, and the seconds it took."""
        start = time.perf_counter()
        evaluation = self.evaluate()
        return {
            "eval/accuracy": evaluation.accuracy,
            "eval/standard_error": evaluation.standard_error,
            "time/evaluate_s": time.perf_counter() - start,
        }

    def evaluate(self) -> Evaluation:
        """Every process scores its share of the questions."""
        trainer, ranks = self.trainer, self.trainer.ranks
        model: Any = trainer.model
        was_training = model.training
        model.eval()
        try:
            with unwrap_model_for_generation(
                trainer.model_wrapped,  # type: ignore[arg-type]
                trainer.accelerator,
                gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            ) as unwrapped:
                generate = transformers_engine(
                    unwrapped,
                    pad_token_id=self.evaluator.tokenizer.pad_token_id,
                    eos_token_ids=trainer.eos_token_ids,
                    temperature=self.config.temperature,
                    top_p=self.config.top_p,
                    max_new_tokens=self.max_new_tokens,
                )
                rows = self.evaluator.rows(ranks.index, ranks.count)
                scores = self.evaluator.score(generate, rows, trainer.accelerator.device)
        finally:
            model.train(was_training)
        return Evaluation(np.concatenate(ranks.gather(scores)))


class _Watch(TrainerCallback):
    def __init__(self, trainer: DataEfficientGRPOTrainer, on_step: OnStep) -> None:
        self.trainer, self.on_step, self._seen = trainer, on_step, 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        metrics = self.trainer.step_metrics
        if state.is_world_process_zero and metrics.get("step", 0) > self._seen:
            self._seen = int(metrics["step"])
            self.on_step(metrics)

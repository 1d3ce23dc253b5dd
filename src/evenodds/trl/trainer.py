"""`GRPOTrainer` that chooses what to generate and replays recent rollouts.

Every override calls the host's method and transforms what comes back; none repeats its body.
The method itself is in `evenodds.loop`: this file carries rollouts between it and TRL.
"""

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerState
from transformers.trainer_utils import TrainOutput
from trl import GRPOTrainer

from evenodds.config import EfficiencyConfig
from evenodds.difficulty import DifficultyEstimator
from evenodds.embeddings import Embeddings, Track, embed_with_model, embed_with_policy, untracked
from evenodds.estimators import make_estimator
from evenodds.files import read_tensors, write_tensors
from evenodds.loop import DataEfficientLoop, StepRecord
from evenodds.loss import second_moment_mask
from evenodds.question_index import DatasetQuestions
from evenodds.recorder import RunRecorder
from evenodds.replay_share import ratios_of_totals
from evenodds.scoring import (
    advantages_of_scored,
    joined,
    normalised,
    observed,
    without_signal,
)
from evenodds.state import State, check_belongs
from evenodds.trl import batch as batches
from evenodds.trl.batch import Batch
from evenodds.trl.checkpoint import (
    TRAINER_STATE,
    PlainCheckpoints,
    check_complete,
    check_world_size,
    last_complete,
    restore_rng,
    rng_state,
    write_manifest,
)
from evenodds.trl.ranks import AccelerateRanks
from evenodds.trl.rollout_step import RolloutStep, untouched
from evenodds.trl.seams import (
    check_batch,
    check_dataset,
    check_seams,
    check_settings,
    checked_efficiency,
)
from evenodds.trl.trimming import trim, without_groups
from evenodds.types import BatchPlan, Observation


class DataEfficientGRPOTrainer(PlainCheckpoints, GRPOTrainer):
    """`trl.GRPOTrainer` with difficulty-targeted selection (DOTS) and rollout replay (RR).

    Takes every argument of `GRPOTrainer`, and:

    Args:
        efficiency: What to select and replay; the preset `evenodds` by default.
        run_dir: Folder for `metrics.jsonl` and `selections.jsonl`; `args.output_dir` by default.
        track: Shows how far the embedding of the questions is; a tqdm bar by default.

    Raises:
        ConfigError: a setting of TRL or of evenodds that would give wrong results, before any
            model is loaded.
    """

    def __init__(
        self,
        *args: Any,
        efficiency: EfficiencyConfig | None = None,
        run_dir: str | Path | None = None,
        track: Track | None = None,
        **kwargs: Any,
    ) -> None:
        self.efficiency = checked_efficiency(efficiency)
        check_seams(GRPOTrainer)
        given = inspect.signature(GRPOTrainer.__init__).bind(self, *args, **kwargs).arguments
        num_rows = check_dataset(self.efficiency, given)
        if given.get("args") is not None:
            check_settings(self.efficiency, given["args"], num_rows)
        super().__init__(*args, **kwargs)
        if given.get("args") is None:  # the host has made its own
            check_settings(self.efficiency, self.args, num_rows)
        if self.efficiency.selects:
            self.args.ignore_data_skip = True  # the data loader only sets the pace
        self._track = track or (untracked if self.args.disable_tqdm else _bar)
        self.ranks = AccelerateRanks(self.accelerator)
        self.questions = DatasetQuestions(self.train_dataset)
        self._noted: dict[str, float] = {}
        self.loop = self._make_loop()
        self.recorder = RunRecorder(Path(run_dir or str(self.args.output_dir)))
        self.step_metrics: dict[str, float] = {}  # of the last recorded step
        self._totals = {"rollouts/total": 0, "tokens/generated_total": 0}
        self._rollouts: RolloutStep | None = None  # generated, and not yet trained on to the end
        self._finished: list[tuple[RolloutStep, StepRecord, dict[str, float]]] = []
        self._rewards_RF: Tensor | None = None
        self._on_logps: Callable[[Tensor], None] | None = None
        self._rng: State | None = None
        self._train_sampler: Any = None
        self.add_callback(_StepEvents(self))

    @property
    def _group_size(self) -> int:
        assert self.num_generations is not None
        return self.num_generations

    @property
    def _is_active(self) -> bool:
        return self.efficiency.selects or self.efficiency.replays

    def _make_loop(self) -> DataEfficientLoop:
        assert self.args.steps_per_generation is not None
        rows = self.args.per_device_train_batch_size * self.args.steps_per_generation
        needs_estimator = self.efficiency.predicts and self.accelerator.is_main_process
        return DataEfficientLoop(
            self.efficiency,
            len(self.questions),
            rows // self._group_size * self.ranks.count,
            estimator=self._make_estimator() if needs_estimator else None,
            seed=self.args.seed,
            ranks=self.ranks,
        )

    def _make_estimator(self) -> DifficultyEstimator:
        started = time.perf_counter()
        estimator = make_estimator(self.efficiency, self.questions.ids, self._embeddings)
        self._noted["time/embed_s"] = time.perf_counter() - started
        return estimator

    def _embeddings(self) -> Embeddings:
        config = self.efficiency
        texts, size = self.questions.texts, config.embedding_batch_size
        policy: Any = self.model
        if config.embeddings == "policy":
            return embed_with_policy(
                policy, self._tokenizer, texts, batch_size=size, track=self._track
            )
        device = str(self.accelerator.device)
        return embed_with_model(
            config.embeddings, texts, batch_size=size, device=device, track=self._track
        )

    # Generating: probe, select, generate, replay

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Batch:
        model: Any = self.model
        if not model.training:
            return super()._generate_and_score_completions(inputs)
        if self._rng is not None:
            restore_rng(self._rng)
        step = self._rollouts = RolloutStep()
        if len(probes := self.loop.plan_references()):
            with step.timed("time/reference_s"):
                references = self._probe(probes, step)
            with step.timed("time/select_s"):
                self.loop.observe_references(references)
        with step.timed("time/select_s"):
            plan = self.loop.plan_batch()
        with step.timed("time/generate_s"):
            if self.efficiency.selects:
                inputs, questions_B = self._rows_of(plan.questions), plan.questions
            else:
                inputs = inputs[: plan.num_fresh * self._group_size]
                chosen = inputs[:: self._group_size]
                questions_B = np.array([self.questions.number_of(row) for row in chosen])
            batch, rewards_BG = self._generate_groups(inputs, step)
        with step.timed("time/select_s"):
            return self._complete_batch(batch, questions_B, rewards_BG, plan, step)

    def _probe(self, probes_K: Int[np.ndarray, " K"], step: RolloutStep) -> Observation:
        """Observed difficulty of the references, leaving no trace in the host's own metrics."""
        per_rank = self.loop.groups_per_rank
        mine = np.split(probes_K, self.ranks.count)[self.ranks.index]
        rewards = []
        with untouched(self._metrics["train"], self._logs):
            for start in range(0, len(mine), per_rank):
                rows = self._rows_of(mine[start : start + per_rank])
                rewards.append(self._generate_groups(rows, step)[1])
        scored_BG = normalised(np.concatenate(rewards), self.efficiency.reward_range)
        return joined(self.ranks.gather(observed(mine, scored_BG)))

    def _rows_of(self, questions_B: Int[np.ndarray, " B"]) -> list[dict[str, Any]]:
        """Rows of the dataset, each `num_generations` times."""
        rows = [self.questions.row(int(question)) for question in questions_B]
        return [dict(row) for row in rows for _ in range(self._group_size)]

    def _generate_groups(
        self, inputs: list[dict[str, Any]], step: RolloutStep
    ) -> tuple[Batch, Float[np.ndarray, "B G"]]:
        """This process's scored rollouts, and their rewards as the reward functions gave them."""
        batch = super()._generate_and_score_completions(inputs)
        rows = len(inputs)
        mine = self._global_rewards()[self.ranks.index * rows : (self.ranks.index + 1) * rows]
        step.rollouts += rows * self.ranks.count
        mean_length = self._metrics["train"]["completions/mean_length"][-1]
        step.tokens += round(mean_length * rows * self.ranks.count)
        return batch, mine.view(-1, self._group_size).numpy()

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        rewards_RF: Tensor = super()._calculate_rewards(*args, **kwargs)
        self._rewards_RF = rewards_RF
        return rewards_RF

    def _global_rewards(self) -> Float[Tensor, " R"]:
        """Weighted sum over the reward functions; NaN where none of them scored a rollout."""
        assert self._rewards_RF is not None, "the host scores through _calculate_rewards"
        rewards_RF = self._rewards_RF.double().cpu()
        rewards_R = (rewards_RF * self.reward_weights.double().cpu()).nansum(dim=1)
        return rewards_R.masked_fill(rewards_RF.isnan().all(dim=1), torch.nan)

    def _complete_batch(
        self,
        batch: Batch,
        questions_B: Int[np.ndarray, " B"],
        rewards_BG: Float[np.ndarray, "B G"],
        plan: BatchPlan,
        step: RolloutStep,
    ) -> Batch:
        """Take in what was observed, and append the replayed groups to the host's batch."""
        scored_BG = normalised(rewards_BG, self.efficiency.reward_range)
        replayed = plan.replayed
        dead_B = without_signal(scored_BG)
        if self.efficiency.refill:
            replayed = (*replayed, *self.loop.refill(int(dead_B.sum())))
        self.loop.observe(joined(self.ranks.gather(observed(questions_B, scored_BG))))
        step.reward_mean = float(self._global_rewards().nanmean())
        form = self.efficiency.advantage
        if form != "host":
            advantages_R = advantages_of_scored(rewards_BG, form).reshape(-1)
            batch["advantages"] = torch.from_numpy(advantages_R).to(batch["advantages"])
        if not self.efficiency.replays:
            return self._to_train_on(batch, step)
        check_batch(batch, rewards_BG.size)
        step.fresh = (batch, questions_B, scored_BG)
        batch = batches.with_stored(batch)
        if replayed:
            pad_id: Any = self._tokenizer.pad_token_id
            stored = batches.batch_of_groups(replayed, batch, pad_id)
            if "old_per_token_logps" in batch:
                with step.timed("time/logprobs_s"):
                    stored["old_per_token_logps"] = self._current_logps(stored)
            batch = batches.concatenate(batch, stored, pad_id)
            total = self.accelerator.gather(batches.loss_tokens(batch).sum()).sum()
            batch["num_items_in_batch"] = total
        batch = batches.mark_rows(batch, rewards_BG.size)
        refilled = np.flatnonzero(dead_B)[: len(replayed) - len(plan.replayed)]
        return self._to_train_on(without_groups(batch, refilled, self._group_size), step)

    def _to_train_on(self, batch: Batch, step: RolloutStep) -> Batch:
        """The batch, or that part of it which carries signal."""
        if self.efficiency.drop_ineffective:
            assert self.args.steps_per_generation is not None
            multiple = self.args.steps_per_generation
            batch = trim(batch, self._group_size, multiple, self.args.loss_type)
        step.trained_rows = len(batch["prompt_ids"])
        return batch

    @torch.no_grad()
    def _current_logps(self, batch: Batch) -> Float[Tensor, "R T"]:
        return self._get_per_token_logps_and_entropies(
            self.model,
            torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
            torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
            batch["completion_ids"].shape[1],
            batch_size=self.args.per_device_train_batch_size,
        )[0]

    # Training: the off-policy loss, through the host's own

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """The host's step; after the last one on a batch, its fresh groups are stored."""
        start = time.perf_counter()
        loss = super().training_step(*args, **kwargs)
        assert self._rollouts is not None
        self._rollouts.losses.append(loss)
        if self._step % self._generate_every == 0:
            self._finish_rollouts(self._rollouts)
        self._rollouts.step_seconds += time.perf_counter() - start
        return loss

    def _compute_loss(self, model: Any, inputs: Batch) -> Tensor:
        if batches.REPLAYED not in inputs:
            return super()._compute_loss(model, inputs)
        inputs = dict(inputs)
        self._on_logps = functools.partial(self._correct, inputs)
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._on_logps = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        outputs = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._on_logps is not None:
            on_logps, self._on_logps = self._on_logps, None
            on_logps(outputs[0].detach())
        return outputs

    def _correct(self, inputs: Batch, logps_RT: Float[Tensor, "R T"]) -> None:
        """Make the host's PPO loss the off-policy loss, now that its forward pass has run.

        The decoupled loss is r_old times the PPO loss of pi / pi_old, so r_old goes into the
        advantages; the paper's is the PPO loss of pi / mu, so mu takes the place of pi_old. Where
        the host has no pi_old, the batch is trained on in one update and pi_old is this forward.
        """
        assert self._rollouts is not None
        replayed_R, mask_RT = inputs[batches.REPLAYED], batches.loss_tokens(inputs)
        old_RT = inputs.get("old_per_token_logps")
        if old_RT is None:
            old_RT = logps_RT
            self._rollouts.keep_logps(inputs[batches.ROW], replayed_R, logps_RT)
        if not replayed_R.any():
            return
        ratio_RT = batches.ratio_of_old(old_RT, inputs[batches.STORED], replayed_R, mask_RT)
        stale_RT = replayed_R[:, None] & mask_RT.bool()
        self._rollouts.note_ratios(ratio_RT[stale_RT])
        bound = self.efficiency.second_moment_bound
        if bound is not None:
            kept_RT = torch.ones_like(stale_RT)
            kept_RT[stale_RT] = second_moment_mask(ratio_RT[stale_RT].log(), bound)
            inputs["advantages"] = inputs["advantages"][:, None] * kept_RT
        if self.efficiency.loss == "decoupled":
            advantages = inputs["advantages"]
            inputs["advantages"] = advantages.view(len(advantages), -1) * ratio_RT
        else:
            stored_RT = inputs[batches.STORED]
            inputs["old_per_token_logps"] = torch.where(replayed_R[:, None], stored_RT, old_RT)

    @property
    def _generate_every(self) -> int:
        assert self.args.steps_per_generation is not None
        return self.args.steps_per_generation * self.num_iterations

    def _finish_rollouts(self, step: RolloutStep) -> None:
        """Store the fresh groups and put the step's numbers together."""
        if step.fresh is not None:
            with step.timed("time/select_s"):
                batch, questions_B, scored_BG = step.fresh
                at = self.loop.step - 1
                logps_RT = step.behaviour_logps()
                groups = batches.effective_groups(batch, questions_B, scored_BG, logps_RT, at)
                self.loop.store(groups)
            step.fresh = None
        if self._is_active:
            self._rng = rng_state()
        self._totals["rollouts/total"] += step.rollouts
        self._totals["tokens/generated_total"] += step.tokens
        updates = max(1, len(step.losses) // self.args.gradient_accumulation_steps)
        loss = float(torch.stack(step.losses).sum()) / updates
        shared = self.ranks.gather((loss, step.trained_rows, *step.ratio_totals))
        losses, rows, *ratios = (np.array(column) for column in zip(*shared, strict=True))
        ratio_metrics = ratios_of_totals(*(float(column.sum()) for column in ratios))
        self.loop.note_ratios(ratio_metrics["replay/ess"], ratio_metrics["replay/ratio_mean"])
        metrics = {
            "reward/mean": step.reward_mean,
            **self.loop.metrics(),
            **ratio_metrics,
            "train/num_groups": rows.sum() / self._group_size,
            "loss/policy": losses.mean(),
            **self._totals,
        }
        assert self.loop.record is not None
        self._finished.append((step, self.loop.record, metrics))

    # Recording

    def note_metrics(self, values: Mapping[str, float]) -> None:
        """Add numbers to the metrics line of the step that is being taken."""
        self._noted.update(values)

    def _write_metrics(self) -> None:
        """Write a line for every rollout step that is trained on to the end."""
        for step, record, metrics in self._finished:
            place = {"step": self.state.global_step, "rollout_step": record.step + 1}
            numbers = {**step.times(), **metrics, **self._noted}
            self._noted = {}
            self.step_metrics = {**place, **numbers}
            for name, value in numbers.items():
                if np.isfinite(value):
                    self._metrics["train"][name].append(float(value))
            if self.accelerator.is_main_process:
                self.recorder.metrics(self.step_metrics)
                self.recorder.selection(self.state.global_step, record, self.questions.id_of)
        self._finished = []

    # Saving and going on

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As the host's; a checkpoint that was not written to the end is passed over or refused.

        Args:
            resume_from_checkpoint: True takes the newest complete one in `args.output_dir`.
            args: As the host's.
            kwargs: As the host's.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = str(last_complete(Path(str(self.args.output_dir))))
        if resume_from_checkpoint:
            self._read_state(Path(resume_from_checkpoint))
            saved = TrainerState.load_from_json(str(Path(resume_from_checkpoint) / TRAINER_STATE))
            if 0 < self.args.max_steps <= saved.global_step:  # the host would take one step more
                self._load_from_checkpoint(str(resume_from_checkpoint))
                self.state = saved
                return TrainOutput(saved.global_step, 0.0, {})
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:  # until it is written again, the folder counts as incomplete
            (folder / TRAINER_STATE).unlink(missing_ok=True)
        super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        parts = {
            "loop": self.loop.state(),
            "trainer": State(values=dict(self._totals)),
            "belongs": State(values=self._belongs()),
        }
        if self._rng is not None:
            parts["rng"] = self._rng
        state = State.of_parts(parts)
        write_tensors(self._state_path(output_dir), state.tensors, state.values)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            write_manifest(Path(output_dir), self.ranks.count)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        state = None if checkpoint is None else self._read_state(Path(checkpoint))
        if state is None:
            return
        self._noted.clear()  # embedding counted when the run began
        self.loop.restore(state.part("loop"))
        self._totals = state.part("trainer").values
        if self._is_active:
            self._rng = state.part("rng")
        else:
            self._skip_permutations()

    def _read_state(self, checkpoint: Path) -> State | None:
        """Our part of a checkpoint that fits this run; none where the host alone wrote it."""
        if not check_complete(checkpoint):
            return None
        if self._is_active:
            check_world_size(checkpoint, self.ranks.count)
        tensors, values = read_tensors(self._state_path(str(checkpoint)))
        state = State(values, tensors)
        check_belongs(state.part("belongs").values, self._belongs())
        return state

    def _belongs(self) -> dict[str, Any]:
        """What the state of selection and replay stands for, and cannot change on the way."""
        settings = self.efficiency.as_dict()
        return {
            "questions": self.questions.digest,
            "num_generations": self._group_size,
            "groups a step": self.loop.groups_per_rank * self.ranks.count,
            "num_iterations": self.num_iterations,
            "seed": self.args.seed,
            **{f"efficiency.{k}": v for k, v in settings.items() if k != "predictor"},
        }

    def _state_path(self, checkpoint: str) -> Path:
        return Path(checkpoint) / f"evenodds-rank{self.ranks.index}.safetensors"

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        self._train_sampler = super()._get_train_sampler(*args, **kwargs)
        return self._train_sampler

    def _skip_permutations(self) -> None:
        """Bring the host's sampler to the order of the epoch that is resumed.

        It shuffles anew each epoch from one generator, and a new one starts at the first order.
        """
        sampler = self._train_sampler
        if sampler is not None and sampler.shuffle:
            for _ in range(int((self.state.epoch or 0.0) + 1e-6)):
                torch.randperm(sampler.num_samples, generator=sampler.generator)


def _bar(items: Sequence[Any], description: str) -> Iterable[Any]:
    return tqdm(items, desc=description)


class _StepEvents(TrainerCallback):
    """Tells the trainer where steps begin and end; runs after the user's own callbacks."""

    def __init__(self, trainer: DataEfficientGRPOTrainer) -> None:
        self.trainer = trainer
        self._since = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        if state.global_step:
            self.trainer.recorder.resume(state.global_step)
        else:
            self.trainer.recorder.start()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._since = time.perf_counter()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if (step := self.trainer._rollouts) is not None:
            step.step_seconds += time.perf_counter() - self._since

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer._write_metrics()

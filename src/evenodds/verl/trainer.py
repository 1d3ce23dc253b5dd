# pyright: reportMissingImports=false
"""verl's synchronous trainer that chooses what to generate and replays recent rollouts.

Every override calls verl's method and adds to it; none repeats its body. The method itself is in
`evenodds.loop`: this file carries groups between it and verl. A step of verl:

    prepare_step         probe references, plan the batch, submit its prompts
    _next_train_batch    the one place where prompts are chosen
    _step_once           finished groups are observed and joined by stored ones; then verl's own
                         log-probabilities, rollout correction, advantages and update
    _compute_metrics     a line in the run's own files
"""

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import transfer_queue as tq
from jaxtyping import Float, Int
from omegaconf import DictConfig, OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from evenodds.difficulty import DifficultyEstimator
from evenodds.embeddings import Embeddings, embed_with_model
from evenodds.errors import CheckpointError, ConfigError, HostError
from evenodds.estimators import make_estimator
from evenodds.files import read_tensors, write_tensors
from evenodds.loop import DataEfficientLoop
from evenodds.question_index import DatasetQuestions
from evenodds.recorder import RunRecorder
from evenodds.replay_share import ratios_of_totals
from evenodds.scoring import joined, normalised, observed, without_signal
from evenodds.state import State, check_belongs
from evenodds.types import BatchPlan, Group, Observation
from evenodds.verl.seams import check_seams
from evenodds.verl.transfer import (
    PARTITION,
    Sampled,
    put_groups,
    ratios,
    read_groups,
    read_template,
    take_groups,
)
from evenodds.verl_checks import read_efficiency

logger = logging.getLogger(__name__)

STATE = "evenodds.safetensors"


@register_trainer("evenodds")
class DataEfficientTrainer(PPOTrainerSync):
    """`PPOTrainerSync` with difficulty-targeted selection (DOTS) and rollout replay (RR).

    Args:
        config: verl's config with a section `evenodds`, whose keys are those of
            `EfficiencyConfig`.

    Raises:
        ConfigError: a setting of verl or of evenodds that would give wrong results, before any
            worker is started.
    """

    def __init__(self, config: DictConfig) -> None:
        check_seams(PPOTrainerSync, ReplayBuffer)
        plain: Any = OmegaConf.to_container(config, resolve=True)
        self.efficiency = read_efficiency(plain)
        super().__init__(config)
        self._group_size = int(config.actor_rollout_ref.rollout.n)
        self._rollouts: _Rollouts = _Rollouts()
        self._plan = BatchPlan(num_fresh=0, questions=np.empty(0, dtype=np.int64))
        self._submitted: tuple[list[str], Int[np.ndarray, " B"]] = ([], self._plan.questions)
        self._totals = {"rollouts/total": 0, "tokens/generated_total": 0}
        self._accuracy: tuple[float, float] | None = None  # of the last validation, and its time
        self._embed_seconds: float | None = None

    def _build_replay_buffer(self) -> Any:
        # By its own name the trainer would take the branches of the asynchronous modes.
        self.trainer_mode = "sync"
        return super()._build_replay_buffer()

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        rows = getattr(self.train_dataset, "dataframe", None)
        if rows is None:
            raise HostError(
                "the training set is not one of verl's own",
                got=type(self.train_dataset).__name__,
                expected="a dataset with its rows in `dataframe`, as RLHFDataset has",
            )
        self._check_modality(rows.column_names)
        self.questions = DatasetQuestions(rows, self.config.data.prompt_key)
        estimator = self._make_estimator() if self.efficiency.predicts else None
        seed = self.config.data.get("seed", None)
        self.loop = DataEfficientLoop(
            self.efficiency,
            len(self.questions),
            int(self.config.data.train_batch_size),
            estimator=estimator,
            seed=0 if seed is None else int(seed),
        )
        self.recorder = RunRecorder(Path(self.config.trainer.default_local_dir))
        if self.efficiency.replays:
            logger.info("replay buffer on the driver: %s", self._memory_bound())

    def _check_modality(self, columns: Sequence[str]) -> None:
        data = self.config.data
        pictures = {data.get(key) for key in ("image_key", "video_key", "audio_key")}
        if self.efficiency.replays and (found := pictures & set(columns)):
            raise ConfigError(
                "rollouts on pictures, videos or sound cannot be replayed",
                got=f"columns {', '.join(sorted(found))}",
                fix="+evenodds.fresh_fraction=1",
            )

    def _make_estimator(self) -> DifficultyEstimator:
        started = time.perf_counter()
        estimator = make_estimator(self.efficiency, self.questions.ids, self._embeddings)
        self._embed_seconds = time.perf_counter() - started
        return estimator

    def _embeddings(self) -> Embeddings:
        """Of the questions; `policy` reads the start weights, here on the driver."""
        config = self.efficiency
        spec = config.embeddings
        if spec == "policy":
            spec = str(self.config.actor_rollout_ref.model.path)
        return embed_with_model(spec, self.questions.texts, batch_size=config.embedding_batch_size)

    def _memory_bound(self) -> str:
        """Most bytes of stored groups: an id 4, a log-prob 4, a mask 1, two floats a rollout 16."""
        data, size = self.config.data, self._group_size
        rollout = 9 * int(data.max_response_length) + 16
        group = 4 * int(data.max_prompt_length) + size * rollout
        whole = group * self.efficiency.capacity
        return (
            f"at most {group / 2**20:.2f} MiB a group, {whole / 2**30:.2f} GiB for "
            f"{self.efficiency.capacity} groups"
        )

    # Choosing: probe, plan, submit

    def prepare_step(self) -> dict[str, Any]:
        """Probe references where they are due, and submit the prompts of the plan."""
        self._rollouts = _Rollouts()
        if len(probes := self.loop.plan_references()):
            with self._rollouts.timed("reference"):
                references = self._probe(probes)
            with self._rollouts.timed("select"):
                self.loop.observe_references(references)
        with self._rollouts.timed("select"):
            self._plan = self.loop.plan_batch()
        return super().prepare_step()

    def _probe(self, probes_K: Int[np.ndarray, " K"]) -> Observation:
        """Observed difficulty of the references; their rollouts leave the queue again."""
        batch = self._prompts(probes_K)
        uids = [str(uid) for uid in batch["uid"]]
        self._submit_batch_to_rollout(batch)
        meta, _ = self.replay_buffer.sample(
            global_steps=self.global_steps, partition_id=PARTITION, batch_size=len(uids)
        )
        sampled = read_groups(meta, uids, self._group_size)
        if meta.keys:
            tq.kv_clear(keys=meta.keys, partition_id=meta.partition_id)
        self._count(sampled)
        scored_BG = normalised(sampled.rewards_BG, self.efficiency.reward_range)
        return joined([observed(probes_K, scored_BG)])

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        """The prompts of the plan; verl's own next ones where evenodds does not select."""
        if self.efficiency.selects:
            batch, questions_B = self._prompts(self._plan.questions), self._plan.questions
        else:
            batch = super()._next_train_batch(num_prompts)[: self._plan.num_fresh]
            asked = [_plain(prompt) for prompt in batch["raw_prompt"]]
            numbers = [self.questions.number_of_prompt(prompt) for prompt in asked]
            questions_B = np.array(numbers, dtype=np.int64)
        self._submitted = [str(uid) for uid in batch["uid"]], questions_B
        return batch

    def _prompts(self, questions_B: Int[np.ndarray, " B"]) -> Any:
        rows = [self.train_dataset[self.questions.row_number(int(q))] for q in questions_B]
        columns = collate_fn(rows)
        columns["uid"] = np.array([uuid.uuid4().hex for _ in rows], dtype=object)
        batch = tu.get_tensordict(columns)
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        return batch

    # Training: observe what was generated, join stored groups, and keep the new ones

    def _step_once(
        self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int
    ) -> KVBatchMeta:
        with self._joining():
            batch = super()._step_once(metrics, timing_raw, sample_batch_size)
        with self._rollouts.timed("select"):
            metrics.update(self._finish_step(batch))
        return batch

    @contextlib.contextmanager
    def _joining(self) -> Iterator[None]:
        """For the time of a step, what verl samples is what the plan makes of it."""
        sample = self.replay_buffer.sample

        def joined_sample(
            global_steps: int, partition_id: str, batch_size: int
        ) -> tuple[KVBatchMeta, dict[str, Any]]:
            meta, metrics = sample(
                global_steps=global_steps,
                partition_id=partition_id,
                batch_size=self._plan.num_fresh,
            )
            with self._rollouts.timed("join"):
                return self._complete(meta), metrics

        self.replay_buffer.sample = joined_sample
        try:
            yield
        finally:
            del self.replay_buffer.sample

    def _complete(self, meta: KVBatchMeta) -> KVBatchMeta:
        """Take in what was generated, and append the replayed groups."""
        uids, questions_B = self._submitted
        sampled = read_groups(meta, uids, self._group_size)
        self._count(sampled)
        scored_BG = normalised(sampled.rewards_BG, self.efficiency.reward_range)
        replayed, kept = self._plan.replayed, sampled.meta
        template = read_template(meta.keys[0]) if self.efficiency.replays and meta.keys else {}
        if self.efficiency.refill:
            dead = np.flatnonzero(without_signal(scored_BG))
            more = self.loop.refill(len(dead))
            replayed = (*replayed, *more)
            kept = sampled.without(dead[: len(more)].tolist())
        self.loop.observe(joined([observed(questions_B, scored_BG)]))
        self._rollouts.fresh = sampled, questions_B, scored_BG
        self._rollouts.reward_mean = float(np.nanmean(sampled.rewards_BG))
        if not replayed:
            return kept
        put = self._put(replayed, template)
        self._rollouts.replayed_keys = tuple(put.keys)
        return KVBatchMeta(
            partition_id=kept.partition_id,
            keys=[*kept.keys, *put.keys],
            tags=[*kept.tags, *put.tags],
        )

    def _put(self, groups: Sequence[Group], template: dict[str, Any]) -> KVBatchMeta:
        rows = [self.train_dataset[self.questions.row_number(group.question)] for group in groups]
        reward_range = self.efficiency.reward_range
        return put_groups(groups, template, rows, reward_range, self.global_steps)

    def _finish_step(self, batch: KVBatchMeta) -> dict[str, float]:
        """Store the fresh groups before verl clears them, and put the step's numbers together."""
        assert self._rollouts.fresh is not None, "a step samples its batch"
        sampled, questions_B, scored_BG = self._rollouts.fresh
        if self.efficiency.replays:
            groups = take_groups(sampled, questions_B, scored_BG, self.loop.step - 1)
            self.loop.store(groups)
        found_X = ratios(self._rollouts.replayed_keys).double()
        totals = float(found_X.sum()), float(found_X.square().sum()), found_X.numel()
        ratio_metrics = ratios_of_totals(*totals)
        self.loop.note_ratios(ratio_metrics["replay/ess"], ratio_metrics["replay/ratio_mean"])
        stored = [group.num_bytes for group in self.loop.buffer.groups]
        trained = sum(not tag.get("is_padding", False) for tag in batch.tags)
        metrics = {
            "reward/mean": self._rollouts.reward_mean,
            **self.loop.metrics(),
            **ratio_metrics,
            "replay/bytes": float(sum(stored)),
            "replay/bytes_per_group": float(np.mean(stored)) if stored else float("nan"),
            "train/num_groups": trained / self._group_size,
            **{name: float(total) for name, total in self._totals.items()},
        }
        self._rollouts.metrics = metrics
        return {name: value for name, value in metrics.items() if np.isfinite(value)}

    def _count(self, sampled: Sampled) -> None:
        self._totals["rollouts/total"] += len(sampled.meta.keys)
        self._totals["tokens/generated_total"] += sampled.num_tokens

    # Recording

    def on_train_begin(self) -> None:
        """Begin the run's own files, or cut them back to the checkpoint."""
        super().on_train_begin()
        done = self.global_steps - 1
        if done:
            self.recorder.resume(done)
            self._accuracy = None  # the step's own line has it
            return
        self.recorder.start()
        if self._accuracy is not None:
            self.recorder.metrics({"step": 0, "rollout_step": 0, **self._evaluation()})

    def _validate(self) -> dict[str, float]:
        started = time.perf_counter()
        metrics = super()._validate()
        scores = [
            value
            for name, value in metrics.items()
            if name.startswith("val-core/") and "/mean@" in name
        ]
        if scores:
            self._accuracy = float(np.mean(scores)), time.perf_counter() - started
        return metrics

    def _evaluation(self) -> dict[str, float]:
        assert self._accuracy is not None
        accuracy, seconds = self._accuracy
        self._accuracy = None
        return {"eval/accuracy": accuracy, "time/evaluate_s": seconds}

    def _compute_metrics(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        timing_raw: dict[str, float],
        global_steps: int,
        epoch: int,
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        numbers = {**self._rollouts.times(timing_raw), **self._rollouts.metrics}
        numbers["loss/policy"] = metrics.get("actor/pg_loss", float("nan"))
        if self._embed_seconds is not None:
            numbers["time/embed_s"], self._embed_seconds = self._embed_seconds, None
        if self._accuracy is not None:
            numbers.update(self._evaluation())
        record = self.loop.record
        assert record is not None, "every step is observed"
        self.recorder.metrics({"step": global_steps, "rollout_step": record.step + 1, **numbers})
        self.recorder.selection(global_steps, record, self.questions.id_of)

    # Saving and going on

    def _save_checkpoint(self) -> None:
        # Ours first: verl's last act is to name the checkpoint as the one to resume from.
        parts = {
            "loop": self.loop.state(),
            "trainer": State(values=dict(self._totals)),
            "belongs": State(values=self._belongs()),
        }
        state = State.of_parts(parts)
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        write_tensors(folder / STATE, state.tensors, state.values)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if not self.global_steps:
            return
        path = self._checkpoint_folder() / STATE
        if not path.exists():
            raise CheckpointError(
                "the checkpoint holds no state of evenodds",
                got=path,
                expected="a checkpoint of this trainer",
                fix="trainer.resume_mode=disable, or another trainer.default_local_dir",
            )
        tensors, values = read_tensors(path)
        state = State(values, tensors)
        check_belongs(state.part("belongs").values, self._belongs())
        self.loop.restore(state.part("loop"))
        self._totals = state.part("trainer").values
        self._embed_seconds = None  # counted when the run began

    def _checkpoint_folder(self) -> Path:
        trainer = self.config.trainer
        if trainer.resume_mode == "resume_path":
            return Path(os.path.abspath(trainer.resume_from_path))
        return Path(trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _belongs(self) -> dict[str, Any]:
        """What the state of selection and replay stands for, and cannot change on the way."""
        settings = self.efficiency.as_dict()
        return {
            "questions": self.questions.digest,
            "rollout.n": self._group_size,
            "train_batch_size": int(self.config.data.train_batch_size),
            **{f"evenodds.{k}": v for k, v in settings.items() if k != "predictor"},
        }


class _Rollouts:
    """What the trainer keeps of one step while it generates and trains on it."""

    def __init__(self) -> None:
        self.fresh: tuple[Sampled, Int[np.ndarray, " B"], Float[np.ndarray, "B G"]] | None = None
        self.replayed_keys: tuple[str, ...] = ()
        self.reward_mean = float("nan")
        self.metrics: dict[str, float] = {}
        self._seconds = {"reference": 0.0, "select": 0.0, "join": 0.0}  # join: within `gen`

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - start

    def times(self, timing_raw: dict[str, float]) -> dict[str, float]:
        """Seconds of the step and of its parts, from verl's timers and ours."""
        step = timing_raw.get("step", 0.0) - timing_raw.get("save_checkpoint", 0.0)
        logprobs = timing_raw.get("old_log_prob", 0.0) + timing_raw.get("ref", 0.0)
        known = {
            "time/generate_s": timing_raw.get("gen", 0.0) - self._seconds["join"],
            "time/reference_s": self._seconds["reference"],
            "time/select_s": self._seconds["select"] + self._seconds["join"],
            "time/logprobs_s": logprobs,
        }
        return {"time/step_s": step, **known, "time/update_s": step - sum(known.values())}


def _plain(prompt: Any) -> Any:
    """The messages of a prompt, out of a tensordict's wrapper."""
    return [dict(message) for message in getattr(prompt, "data", prompt)]

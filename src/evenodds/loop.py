"""The whole method in one screen, for any trainer.

    loop = DataEfficientLoop(EfficiencyConfig(), len(questions), 512, estimator=estimator)
    for step in range(steps):
        probes = loop.plan_references()
        if len(probes):
            loop.observe_references(score(generate(probes)))
        plan = loop.plan_batch()
        groups = generate_and_score(plan.questions)
        loop.observe(observation_of_groups(groups))
        train_on([*groups, *plan.replayed])
        loop.store(groups)

Stage by stage: references.py draws K questions, difficulty/ predicts all others from them,
choice.py picks the batch, replay.py completes it with recent groups. Under several processes each
has a loop: process 0 decides for all, and each keeps the rollouts it generated.

With `references = "batch"` no separate groups are probed: the references are the first questions
of the batch, and what is observed of them is known to be a uniform draw.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from evenodds.choice import order_questions
from evenodds.config import EfficiencyConfig
from evenodds.difficulty.estimator import DifficultyEstimator, Estimate
from evenodds.difficulty.scores import pearson
from evenodds.errors import CheckpointError, ConfigError, RewardError
from evenodds.history import QuestionHistory
from evenodds.ranks import Ranks, SingleProcess
from evenodds.references import ProbeRule, draw_references
from evenodds.replay import ReplayBuffer
from evenodds.replay_share import ReplayShare
from evenodds.selection import QuestionQueue, gumbel_top_k
from evenodds.state import State, generator_state, restore_generator
from evenodds.types import BatchPlan, Group, Observation


@dataclass(frozen=True, eq=False)
class StepRecord:
    """What one step chose and saw, the same on every process.

    Attributes:
        step: Rollout step, from 0.
        references: What was observed of the reference set; none where none was probed.
        reference_prediction_K: Predicted difficulty of those references, each without its own
            label.
        in_batch: Whether the references are among the fresh groups, and not besides them.
        fresh: What was observed of the generated groups.
        fresh_prediction_F: Predicted difficulty of those; NaN where nothing predicts.
        replayed: Questions of the replayed groups.
        replayed_ages: Steps since each was generated.
        replayed_difficulty: Difficulty observed when each was generated.
        replayed_uses: How often each was replayed, this time included.
        num_refilled: Those among them that took the place of fresh groups without signal.
        buffer_size: Stored groups before this step's were added.
        pool_bins: Questions of the whole pool whose estimated difficulty lies in each tenth of
            [0, 1]; none where nothing is estimated, and on other processes than 0.
    """

    step: int
    references: Observation | None
    reference_prediction_K: Float[np.ndarray, " K"] | None
    in_batch: bool
    fresh: Observation
    fresh_prediction_F: Float[np.ndarray, " F"]
    replayed: Int[np.ndarray, " R"]
    replayed_ages: Int[np.ndarray, " R"]
    replayed_difficulty: Float[np.ndarray, " R"]
    replayed_uses: Int[np.ndarray, " R"]
    num_refilled: int
    buffer_size: int
    pool_bins: Int[np.ndarray, " 10"] | None


class DataEfficientLoop:
    """Says what to generate next, takes in scored groups, and hands back replayed ones.

    Args:
        config: Every knob of the method.
        num_questions: N, size of the pool.
        groups_per_step: B, groups of a batch over all processes.
        estimator: Needed where `config.predicts`, on process 0, which decides for all.
        seed: Of selection and replay, where the config has none.
        ranks: The processes; one by default.

    Raises:
        ConfigError: the batch does not fit the pool or cannot be shared by the processes.
    """

    def __init__(
        self,
        config: EfficiencyConfig,
        num_questions: int,
        groups_per_step: int,
        *,
        estimator: DifficultyEstimator | None = None,
        seed: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        self.config = config
        self.num_questions = num_questions
        self.estimator = estimator
        self.ranks: Ranks = ranks or SingleProcess()
        check_sizes(config, num_questions, groups_per_step, self.ranks.count)
        fresh, self.replayed_per_rank = batch_shares(config, groups_per_step // self.ranks.count)
        self.groups_per_rank = fresh + self.replayed_per_rank
        if self.ranks.index == 0:
            _check_estimator(config, estimator)
        seeds = np.random.SeedSequence(seed if config.seed is None else config.seed).spawn(3)
        self._reference_generator = np.random.default_rng(seeds[0])
        self.queue = QuestionQueue(np.random.default_rng(seeds[1]))
        self.buffer = ReplayBuffer(
            _part(config.capacity, self.ranks.count, self.ranks.index),
            np.random.default_rng(seeds[2].spawn(self.ranks.count)[self.ranks.index]),
            age_scale=config.priority_age_scale if config.replay_policy == "priority" else None,
            max_age=config.max_age,
            max_uses=config.max_uses,
        )
        self.replay_share = ReplayShare(config.min_ess, config.max_ratio_drift)
        self.probe_rule = ProbeRule(config.num_references, config.enough_certainty)
        self.history = QuestionHistory(num_questions)
        self.step = 0  # rollout steps planned so far
        self.estimated: Estimate | None = None  # on process 0
        self._references: Observation | None = None
        self._reference_prediction_K: Float[np.ndarray, " K"] | None = None
        self._pearson = float("nan")
        self._riders = np.empty(0, dtype=np.int64)  # references within the batch
        self._num_refilled = 0
        self._plan = BatchPlan(num_fresh=0, questions=np.empty(0, dtype=np.int64))
        self._buffer_size = 0
        self.record: StepRecord | None = None

    # Step 1 to 3: probe, predict, calibrate

    def plan_references(
        self, excluded: Int[np.ndarray, " X"] | None = None
    ) -> Int[np.ndarray, " K"]:
        """Questions to probe before this batch; none where no new reference set is due.

        Args:
            excluded: Questions that may not be probed now.
        """
        self._references = self._reference_prediction_K = None
        if not self._selection_is_due or self.config.references == "batch":
            return np.empty(0, dtype=np.int64)
        drawn_K = self._draw_references(self.config.num_references, excluded)
        return self.ranks.broadcast(drawn_K)

    def _draw_references(
        self, most: int, excluded: Int[np.ndarray, " X"] | None
    ) -> Int[np.ndarray, " K"]:
        """As many as the posterior is unsure, the same number for each process."""
        count = self.config.num_references
        if self.config.adapt_references and self.ranks.index == 0:
            assert self.estimator is not None, "checked when the loop was made"
            in_batch = self.config.references == "batch"  # then the batch was just estimated
            estimate = self.estimated if in_batch else self.estimator.estimate()
            assert estimate is not None
            count = self.probe_rule.count(estimate.variance_N)
            count = -(-count // self.ranks.count) * self.ranks.count
        count = min(count, most)
        return draw_references(self.num_questions, count, self._reference_generator, excluded)

    def observe_references(self, references: Observation) -> None:
        """Predict the difficulty of the whole pool from the probed questions.

        Args:
            references: What was observed of all of them, the same on every process.
        """
        if len(references.questions_K) < 2:
            raise RewardError(
                "too few references were scored to predict from",
                got=f"{len(references.questions_K)} of {self.config.num_references}",
                expected="at least 2",
            )
        prediction_K = None
        if self.estimator is not None:
            before = None if self.estimator.needs_references else self.estimator.estimate()
            self._learn(before, references)
            self.estimator.probe(references)
            self.estimated = self.estimator.estimate()
            prediction = self.estimated if before is None else before
            prediction_K = prediction.difficulty_N[references.questions_K]
        self._note_references(references, prediction_K)

    def _learn(self, estimate: Estimate | None, observation: Observation) -> None:
        """What any observation says of questions and of the estimate before it, on process 0."""
        self.history.observe(observation, self.step)
        if estimate is not None:
            rows = observation.questions_K
            mean, variance = estimate.difficulty_N[rows], estimate.variance_N[rows]
            self.probe_rule.learn(mean, variance, observation)

    def _note_references(
        self, references: Observation, prediction_K: Float[np.ndarray, " K"] | None
    ) -> None:
        prediction_K = self.ranks.broadcast(prediction_K)
        assert prediction_K is not None, "process 0 has the estimator"
        self._references, self._reference_prediction_K = references, prediction_K
        self._pearson = pearson(prediction_K, references.difficulty_K)

    # Step 4 and 6: select and replay

    def plan_batch(self, excluded: Int[np.ndarray, " X"] | None = None) -> BatchPlan:
        """What this process generates now, and the stored groups that complete its batch.

        Args:
            excluded: Questions that may not be generated now; at least a batch must remain.
        """
        self.buffer.expire(self.step)
        wanted = self.replay_share.of(self.replayed_per_rank)
        stored = self.ranks.gather(len(self.buffer))
        num_replayed = wanted if min(stored) >= wanted else 0
        self._buffer_size = sum(stored)
        self._num_refilled = 0
        num_fresh = self.groups_per_rank - num_replayed
        self._plan = BatchPlan(
            num_fresh=num_fresh,
            questions=self._select(num_fresh, excluded),
            replayed=self.buffer.sample(num_replayed, self.step),
        )
        self.step += 1
        return self._plan

    def refill(self, count: int) -> tuple[Group, ...]:
        """Further stored groups, in place of fresh ones of this process without signal.

        Args:
            count: Places; there may be fewer groups.
        """
        taken = {group.question for group in self._plan.replayed}
        left = sum(group.question not in taken for group in self.buffer.groups)
        more = self.buffer.sample(min(count, left), self.step - 1, taken)
        self._plan = dataclasses.replace(self._plan, replayed=(*self._plan.replayed, *more))
        self._num_refilled = len(more)
        return more

    @property
    def _selection_is_due(self) -> bool:
        return self.config.predicts and self.step % self.config.steps_per_selection == 0

    def _select(
        self, num_fresh: int, excluded: Int[np.ndarray, " X"] | None
    ) -> Int[np.ndarray, " B"]:
        if not self.config.selects:
            return np.empty(0, dtype=np.int64)
        chosen = None
        if self.ranks.index == 0:
            spared = 0 if excluded is None else len(excluded)
            if self._selection_is_due:
                self._draw(spared)
            chosen = self._take(num_fresh * self.ranks.count, excluded, spared)
        chosen, self._riders = self.ranks.broadcast((chosen, self._riders))
        assert chosen is not None
        return chosen[self.ranks.index * num_fresh : (self.ranks.index + 1) * num_fresh]

    def _take(
        self, count: int, excluded: Int[np.ndarray, " X"] | None, spared: int
    ) -> Int[np.ndarray, " B"]:
        """References within the batch, if any, then what waits."""
        if count > self.num_questions - spared:
            raise ConfigError(
                "too few questions are left to choose from",
                got=f"{count} wanted, {self.num_questions} questions, {spared} excluded",
            )
        self._riders = np.empty(0, dtype=np.int64)
        if self._selection_is_due and self.config.references == "batch":
            self._riders = self._draw_references(count, excluded)
            excluded = self._riders if excluded is None else np.r_[excluded, self._riders]
        rest = count - len(self._riders)
        if self.queue.available(excluded) < rest:
            self.queue.extend(self._order(self.num_questions))
        return np.concatenate([self._riders, self.queue.take(rest, excluded)])

    def _draw(self, spared: int) -> None:
        """Draw the questions of the next steps from what is known now."""
        assert self.estimator is not None, "checked when the loop was made"
        if self._references is None and self._has_learned:  # nothing was probed now
            self.estimated = self.estimator.estimate()
        count = self.config.steps_per_selection * self._batch_size
        self.queue.put(self._order(count + spared + self.config.num_references))

    @property
    def _has_learned(self) -> bool:
        """Whether the estimator can say anything."""
        assert self.estimator is not None, "checked when the loop was made"
        return self.step > 0 or not self.estimator.needs_references

    def _order(self, count: int) -> Int[np.ndarray, " M"]:
        """The next questions, by what is known; at random where nothing is."""
        generator = self.queue.generator
        if not self.config.predicts or self.estimated is None:
            zeros_N = np.zeros(self.num_questions)
            return gumbel_top_k(zeros_N, min(count, self.num_questions), generator)
        return order_questions(
            self.config, self.estimated, self.history, self.step, count, generator
        )

    # Step 8: learn from what was generated

    def observe(self, fresh: Observation) -> None:
        """Take in what was observed of the fresh groups of all processes."""
        prediction_F = None
        if self.estimated is not None:
            prediction_F = self.estimated.difficulty_N[fresh.questions_K]
        self._take_in(fresh)
        prediction_F = self.ranks.broadcast(prediction_F)
        if prediction_F is None:
            prediction_F = np.full(len(fresh.questions_K), np.nan, dtype=np.float32)
        mine = [
            (
                group.question,
                self.step - 1 - group.step,
                group.difficulty,
                self.buffer.uses(group.question),
            )
            for group in self._plan.replayed
        ]
        replayed = [facts for part in self.ranks.gather(mine) for facts in part]
        columns = zip(*replayed, strict=True) if replayed else ((), (), (), ())
        questions, ages, difficulties, uses = columns
        self.record = StepRecord(
            step=self.step - 1,
            references=self._references,
            reference_prediction_K=self._reference_prediction_K,
            in_batch=self.config.references == "batch",
            fresh=fresh,
            fresh_prediction_F=prediction_F,
            replayed=np.array(questions, dtype=np.int64),
            replayed_ages=np.array(ages, dtype=np.int64),
            replayed_difficulty=np.array(difficulties, dtype=np.float32),
            replayed_uses=np.array(uses, dtype=np.int64),
            num_refilled=sum(self.ranks.gather(self._num_refilled)),
            buffer_size=self._buffer_size,
            pool_bins=None if self.estimated is None else _bins(self.estimated.difficulty_N),
        )
        if self.config.replays:
            self.buffer.discard(fresh.questions_K[fresh.effective_K].tolist())

    def _take_in(self, fresh: Observation) -> None:
        """Teach the estimator; references within the batch are a uniform draw, and said to be."""
        is_rider_F = np.isin(fresh.questions_K, self._riders)
        riders, chosen = fresh.where(is_rider_F), fresh.where(~is_rider_F)
        prediction_K = None
        if self.estimator is not None:
            self._learn(self.estimated, fresh)
            prediction_K = np.full(len(riders.questions_K), np.nan, dtype=np.float32)
            if self.estimated is not None:
                prediction_K = self.estimated.difficulty_N[riders.questions_K]
            if len(riders.questions_K):
                self.estimator.probe(riders)
            self.estimator.observe(chosen)
        if len(self._riders):
            self._note_references(riders, prediction_K)

    def note_ratios(self, ess: float, mean_ratio: float) -> None:
        """Take in the importance ratios of the replayed tokens of all processes.

        Args:
            ess: Effective share of them, in [0, 1]; NaN where nothing was replayed.
            mean_ratio: Their mean.
        """
        self.replay_share.note(ess, mean_ratio)

    def store(self, groups: list[Group]) -> None:
        """Keep the effective groups that this process generated."""
        if self.config.replays:
            self.buffer.add(groups)

    def metrics(self) -> dict[str, float]:
        """Numbers of the last observed step; NaN where there is nothing to measure."""
        record = self.record
        assert record is not None, "observe comes before metrics"
        return {
            "select/num_fresh": float(len(record.fresh.questions_K)),
            "select/num_references": float(
                0
                if record.references is None or record.in_batch
                else len(record.references.questions_K)
            ),
            "select/num_joined": float(
                len(record.references.questions_K)
                if record.references is not None and record.in_batch
                else 0
            ),
            "select/predicted_difficulty_mean": _mean(record.fresh_prediction_F),
            "select/observed_difficulty_mean": _mean(record.fresh.difficulty_K),
            "select/effective_fraction": _mean(record.fresh.effective_K),
            "select/pearson": self._pearson,
            "select/uncertainty": _deviation(self.estimated),
            "select/surprise": self.probe_rule.surprise,
            "replay/share": self.replay_share.factor,
            "replay/num_refilled": float(record.num_refilled),
            "replay/num_replayed": float(len(record.replayed)),
            "replay/size": float(record.buffer_size),
            "replay/age_mean": _mean(record.replayed_ages),
        }

    # Going on exactly

    def state(self) -> State:
        """Everything this process needs to go on exactly."""
        own = State(
            values={
                "step": self.step,
                "num_questions": self.num_questions,
                "pearson": None if np.isnan(self._pearson) else self._pearson,
                "generators": {
                    "references": generator_state(self._reference_generator),
                    "selection": generator_state(self.queue.generator),
                    "replay": generator_state(self.buffer.generator),
                },
            },
        )
        if self.estimated is not None:  # not what the estimator says now: it has seen more since
            own.tensors["difficulty"] = torch.from_numpy(self.estimated.difficulty_N.copy())
            own.tensors["variance"] = torch.from_numpy(self.estimated.variance_N.copy())
        parts = {
            "loop": own,
            "queue": self.queue.state(),
            "buffer": self.buffer.state(),
            "history": self.history.state(),
            "probe_rule": self.probe_rule.state(),
            "replay_share": self.replay_share.state(),
        }
        if self.estimator is not None:
            parts["estimator"] = self.estimator.state()
        return State.of_parts(parts)

    def restore(self, state: State) -> None:
        """Take over a state of `state`, of the same pool.

        Raises:
            CheckpointError: the state belongs to a pool of another size.
        """
        own = state.part("loop")
        if own.values["num_questions"] != self.num_questions:
            raise CheckpointError(
                "the checkpoint belongs to another question pool",
                got=f"{self.num_questions} questions",
                expected=f"{own.values['num_questions']} questions, as when it was saved",
            )
        self.step = own.values["step"]
        saved = own.values["pearson"]
        self._pearson = float("nan") if saved is None else saved
        if self.estimator is not None:
            self.estimator.restore(state.part("estimator"))
        self.estimated = None
        if "difficulty" in own.tensors:
            difficulty, variance = own.tensors["difficulty"], own.tensors["variance"]
            self.estimated = Estimate(difficulty.numpy().copy(), variance.numpy().copy())
        generators = own.values["generators"]
        restore_generator(self._reference_generator, generators["references"])
        restore_generator(self.queue.generator, generators["selection"])
        restore_generator(self.buffer.generator, generators["replay"])
        self.queue.restore(state.part("queue"))
        self.buffer.restore(state.part("buffer"))
        self.history.restore(state.part("history"))
        self.probe_rule.restore(state.part("probe_rule"))
        self.replay_share.restore(state.part("replay_share"))

    @property
    def _batch_size(self) -> int:
        return self.groups_per_rank * self.ranks.count


def _check_estimator(config: EfficiencyConfig, estimator: DifficultyEstimator | None) -> None:
    if config.predicts and estimator is None:
        raise ConfigError(
            "selection by difficulty needs an estimator",
            fix="pass `estimator=AttentionPredictor.untrained(embeddings)`",
        )
    if (
        config.predicts
        and estimator is not None
        and estimator.needs_references
        and not config.num_references
    ):
        raise ConfigError(
            "this estimator learns from references only",
            got=f"{type(estimator).__name__}, num_references = 0",
            expected="num_references of at least 2",
        )


def batch_shares(config: EfficiencyConfig, groups: int) -> tuple[int, int]:
    """Fresh and replayed groups of a batch of `groups`, once the buffer holds enough."""
    replayed = round(config.replay_share * groups)
    if config.replay_fraction is None:
        return groups - replayed, replayed
    return min(round(config.fresh_fraction * groups), groups - replayed), replayed


def _part(total: int, processes: int, index: int) -> int:
    """This process's part of `total`, the parts as equal as they can be."""
    return total // processes + (index < total % processes)


def check_sizes(
    config: EfficiencyConfig, num_questions: int, groups_per_step: int, processes: int
) -> None:
    """Refuse a batch, a reference set or a buffer that does not fit the pool or the processes.

    Args:
        config: Every knob of the method.
        num_questions: N, size of the pool; 0 where the host chooses from a stream.
        groups_per_step: B, groups of a batch over all processes.
        processes: Number of processes.
    """
    shared = {"groups a step": groups_per_step}
    if config.predicts and config.references == "separate":
        shared["references"] = config.num_references
    for name, count in shared.items():
        if count % processes:
            raise ConfigError(
                f"the processes cannot share the {name} evenly",
                got=f"{count} {name}, {processes} processes",
                expected="a number that the number of processes divides",
            )
        if count > num_questions and (config.selects or num_questions):
            raise ConfigError(
                "the pool is too small",
                got=f"{count} {name}, {num_questions} questions",
                expected="at most as many as there are different questions",
                fix="add questions, use smaller batches, or lower efficiency.num_references",
            )
    groups_per_rank = groups_per_step // processes
    fresh_per_rank, replayed_per_rank = batch_shares(config, groups_per_rank)
    if fresh_per_rank < 1 or (config.replays and replayed_per_rank < 1):
        raise ConfigError(
            "fresh_fraction leaves no place for a replayed or for a fresh group",
            got=f"fresh_fraction = {config.fresh_fraction}, {groups_per_rank} groups a process",
            expected="at least one group of each kind in the batch of every process",
            fix="use larger batches, or set fresh_fraction to 1 for no replay",
        )
    if config.replays and config.capacity // processes < replayed_per_rank:
        raise ConfigError(
            "the replay buffer is smaller than what each batch takes from it",
            got=f"capacity = {config.capacity}, {replayed_per_rank * processes} replayed a step",
            expected="capacity at least (1 - fresh_fraction) times the groups of a batch",
            fix=f"set capacity to {replayed_per_rank * processes} or more",
        )


def _bins(difficulty_N: Float[np.ndarray, " N"]) -> Int[np.ndarray, " 10"]:
    return np.histogram(difficulty_N, bins=10, range=(0.0, 1.0))[0]


def _deviation(estimate: Estimate | None) -> float:
    """Mean standard deviation of the failure rates; NaN where no uncertainty is claimed."""
    if estimate is None or not estimate.variance_N.any():
        return float("nan")
    return float(np.sqrt(estimate.variance_N).mean())


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else float("nan")

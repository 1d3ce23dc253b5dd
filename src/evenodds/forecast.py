"""What a run will generate, hold in memory and spend, before anything is loaded.

Counts of groups, rollouts and tokens follow from the settings. Times are modelled, after the
paper's shares of generation in a step (arXiv 2506.05316, 5.2): with g this share in plain GRPO, a
step takes g * (generated groups) / B + (1 - g) * (trained groups) / B of a step of plain GRPO.
"""

from dataclasses import dataclass

from evenodds.comparison.savings import GENERATION_SHARES
from evenodds.loop import batch_shares, check_sizes
from evenodds.run_config import RunConfig, batch_split

TOKEN_BYTES = 4  # of an id in the buffer, int32
LOGPROB_BYTES = 4  # of a log-probability in the buffer, float32
REWARD_BYTES = 8  # of a rollout: its reward and its advantage, float32
WIDTHS = {  # of the hidden states that are averaged into an embedding
    "toy": 64,
    "Qwen/Qwen2.5-Math-1.5B": 1536,
    "Qwen/Qwen2.5-Math-1.5B-Instruct": 1536,
    "Qwen/Qwen2.5-3B": 2048,
    "Qwen/Qwen2.5-Math-7B": 3584,
}
WIDEST = 4096  # taken where the model's width is not known
ADAPTED_WIDTH = 896  # of the paper's adapter


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Modelled times, for one share g of generation in a step of plain GRPO.

    Attributes:
        generation: g.
        references: Share of a step of this run that goes into reference rollouts.
        replay: What replaying in place of generating saves, as a share of plain GRPO's step.
        step: Time of a step over that of plain GRPO.
    """

    generation: float
    references: float
    replay: float
    step: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will take, once its buffer is filled.

    Attributes:
        processes: That share each batch.
        groups: B, groups of a batch of plain GRPO.
        fresh: Groups generated for each batch.
        replayed: Groups replayed in each batch.
        references: Groups generated besides the batch, a step; a mean over steps.
        group_size: G.
        rollouts: Generated in a step, a mean over steps.
        tokens: Generated in a step at most.
        trained: Rollouts trained on in a step.
        micro_batches: Forward and backward passes of each process for one update.
        micro_batch: Rollouts in each of them.
        updates: Of the weights in a step.
        total_rollouts: Generated in the whole run, before the buffer is filled too.
        buffer_bytes: Memory of the full buffer at most, over all processes.
        prediction_bytes: Memory of embeddings, predictions and variances of the pool at most, on
            process 0.
        width_is_known: Whether the width of the embeddings is; else the widest usual one is taken.
        shares: Modelled times: one where the config says the share of generation, else one for
            each of the paper's shares.
    """

    processes: int
    groups: int
    fresh: int
    replayed: int
    references: float
    group_size: int
    rollouts: float
    tokens: float
    trained: int
    micro_batches: int
    micro_batch: int
    updates: int
    total_rollouts: float
    buffer_bytes: int
    prediction_bytes: int
    width_is_known: bool
    shares: tuple[Shares, ...]


def forecast(config: RunConfig, num_questions: int) -> Forecast:
    """What `config` will take.

    Args:
        config: The whole run; its hardware says how many processes there are.
        num_questions: N, size of the pool.

    Raises:
        ConfigError: the batch fits neither the pool nor the processes, or cannot be cut evenly.
    """
    generation, efficiency, processes = config.generation, config.efficiency, config.processes
    groups = generation.groups_per_step
    check_sizes(efficiency, num_questions, groups, processes)
    split = batch_split(config, processes)
    fresh, replayed = (processes * n for n in batch_shares(efficiency, groups // processes))
    references = 0.0
    if efficiency.predicts and efficiency.references == "separate":
        references = efficiency.num_references / efficiency.steps_per_selection
    rollouts = (fresh + references) * generation.group_size
    width = WIDTHS.get(_embedding_model(config))
    return Forecast(
        processes=processes,
        groups=groups,
        fresh=fresh,
        replayed=replayed,
        references=references,
        group_size=generation.group_size,
        rollouts=rollouts,
        tokens=rollouts * generation.max_new_tokens,
        trained=(fresh + replayed) * generation.group_size,
        micro_batches=split["gradient_accumulation_steps"],
        micro_batch=split["per_device_train_batch_size"],
        updates=config.training.updates_per_step,
        total_rollouts=_total(config, fresh, replayed),
        buffer_bytes=buffer_bytes(config),
        prediction_bytes=prediction_bytes(config, num_questions, width or WIDEST),
        width_is_known=width is not None or not efficiency.predicts,
        shares=tuple(
            _shares(share, groups, fresh, replayed, references) for share in _generation(config)
        ),
    )


def buffer_bytes(config: RunConfig) -> int:
    """Memory of a full replay buffer whose prompts and completions are all as long as may be.

    A prompt is stored once a group; without `data.max_prompt_tokens` it counts as nothing.
    """
    if not config.efficiency.replays:
        return 0
    logprobs = 2 if config.training.kl_coefficient > 0 else 1  # the reference model's too
    per_token = TOKEN_BYTES + logprobs * LOGPROB_BYTES
    rollout = config.generation.max_new_tokens * per_token + REWARD_BYTES
    prompt = (config.data.max_prompt_tokens or 0) * TOKEN_BYTES
    return config.efficiency.capacity * (prompt + config.generation.group_size * rollout)


def prediction_bytes(config: RunConfig, num_questions: int, width: int) -> int:
    """Memory of N embeddings, adapted where there is a predictor, and of what is predicted."""
    if not config.efficiency.predicts:
        return 0
    adapted = 0 if config.efficiency.predictor is None else ADAPTED_WIDTH
    return num_questions * 4 * (width + adapted + 2)


def _total(config: RunConfig, fresh: int, replayed: int) -> float:
    """Rollouts of the whole run: batches are all fresh until the buffer holds enough.

    The buffer is taken to be filled as soon as it can be: by the groups of the first step, were
    all of them effective.
    """
    efficiency, steps = config.efficiency, config.run.steps
    groups = config.generation.groups_per_step
    batches = steps * fresh
    if replayed:  # the first batch, with nothing to replay
        batches += replayed
    references = 0
    if efficiency.predicts and efficiency.references == "separate":
        references = -(-steps // efficiency.steps_per_selection) * efficiency.num_references
    assert fresh + replayed <= groups
    return float((batches + references) * config.generation.group_size)


def _generation(config: RunConfig) -> tuple[float, ...]:
    known = None if config.hardware is None else config.hardware.generation_share
    return tuple(sorted(GENERATION_SHARES)) if known is None else (known,)


def _shares(share: float, groups: int, fresh: int, replayed: int, references: float) -> Shares:
    step = (share * (fresh + references) + (1 - share) * (fresh + replayed)) / groups
    return Shares(
        generation=share,
        references=share * references / groups / step,
        replay=share * replayed / groups,
        step=step,
    )


def _embedding_model(config: RunConfig) -> str:
    name = config.efficiency.embeddings
    return config.model.path if name == "policy" else name

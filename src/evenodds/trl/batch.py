"""Between TRL's padded batch of rollouts and evenodds' unpadded groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from evenodds.types import Group, Rollout

Batch = dict[str, Any]

LEFT = ("prompt_ids", "prompt_mask")
STORED = "evenodds_stored_logps"  # behaviour log-probs of replayed rows, 0 for fresh ones
REPLAYED = "evenodds_replayed"  # whether the row was replayed
ROW = "evenodds_row"  # the row's place in the generated batch, before the host shuffles it


def effective_groups(
    batch: Batch,
    questions: Sequence[int] | np.ndarray,
    rewards_BG: Float[np.ndarray, "B G"],
    behaviour_RT: Float[Tensor, "R T"],
    step: int,
) -> list[Group]:
    """The groups whose rewards differ, unpadded and on the CPU: those worth storing.

    Args:
        batch: TRL's batch of R = B * G rows, groups one after the other.
        questions: Row in the pool of each of the B groups.
        rewards_BG: Rewards in [0, 1]; groups with an unscored rollout (NaN) are left out.
        behaviour_RT: Log-probability of each token under the policy that sampled it.
        step: Rollout step.
    """
    group_size = rewards_BG.shape[1]
    per_token = {
        "completion_ids": batch["completion_ids"].to(torch.int32),
        "behaviour_logprobs": behaviour_RT.detach().float(),
    }
    if "tool_mask" in batch:
        per_token["loss_mask"] = batch["tool_mask"].bool()
    if "ref_per_token_logps" in batch:
        per_token["reference_logprobs"] = batch["ref_per_token_logps"].float()
    per_token = {name: value.cpu() for name, value in per_token.items()}
    present = batch["completion_mask"].bool().cpu()
    prompt_ids = batch["prompt_ids"].to(torch.int32).cpu()
    prompt_lengths = batch["prompt_mask"].sum(dim=1).tolist()
    advantages = batch["advantages"].detach().float().cpu().numpy().reshape(-1, group_size)

    groups = []
    for place in np.flatnonzero(rewards_BG.max(axis=1) > rewards_BG.min(axis=1)).tolist():
        rows = slice(place * group_size, (place + 1) * group_size)
        lengths = present[rows].sum(dim=1).tolist()
        columns = [value[rows][present[rows]].split(lengths) for value in per_token.values()]
        groups.append(
            Group(
                question=int(questions[place]),
                step=step,
                rewards_G=rewards_BG[place].copy(),
                advantages_G=advantages[place].copy(),
                prompt_ids=prompt_ids[rows.start, -prompt_lengths[rows.start] :].clone(),
                rollouts=tuple(
                    Rollout(**dict(zip(per_token, values, strict=True)))
                    for values in zip(*columns, strict=True)
                ),
            )
        )
    return groups


def batch_of_groups(groups: Sequence[Group], like: Batch, pad_token_id: int) -> Batch:
    """A batch in TRL's form, with the keys and on the device of `like`.

    `importance_sampling_ratio` is 1: the whole correction of a replayed row is its own.
    """
    device = like["prompt_ids"].device
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    prompts = [group.prompt_ids for group in groups for _ in group.rollouts]
    completions = [rollout.completion_ids for rollout in rollouts]
    advantages = np.concatenate([group.advantages_G for group in groups])

    def right(values: Sequence[Tensor | None], padding: float) -> Tensor:
        return pad_sequence([_stored(v) for v in values], True, padding).to(device)

    def lengths_mask(values: Sequence[Tensor], side: str) -> Tensor:
        ones = [torch.ones(len(value), dtype=torch.int64) for value in values]
        return pad_sequence(ones, True, 0, side).to(device)

    batch: Batch = {
        "prompt_ids": pad_sequence(prompts, True, pad_token_id, "left").long().to(device),
        "prompt_mask": lengths_mask(prompts, "left"),
        "completion_ids": right(completions, pad_token_id).long(),
        "completion_mask": lengths_mask(completions, "right"),
        "advantages": torch.from_numpy(advantages).to(device, like["advantages"].dtype),
        STORED: right([rollout.behaviour_logprobs for rollout in rollouts], 0.0),
    }
    if "tool_mask" in like:
        batch["tool_mask"] = right([rollout.loss_mask for rollout in rollouts], 1).long()
    if "ref_per_token_logps" in like:
        reference = [rollout.reference_logprobs for rollout in rollouts]
        batch["ref_per_token_logps"] = right(reference, 0.0)
    if "sampling_per_token_logps" in like:
        batch["sampling_per_token_logps"] = batch[STORED]
    if "importance_sampling_ratio" in like:
        per_token = like["importance_sampling_ratio"].shape == like["completion_ids"].shape
        shape = batch["completion_ids"].shape if per_token else (len(rollouts), 1)
        batch["importance_sampling_ratio"] = torch.ones(shape, device=device)
    return batch


def concatenate(fresh: Batch, replayed: Batch, pad_token_id: int) -> Batch:
    """Both batches as one, padded to a common width: prompts left, completions right."""
    padding = dict.fromkeys(replayed, 0.0)
    padding |= {"prompt_ids": pad_token_id, "completion_ids": pad_token_id, "tool_mask": 1}
    padding |= {"importance_sampling_ratio": 1.0}
    merged: Batch = {}
    for name, value in fresh.items():
        if name not in replayed:
            merged[name] = value
        elif value.dim() == 1:
            merged[name] = torch.cat([value, replayed[name]])
        else:
            width = max(value.shape[1], replayed[name].shape[1])
            parts = [
                functional.pad(
                    part,
                    (width - part.shape[1], 0) if name in LEFT else (0, width - part.shape[1]),
                    value=padding[name],
                )
                for part in (value, replayed[name])
            ]
            merged[name] = torch.cat(parts)
    return merged


def with_stored(batch: Batch) -> Batch:
    """The batch with a place for the behaviour log-probs of replayed rows."""
    return {**batch, STORED: torch.zeros_like(batch["completion_ids"], dtype=torch.float32)}


def mark_rows(batch: Batch, num_fresh: int) -> Batch:
    """Number the rows, and say which were replayed, before the host shuffles them."""
    rows = torch.arange(len(batch["prompt_ids"]), device=batch["prompt_ids"].device)
    return {**batch, ROW: rows, REPLAYED: rows >= num_fresh}


def loss_tokens(batch: Batch) -> Int[Tensor, "R T"]:
    """1 for the completion tokens that the loss counts."""
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def ratio_of_old(
    old_RT: Float[Tensor, "R T"],
    stored_RT: Float[Tensor, "R T"],
    replayed_R: Bool[Tensor, " R"],
    mask_RT: Int[Tensor, "R T"],
) -> Float[Tensor, "R T"]:
    """r_old = pi_old / mu for the real tokens of replayed rows, 1 everywhere else."""
    counts_RT = replayed_R[:, None] & mask_RT.bool()
    return torch.where(counts_RT, torch.exp(old_RT - stored_RT), torch.ones_like(old_RT))


def _stored(tensor: Tensor | None) -> Tensor:
    assert tensor is not None, "rollouts are stored and replayed under the same settings"
    return tensor

# pyright: reportMissingImports=false
"""Groups in TransferQueue: read them when they are finished, and put stored ones back.

A trajectory has the key UID_SESSION_INDEX, where a prompt's uid holds no underscore, a session is
one of the group's rollouts, and the index counts the outputs of a session.
"""

import copy
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from jaxtyping import Float, Int
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from evenodds.errors import HostError
from evenodds.loss import group_advantages
from evenodds.types import Group, Rollout

PARTITION = "train"


@dataclass(frozen=True)
class Sampled:
    """Finished groups, in the order of their prompts.

    Attributes:
        meta: All their trajectories, as verl handed them out.
        places: Of each group, the places of its trajectories in `meta`, by session; none for a
            session that failed. Only the last output of a session is scored.
        rewards_BG: Raw rewards; NaN for sessions that failed.
    """

    meta: KVBatchMeta
    places: tuple[tuple[int | None, ...], ...]
    rewards_BG: Float[np.ndarray, "B G"]

    def keys_of(self, group: int) -> list[str]:
        """Keys of a group's trajectories, all outputs included."""
        uid = next(self.meta.keys[p] for p in self.places[group] if p is not None).split("_")[0]
        return [key for key in self.meta.keys if key.split("_")[0] == uid]

    def without(self, groups: Sequence[int]) -> KVBatchMeta:
        """The trajectories of the other groups; those of these are taken out of the queue."""
        gone = {key for group in groups for key in self.keys_of(group)}
        if not gone:
            return self.meta
        tq.kv_clear(keys=sorted(gone), partition_id=self.meta.partition_id)
        left = [place for place, key in enumerate(self.meta.keys) if key not in gone]
        return KVBatchMeta(
            partition_id=self.meta.partition_id,
            keys=[self.meta.keys[place] for place in left],
            tags=[self.meta.tags[place] for place in left],
        )

    @property
    def num_tokens(self) -> int:
        """Generated tokens."""
        return sum(int(tag["response_len"]) for tag in self.meta.tags)


def read_groups(meta: KVBatchMeta, uids: Sequence[str], group_size: int) -> Sampled:
    """Rewards of finished groups.

    Args:
        meta: Trajectories of these prompts.
        uids: Of the prompts, in the order wanted.
        group_size: G.

    Raises:
        HostError: trajectories of other prompts are among them, or rewards are missing.
    """
    order = {uid: number for number, uid in enumerate(uids)}
    last: dict[tuple[int, int], tuple[int, int]] = {}  # (group, session): (index, place)
    for place, key in enumerate(meta.keys):
        uid, session, index = key.rsplit("_", 2)
        if uid not in order or not 0 <= int(session) < group_size:
            raise HostError(
                "verl handed out a trajectory that was not asked for", got=key, expected="its uid"
            )
        at = (order[uid], int(session))
        last[at] = max(last.get(at, (-1, -1)), (int(index), place))
    places = [
        tuple(
            last[group, session][1] if (group, session) in last else None
            for session in range(group_size)
        )
        for group in range(len(uids))
    ]
    rewards_BG = np.full((len(uids), group_size), np.nan)
    if last:
        found = [(at, place) for at, (_, place) in last.items()]
        data = tq.kv_batch_get(
            keys=[meta.keys[place] for _, place in found],
            partition_id=meta.partition_id,
            select_fields=["rm_scores"],
        )
        for (at, _), scores_T in zip(found, data["rm_scores"].unbind(), strict=True):
            rewards_BG[at] = float(scores_T.double().sum())
    return Sampled(meta, tuple(places), rewards_BG)


def take_groups(
    sampled: Sampled,
    questions_B: Int[np.ndarray, " B"],
    scored_BG: Float[np.ndarray, "B G"],
    step: int,
) -> list[Group]:
    """The effective groups whose every session was scored, off the queue and onto the driver.

    Token ids are kept in 32 bits: with the log-probability of each token a rollout takes 8 bytes a
    completion token.

    Raises:
        HostError: a session has several outputs, which cannot be put back.
    """
    wanted = [
        group
        for group in range(len(questions_B))
        if not np.isnan(scored_BG[group]).any() and np.ptp(scored_BG[group]) > 0
    ]
    if not wanted:
        return []
    size = scored_BG.shape[1]
    if len(sampled.meta.keys) > sum(p is not None for row in sampled.places for p in row):
        raise HostError(
            "a session with several outputs cannot be replayed",
            got=f"{len(sampled.meta.keys)} trajectories of {len(sampled.places) * size} sessions",
            fix="+evenodds.fresh_fraction=1",
        )
    keys = [sampled.meta.keys[p] for g in wanted for p in sampled.places[g] if p is not None]
    fields = ["prompts", "responses", "response_mask", "rollout_log_probs"]
    data = tq.kv_batch_get(keys=keys, partition_id=sampled.meta.partition_id, select_fields=fields)
    columns = [data[field].unbind() for field in fields]
    groups = []
    for number, group in enumerate(wanted):
        rows = range(number * size, (number + 1) * size)
        groups.append(
            Group(
                question=int(questions_B[group]),
                step=step,
                rewards_G=scored_BG[group].astype(np.float32),
                advantages_G=group_advantages(scored_BG[group][None], "mean")[0],
                prompt_ids=columns[0][rows[0]].to(torch.int32),
                rollouts=tuple(_rollout(*(column[row] for column in columns[1:])) for row in rows),
            )
        )
    return groups


def _rollout(
    ids_T: Int[Tensor, " T"], mask_T: Int[Tensor, " T"], logprobs_T: Float[Tensor, " T"]
) -> Rollout:
    own_T = mask_T.bool()
    return Rollout(
        completion_ids=ids_T.to(torch.int32),
        behaviour_logprobs=logprobs_T.float().clone(),
        loss_mask=None if own_T.all() else own_T.clone(),
    )


def read_template(key: str) -> dict[str, Any]:
    """All fields of a finished trajectory: they say what a stored one must have."""
    template = tq.kv_batch_get(keys=[key], partition_id=PARTITION)[0]
    return {name: template[name] for name in template.keys()}  # noqa: SIM118  (a tensordict)


def put_groups(
    groups: Sequence[Group],
    template: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    reward_range: tuple[float, float],
    global_steps: int,
) -> KVBatchMeta:
    """Put stored groups into the queue, each as a new prompt with its trajectories.

    Args:
        groups: At least one.
        template: Of `read_template`, of this step.
        rows: The dataset's row of each group's question.
        reward_range: To turn the stored rewards back into the host's.
        global_steps: The present step.

    Raises:
        HostError: positions have several axes, as those of pictures have.
    """
    positions = template.get("position_ids")
    if isinstance(positions, Tensor) and positions.dim() > 1:
        raise HostError(
            "trajectories with pictures cannot be replayed",
            got=f"position ids with {positions.dim()} axes",
            fix="+evenodds.fresh_fraction=1",
        )
    keys: list[str] = []
    samples: list[dict[str, Any]] = []
    tags: list[dict[str, Any]] = []
    for group, row in zip(groups, rows, strict=True):
        uid = uuid.uuid4().hex
        for session, rollout in enumerate(group.rollouts):
            sample = _sample(template, group, session, row, reward_range)
            sample["uid"] = uid
            if "session_id" in sample:
                sample["session_id"] = session
            keys.append(f"{uid}_{session}_0")
            samples.append(sample)
            prompt, response = len(group.prompt_ids), len(rollout.completion_ids)
            tags.append(
                {
                    "status": "success",
                    "prompt_len": prompt,
                    "response_len": response,
                    "seq_len": prompt + response,
                    "global_steps": global_steps,
                    "min_global_steps": group.step,  # the version of the weights it is from
                    "max_global_steps": group.step,
                }
            )
    tq.kv_batch_put(
        keys=keys, partition_id=PARTITION, fields=list_of_dict_to_tensordict(samples), tags=tags
    )
    return KVBatchMeta(partition_id=PARTITION, keys=keys, tags=tags)


def _sample(
    template: dict[str, Any],
    group: Group,
    session: int,
    row: dict[str, Any],
    reward_range: tuple[float, float],
) -> dict[str, Any]:
    """A trajectory with the fields of the template, and the content of the stored rollout."""
    rollout = group.rollouts[session]
    prompt, response = group.prompt_ids.long(), rollout.completion_ids.long()
    mask = torch.ones_like(response) if rollout.loss_mask is None else rollout.loss_mask.long()
    low, high = reward_range
    scores = torch.zeros(len(response))
    scores[-1] = low + (high - low) * float(group.rewards_G[session])
    whole = torch.cat([prompt, response])
    own: dict[str, Any] = {
        "prompts": prompt,
        "responses": response,
        "response_mask": mask,
        "loss_mask": mask,
        "input_ids": whole,
        "attention_mask": torch.ones_like(whole),
        "position_ids": torch.arange(len(whole)),
        "rm_scores": scores,
        "rollout_log_probs": rollout.behaviour_logprobs,
    }
    sample: dict[str, Any] = {}
    for name, value in template.items():
        if name in own:
            sample[name] = own[name]
        elif name in row:
            sample[name] = row[name]
        else:
            sample[name] = value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
    return sample


def ratios(keys: Sequence[str]) -> Float[Tensor, " X"]:
    """Importance ratios pi_old / mu of the policy's own tokens of these trajectories."""
    if not keys:
        return torch.empty(0)
    data = tq.kv_batch_get(
        keys=list(keys),
        partition_id=PARTITION,
        select_fields=["rollout_is_weights", "response_mask"],
    )
    pairs = zip(data["rollout_is_weights"].unbind(), data["response_mask"].unbind(), strict=True)
    return torch.cat([weights[mask.bool()] for weights, mask in pairs])

"""Leave groups that carry no signal out of the update, with the same gradient."""

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from evenodds.errors import ConfigError
from evenodds.trl.batch import Batch

# Losses whose gradient does not change when rows without advantage leave, once it is scaled back.
TRIMMABLE = ("dapo", "dr_grpo", "grpo")
MEANS_OF_ROWS = ("dr_grpo", "grpo")


def check_trimmable(loss_type: str, kl_coefficient: float, entropy_coefficient: float) -> None:
    """Refuse losses in which rows without advantage count.

    Raises:
        ConfigError: what makes them count.
    """
    reason = None
    if loss_type not in TRIMMABLE:
        reason = f"loss_type = {loss_type!r}"
    elif kl_coefficient:
        reason = f"a KL term, beta = {kl_coefficient}"
    elif entropy_coefficient:
        reason = f"an entropy bonus, entropy_coef = {entropy_coefficient}"
    if reason is not None:
        raise ConfigError(
            "efficiency.drop_ineffective would change the gradient",
            got=reason,
            expected=f"a loss of {', '.join(TRIMMABLE)} without KL term and entropy bonus",
            fix="set efficiency.drop_ineffective to false",
        )


def trim(batch: Batch, group_size: int, multiple: int, loss_type: str) -> Batch:
    """The batch without groups whose advantages are all zero.

    Such rows add nothing to a clipped policy loss but the time of their forward and backward pass.
    `dapo` divides by the batch's tokens, which stay those of the whole batch; the losses that are
    means over rows get advantages that are scaled down by the share of rows that are left. So the
    gradient of the whole batch is kept.

    Args:
        batch: TRL's batch of R rows, groups one after the other.
        group_size: G.
        multiple: Rows that are left are a multiple of it, and as many at least; some rows without
            advantage stay where they must.
        loss_type: TRL's name of the loss, one of `TRIMMABLE`.
    """
    advantages_R = batch["advantages"]
    alive_R = (advantages_R.view(-1, group_size) != 0).any(dim=1).repeat_interleave(group_size)
    kept_R = _padded(alive_R, multiple)
    total, count = len(alive_R), int(kept_R.sum())
    if count == total:
        return batch
    trimmed = _rows(batch, kept_R)
    if loss_type in MEANS_OF_ROWS:
        trimmed["advantages"] = trimmed["advantages"] * (count / total)
    return trimmed


def without_groups(batch: Batch, groups: Int[np.ndarray, " D"], group_size: int) -> Batch:
    """The batch without these groups, numbered as they lie in it."""
    if not len(groups):
        return batch
    kept_B = torch.ones(len(batch["advantages"]) // group_size, dtype=torch.bool)
    kept_B[torch.from_numpy(groups)] = False
    kept_R = kept_B.repeat_interleave(group_size)
    return _rows(batch, kept_R)


def _rows(batch: Batch, kept_R: Bool[Tensor, " R"]) -> Batch:
    return {
        name: value[kept_R.to(value.device)] if isinstance(value, Tensor) and value.dim() else value
        for name, value in batch.items()
    }


def _padded(alive_R: Bool[Tensor, " R"], multiple: int) -> Bool[Tensor, " R"]:
    """The rows to keep: those alive, and as many others as the multiple needs."""
    alive = int(alive_R.sum())
    count = max(multiple, -(-alive // multiple) * multiple)
    kept_R = alive_R.clone()
    others = torch.nonzero(~alive_R)[: count - alive, 0]
    kept_R[others] = True
    return kept_R

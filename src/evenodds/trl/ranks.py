"""The processes of an `accelerate` run."""

from typing import TypeVar

import torch.distributed as dist
from accelerate import Accelerator

T = TypeVar("T")


class AccelerateRanks:
    """`evenodds.ranks.Ranks` over torch.distributed; objects go between processes of one run."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.index: int = accelerator.process_index
        self.count: int = accelerator.num_processes

    def broadcast(self, value: T) -> T:
        """The `value` of process 0, on every process."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """The `value` of every process, in order, on every process."""
        if self.count == 1:
            return [value]
        values: list[T] = [value] * self.count
        dist.all_gather_object(values, value)
        return values

"""evenodds: train language models on the questions they have even odds of solving.

The host-neutral parts are here, loaded when first used: the predictor, selection, the replay
buffer, the loss, and one loop object that puts them together. `evenodds.trl` has the trainer.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenodds.config import EfficiencyConfig
    from evenodds.difficulty import AttentionPredictor, PredictorModel, fit_predictor
    from evenodds.loop import DataEfficientLoop
    from evenodds.loss import group_advantages, off_policy_loss
    from evenodds.replay import ReplayBuffer
    from evenodds.selection import gumbel_top_k, selection_logits
    from evenodds.study import embed, evaluate, fit, predict, simulate
    from evenodds.types import BatchPlan, Group, Observation, Rollout, observation_of_groups

__version__ = "0.1.0"

_HOMES = {
    "AttentionPredictor": "evenodds.difficulty",
    "BatchPlan": "evenodds.types",
    "DataEfficientLoop": "evenodds.loop",
    "EfficiencyConfig": "evenodds.config",
    "Group": "evenodds.types",
    "Observation": "evenodds.types",
    "PredictorModel": "evenodds.difficulty",
    "ReplayBuffer": "evenodds.replay",
    "Rollout": "evenodds.types",
    "embed": "evenodds.study",
    "evaluate": "evenodds.study",
    "fit": "evenodds.study",
    "fit_predictor": "evenodds.difficulty",
    "group_advantages": "evenodds.loss",
    "gumbel_top_k": "evenodds.selection",
    "observation_of_groups": "evenodds.types",
    "off_policy_loss": "evenodds.loss",
    "predict": "evenodds.study",
    "selection_logits": "evenodds.selection",
    "simulate": "evenodds.study",
}

__all__ = [
    "AttentionPredictor",
    "BatchPlan",
    "DataEfficientLoop",
    "EfficiencyConfig",
    "Group",
    "Observation",
    "PredictorModel",
    "ReplayBuffer",
    "Rollout",
    "embed",
    "evaluate",
    "fit",
    "fit_predictor",
    "group_advantages",
    "gumbel_top_k",
    "observation_of_groups",
    "off_policy_loss",
    "predict",
    "selection_logits",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `evenodds --help` needs no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'evenodds' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

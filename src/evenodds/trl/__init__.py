"""evenodds on TRL: `GRPOTrainer` with difficulty-targeted selection and rollout replay."""

from evenodds.config import EfficiencyConfig
from evenodds.trl.trainer import DataEfficientGRPOTrainer

__all__ = ["DataEfficientGRPOTrainer", "EfficiencyConfig"]

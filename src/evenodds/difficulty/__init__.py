"""Stage 4. From a few observed difficulties to the difficulty of every question."""

from evenodds.difficulty.attention import Adapter, attention_difficulty, standardiser
from evenodds.difficulty.calibration import GroupPlatt, fit_platt, platt
from evenodds.difficulty.estimator import DifficultyEstimator, Estimate
from evenodds.difficulty.fit import FitConfig, FitReport, fit_predictor
from evenodds.difficulty.posterior import EvidencePosterior
from evenodds.difficulty.predictor import AttentionPredictor, PredictorModel
from evenodds.difficulty.scores import pearson

__all__ = [
    "Adapter",
    "AttentionPredictor",
    "DifficultyEstimator",
    "Estimate",
    "EvidencePosterior",
    "FitConfig",
    "FitReport",
    "GroupPlatt",
    "PredictorModel",
    "attention_difficulty",
    "fit_platt",
    "fit_predictor",
    "pearson",
    "platt",
    "standardiser",
]

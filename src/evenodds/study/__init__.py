"""Train a difficulty predictor on labels, use it, and judge it.

In the order of use: `embed` (embedding_file.py) makes embeddings, `fit` (fitting.py) trains on a
label table, `predict` (prediction.py) estimates a pool, `evaluate` (evaluation.py) scores a
predictor on what it has not seen, and `simulate` (simulation.py) replays a recorded training run.
"""

from evenodds.embedding_file import EmbeddingFile, embed
from evenodds.labels import LabelTable, read_labels
from evenodds.study.evaluation import Evaluation, evaluate
from evenodds.study.fitting import Fitted, fit
from evenodds.study.prediction import Prediction, predict
from evenodds.study.simulation import Simulation, simulate
from evenodds.study.splits import Split, make_split
from evenodds.study.strategies import (
    STRATEGIES,
    Material,
    Strategy,
    make_strategy,
    usable_strategies,
)
from evenodds.study_config import FitConfig, ScoringConfig, SimulationConfig, SplitConfig

__all__ = [
    "STRATEGIES",
    "EmbeddingFile",
    "Evaluation",
    "FitConfig",
    "Fitted",
    "LabelTable",
    "Material",
    "Prediction",
    "ScoringConfig",
    "Simulation",
    "SimulationConfig",
    "Split",
    "SplitConfig",
    "Strategy",
    "embed",
    "evaluate",
    "fit",
    "make_split",
    "make_strategy",
    "predict",
    "read_labels",
    "simulate",
    "usable_strategies",
]

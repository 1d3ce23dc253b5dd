"""Settings of `fit`, `evaluate` and `simulate`; free of torch, so that `--help` is quick."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from evenodds.config import Settings, setting


@dataclass(frozen=True, kw_only=True)
class FitConfig(Settings):
    """How to train a predictor; the defaults are the paper's."""

    section: ClassVar[str] = "fit"

    width: int = setting(896, "H: width of the adapters", low=1)
    dropout: float = setting(0.1, "of the adapters while training", low=0.0, high=0.9)
    num_references: int = setting(256, "K: references of each training batch", low=2)
    batch_size: int = setting(256, "queries of each training batch", low=1)
    epochs: int = setting(20, "passes over all labels", low=1)
    learning_rate: float = setting(1e-3, "of Adam, after the warm-up", above=0.0)
    warmup_steps: int = setting(100, "steps until the full learning rate", low=0)
    seed: int = setting(0, "of weights, batches and dropout", low=0)


@dataclass(frozen=True, kw_only=True)
class SplitConfig(Settings):
    """What to hold out of a label table."""

    section: ClassVar[str] = "split"

    kind: Literal["policy", "question", "both", "time"] = setting(
        "policy",
        "hold out policies drawn at random, questions drawn at random, both, or the last policies "
        "of the table (`time`)",
    )
    share: float = setting(0.25, "of policies, of questions, or of each", above=0.0, high=0.9)
    seed: int = setting(0, "of the draw", low=0)

    @property
    def holds_policies(self) -> bool:
        """Whether some policies are not trained on."""
        return self.kind != "question"

    @property
    def holds_questions(self) -> bool:
        """Whether some questions are not trained on."""
        return self.kind in ("question", "both")


@dataclass(frozen=True, kw_only=True)
class ScoringConfig(Settings):
    """How predictions are made and judged."""

    section: ClassVar[str] = "evaluate"

    num_references: int = setting(256, "K: questions whose labels the predictor is given", low=2)
    draws: int = setting(20, "reference sets, each drawn anew", low=1)
    choose: int = setting(64, "B: questions chosen by the predictions", low=1)
    group_size: int = setting(8, "G: rollouts of a group, which is effective if mixed", low=2)
    target_difficulty: float = setting(0.5, "alpha of the choice", low=0.0, high=1.0)
    selection_temperature: float = setting(1e-3, "tau of the choice", above=0.0)
    seed: int = setting(0, "of the draws", low=0)


@dataclass(frozen=True, kw_only=True)
class SimulationConfig(Settings):
    """How a history is replayed."""

    section: ClassVar[str] = "simulate"

    budget: int = setting(160, "questions observed at each visit, probes included", low=4)
    seeds: int = setting(5, "repeats", low=1)
    first_seed: int = setting(0, "of the repeats", low=0)
    group_size: int = setting(8, "G: rollouts of a group, which is effective if mixed", low=2)
    selection_temperature: float = setting(1e-3, "tau", above=0.0)
    curiosity: float = setting(
        4.0, "c: what the posteriors give for Var[p] beside E[p(1-p)], as they choose", low=0.0
    )

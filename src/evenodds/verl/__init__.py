"""The method on verl's Ray clusters, as a plug-in: no fork, and nothing of verl is copied.

    export VERL_USE_EXTERNAL_MODULES=evenodds.verl
    python -m verl.trainer.main_ppo trainer.v1.trainer_mode=evenodds +evenodds.preset=paper ...

Importing this package registers the trainer with verl. ../verl_checks.py says which settings of
verl it needs, seams.py what it holds on to in verl, transfer.py how groups come out of
TransferQueue and go back into it, reward.py lets verl score with evenodds' rewards.
"""

from evenodds.verl.trainer import DataEfficientTrainer

__all__ = ["DataEfficientTrainer"]

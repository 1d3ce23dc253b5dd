import pytest
import torch

from evenodds.trl import DataEfficientGRPOTrainer

from tiny import make_dataset, reward, save_policy
from tiny_trl import SMALL, host_config


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    return save_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny models: more threads only cost time, and tests run beside each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_trainer(policy, tmp_path):
    def make(
        efficiency=SMALL, dataset=None, reward_funcs=reward, trainer_settings=None, **settings
    ):
        return DataEfficientGRPOTrainer(
            model=policy,
            reward_funcs=reward_funcs,
            args=host_config(tmp_path / "run", **settings),
            train_dataset=make_dataset() if dataset is None else dataset,
            efficiency=efficiency,
            **(trainer_settings or {}),
        )

    return make

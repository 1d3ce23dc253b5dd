"""Groups without signal leave the update, and the gradient stays."""

import pytest
import torch

from evenodds.errors import ConfigError
from evenodds.trl.trimming import check_trimmable, trim

GROUP = 2


def batch(advantages):
    rows = len(advantages)
    return {
        "prompt_ids": torch.arange(rows)[:, None],
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": torch.tensor(30),
        "nothing": None,
    }


def rows(trimmed):
    return trimmed["prompt_ids"][:, 0].tolist()


def test_dead_groups_leave():
    full = batch([0.5, -0.5, 0.0, 0.0, 0.0, 1.0])
    trimmed = trim(full, GROUP, 1, "dapo")
    assert rows(trimmed) == [0, 1, 4, 5]  # a row without advantage in a group with signal stays
    assert trimmed["advantages"].tolist() == [0.5, -0.5, 0.0, 1.0]
    assert int(trimmed["num_items_in_batch"]) == 30
    assert trimmed["nothing"] is None


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo"])
def test_means_over_rows_are_scaled_back(loss_type):
    trimmed = trim(batch([0.5, -0.5, 0.0, 0.0]), GROUP, 1, loss_type)
    assert trimmed["advantages"].tolist() == [0.25, -0.25]


def test_micro_batches_stay_equally_large():
    full = batch([0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.3, -0.3])
    assert rows(trim(full, GROUP, 1, "dapo")) == [0, 1, 6, 7]
    assert rows(trim(full, GROUP, 4, "dapo")) == [0, 1, 6, 7]
    eight = {**batch([0.5, -0.5] + [0.0] * 6), "num_items_in_batch": 3}
    assert rows(trim(eight, GROUP, 4, "dapo")) == [0, 1, 2, 3]


def test_a_batch_that_is_all_dead_keeps_a_row_for_each_micro_batch():
    assert rows(trim(batch([0.0] * 8), GROUP, 4, "dapo")) == [0, 1, 2, 3]


def test_a_batch_that_is_all_alive_is_left_as_it_is():
    full = batch([0.5, -0.5, 0.3, -0.3])
    assert trim(full, GROUP, 2, "grpo") is full


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("bnpo", 0.0, 0.0), "bnpo"),
        (("dapo", 0.1, 0.0), "KL term"),
        (("dapo", 0.0, 0.1), "entropy bonus"),
    ],
)
def test_losses_in_which_dead_rows_count_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        check_trimmable(*settings)
    check_trimmable("grpo", 0.0, 0.0)

"""Settings that would silently be wrong are refused before a model is loaded."""

import pytest

from evenodds.errors import CheckpointError, ConfigError, DataError
from evenodds.trl import DataEfficientGRPOTrainer
from evenodds.trl.seams import checked_efficiency

from tiny import make_dataset, reward
from tiny_trl import SMALL, host_config

NOWHERE = "no-such-model"  # loading it would fail with another error


def refuse(tmp_path, message, efficiency=SMALL, dataset=None, error=ConfigError, **settings):
    with pytest.raises(error, match=message):
        DataEfficientGRPOTrainer(
            model=NOWHERE,
            reward_funcs=reward,
            args=host_config(tmp_path, **settings),
            train_dataset=make_dataset() if dataset is None else dataset,
            efficiency=efficiency,
        )


@pytest.mark.parametrize("loss_type", ["cispo", "sapo", "vespo", "luspo"])
def test_loss_types_without_a_derivation(tmp_path, loss_type):
    refuse(tmp_path, f"replay is not derived for loss_type='{loss_type}'", loss_type=loss_type)


def test_sequence_level_ratios(tmp_path):
    refuse(tmp_path, "corrects each token", importance_sampling_level="sequence")


def test_streams(tmp_path):
    refuse(tmp_path, "can be indexed", dataset=make_dataset().to_iterable_dataset())


def test_images(tmp_path):
    dataset = make_dataset().add_column("image", ["x"] * 48)
    refuse(tmp_path, "column 'image'", dataset=dataset)


def test_one_group_a_process(tmp_path):
    refuse(
        tmp_path,
        "whole groups, and at least two",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=1,
    )


def test_checkpoints_between_updates_on_one_batch(tmp_path):
    refuse(
        tmp_path,
        "save_steps = 3\n +expected: a multiple of 2",
        steps_per_generation=4,
        save_strategy="steps",
        save_steps=3,
    )


def test_a_dataset_without_prompts(make_trainer):
    with pytest.raises(DataError, match="columns question, answer"):
        make_trainer(
            dataset=make_dataset()
            .rename_column("prompt", "question")
            .select_columns(["question", "answer"])
        )


def test_more_references_than_questions(tmp_path):
    efficiency = SMALL.replace(num_references=60)
    refuse(tmp_path, "60 references, 48 questions", efficiency=efficiency)


def test_no_references(tmp_path):
    refuse(tmp_path, "learns from references", efficiency=SMALL.replace(num_references=0))


def test_batches_larger_than_the_pool(tmp_path):
    refuse(tmp_path, "8 groups a step, 6 questions", dataset=make_dataset(6))


def test_no_checkpoint_to_resume_from(make_trainer):
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        make_trainer().train(resume_from_checkpoint=True)


def test_a_checkpoint_that_does_not_exist(make_trainer, tmp_path):
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        make_trainer().train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))


@pytest.mark.parametrize("efficiency", ["paper", {"num_references": 8}])
def test_what_is_no_efficiency_config(efficiency):
    with pytest.raises(ConfigError, match="is no EfficiencyConfig"):
        checked_efficiency(efficiency)


@pytest.mark.parametrize("setting", [{"off_policy_mask_threshold": 0.5}, {"sync_ref_model": True}])
def test_host_settings_that_do_not_follow_stored_rollouts(tmp_path, setting):
    refuse(tmp_path, "keep the log-probabilities", **setting)

"""What users of GRPOTrainer have in their scripts keeps working."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback

from evenodds.errors import RewardError
from evenodds.trl import EfficiencyConfig

from tiny import make_dataset, reward, text_of
from tiny_trl import SMALL


def lines_of(folder, name="metrics.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_a_run_leaves_its_metrics_and_choices(make_trainer, tmp_path):
    trainer = make_trainer(max_steps=4)
    trainer.train()
    metrics = lines_of(tmp_path / "run")
    assert [line["step"] for line in metrics] == [1, 2, 3, 4]
    last = metrics[-1]
    assert last["rollouts/total"] == sum(
        4 * (line["select/num_fresh"] + line["select/num_references"]) for line in metrics
    )
    assert metrics[0]["select/num_references"] == 8
    assert metrics[1]["select/num_references"] == 0
    assert last["replay/num_replayed"] == 4
    assert last["select/num_fresh"] + last["replay/num_replayed"] == 8
    parts = ("generate", "reference", "select", "logprobs", "update")
    assert last["time/step_s"] == pytest.approx(sum(last[f"time/{part}_s"] for part in parts))
    selections = lines_of(tmp_path / "run", "selections.jsonl")
    assert len(selections[0]["reference"]["id"]) == 8
    ids = {trainer.questions.id_of(q) for q in range(48)}
    for line in selections:
        assert set(line["fresh"]["id"]) <= ids
        assert np.mean(line["fresh"]["observed"]) == pytest.approx(
            metrics[line["step"] - 1]["select/observed_difficulty_mean"], abs=1e-3
        )
    logged = trainer.state.log_history[0]
    assert logged["select/num_references"] == 8
    assert logged["reward"] == pytest.approx(metrics[0]["reward/mean"], abs=1e-6)


def test_generated_tokens_are_counted(make_trainer, tmp_path):
    counted = []

    def counting(completions, completion_ids, threshold, **columns):
        counted.append(sum(len(ids) for ids in completion_ids))
        return reward(completions, threshold)

    make_trainer(reward_funcs=counting, max_steps=3).train()
    assert lines_of(tmp_path / "run")[-1]["tokens/generated_total"] == sum(counted)


def test_references_leave_no_trace_in_the_hosts_own_metrics(make_trainer):
    trainer = make_trainer(SMALL.replace(fresh_fraction=1.0), max_steps=1)
    trainer.train()
    logged = trainer.state.log_history[0]
    assert len(trainer._logs["completion"]) == 32  # the batch alone, not the 32 probed
    assert logged["reward"] == pytest.approx(
        1 - trainer.step_metrics["select/observed_difficulty_mean"], abs=1e-6
    )


def test_asynchronous_and_weighted_rewards(make_trainer, tmp_path):
    async def solved(completions, threshold, **columns):
        return reward(completions, threshold)

    def short(completions, **columns):
        return [float(len(text_of(completion)) < 4) for completion in completions]

    trainer = make_trainer(
        SMALL.replace(reward_range=(0.0, 3.0)),
        reward_funcs=[solved, short],
        reward_weights=[2.0, 1.0],
        max_steps=2,
    )
    trainer.train()
    line = lines_of(tmp_path / "run")[0]
    logged = trainer.state.log_history[0]
    both = 2 * logged["rewards/solved/mean"] + logged["rewards/short/mean"]
    assert line["reward/mean"] == pytest.approx(both, abs=1e-6)
    assert line["select/observed_difficulty_mean"] == pytest.approx(1 - both / 3, abs=1e-6)


def test_a_reward_outside_its_range_is_refused(make_trainer):
    def doubled(completions, threshold, **columns):
        return [2 * value for value in reward(completions, threshold)]

    with pytest.raises(RewardError, match=r"got: +2\.0\n +expected: a number in \[0\.0, 1\.0\]"):
        make_trainer(reward_funcs=doubled).train()


def test_unscored_completions_are_left_out(make_trainer, tmp_path):
    def some(completions, threshold, **columns):
        values = reward(completions, threshold)
        return [None if place % 4 == 0 else value for place, value in enumerate(values)]

    trainer = make_trainer(reward_funcs=some, max_steps=3)
    trainer.train()
    line = lines_of(tmp_path / "run")[-1]
    assert np.isfinite(line["select/observed_difficulty_mean"])
    assert np.isfinite(line["loss/policy"])
    assert len(trainer.loop.buffer) == 0  # a group with an unscored rollout is not replayed


def test_no_score_at_all_is_an_error(make_trainer):
    def never(completions, **columns):
        return [float("nan")] * len(completions)

    with pytest.raises(RewardError, match="no rollout was scored"):
        make_trainer(reward_funcs=never).train()


def test_lora(make_trainer, tmp_path):
    trainer = make_trainer(
        trainer_settings={"peft_config": LoraConfig(r=4, target_modules=["q_proj", "v_proj"])},
        max_steps=4,
        save_strategy="steps",
        save_steps=2,
    )
    before = {n: p.clone() for n, p in trainer.model.named_parameters() if p.requires_grad}
    trainer.train()
    moved = [
        n for n, p in trainer.model.named_parameters() if n in before and (p != before[n]).any()
    ]
    assert moved
    assert lines_of(tmp_path / "run")[-1]["replay/num_replayed"] == 4
    assert (tmp_path / "run/checkpoint-2/adapter_model.safetensors").exists()


def test_lora_has_the_embeddings_of_the_bare_policy(make_trainer):
    bare = make_trainer().loop.estimator
    lora = make_trainer(
        trainer_settings={"peft_config": LoraConfig(r=4, target_modules=["q_proj"])}
    ).loop.estimator
    assert torch.equal(bare.query_NH, lora.query_NH)


def test_conversational_prompts(make_trainer, tmp_path):
    make_trainer(dataset=make_dataset(conversational=True), max_steps=3).train()
    assert lines_of(tmp_path / "run")[-1]["replay/num_replayed"] == 4


def test_callbacks_and_tensorboard(make_trainer, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Counting(TrainerCallback):
        steps = 0

        def on_step_end(self, args, state, control, **kwargs):
            self.steps += 1

    counting = Counting()
    trainer = make_trainer(
        trainer_settings={"callbacks": [counting]}, max_steps=3, report_to="tensorboard"
    )
    trainer.train()
    assert counting.steps == 3
    (events,) = (tmp_path / "run").rglob("events.out.*")
    tags = EventAccumulator(str(events)).Reload().Tags()["scalars"]
    assert {"train/select/effective_fraction", "train/replay/size", "train/time/step_s"} <= set(
        tags
    )


def test_evaluation_with_the_host(make_trainer):
    trainer = make_trainer(
        trainer_settings={"eval_dataset": make_dataset(8)},
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=8,
    )
    trainer.train()
    assert any("eval_reward" in line for line in trainer.state.log_history)


def test_evaluating_does_not_change_the_training(make_trainer, tmp_path):
    def run(**settings):
        trainer = make_trainer(max_steps=4, **settings)
        trainer.train()
        return [line["reward/mean"] for line in lines_of(tmp_path / "run")]

    plain = run()
    evaluated = run(
        trainer_settings={"eval_dataset": make_dataset(8)},
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=8,
    )
    assert evaluated == plain


def test_several_reuses_of_a_generated_batch(make_trainer, tmp_path):
    trainer = make_trainer(steps_per_generation=4, num_iterations=2, max_steps=8)
    trainer.train()
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == [4, 8]
    assert [line["rollout_step"] for line in lines] == [1, 2]


@pytest.mark.parametrize("loss_settings", [{"beta": 0.05}, {"mask_truncated_completions": True}])
def test_other_terms_of_the_hosts_loss(make_trainer, tmp_path, loss_settings):
    make_trainer(max_steps=4, **loss_settings).train()
    line = lines_of(tmp_path / "run")[-1]
    assert line["replay/num_replayed"] == 4
    assert np.isfinite(line["loss/policy"])


def test_preset_grpo_takes_a_stream(make_trainer, tmp_path):
    stream = make_dataset().to_iterable_dataset()
    make_trainer(EfficiencyConfig.preset("grpo"), dataset=stream, max_steps=2).train()
    selection = lines_of(tmp_path / "run", "selections.jsonl")[-1]
    assert len(set(selection["fresh"]["id"])) == 8


def test_duplicate_rows_count_once(make_trainer):
    rows = make_dataset().to_list()
    trainer = make_trainer(dataset=Dataset.from_list([*rows, *rows[:5]]))
    assert len(trainer.questions) == 48


def test_a_second_run_in_the_same_folder_keeps_the_first_ones_lines(make_trainer, tmp_path):
    make_trainer(max_steps=2).train()
    first = lines_of(tmp_path / "run")
    make_trainer(max_steps=1).train()
    assert lines_of(tmp_path / "run", "metrics.1.jsonl") == first
    assert len(lines_of(tmp_path / "run")) == 1


def test_advantage_forms(make_trainer):
    def advantages(form):
        trainer = make_trainer(SMALL.replace(advantage=form), max_steps=1)
        trainer.train()
        return trainer, np.concatenate([g.advantages_G for g in trainer.loop.buffer.groups])

    trainer, mean = advantages("mean")
    assert set(np.round(np.abs(mean), 4)) <= {0.25, 0.5, 0.75}
    _, std = advantages("std")
    for group, part in zip(trainer.loop.buffer.groups, std.reshape(-1, 4), strict=True):
        rewards = group.rewards_G.astype(float)
        expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
        assert part == pytest.approx(expected, abs=1e-5)


def test_embedding_shows_how_far_it_is(make_trainer, tmp_path, monkeypatch):
    monkeypatch.setenv("EVENODDS_CACHE", str(tmp_path / "cache"))
    seen = []

    def track(items, description):
        seen.append((description, len(items)))
        return items

    make_trainer(trainer_settings={"track": track})
    assert seen == [("Embedding questions", 2)]  # 48 questions, 32 at once

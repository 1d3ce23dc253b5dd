"""What a step generates, stores and replays, against what the loop planned."""

import pytest
import torch

from evenodds.trl import batch as batches

from tiny_trl import SMALL

REPLAYING = SMALL.replace(fresh_fraction=0.5, capacity=8)


def steps_of(trainer):
    """Train; the plan and the completed batch of every step."""
    plans, completed = [], []
    plan_batch, complete = trainer.loop.plan_batch, trainer._complete_batch

    def planned(*args):
        plans.append(plan_batch(*args))
        return plans[-1]

    def finished(*args):
        completed.append(dict(complete(*args)))
        return completed[-1]

    trainer.loop.plan_batch, trainer._complete_batch = planned, finished
    trainer.train()
    return list(zip(plans, completed, strict=True))


@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_replayed_rows_are_the_stored_groups(make_trainer, beta):
    trainer = make_trainer(REPLAYING, max_steps=6, learning_rate=2e-2, beta=beta)
    mixed = [(plan, batch) for plan, batch in steps_of(trainer) if plan.replayed]
    assert mixed
    for plan, batch in mixed:
        mask = batches.loss_tokens(batch).bool()
        assert int(batch["num_items_in_batch"]) == int(mask.sum())
        row = int((~batch[batches.REPLAYED]).sum())
        assert row == plan.num_fresh * 4
        for group in plan.replayed:
            assert abs(group.advantages_G).sum() > 0
            for advantage, rollout in zip(group.advantages_G, group.rollouts, strict=True):
                assert batch["advantages"][row] == pytest.approx(float(advantage))
                kept = mask[row]
                assert batch["completion_ids"][row][kept].tolist() == (
                    rollout.completion_ids.tolist()
                )
                assert torch.equal(batch[batches.STORED][row][kept], rollout.behaviour_logprobs)
                if beta:
                    reference = batch["ref_per_token_logps"][row][kept]
                    assert torch.equal(reference, rollout.reference_logprobs)
                    assert reference.abs().sum() > 0
                row += 1
        assert row == len(mask)


def test_stored_groups_carry_the_question_they_answer(make_trainer):
    trainer = make_trainer(REPLAYING, max_steps=4, learning_rate=2e-2)
    groups = [group for plan, _ in steps_of(trainer) for group in plan.replayed]
    assert groups
    for group in groups:
        prompt = trainer.questions.row(group.question)["prompt"]
        assert trainer._tokenizer.decode(group.prompt_ids, skip_special_tokens=True) == prompt


def test_references_are_credited_to_the_questions_that_were_probed(make_trainer):
    def known(prompts, **columns):
        return [len(prompt) % 5 / 4 if isinstance(prompt, str) else 0.0 for prompt in prompts]

    trainer = make_trainer(SMALL.replace(fresh_fraction=1.0), reward_funcs=known, max_steps=2)
    seen = []
    observe = trainer.loop.observe_references

    def spy(references):
        seen.append(references)
        observe(references)

    trainer.loop.observe_references = spy
    trainer.train()
    expected = [
        1 - known([trainer.questions.row(int(q))["prompt"]])[0] for q in seen[0].questions_K
    ]
    assert len(set(expected)) > 1
    assert seen[0].difficulty_K == pytest.approx(expected)

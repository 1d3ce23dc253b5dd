import numpy as np
import pytest
import torch

from evenodds.evaluation import Evaluation, Evaluator
from evenodds.questions import DataConfig, pool_of_rows
from evenodds.run_config import EvaluationSection

from tiny import make_tokenizer


def make_evaluator(**settings):
    rows = [{"question": f"{i}" * (1 + i % 3), "answer": str(i % 2)} for i in range(7)]
    pool = pool_of_rows(rows, DataConfig(source="memory"))

    def reward(prompts, completions, answer, **columns):
        return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]

    return Evaluator(pool, reward, make_tokenizer(), EvaluationSection(**settings))


def always(digit):
    """Completes every prompt with one digit."""
    token = make_tokenizer().convert_tokens_to_ids(digit)

    def generate(ids, mask):
        return torch.cat([ids, torch.full((len(ids), 1), token)], dim=1)

    return generate


def test_accuracy_and_standard_error_by_hand():
    evaluation = Evaluation(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
    assert evaluation.accuracy == 0.5
    # question means 0.5, 1, 0: standard deviation 0.5, divided by sqrt(3)
    assert evaluation.standard_error == pytest.approx(0.5 / 3**0.5)
    assert np.isnan(Evaluation(np.array([[1.0]])).standard_error)


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_every_question_is_scored_against_its_own_answer(batch_size):
    evaluator = make_evaluator(batch_size=batch_size, samples=2)
    rows = evaluator.rows(0, 1)
    scores = evaluator.score(always("1"), rows, torch.device("cpu"))
    expected = [[float(evaluator.pool.answers[row] == "1")] * 2 for row in rows]
    assert scores.tolist() == expected


def test_processes_share_the_questions():
    evaluator = make_evaluator()
    shares = [evaluator.rows(index, 3) for index in range(3)]
    assert sorted(row for share in shares for row in share) == list(range(7))


def test_random_numbers_are_its_own():
    evaluator = make_evaluator()
    drawn = []

    def generate(ids, mask):
        drawn.append(torch.rand(1).item())
        return always("0")(ids, mask)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    for _ in range(2):
        evaluator.score(generate, evaluator.rows(0, 1), torch.device("cpu"))
    assert drawn[0] == drawn[1]
    assert torch.equal(before, torch.get_rng_state())


def test_messages_are_scored_as_messages_and_rewards_may_be_awaited():
    rows = [{"prompt": [{"role": "user", "content": "1"}], "answer": "1"}]
    pool = pool_of_rows(rows, DataConfig(source="memory"))

    async def reward(prompts, completions, answer, **columns):
        assert prompts[0][0]["role"] == "user"
        return [float(c[0]["content"] == g) for c, g in zip(completions, answer, strict=True)]

    evaluator = Evaluator(pool, reward, make_tokenizer(), EvaluationSection())
    assert evaluator.score(always("1"), [0], torch.device("cpu")).tolist() == [[1.0]]

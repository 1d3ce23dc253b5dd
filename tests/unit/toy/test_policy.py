"""The toy world's policy: it loads as any model does, is small, and does about as it should."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from evenodds import toy


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Matrices this small are slower on several threads, much slower on busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(toy.policy_path())


@pytest.fixture(scope="module")
def policy():
    return AutoModelForCausalLM.from_pretrained(toy.policy_path()).eval()


@torch.no_grad()
def complete(policy, tokenizer, questions, **sampling):
    asked = tokenizer(questions, return_tensors="pt", padding=True)
    settings = GenerationConfig(
        max_new_tokens=40,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **sampling,
    )
    full = policy.generate(
        input_ids=asked["input_ids"],
        attention_mask=asked["attention_mask"],
        generation_config=settings,
    )
    new = full[:, asked["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new, skip_special_tokens=True)


def pass_rates(policy, tokenizer, rows, samples):
    torch.manual_seed(0)
    repeated = [row for row in rows for _ in range(samples)]
    texts = complete(
        policy, tokenizer, [row["question"] for row in repeated], do_sample=True, top_k=0
    )
    right = [float(text == row["answer"]) for text, row in zip(texts, repeated, strict=True)]
    return torch.tensor(right).view(len(rows), samples)


def test_package_is_small():
    folder = Path(toy.__file__).parent
    files = [f for f in folder.rglob("*") if f.is_file() and f.suffix != ".pyc"]
    assert sum(file.stat().st_size for file in files) < 1_000_000


def test_tokens_are_characters_and_come_back(tokenizer):
    texts = [row["question"] + row["answer"] for row in toy.pool(64)]
    texts.append("".join(map(chr, range(32, 127))))
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        assert len(ids) == len(text)
        assert tokenizer.decode(ids) == text


def test_tokenizer_pads_on_the_left_and_has_its_special_tokens(tokenizer):
    ids = tokenizer(["copy(1)=", "sort(123)="], padding=True)["input_ids"]
    assert ids[0][:2] == [tokenizer.pad_token_id] * 2
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer("é")["input_ids"] == [tokenizer.unk_token_id]


def test_messages_become_plain_text(tokenizer):
    messages = [{"role": "user", "content": "copy(123)="}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "copy(123)="


def test_longest_question_and_answer_fit(policy, tokenizer):
    rows = toy.pool() + toy.evaluation()
    longest = max(len(row["question"]) for row in rows) + 40
    assert max(len(row["answer"]) for row in rows) < 40
    assert longest <= policy.config.max_position_embeddings


def test_start_policy_solves_about_a_quarter_of_main(policy, tokenizer):
    right = pass_rates(policy, tokenizer, toy.pool(64), 8)
    assert 0.17 < right.mean() < 0.35
    solved = right.sum(dim=1)
    assert 0.25 < ((solved > 0) & (solved < 8)).float().mean() < 0.52
    assert 0.4 < (solved == 0).float().mean() < 0.7


def test_start_policy_solves_more_of_easy(policy, tokenizer):
    right = pass_rates(policy, tokenizer, toy.pool(64, world="easy"), 8)
    assert 0.28 < right.mean() < 0.5
    solved = right.sum(dim=1)
    assert 0.4 < ((solved > 0) & (solved < 8)).float().mean() < 0.68


def test_greedy_answers_are_the_same_however_they_are_padded(policy, tokenizer):
    rows = toy.pool(6)
    questions = [row["question"] for row in rows]
    together = complete(policy, tokenizer, questions, do_sample=False)
    alone = [complete(policy, tokenizer, [question], do_sample=False)[0] for question in questions]
    assert together == alone

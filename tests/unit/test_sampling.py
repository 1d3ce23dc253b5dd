import json

import pytest
import torch

from evenodds.errors import CheckpointError
from evenodds.questions import DataConfig, pool_of_rows
from evenodds.sampling import Loaded, Sampler, check_folder, pool_digest, sample_into

from tiny import make_tokenizer

CPU = torch.device("cpu")
SETTINGS = {"samples": 2, "batch_size": 4, "seed": 5}
TOKENIZER = make_tokenizer()


def make_pool(size=7):
    rows = [{"question": f"{i}" * (1 + i % 3), "answer": str(i)} for i in range(size)]
    return pool_of_rows(rows, DataConfig(source="memory"))


def solved(prompts, completions, answer, **columns):
    return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]


def digits(ids, mask):
    """Completes with a random digit and the end token."""
    first = TOKENIZER.convert_tokens_to_ids("0")
    drawn = first + torch.randint(10, (len(ids), 1))
    return torch.cat([ids, drawn, torch.full_like(drawn, TOKENIZER.eos_token_id)], dim=1)


class Breaks:
    """Generates `count` batches, then is killed."""

    def __init__(self, count):
        self.count = count

    def __call__(self, ids, mask):
        self.count -= 1
        if self.count < 0:
            raise KeyboardInterrupt
        return digits(ids, mask)


def sampled(folder, generate=digits, **settings):
    sampler = Sampler(make_pool(), solved, TOKENIZER, **{**SETTINGS, **settings})
    manifest = {"model": "m", "samples": sampler.samples}
    return sample_into(folder, sampler, lambda: Loaded(generate, CPU, (1,)), manifest)


def test_lengths_and_cut_off_completions_by_hand():
    def generate(ids, mask):  # ends after one token, after three, and never
        rows = torch.tensor([[3, 1, 0, 0], [3, 4, 1, 0], [3, 4, 5, 6]])
        return torch.cat([ids, rows], dim=1)

    sampler = Sampler(make_pool(3), solved, TOKENIZER, samples=1, batch_size=3, seed=0)
    answered = sampler.answer(generate, 0, [0, 1, 2], CPU)
    assert [each.num_tokens for each in answered] == [(2,), (3,), (4,)]
    assert [each.truncated for each in answered] == [(False,), (False,), (True,)]
    assert [each.completions for each in answered] == [("0",), ("01",), ("0123",)]
    assert [each.scores for each in answered] == [(1.0,), (0.0,), (0.0,)]


def test_blocks_hold_whole_questions():
    sampler = Sampler(make_pool(), solved, TOKENIZER, samples=3, batch_size=7, seed=0)
    assert [len(block) for block in sampler.blocks(sampler.rows())] == [2, 2, 2, 1]
    many = Sampler(make_pool(), solved, TOKENIZER, samples=9, batch_size=4, seed=0)
    assert [len(block) for block in many.blocks([0, 1])] == [1, 1]
    sizes = []

    def generate(ids, mask):
        sizes.append(len(ids))
        return digits(ids, mask)

    assert len(many.answer(generate, 0, [0], CPU)[0].scores) == 9
    assert sizes == [4, 4, 1], "no batch is larger than was asked for"


def test_the_first_block_has_the_seed_and_another_one_another():
    sampler = Sampler(make_pool(), solved, TOKENIZER, samples=4, batch_size=4, seed=5)
    torch.manual_seed(5)
    first = "".join(str(int(d)) for d in torch.randint(10, (4, 1)))
    assert "".join(sampler.answer(digits, 0, [0], CPU)[0].completions) == first
    assert "".join(sampler.answer(digits, 1, [0], CPU)[0].completions) != first


@pytest.mark.parametrize("batches", [0, 1, 2, 3])
def test_a_killed_sampling_goes_on_to_the_same_end(tmp_path, batches):
    whole = sampled(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        sampled(tmp_path / "parts", Breaks(batches))
    path = tmp_path / "parts/questions.jsonl"
    assert len(path.read_text().splitlines()) == 2 * batches
    generate = Breaks(4 - batches)
    assert sampled(tmp_path / "parts", generate) == whole
    assert generate.count == 0, "what was there is not sampled again"
    assert path.read_text() == (tmp_path / "whole/questions.jsonl").read_text()


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_line_that_was_cut_off_is_sampled_again(tmp_path, cut):
    whole = sampled(tmp_path)
    path = tmp_path / "questions.jsonl"
    before = path.read_text()
    path.write_text(before[:-cut])
    assert sampled(tmp_path) == whole
    assert path.read_text() == before


def test_nothing_is_loaded_where_nothing_is_left(tmp_path):
    whole = sampled(tmp_path)
    assert sampled(tmp_path, Breaks(0)) == whole
    assert [each.question_id for each in whole] == list(make_pool().ids)
    line = json.loads((tmp_path / "questions.jsonl").read_text().splitlines()[0])
    assert set(line) == {"question_id", "scores", "num_tokens", "truncated", "completions"}


def test_a_folder_of_another_sampling_is_refused(tmp_path):
    sampled(tmp_path / "out")
    with pytest.raises(CheckpointError, match="results of another samples"):
        sampled(tmp_path / "out", samples=3)
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="the output folder is in use"):
        check_folder(tmp_path, {})


def test_the_digest_is_of_questions_and_answers():
    rows = [{"question": "1", "answer": "1"}]
    same, other = ([{**rows[0], "answer": a}] for a in "12")
    digests = [pool_digest(pool_of_rows(r, DataConfig(source="m"))) for r in (rows, same, other)]
    assert digests[0] == digests[1] != digests[2]

import logging
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from evenodds.embeddings import (
    embed_with_model,
    embed_with_policy,
    mean_pooled,
    weights_digest,
)
from evenodds.errors import ConfigError

from tiny import make_tokenizer, save_policy

TEXTS = ["1+1=", "12+34=", "7", "123+456+789=", "5?"]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return save_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def model(model_folder):
    return AutoModelForCausalLM.from_pretrained(model_folder)


def test_pooling_is_over_real_tokens_only():
    def backbone(input_ids, attention_mask):
        # hidden state of token t is (t, 2 t)
        hidden = torch.stack([input_ids.float(), 2 * input_ids.float()], dim=-1)
        return SimpleNamespace(last_hidden_state=hidden)

    ids = torch.tensor([[1, 3, 99], [4, 99, 99]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert mean_pooled(backbone, ids, mask).tolist() == [[2.0, 4.0], [4.0, 8.0]]


def test_batches_and_order_change_nothing(model, tmp_path):
    tokenizer = make_tokenizer()
    whole = embed_with_policy(model, tokenizer, TEXTS, batch_size=8, cache=tmp_path / "a")
    parts = embed_with_policy(model, tokenizer, TEXTS, batch_size=2, cache=tmp_path / "b")
    back = embed_with_policy(model, tokenizer, TEXTS[::-1], batch_size=2, cache=tmp_path / "c")
    assert whole.values_NE.shape == (5, 32)
    assert torch.allclose(whole.values_NE, parts.values_NE, atol=1e-5)
    assert torch.allclose(whole.values_NE, back.values_NE.flip(0), atol=1e-5)
    one = model.model(**tokenizer(TEXTS[1], return_tensors="pt", return_token_type_ids=False))
    assert torch.allclose(whole.values_NE[1], one.last_hidden_state[0].mean(dim=0), atol=1e-5)


def test_the_cache_is_used_and_keyed_by_texts_and_weights(model, tmp_path):
    tokenizer = make_tokenizer()
    batches = []

    def track(items, description):
        assert description == "Embedding questions"
        batches.append(len(items))
        return items

    def embed(texts):
        settings = {"batch_size": 2, "cache": tmp_path, "track": track}
        return embed_with_policy(model, tokenizer, texts, **settings)

    first = embed(TEXTS)
    second = embed(TEXTS)
    assert batches == [3]
    assert torch.equal(first.values_NE, second.values_NE)
    embed(TEXTS[:4])
    assert batches == [3, 2]
    with torch.no_grad():
        model.model.embed_tokens.weight[3, 0] += 1
    changed = embed(TEXTS)
    assert batches == [3, 2, 3]
    assert changed.model != first.model


def test_a_damaged_cache_file_is_made_again(model, tmp_path, caplog):
    tokenizer = make_tokenizer()
    first = embed_with_policy(model, tokenizer, TEXTS, cache=tmp_path)
    (path,) = (tmp_path / "embeddings").iterdir()
    path.write_bytes(path.read_bytes()[:50])
    with caplog.at_level(logging.WARNING):
        again = embed_with_policy(model, tokenizer, TEXTS, cache=tmp_path)
    assert "is damaged" in caplog.text
    assert torch.equal(first.values_NE, again.values_NE)


def test_the_training_mode_is_left_as_it_was(model, tmp_path):
    model.train()
    embed_with_policy(model, make_tokenizer(), TEXTS, cache=tmp_path)
    assert model.training


def test_a_named_model_gives_the_same_as_the_policy_in_memory(model, model_folder, tmp_path):
    named = embed_with_model(model_folder, TEXTS, cache=tmp_path / "a")
    memory = embed_with_policy(model, make_tokenizer(), TEXTS, cache=tmp_path / "b")
    assert torch.equal(named.values_NE, memory.values_NE)
    assert named.model.rpartition("@")[2] == memory.model.rpartition("@")[2]


def test_the_digest_is_that_of_the_bare_model(model):
    from peft import LoraConfig, get_peft_model

    before = weights_digest(model)
    wrapped = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    assert weights_digest(wrapped) == before


def test_an_embedding_model_that_is_not_there():
    with pytest.raises(ConfigError, match="'no/such-model' cannot be loaded"):
        embed_with_model("no/such-model", TEXTS)

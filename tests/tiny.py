"""A policy of a few thousand weights with a character tokenizer, and sums to ask it."""

import string
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def make_tokenizer():
    characters = ["<pad>", "<eos>", "<unk>", *string.digits, *"+=? "]
    vocabulary = {character: number for number, character in enumerate(characters)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
    )
    fast.chat_template = CHAT
    return fast


def save_policy(folder: Path, seed: int = 0) -> str:
    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def make_dataset(size=48, conversational=False):
    def prompt(number):
        text = f"{number}+{number % 7}="
        return [{"role": "user", "content": text}] if conversational else text

    return Dataset.from_list(
        [{"prompt": prompt(i), "answer": str(i + i % 7), "threshold": i % 10} for i in range(size)]
    )


def text_of(completion):
    return completion if isinstance(completion, str) else completion[0]["content"]


def reward(completions, threshold, **columns):
    """Solved when the first character is a digit of at least the question's threshold."""
    texts = [text_of(completion) for completion in completions]
    return [
        float(text[:1].isdigit() and int(text[0]) >= least)
        for text, least in zip(texts, threshold, strict=True)
    ]

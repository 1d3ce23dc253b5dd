"""How well a policy answers held-out questions: the mean reward of sampled completions."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from evenodds.questions import QuestionPool
from evenodds.run_config import EvaluationSection

Generate = Callable[[Int[Tensor, "R P"], Int[Tensor, "R P"]], Int[Tensor, "R L"]]
"""From left-padded prompt ids and mask to prompt and completion ids."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of a question set.

    Attributes:
        scores_NS: Reward of each of S completions of N questions.
    """

    scores_NS: Float[np.ndarray, "N S"]

    @property
    def accuracy(self) -> float:
        """Mean reward."""
        return float(self.scores_NS.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the accuracy over questions; NaN for a single question."""
        means_N = self.scores_NS.mean(axis=1)
        if len(means_N) < 2:
            return float("nan")
        return float(means_N.std(ddof=1) / math.sqrt(len(means_N)))


class Evaluator:
    """Samples completions of a fixed question set and scores them.

    The same random numbers are used every time, and the global generators are left as they were.

    Args:
        pool: The held-out questions.
        reward: In TRL's form; may be asynchronous.
        tokenizer: The policy's, padding on the left.
        config: Samples and batch size.
    """

    def __init__(
        self, pool: QuestionPool, reward: Any, tokenizer: Any, config: EvaluationSection
    ) -> None:
        self.pool = pool
        self.reward = reward
        self.tokenizer = tokenizer
        self.config = config
        self.prompt_ids = tokenize_prompts(tokenizer, [pool.prompt(i) for i in range(len(pool))])

    def rows(self, index: int, count: int) -> list[int]:
        """The questions of process `index` of `count`, longest prompt last."""
        order = sorted(range(len(self.pool)), key=lambda row: len(self.prompt_ids[row]))
        return order[index::count]

    @torch.no_grad()
    def score(
        self, generate: Generate, rows: Sequence[int], device: torch.device
    ) -> Float[np.ndarray, "M S"]:
        """Rewards of the completions of these questions.

        Args:
            generate: Samples completions, settings included.
            rows: M questions.
            device: Where the policy is.
        """
        samples = self.config.samples
        wanted = [row for row in rows for _ in range(samples)]
        scores: list[float] = []
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self.config.seed)
            for start in range(0, len(wanted), self.config.batch_size):
                batch = wanted[start : start + self.config.batch_size]
                scores += self._score_batch(generate, batch, device)
        return np.array(scores, dtype=np.float64).reshape(len(rows), samples)

    def _score_batch(
        self, generate: Generate, batch: Sequence[int], device: torch.device
    ) -> list[float]:
        pad_id = self.tokenizer.pad_token_id
        longest = max(len(self.prompt_ids[row]) for row in batch)
        ids_RP = torch.full((len(batch), longest), pad_id)
        mask_RP = torch.zeros(len(batch), longest, dtype=torch.int64)
        for place, row in enumerate(batch):
            prompt = torch.tensor(self.prompt_ids[row])
            ids_RP[place, longest - len(prompt) :] = prompt
            mask_RP[place, longest - len(prompt) :] = 1
        output_RL = generate(ids_RP.to(device), mask_RP.to(device))
        texts = self.tokenizer.batch_decode(output_RL[:, longest:], skip_special_tokens=True)
        questions = [self.pool.row(row) for row in batch]
        columns = {name: [q[name] for q in questions] for name in questions[0] if name != "prompt"}
        prompts = [question["prompt"] for question in questions]
        completions = texts
        if not isinstance(prompts[0], str):
            completions = [[{"role": "assistant", "content": text}] for text in texts]
        scores = self.reward(prompts=prompts, completions=completions, **columns)
        return asyncio.run(_awaited(scores)) if inspect.isawaitable(scores) else scores


async def _awaited(scores: Awaitable[list[float]]) -> list[float]:
    return await scores


def tokenize_prompts(tokenizer: Any, prompts: Sequence[Any]) -> list[list[int]]:
    """Token ids of prompts, by the chat template where they are messages."""
    if isinstance(prompts[0], str):
        return tokenizer(list(prompts))["input_ids"]
    return tokenizer.apply_chat_template(
        list(prompts), add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"]

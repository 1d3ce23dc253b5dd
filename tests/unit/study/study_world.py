"""A small world of labels: difficulty lies in one dimension of eight, and policies get better."""

import numpy as np
import torch

from evenodds.embedding_file import EmbeddingFile
from evenodds.labels import LabelTable
from evenodds.questions import question_id

TEXTS = tuple(f"question number {number}" for number in range(240))
IDS = tuple(question_id(text) for text in TEXTS)


def make_labels(num_policies=8, samples=8, seed=0):
    values = embeddings().values_NE.numpy()
    strength = np.linspace(-1.0, 1.5, num_policies)[:, None]
    success = 1 / (1 + np.exp(-(2.5 * values[:, 3] + strength)))
    correct = np.random.default_rng(seed).binomial(samples, success)
    names = tuple(f"step-{10 * policy}" for policy in range(num_policies))
    return LabelTable(IDS, TEXTS, names, np.full_like(correct, samples), correct)


def embeddings(seed=0):
    values = np.random.default_rng(seed).normal(size=(len(TEXTS), 8)).astype(np.float32)
    return EmbeddingFile(IDS, "made@1", torch.from_numpy(values))

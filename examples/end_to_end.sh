#!/bin/sh
# From a pool to a predictor of your own, and to a run that uses it; on a CPU in about a minute.
# The embedded world stands for your questions, and three short runs for small policies.
set -eu
pool="quickstart" config="--set data.limit=256 --set generation.groups_per_step=16 --set efficiency.num_references=16 --set evaluation.limit=64"
for steps in 1 2 3; do
  evenodds train quickstart $config --set run.steps=$steps --set training.learning_rate=1e-3 --set efficiency.preset=grpo --out "policies/$steps"
  evenodds label "policies/$steps/final" "$pool" -n 4 --limit 256 --max-new-tokens 40 --name "step-$steps" --out labels.jsonl
done
evenodds embed labels.jsonl quickstart.jsonl --model toy --out embeddings.safetensors

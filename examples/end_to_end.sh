#!/bin/sh
# From a few small policies to a predictor of your own, and to a run that uses it. Three short runs
# in the embedded world stand for the policies, so that a CPU is enough.
set -eu
small="--set data.limit=256 --set generation.groups_per_step=16 --set evaluation.limit=64"
for steps in 1 2 3; do
  evenodds train quickstart $small --set efficiency.preset=grpo --set efficiency.predictor= \
    --set training.learning_rate=1e-3 --set run.steps=$steps --out policies/$steps
  evenodds label policies/$steps/final quickstart --limit 256 -n 4 --max-new-tokens 40 \
    --batch-size 256 --name step-$steps --out labels.parquet
done
evenodds embed labels.parquet --model toy --out embeddings.safetensors
evenodds fit labels.parquet --embeddings embeddings.safetensors --hold-out policy \
  --width 32 --num-references 64 --warmup-steps 5 --out predictor.safetensors
evenodds evaluate predictor.safetensors labels.parquet --embeddings embeddings.safetensors \
  --num-references 64
evenodds train quickstart $small --set efficiency.num_references=16 --set run.steps=4 \
  --set efficiency.capacity=16 --set efficiency.predictor=predictor.safetensors --out run
evenodds eval run/final --benchmarks toy --limit 64 -n 2 --max-new-tokens 40 --out evals
evenodds report policies run --out report.html

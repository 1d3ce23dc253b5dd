#!/usr/bin/env bash
# Ten minutes on one GPU: a real model, vLLM and verl's own workers with the plug-in.
#
# NOT RUN YET: it was written without a GPU at hand. It needs verl 0.9 with vLLM, evenodds, and
# access to the Hugging Face hub (or MODEL set to a folder).
#
#   bash scripts/gpu_check_verl.sh
set -euo pipefail

MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
WORK=${WORK:-$(mktemp -d)}
echo "Working in $WORK"

python - "$WORK" <<'PY'
import json
import random
import sys

random.seed(0)
for name, count in (("train", 512), ("test", 64)):
    with open(f"{sys.argv[1]}/{name}.jsonl", "w") as out:
        for _ in range(count):
            a, b, c = random.randint(2, 99), random.randint(2, 99), random.randint(2, 9)
            row = {"question": f"What is ({a} + {b}) * {c}?", "answer": str((a + b) * c)}
            out.write(json.dumps(row) + "\n")
PY

cat > "$WORK/run.toml" <<TOML
[run]
name = "gpu-check"
steps = 6
save_every = 3
[model]
path = "$MODEL"
[data]
source = "$WORK/train.jsonl"
system_prompt = "Put the final answer within \\\\boxed{}."
max_prompt_tokens = 256
[reward]
kind = "math"
[generation]
group_size = 8
groups_per_step = 32
max_new_tokens = 256
[training]
learning_rate = 1e-6
micro_batch = 16
[efficiency]
num_references = 32
capacity = 64
embeddings = "tfidf"
[evaluation]
source = "$WORK/test.jsonl"
every = 3
TOML

evenodds verl-command "$WORK/run.toml" --gpus 1 --data "$WORK/data" --write-data \
  --out "$WORK/out" > "$WORK/train.sh"
run() { bash "$WORK/train.sh" 2>&1 | tee "$WORK/$1.log"; }

echo "1 of 3: six steps"
timeout 420 bash -c "$(declare -f run); WORK=$WORK; run first"

echo "2 of 3: what was recorded"
python - "$WORK/out" <<'PY'
import json
import sys
from pathlib import Path

lines = [json.loads(x) for x in (Path(sys.argv[1]) / "metrics.jsonl").read_text().splitlines()]
steps = [line for line in lines if line["step"] > 0]
assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6], steps
assert steps[0]["select/num_references"] == 32
assert [line["replay/num_replayed"] for line in steps[1:]] == [16] * 5, "is anything effective?"
for line in steps:
    print(
        f"step {line['step']}  reward {line['reward/mean']:.3f}  effective "
        f"{line['select/effective_fraction']:.2f}  ratio {line['replay/ratio_mean']}  "
        f"{line['time/step_s']:.1f} s"
    )
ratios = [line["replay/ratio_mean"] for line in steps if line["replay/ratio_mean"] is not None]
assert all(0.5 < ratio < 2 for ratio in ratios), ratios
PY

echo "3 of 3: killed and resumed"
rm -rf "$WORK/out/global_step_6"
echo 3 > "$WORK/out/latest_checkpointed_iteration.txt"
timeout 300 bash -c "$(declare -f run); WORK=$WORK; run resumed"
grep -q "Resuming from" "$WORK/resumed.log"
test "$(wc -l < "$WORK/out/metrics.jsonl")" -ge 6
evenodds report "$WORK/out"
echo "All is well. The report lies in $WORK/out"

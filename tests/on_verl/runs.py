"""Every run the tests look at, in one process with one Ray: `python runs.py FOLDER`."""

import json
import os
import sys
import traceback
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["VERL_USE_EXTERNAL_MODULES"] = "evenodds.verl"

import ray
import transfer_queue as tq

PAPER = {
    "+evenodds.num_references": 8,
    "+evenodds.capacity": 8,
    "+evenodds.selection_temperature": 0.05,
}
EVENODDS = {
    "+evenodds.preset": "evenodds",
    "+evenodds.drop_ineffective": False,
    "+evenodds.num_references": 4,
    "+evenodds.fresh_fraction": 0.5,
    "+evenodds.replay_fraction": 0.5,
    "+evenodds.refill": True,
    "+evenodds.capacity": 8,
    "+evenodds.replay_policy": "priority",
    "+evenodds.min_ess": 0.2,
}
PLAIN = {"+evenodds.preset": "grpo"}
RR = {"+evenodds.preset": "rr", "+evenodds.capacity": 8}


def main() -> None:
    folder = Path(sys.argv[1])
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False)
    from cluster import make_config, run, write_world

    world = folder / "world"
    write_world(world)
    tq.init(make_config(world, folder / "none", {}).transfer_queue)
    results, errors = {}, {}

    def record(name, out=None, **settings):
        print(f"== {name}", flush=True)
        try:
            results[name] = run(world, folder / (out or name), **settings)
        except Exception:  # told by the test that needs the run
            errors[name] = traceback.format_exc()

    record("stock", **{"trainer.v1.trainer_mode": "sync", "trainer.total_training_steps": 3})
    record("plain", **PLAIN, **{"trainer.total_training_steps": 3})
    record("paper", **PAPER)
    record("killed", kill_after=4, **PAPER)
    record("resumed", out="killed", **PAPER)
    record("evenodds", **EVENODDS)
    record("rr", **RR, **{"trainer.total_training_steps": 3})
    record("failing", fail=True, **PAPER, **{"trainer.total_training_steps": 3})
    (folder / "results.json").write_text(json.dumps({"results": results, "errors": errors}))
    tq.close()
    ray.shutdown()


if __name__ == "__main__":
    main()

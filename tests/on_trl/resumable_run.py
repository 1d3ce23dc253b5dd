"""A run that kills itself: `resumable_run.py POLICY FOLDER [--resume] [--kill WHERE:N]`.

WHERE is a function of the trainer or of the modules below; at its N-th call the process dies by
SIGKILL, on rank 0. With `half`, it dies when half of what the call writes is on disk.
"""

import argparse
import importlib
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from evenodds.trl import DataEfficientGRPOTrainer, EfficiencyConfig
from evenodds.trl.run import leave_together

from tiny import make_dataset, reward
from tiny_trl import EVERYTHING, SMALL, host_config

HOMES = ("evenodds.recorder", "evenodds.trl.trainer", "evenodds.trl.checkpoint")


def kill_at(name: str, call: int, half: bool) -> None:
    homes = [DataEfficientGRPOTrainer, *map(importlib.import_module, HOMES)]
    calls = 0
    (home, *others) = [home for home in homes if hasattr(home, name)]
    original = getattr(home, name)

    def dying(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == call and os.environ.get("RANK", "0") == "0":
            if half:
                folder = next(Path(arg) for arg in args if isinstance(arg, (str, Path)))
                folder = folder.parent if folder.is_file() else folder
                before = {path: path.stat().st_size for path in folder.glob("*")}
                original(*args, **kwargs)
                newest = max(folder.glob("*"), key=lambda path: path.stat().st_mtime_ns)
                start, end = before.get(newest, 0), newest.stat().st_size
                newest.write_bytes(newest.read_bytes()[: (start + end) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    for place in (home, *others):
        setattr(place, name, dying)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policy")
    parser.add_argument("folder")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--kill")
    parser.add_argument("--preset")
    parser.add_argument("--steps", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.kill:
        name, call, *half = arguments.kill.split(":")
        kill_at(name, int(call), bool(half))
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    own = {None: SMALL, "everything": EVERYTHING}
    if arguments.preset in own:
        efficiency = own[arguments.preset]
    else:
        efficiency = EfficiencyConfig.preset(arguments.preset)
    trainer = DataEfficientGRPOTrainer(
        model=arguments.policy,
        reward_funcs=reward,
        args=host_config(
            arguments.folder,
            max_steps=arguments.steps,
            save_strategy="steps",
            save_steps=2,
            save_total_limit=1,
            per_device_train_batch_size=16 // processes,
        ),
        train_dataset=make_dataset(),
        efficiency=efficiency,
    )
    trainer.train(resume_from_checkpoint=arguments.resume)
    trainer.save_model(str(Path(arguments.folder) / f"final-{trainer.ranks.index}"))
    if trainer.ranks.count > 1:
        weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        sums = trainer.ranks.gather(weights)
        assert torch.equal(sums[0], sums[1]), "the ranks' weights differ"
        chosen = trainer.ranks.gather(trainer.loop.record.fresh.questions_K.tolist())
        assert chosen[0] == chosen[1], "the ranks' selections differ"
    leave_together(trainer)


if __name__ == "__main__":
    main()

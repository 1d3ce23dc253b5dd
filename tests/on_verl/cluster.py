"""Stand-ins for verl's GPU workers: a tiny policy that generates, scores and learns on a CPU.

Ray, TransferQueue, the dataset, the staging queue, advantages, rollout correction and the loss are
verl's own.
"""

import json
import os
import types
from pathlib import Path

import datasets
import torch
import transfer_queue as tq
import verl.trainer.config
import verl.utils.tensordict_utils as tu
from hydra import compose, initialize_config_dir
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.utils.losses import ppo_loss

from evenodds.loss import off_policy_loss

from tiny import save_policy

GROUP_SIZE = 4
ROLLOUTS = 6  # tokens of a completion, at most

SETTINGS = {
    "data.train_batch_size": 4,
    "data.dataloader_num_workers": 0,
    "data.max_prompt_length": 32,
    "data.max_response_length": ROLLOUTS,
    "data.seed": 3,
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.n": GROUP_SIZE,
    "actor_rollout_ref.rollout.calculate_log_probs": True,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 16,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 16,
    "algorithm.adv_estimator": "grpo",
    "algorithm.norm_adv_by_std_in_grpo": False,
    "algorithm.rollout_correction.rollout_is": "token",
    "algorithm.rollout_correction.rollout_is_threshold": 1e9,
    "trainer.v1.trainer_mode": "evenodds",
    "trainer.val_before_train": True,
    "trainer.test_freq": 3,
    "trainer.save_freq": 3,
    "trainer.total_training_steps": 6,
    "trainer.logger": "[console]",
    "trainer.n_gpus_per_node": 1,
    "trainer.nnodes": 1,
    "trainer.device": "cpu",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
}


def write_world(folder: Path) -> None:
    """A policy, and questions with as many rewards as digits."""
    save_policy(folder / "policy")
    rows = [
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": f"{i}+{i % 7}="}],
            "ability": "",
            "reward_model": {"ground_truth": str(i % 10), "style": "rule"},
            "extra_info": {"index": i},
        }
        for i in range(32)
    ]
    table = datasets.Dataset.from_list(rows)
    table.to_parquet(str(folder / "train.parquet"))
    table.select(range(8)).to_parquet(str(folder / "test.parquet"))


def make_config(world: Path, out: Path, settings: dict):
    """verl's own config with ours on top."""
    places = {
        "data.train_files": world / "train.parquet",
        "data.val_files": world / "test.parquet",
        "actor_rollout_ref.model.path": world / "policy",
        "trainer.default_local_dir": out,
    }
    lines = [f"{key}={value}" for key, value in {**SETTINGS, **places, **settings}.items()]
    folder = os.path.dirname(verl.trainer.config.__file__)
    with initialize_config_dir(config_dir=folder, version_base=None):
        return compose("ppo_trainer", overrides=lines)


def solved(text: str, least: str) -> float:
    return float(text[:1].isdigit() and int(text[0]) >= int(least) % 5)


class Policy:
    """The one copy of the weights, with its optimizer."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder).float()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-3)

    def logprobs(self, ids, grad=False):
        """Of each next token, a row a sequence, with the entropy."""
        with torch.set_grad_enabled(grad):
            all_logprobs = self.model(ids[None]).logits[0].log_softmax(-1)
            nexts = torch.cat([ids[1:], ids[:1]])
            entropy = -(all_logprobs.exp() * all_logprobs).sum(-1)
            return all_logprobs.gather(-1, nexts[:, None])[:, 0], entropy

    def gradient(self):
        parts = [p.grad.reshape(-1) for p in self.model.parameters() if p.grad is not None]
        return torch.cat(parts).clone()


def jagged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class Workers:
    """verl's actor worker group, as far as the trainer calls it."""

    _dispatch_info = {"actor": [0]}  # noqa: RUF012

    def __init__(self, policy: Policy, config) -> None:
        self.policy, self.config = policy, config
        self.gradient_gaps = []  # between verl's loss and the explicit one
        self.ratios = []  # lowest and highest importance ratio of each update
        self.advantage_gaps = []  # between verl's advantages and r - mean(r)
        self.group_sizes = []

    def compute_log_prob(self, batch):
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["input_ids"]
        )
        pairs = [self.policy.logprobs(ids) for ids in data["input_ids"].unbind()]
        fields = {
            "log_probs": jagged([p for p, _ in pairs]),
            "entropy": jagged([e for _, e in pairs]),
        }
        tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict(fields, batch_size=len(batch)),
        )
        return batch

    def update_actor(self, batch):
        size = batch.extra_info["mini_batch_size"]
        losses = []
        self._check_advantages(batch)
        for start in range(0, len(batch.keys), size):
            losses.append(self._update(batch, batch.keys[start : start + size]))
        metrics = {"mfu": [0.0], "pg_loss": losses, "grad_norm": [1.0]}
        return {"metrics": metrics}

    def _update(self, batch, keys):
        names = ["input_ids", "prompts", "responses", "response_mask", "old_log_probs",
                 "advantages", "rollout_log_probs", "rollout_is_weights"]  # fmt: skip
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=names)
        sequences = data["input_ids"].unbind()
        model, optimizer = self.policy.model, self.policy.optimizer
        explicit = self._explicit_loss(
            data, [self.policy.logprobs(s, grad=True)[0] for s in sequences]
        )
        optimizer.zero_grad()
        explicit.backward()
        wanted = self.policy.gradient()
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        logprobs = [self.policy.logprobs(ids, grad=True)[0] for ids in sequences]
        tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=None, global_batch_size=None)
        loss, _ = ppo_loss(actor, {"log_probs": jagged(logprobs)}, data)
        optimizer.zero_grad()
        loss.backward()
        self.gradient_gaps.append(float((self.policy.gradient() - wanted).abs().max()))
        if "rollout_is_weights" in data:
            weights = data["rollout_is_weights"].values()
            self.ratios.append((float(weights.min()), float(weights.max())))
        optimizer.step()
        del model
        return float(loss)

    def _explicit_loss(self, data, logprobs):
        """The decoupled loss of each token, mean over the policy's own tokens."""
        total, count = 0.0, 0
        names = ["prompts", "responses", "response_mask", "old_log_probs"]
        names += ["rollout_log_probs", "advantages"]
        columns = [data[name].unbind() for name in names]
        for new, prompt, response, mask, old, behaviour, advantage in zip(
            logprobs, *columns, strict=True
        ):
            own = mask.bool()
            if not own.any():
                continue
            span = slice(len(prompt) - 1, len(prompt) - 1 + len(response))
            loss = off_policy_loss(new[span][None], old[None], behaviour[None], advantage[own][:1])
            total = total + loss[0][own].sum()
            count += int(own.sum())
        return total / count

    def _check_advantages(self, batch):
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id,
            select_fields=["rm_scores", "advantages"],
        )  # fmt: skip
        groups = {}
        for key, scores, advantages in zip(
            batch.keys, data["rm_scores"].unbind(), data["advantages"].unbind(), strict=True
        ):
            groups.setdefault(key.split("_")[0], []).append((float(scores.sum()), advantages))
        for uid, rows in groups.items():
            if uid.startswith("pad"):
                continue
            self.group_sizes.append(len(rows))
            mean = sum(reward for reward, _ in rows) / len(rows)
            for reward, advantages in rows:
                self.advantage_gaps.append(float((advantages - (reward - mean)).abs().max()))

    def save_checkpoint(self, path, *args, **kwargs):
        os.makedirs(path, exist_ok=True)
        tensors = {
            name: t.clone().contiguous() for name, t in self.policy.model.state_dict().items()
        }
        tensors.pop("lm_head.weight", None)  # tied
        for number, state in self.policy.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{number}/{key}": value.clone() for key, value in state.items()}
        save_file(tensors, f"{path}/all.safetensors")

    def load_checkpoint(self, local_path, **kwargs):
        tensors = load_file(f"{local_path}/all.safetensors")
        states = {}
        for name in [n for n in tensors if n.startswith("optimizer/")]:
            _, number, key = name.split("/")
            states.setdefault(int(number), {})[key] = tensors.pop(name)
        self.policy.model.load_state_dict(tensors, strict=False)
        whole = self.policy.optimizer.state_dict()
        whole["state"] = states
        self.policy.optimizer.load_state_dict(whole)


class Sampler:
    """verl's agent loops: generate a group for each prompt, score it, and put it into the queue."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.asked = []  # question numbers, a list a call
        self.fail = False  # whether one session is lost from now on

    def generate_sequences(self, batch):
        validate = bool(tu.get_non_tensor_data(batch, "validate", False))
        steps = tu.get_non_tensor_data(batch, "global_steps", 0)
        partition = "val" if validate else "train"
        torch.manual_seed(1000 * steps + 100 * validate + len(batch))  # not what came before
        if not validate:
            self.asked.append([int(_data(index)) for index in batch["index"]])
        for number in range(len(batch)):
            row = {
                key: _data(batch[key][number])
                for key in (
                    "raw_prompt",
                    "data_source",
                    "reward_model",
                    "extra_info",
                    "index",
                    "uid",
                )
            }
            lost = {1} if self.fail and not validate and number == 0 else set()
            self._group(row, steps, partition, 1 if validate else GROUP_SIZE, lost)
            status = "failure" if lost else "finished"
            tag = {"is_prompt": True, "status": status, "global_steps": steps}
            tq.kv_batch_put(keys=[row["uid"]], partition_id=partition, tags=[tag])

    def _group(self, row, steps, partition, size, lost):
        tokenizer, model = self.policy.tokenizer, self.policy.model
        prompt = tokenizer.apply_chat_template(
            list(row["raw_prompt"]), tokenize=True, add_generation_prompt=True, return_dict=True
        )["input_ids"]
        whole = model.generate(
            torch.tensor(prompt).repeat(size, 1), do_sample=True, top_k=0, max_new_tokens=ROLLOUTS,
            attention_mask=torch.ones(size, len(prompt), dtype=torch.long), pad_token_id=0,
            eos_token_id=1,
        )  # fmt: skip
        keys, fields, tags = [], [], []
        for session in range(size):
            answer = whole[session, len(prompt) :].tolist()
            answer = answer[: answer.index(1) + 1] if 1 in answer else answer
            if session in lost:
                continue
            ids = torch.tensor(prompt + answer)
            text = tokenizer.decode(answer, skip_special_tokens=True)
            reward = solved(text, row["reward_model"]["ground_truth"])
            scores = torch.zeros(len(answer))
            scores[-1] = reward
            start = len(prompt) - 1
            logprobs = self.policy.logprobs(ids)[0][start : start + len(answer)]
            mask = torch.ones(len(answer), dtype=torch.int64)
            fields.append(
                {
                    **row,
                    "prompts": torch.tensor(prompt),
                    "responses": torch.tensor(answer),
                    "response_mask": mask,
                    "loss_mask": mask,
                    "input_ids": ids,
                    "position_ids": torch.arange(len(ids)),
                    "rm_scores": scores,
                    "rollout_log_probs": logprobs,
                    "num_turns": 2,
                    "extra_fields": {"reward_extra_info": {"acc": reward}},
                }
            )
            keys.append(f"{row['uid']}_{session}_0")
            tags.append(
                {
                    "status": "success",
                    "prompt_len": len(prompt),
                    "response_len": len(answer),
                    "seq_len": len(ids),
                    "global_steps": steps,
                    "min_global_steps": steps - 1,
                    "max_global_steps": steps - 1,
                }
            )
        tq.kv_batch_put(
            keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id=partition
        )


def _data(value):
    return getattr(value, "data", value) if not isinstance(value, torch.Tensor) else value.item()


def make_trainer(world: Path, out: Path, **settings):
    """The registered trainer on stand-in workers, and its sampler."""
    torch.manual_seed(7)
    config = make_config(world, out, settings)
    policy = Policy(world / "policy")
    workers = Workers(policy, config)
    base = get_trainer_cls(config.trainer.v1.trainer_mode)

    class OnCpu(base):
        def _setup(self):
            self._init_tokenizer()
            self._init_dataloader()
            self._init_dump_executor()
            self.resource_pool_manager = types.SimpleNamespace(get_n_gpus=lambda: 1)
            self.actor_rollout_wg, self.ref_in_actor = workers, False
            self.reward_loop_manager = types.SimpleNamespace(reward_loop_worker_handles=[object()])
            self.checkpoint_manager = types.SimpleNamespace(
                update_weights=lambda *args, **kwargs: None, sleep_replicas=lambda: None
            )
            self._load_checkpoint()

    trainer = OnCpu(config)
    trainer.replay_buffer.poll_interval = 0.02
    return trainer, workers, Sampler(policy)


class Killed(BaseException):
    """The process ends here."""


def run(world: Path, out: Path, *, kill_after: int | None = None, fail: bool = False, **settings):
    """Train, and say what happened."""
    trainer, workers, sampler = make_trainer(world, out, **settings)
    sampler.fail = fail
    logged = []
    trainer.init()
    if kill_after is not None:
        step = trainer.step

        def dying_step(metrics, timing_raw):
            if trainer.global_steps > kill_after:
                raise Killed
            return step(metrics, timing_raw)

        trainer.step = dying_step
    from verl.utils.tracking import Tracking

    log = Tracking.log
    Tracking.log = lambda self, data, step, *args, **kwargs: logged.append((step, dict(data)))
    try:
        trainer.fit(sampler)
    except Killed:
        pass
    finally:
        Tracking.log = log
    weights = torch.cat([p.detach().reshape(-1) for p in workers.policy.model.parameters()])
    left = (tq.kv_list("train") or {}).get("train", {})
    return {
        "asked": sampler.asked,
        "weights": [*weights.double().tolist()[:200], float(weights.double().sum())],
        "gradient_gaps": workers.gradient_gaps,
        "advantage_gaps": workers.advantage_gaps,
        "ratios": workers.ratios,
        "logged": [(step, _numbers(data)) for step, data in logged],
        "group_sizes": workers.group_sizes,
        "left_in_queue": len(left),
    }


def _numbers(data):
    return {
        k: float(v) for k, v in data.items() if isinstance(v, int | float) or hasattr(v, "item")
    }


def write_result(path: Path, result) -> None:
    path.write_text(json.dumps(result))

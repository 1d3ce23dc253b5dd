"""A user's own reward function: finding it, calling it, and checking what it returns."""

import asyncio
import inspect
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evenodds.errors import ConfigError, RewardError
from evenodds.rewards import Reward, RewardConfig, make_reward

Make = Callable[..., Reward]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Writes a module of a user into the current folder and makes its `score` the reward."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for name in ("their_reward", "their_helper"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)

    def made(code: str, kind: str = "their_reward:score", **settings: Any) -> Reward:
        (tmp_path / "their_reward.py").write_text(code)
        return make_reward(RewardConfig(kind=kind, **settings))

    return made


def refusal(make: Make, code: str, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(code, **settings)
    return str(caught.value)


def bad_return(make: Make, code: str, **settings: Any) -> str:
    reward = make(f"def score(completions, **columns):\n    return {code}\n", **settings)
    with pytest.raises(RewardError) as caught:
        reward(["p", "p"], ["a", "b"], question_id=["q1", "q2"])
    return str(caught.value)


class TestFinding:
    def test_in_the_current_folder_with_helpers_beside_it(self, make: Make, tmp_path: Path) -> None:
        (tmp_path / "their_helper.py").write_text("RIGHT = 'a'")
        reward = make(
            "from their_helper import RIGHT\n"
            "def score(completions, **columns):\n"
            "    return [float(completion == RIGHT) for completion in completions]\n"
        )
        assert reward.__name__ == "score"
        assert reward(["p", "p"], ["a", "b"]) == [1.0, 0.0]
        assert sys.path[-1] == str(tmp_path)  # for what it imports later; last, to shadow nothing

    def test_method_of_an_object(self, make: Make) -> None:
        code = "class Judge:\n    @staticmethod\n    def score(completions): return [0.5]\n"
        assert make(code, kind="their_reward:Judge.score")(["p"], ["a"]) == [0.5]

    def test_installed_module(self) -> None:
        reward = make_reward(RewardConfig(kind="evenodds.rewards.exact:grade"))
        assert reward.__name__ == "grade"

    def test_no_such_module(self, make: Make, tmp_path: Path) -> None:
        text = refusal(make, "", kind="their_rewards:score")
        assert "there is no module 'their_rewards'" in text
        assert f"looked in {tmp_path}" in text

    def test_module_that_lacks_a_module(self, make: Make) -> None:
        text = refusal(make, "import abacus")
        assert "importing the module fails" in text
        assert "ModuleNotFoundError: No module named 'abacus'" in text

    def test_module_with_a_mistake(self, make: Make) -> None:
        assert "SyntaxError" in refusal(make, "def score(:")

    def test_no_such_function(self, make: Make) -> None:
        text = refusal(make, "def scores(): pass")
        assert "there is no 'score' in their_reward" in text
        assert "their_reward.py has scores" in text
        assert "did you mean 'scores'?" in text

    def test_no_function(self, make: Make) -> None:
        assert "is not a function\n  got:      0.5" in refusal(make, "score = 0.5")

    @pytest.mark.parametrize(
        "kind", ["their_reward:", ":score", "a b:c", "their_reward.py:score2!"]
    )
    def test_malformed_names(self, make: Make, kind: str) -> None:
        text = refusal(make, "", kind=kind)
        assert f"reward.kind names no function\n  got:      {kind}" in text
        assert "module:function" in text


class TestCalling:
    def test_gets_trls_arguments(self, make: Make) -> None:
        reward = make(
            "def score(prompts, completions, answer, **columns):\n"
            "    assert sorted(columns) == ['level', 'trainer_state']\n"
            "    return [p + c == a for p, c, a in zip(prompts, completions, answer)]\n"
        )
        columns = {"answer": ["pa", "no"], "level": [1, 2], "trainer_state": None}
        assert reward(["p", "p"], ["a", "b"], **columns) == [1.0, 0.0]

    def test_may_take_only_what_it_needs(self, make: Make) -> None:
        reward = make("def score(completions, answer, scale=0.5):\n    return [scale]\n")
        assert reward(["p"], ["a"], answer=["a"], level=[1]) == [0.5]

    def test_argument_that_is_no_column(self, make: Make) -> None:
        reward = make("def score(completions, answers): return [1]\n")
        with pytest.raises(RewardError) as caught:
            reward(["p"], ["a"], answer=["a"])
        text = str(caught.value)
        assert "score takes an argument 'answers', but the questions have no such column" in text
        assert "the columns answer, completions, prompts" in text
        assert "did you mean 'answer'?" in text

    @pytest.mark.parametrize("body", ["return [1 / 0]", "raise SystemExit(3)"])
    def test_its_own_errors_say_where(self, make: Make, body: str) -> None:
        with pytest.raises(RewardError, match=r"the reward function .* fails\n.*\.py:1\n"):
            make(f"def score(completions): {body}\n")(["p"], ["a"])

    def test_async_functions_are_awaited_and_checked(self, make: Make) -> None:
        reward = make(
            "import asyncio\n"
            "async def score(completions, good, **columns):\n"
            "    await asyncio.sleep(0)\n"
            "    return [1.0 if good else None]\n"
        )
        assert inspect.iscoroutinefunction(type(reward).__call__)  # what TRL looks at
        call: Any = reward
        assert asyncio.run(call(["p"], ["a"], good=True)) == [1.0]
        with pytest.raises(RewardError, match="None for question q1"):
            asyncio.run(call(["p"], ["a"], good=False, question_id=["q1"]))

    def test_async_partials_are_awaited(self, make: Make) -> None:
        reward = make(
            "import functools\n"
            "async def scaled(completions, by): return [by]\n"
            "score = functools.partial(scaled, by=0.75)\n"
        )
        call: Any = reward
        assert asyncio.run(call(["p"], ["a"])) == [0.75]

    def test_async_objects_are_awaited(self, make: Make) -> None:
        reward = make(
            "class Judge:\n"
            "    async def __call__(self, completions): return [0.25]\n"
            "score = Judge()\n"
        )
        call: Any = reward
        assert asyncio.run(call(["p"], ["a"])) == [0.25]

    def test_can_be_pickled(self, make: Make) -> None:
        reward = make("def score(completions): return [0.5]\n")
        assert pickle.loads(pickle.dumps(reward))(["p"], ["a"]) == [0.5]


class TestReturning:
    @pytest.mark.parametrize(
        ("code", "message"),
        [
            ("0.5", "score does not return a list of rewards\n  got:      float 0.5"),
            ("'ab'", "got:      str 'ab'"),
            ("(x for x in [1, 2])", "got:      generator"),
            ("None", "got:      NoneType None"),
            ("[1.0]", "wrong number of rewards\n  got:      1 rewards\n  expected: 2"),
            ("[1.0, None]", "not a number\n  got:      None for question q2"),
            ("[float('nan'), 0]", "got:      nan for question q1"),
            ("[float('inf'), -float('inf')]", "inf for question q1, -inf for question q2"),
            ("['1', 0]", "got:      '1' for question q1"),
            ("[[1.0], [0.0]]", "got:      [1.0] for question q1"),
            ("[1j, 0]", "got:      1j for question q1"),
            ("[1.0, 1.5]", "outside its declared range\n  got:      1.5 for question q2"),
            ("[-0.5, 1]", "expected: a number in [0.0, 1.0]\n  to mend:  set reward.range"),
        ],
    )
    def test_what_is_refused(self, make: Make, code: str, message: str) -> None:
        text = bad_return(make, code)
        assert text.startswith("score ")
        assert message in text

    def test_declared_range(self, make: Make) -> None:
        code = "def score(completions): return [-1, 2.0]\n"
        assert make(code, range=(-1, 2))(["p", "p"], ["a", "b"]) == [-1.0, 2.0]
        assert "a number in [-1.0, 1.0]" in bad_return(make, "[-1, 2.0]", range=(-1, 1))

    def test_without_ids_completions_are_numbered(self, make: Make) -> None:
        with pytest.raises(RewardError, match="None for completion 2"):
            make("def score(completions): return [1, None]\n")(["p", "p"], ["a", "b"])

    @pytest.mark.parametrize(
        "rewards",
        [
            (True, False),
            np.array([1.0, 0.0], dtype=np.float32),
            torch.tensor([1.0, 0.0]),
            [torch.tensor(1.0), np.float32(0.0)],
            [np.bool_(True), np.int64(0)],
            [1.000001, -0.000001],
        ],
    )
    def test_kinds_of_numbers(
        self, make: Make, monkeypatch: pytest.MonkeyPatch, rewards: Any
    ) -> None:
        reward = make("def score(completions): return REWARDS\n")
        monkeypatch.setattr(sys.modules["their_reward"], "REWARDS", rewards, raising=False)
        values = reward(["p", "p"], ["a", "b"])
        assert values == pytest.approx([1.0, 0.0], abs=1e-5)
        assert [type(value) for value in values] == [float, float]

    def test_tensors_of_another_shape(self, make: Make) -> None:
        code = "import torch\ndef score(completions): return [torch.zeros(2), torch.zeros(0)]\n"
        with pytest.raises(RewardError, match=r"tensor\(\[0., 0.\]\) for completion 1"):
            make(code)(["p", "p"], ["a", "b"])

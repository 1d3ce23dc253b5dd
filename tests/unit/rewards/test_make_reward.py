"""Settings of the reward, and what all built-in rewards share."""

import importlib.util
from typing import Any

import pytest

from evenodds.errors import ConfigError, DataError, RewardError
from evenodds.rewards import RewardConfig, make_reward
from evenodds.rewards import reward as reward_module


class TestConfig:
    def test_defaults(self) -> None:
        assert RewardConfig().as_dict() == {"kind": "math", "range": [0.0, 1.0]}
        assert RewardConfig(kind="m:f", range=(-1, 1)).as_dict()["range"] == [-1.0, 1.0]

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"kind": "maths"}, "did you mean 'math'?"),
            ({"kind": "score"}, "one of math, exact, choice, reasoning_gym, module:function"),
            ({"kind": "m:f", "range": (1.0, 1.0)}, "reward.range is empty"),
            ({"kind": "exact", "range": (-1.0, 1.0)}, "the exact reward has another range"),
        ],
    )
    def test_refusals(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            RewardConfig(**settings)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "package"), [("math", "math-verify"), ("reasoning_gym", "reasoning-gym")]
)
def test_missing_package(monkeypatch: pytest.MonkeyPatch, kind: str, package: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=f"pip install {package}"):
        make_reward(RewardConfig(kind=kind))


class TestAnswers:
    def test_batch_with_texts_and_messages(self) -> None:
        reward = make_reward(RewardConfig(kind="exact"))
        completions = ["5", [{"role": "assistant", "content": "so\n5"}], "6", ""]
        assert reward(["p"] * 4, completions, answer=["5"] * 4) == [1.0, 1.0, 0.0, 0.0]

    def test_choice(self) -> None:
        reward = make_reward(RewardConfig(kind="choice"))
        assert reward(["p"] * 2, [r"\boxed{C}", "(B)"], answer=["C", "C"]) == [1.0, 0.0]

    def test_no_answer_column(self) -> None:
        with pytest.raises(RewardError) as caught:
            make_reward(RewardConfig(kind="exact"))(["p"], ["5"], level=[1], question_id=["q"])
        text = str(caught.value)
        assert "the exact reward needs reference answers" in text
        assert "the columns level, question_id" in text
        assert "set data.answer_column" in text

    def test_no_answer(self) -> None:
        with pytest.raises(RewardError, match="for question q2"):
            make_reward(RewardConfig(kind="exact"))(
                ["p"] * 2, ["5"] * 2, answer=["5", None], question_id=["q1", "q2"]
            )


class TestCheck:
    def test_missing_answers_are_named(self) -> None:
        reward = make_reward(RewardConfig(kind="exact"))
        reward.check(["5", "07"])
        with pytest.raises(DataError) as caught:
            reward.check(["5", None, None], ids=["q1", "q2", "q3"])
        text = str(caught.value)
        assert "the exact reward compares, but 2 questions have no answer" in text
        assert "got:      question q2, question q3" in text

    def test_wrong_answers_are_named(self) -> None:
        reward = make_reward(RewardConfig(kind="choice"))
        reward.check(["A", "J"])
        with pytest.raises(DataError) as caught:
            reward.check(["A", "5", "K", "5"])
        text = str(caught.value)
        assert "the choice reward cannot grade 2 of the reference answers" in text
        assert "'5' of row 2, 'K' of row 3" in text
        assert "one capital letter from A to J" in text

    def test_huge_pools_are_sampled_evenly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reward_module, "MOST_CHECKED", 3)
        reward = make_reward(RewardConfig(kind="choice"))
        with pytest.raises(DataError, match="cannot grade 3 of the") as caught:
            reward.check([f"x{i}" for i in range(9)])
        assert "'x0' of row 1, 'x3' of row 4, 'x6' of row 7" in str(caught.value)

    def test_functions_of_the_users_own_check_nothing(self) -> None:
        make_reward(RewardConfig(kind="evenodds.rewards.exact:grade")).check([None])

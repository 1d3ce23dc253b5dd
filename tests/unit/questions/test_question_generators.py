"""Generated questions: the registry, the toy world's splits, and reasoning-gym's tasks."""

import json
import sys
import types
from typing import Any

import pytest

from evenodds import questions
from evenodds.errors import ConfigError
from evenodds.questions import DataConfig, load_pool, question_id

from question_rows import refusal


class TestGenerators:
    def test_generated_sources_come_from_a_registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = [{"question": "rev ab", "answer": "ba", "length": 2}]
        monkeypatch.setitem(questions.GENERATORS, "toy", lambda config: iter(made))
        pool = load_pool(DataConfig(source="toy", question_column="elsewhere"))
        assert pool.rows() == [
            {
                "prompt": "rev ab",
                "answer": "ba",
                "question_id": question_id("rev ab"),
                "length": 2,
            }
        ]

    def test_toy_questions_have_two_splits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def pool(world: str, seed: int) -> list[dict[str, str]]:
            return [{"question": f"{world} train {seed}", "answer": "1"}]

        def evaluation(world: str, seed: int) -> list[dict[str, str]]:
            return [{"question": f"{world} test {seed}", "answer": "1"}]

        toy = types.SimpleNamespace(pool=pool, evaluation=evaluation)
        monkeypatch.setitem(sys.modules, "evenodds.toy", toy)
        assert load_pool(DataConfig(source="toy")).texts == ["main train 0"]
        assert load_pool(DataConfig(source="toy", split="test", seed=3)).texts == ["main test 3"]
        assert load_pool(DataConfig(source="toy", subset="easy")).texts == ["easy train 0"]
        assert "have no split 'dev'\n  got:      the splits train, test" in refusal(
            "toy", split="dev"
        )


class TestReasoningGym:
    def test_rows_carry_what_scoring_needs(self) -> None:
        tasks = {"leg_counting": {"count": 5, "max_animals": 4}, "rush_hour": {"count": 2}}
        pool = load_pool(DataConfig(source="reasoning_gym", tasks=tasks, seed=3))
        assert len(pool) == 7
        assert pool.extras["task"] == ("leg_counting",) * 5 + ("rush_hour",) * 2
        stored = json.loads(pool.extras["reasoning_gym"][0])
        assert stored["config"] == {"max_animals": 4}
        assert stored["entry"]["answer"] == pool.answers[0]
        assert stored["entry"]["metadata"]["num_animals"] <= 4
        assert pool.answers[6] is None  # a task with no single right answer

    def test_seed_of_the_pool_unless_the_task_has_its_own(self) -> None:
        def ids(seed: int, own: dict[str, int] | None = None) -> tuple[str, ...]:
            tasks = {"leg_counting": {"count": 5, **(own or {})}}
            return load_pool(DataConfig(source="reasoning_gym", tasks=tasks, seed=seed)).ids

        assert ids(3) == ids(0, {"seed": 3})
        assert ids(3) != ids(4)

    def test_tasks_that_print_are_kept_quiet(self, capfd: pytest.CaptureFixture[str]) -> None:
        load_pool(DataConfig(source="reasoning_gym", tasks={"bf": {"count": 2}}))
        assert capfd.readouterr().out == ""

    @pytest.mark.parametrize(
        ("tasks", "message"),
        [
            ({"leg_countin": {"count": 1}}, "did you mean 'leg_counting'"),
            (
                {"leg_counting": {"count": 1, "max_animal": 9}},
                "did you mean 'data.tasks.leg_counting.max_animals'",
            ),
            ({"leg_counting": {"count": 1, "max_animals": 1}}, "max_animals must be >="),
            ({"leg_counting": {"count": 0}}, "data.tasks.leg_counting lacks a number"),
            ({"leg_counting": 5}, "count = 1000"),
            (None, "tasks = None"),
        ],
    )
    def test_wrong_tasks(self, tasks: dict[str, Any] | None, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            load_pool(DataConfig(source="reasoning_gym", tasks=tasks))

    def test_tasks_need_their_source(self) -> None:
        with pytest.raises(ConfigError, match="do not go together"):
            DataConfig(source="toy", tasks={"leg_counting": {"count": 1}})

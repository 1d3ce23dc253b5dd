"""From the folders of a comparison to its table; every number comes out of `metrics.jsonl`."""

from collections.abc import Sequence
from typing import Any

from evenodds.comparison.plan import BASELINE, Plan
from evenodds.comparison.runs import read_run
from evenodds.comparison.savings import ArmResult, compare_arms, courses_of
from evenodds.errors import DataError, some

TABLE = "table.json"
MARKDOWN = "table.md"
PAGE = "report.html"


def results_of(plan: Plan) -> list[ArmResult]:
    """Every arm of a comparison whose runs have all ended, plain GRPO first where it was named.

    Raises:
        DataError: a run has not ended, or plain GRPO is not among the arms.
    """
    missing = [f"{run.arm} seed {run.seed}" for run in plan.runs if not run.is_done]
    if missing:
        raise DataError(
            "the comparison has not ended",
            got=f"{len(missing)} of {len(plan.runs)} runs are missing: {some(missing)}",
            expected="every run at its last step",
            fix="run the command that began it again: it goes on",
        )
    by_arm = {
        arm: [read_run(run.folder) for run in plan.runs if run.arm == arm] for arm in plan.arms
    }
    seeds = {arm: [run.seed for run in plan.runs if run.arm == arm] for arm in plan.arms}
    courses = []
    for arm, runs in by_arm.items():
        order = sorted(range(len(runs)), key=lambda place: seeds[arm][place])
        courses.append(
            courses_of(arm, [seeds[arm][place] for place in order], [runs[p] for p in order])
        )
    return compare_arms(courses, BASELINE)


def table_record(plan: Plan, results: Sequence[ArmResult]) -> dict[str, Any]:
    """The table as JSON-able values."""
    return {
        "name": plan.name,
        "seeds": sorted(plan.seeds),
        "how_timed": plan.how_timed,
        "target": results[0].target,
        "arms": [result.as_dict() for result in results],
    }

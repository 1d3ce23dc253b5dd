import numpy as np
import pytest

from evenodds.errors import DataError
from evenodds.study import Split, SplitConfig, make_split

from study_world import make_labels

LABELS = make_labels()


def test_policies_are_drawn_and_some_remain():
    split = make_split(LABELS, SplitConfig(kind="policy", share=0.25))
    assert len(split.policies) == 2
    assert split.questions == ()
    assert split.trains_on_policy(LABELS).sum() == 6
    assert split.trains_on_question(LABELS).all()
    other = make_split(LABELS, SplitConfig(kind="policy", share=0.25, seed=3))
    assert other.policies != split.policies


def test_time_holds_the_last_policies():
    assert make_split(LABELS, SplitConfig(kind="time")).policies == ("step-60", "step-70")


def test_both_holds_policies_and_questions():
    split = make_split(LABELS, SplitConfig(kind="both", share=0.5))
    assert (len(split.policies), len(split.questions)) == (4, 120)
    kept = split.trains_on_question(LABELS)
    assert {LABELS.ids[row] for row in np.flatnonzero(~kept)} == set(split.questions)


def test_at_least_one_is_held_and_never_all():
    assert len(make_split(LABELS, SplitConfig(share=0.01)).policies) == 1
    two = LABELS.of_policies(LABELS.policies[:2])
    assert len(make_split(two, SplitConfig(share=0.9)).policies) == 1
    with pytest.raises(DataError, match="no policy can be held out"):
        make_split(LABELS.of_policies(LABELS.policies[:1]), SplitConfig())


def test_a_split_comes_back_from_its_own_record():
    split = make_split(LABELS, SplitConfig(kind="both"))
    assert Split.from_dict(split.as_dict()) == split

"""From a host's rewards to observations, where some rollouts were not scored."""

import numpy as np

from evenodds.scoring import without_signal

NAN = np.nan


def test_groups_without_signal_by_hand():
    scored = np.array([[1, 1], [0, 1], [0, NAN], [NAN, NAN], [0.5, 0.5]], dtype=np.float32)
    assert without_signal(scored).tolist() == [True, False, True, False, True]

import pytest


@pytest.fixture(scope="module")
def few_draws():
    """Intervals of a comparison from few drawn sets of seeds, where their ends are not judged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenodds.comparison.savings.RESAMPLES", 20)
        yield

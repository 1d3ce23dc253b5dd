import pytest


@pytest.fixture(scope="module")
def quick_pages():
    """Coarse pictures, and intervals from few drawn sets of seeds: neither is looked at here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenodds.comparison.savings.RESAMPLES", 20)
        patch.setattr("evenodds.report.page.DOTS", 30)
        yield

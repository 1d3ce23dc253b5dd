import numpy as np
import pytest

from evenodds.text_features import text_axes, text_features

TEXTS = ["one sum", "another sum", "one product", "a longer product of sums"]


def test_axes_keep_the_inner_products():
    axes = text_axes(TEXTS, 99)
    features = text_features(TEXTS)
    kernel = (features @ features.T).toarray()
    assert axes.dtype == np.float32
    assert axes.shape == (4, 3)
    values = np.linalg.eigvalsh(kernel)
    # what the three leading axes leave out is the least eigenvalue
    assert np.linalg.norm(axes @ axes.T - kernel, 2) == pytest.approx(values[0], abs=1e-5)


def test_axes_are_the_same_again():
    np.testing.assert_array_equal(text_axes(TEXTS, 2), text_axes(TEXTS, 2))


def test_texts_all_alike_have_axes_too():
    assert np.isfinite(text_axes(["the same text"] * 30, 8)).all()

"""TF-IDF features of question texts: a hard baseline, and a cheap embedding."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from evenodds.errors import ConfigError


def text_features(texts: Sequence[str]) -> Any:
    """Sparse TF-IDF rows (sublinear counts of words and pairs that occur in two texts), N x V.

    Raises:
        ConfigError: scikit-learn is not installed.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError as error:
        raise ConfigError(
            "TF-IDF needs scikit-learn", fix='pip install "evenodds[predictor]"'
        ) from error
    fewest = 2 if len(texts) > 20 else 1
    return TfidfVectorizer(sublinear_tf=True, min_df=fewest, ngram_range=(1, 2)).fit_transform(
        list(texts)
    )


def text_axes(texts: Sequence[str], count: int) -> Float[np.ndarray, "N D"]:
    """TF-IDF rows on their leading singular axes, dense: N x min(count, V - 1), float32.

    Raises:
        ConfigError: scikit-learn is not installed.
    """
    features = text_features(texts)
    from sklearn.utils.extmath import randomized_svd

    kept = max(1, min(count, min(features.shape) - 1))
    left, values, _ = randomized_svd(features, kept, random_state=0)
    return (left * values).astype(np.float32)

import math

import numpy as np
import pytest
import torch

from evenodds.difficulty import Adapter, AttentionPredictor, attention_difficulty, standardiser

from builders import observation


def test_attention_is_the_softmax_weighted_mean_of_the_references():
    # scores (1, 0) . (2, 0) / sqrt(2) = 1.41421 and 0; softmax 0.80443, 0.19557
    query = torch.tensor([[1.0, 0.0]])
    references = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    predicted = attention_difficulty(query, references, torch.tensor([0.75, 0.25]))
    expected = 0.80443 * 0.75 + 0.19557 * 0.25
    assert predicted.item() == pytest.approx(expected, abs=1e-5)


def test_equal_scores_give_the_mean():
    predicted = attention_difficulty(torch.zeros(3, 4), torch.ones(2, 4), torch.tensor([0.2, 0.6]))
    assert predicted.tolist() == pytest.approx([0.4, 0.4, 0.4])


def test_a_reference_does_not_see_its_own_label():
    vectors = torch.tensor([[5.0, 0.0], [0.0, 5.0], [0.1, 0.1]])
    own = torch.tensor([0, 1, -1])
    references = torch.cat([vectors[:2], torch.ones(1, 2)])
    one = attention_difficulty(vectors, references, torch.tensor([0.0, 1.0, 0.3]), own_rows_K=own)
    two = attention_difficulty(vectors, references, torch.tensor([1.0, 1.0, 0.3]), own_rows_K=own)
    assert one[0] == two[0]  # its own label changed, nothing else
    assert one[1] != two[1]  # the other's label is seen


def test_standardise_gives_mean_0_and_variance_1_and_keeps_constant_columns_finite():
    values = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
    assert standardiser(values)(values).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_adapter_is_layernorm_three_linear_layers_layernorm():
    torch.manual_seed(0)
    adapter = Adapter(embedding_size=6, width=4).eval()
    linear = [layer for layer in adapter.layers if isinstance(layer, torch.nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(6, 4), (4, 4), (4, 4)]
    output = adapter(torch.randn(5, 6))
    assert output.mean(dim=1).tolist() == pytest.approx([0.0] * 5, abs=1e-5)
    assert output.var(dim=1, correction=0).tolist() == pytest.approx([1.0] * 5, abs=1e-3)


def test_chunks_change_nothing():
    torch.manual_seed(0)
    embeddings = torch.randn(50, 8)
    references = observation([3, 17, 40, 41], [0.1, 0.9, 0.5, 0.4])
    whole = AttentionPredictor.untrained(embeddings).predict(references)
    predictor = AttentionPredictor.untrained(embeddings)
    predictor.chunk = 7
    assert predictor.predict(references) == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("chunk", [1, 7, 49, 50, 1000])
def test_chunks_of_any_size_and_storage_change_nothing(dtype, chunk):
    torch.manual_seed(0)
    references = observation([3, 17, 40, 41], [0.1, 0.9, 0.5, 0.4])
    predictor = AttentionPredictor.untrained(torch.randn(50, 8), dtype=dtype)
    whole = predictor.predict(references)
    predictor.chunk = chunk
    np.testing.assert_allclose(predictor.predict(references), whole, rtol=0, atol=1e-6)


def test_storage_in_16_bits_is_close_to_float32():
    # bfloat16 rounds a number by at most 2^-9 of itself and float16 by 2^-12; scores of about 1
    # move by as little, and difficulty by less.
    torch.manual_seed(0)
    embeddings = torch.randn(300, 16) * torch.logspace(-1, 2, 16) + 50 * torch.randn(16)
    references = observation(np.arange(0, 300, 10), np.linspace(0, 1, 30))
    exact = AttentionPredictor.untrained(embeddings).predict(references)
    for dtype, tolerance in ((torch.bfloat16, 2e-3), (torch.float16, 3e-4)):
        stored = AttentionPredictor.untrained(embeddings, dtype=dtype)
        assert stored.query_NH.dtype == dtype
        np.testing.assert_allclose(stored.predict(references), exact, rtol=0, atol=tolerance)


def test_embeddings_in_16_bits_are_standardised_as_in_float32():
    torch.manual_seed(0)
    embeddings = (torch.randn(20_000, 4) * torch.tensor([1e-2, 1, 10, 0]) + 5).half()
    exact = embeddings.float()
    expected = (exact - exact.mean(dim=0)) / exact.std(dim=0, correction=0).clamp_min(1e-6)
    query = AttentionPredictor.untrained(embeddings).query_NH
    assert torch.allclose(query, expected, atol=1e-4)  # float32 sums of 20,000 rows round to 1e-5


def test_untrained_prediction_by_hand():
    # Two clusters; standardised coordinates are +-1 in one dimension, so with H = 1 a query
    # scores its own cluster e^1 and the other e^-1.
    embeddings = torch.tensor([[0.0], [0.0], [4.0], [4.0]])
    references = observation([0, 2], [1.0, 0.0])
    predictor = AttentionPredictor.untrained(embeddings)
    d_hat = predictor._attend(torch.tensor([0, 2]), torch.tensor([1.0, 0.0]))
    weight = math.e / (math.e + math.exp(-1))
    # the references themselves only see each other
    assert d_hat.tolist() == pytest.approx([0.0, weight, 1.0, 1 - weight], abs=1e-6)
    predicted = predictor.predict(references)
    assert np.all((predicted > 0) & (predicted < 1))


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_all_0_or_all_1_references_stay_finite(label):
    predictor = AttentionPredictor.untrained(torch.randn(30, 4))
    predicted = predictor.predict(observation([0, 5, 9], [label] * 3))
    assert np.all(np.isfinite(predicted))
    assert np.all(np.abs(predicted - label) < 0.5)

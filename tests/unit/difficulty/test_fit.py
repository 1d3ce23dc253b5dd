import numpy as np
import pytest
import torch

from evenodds.difficulty import (
    AttentionPredictor,
    FitConfig,
    PredictorModel,
    fit_predictor,
    pearson,
)
from evenodds.difficulty.fit import _loss, _Validation, _warmup_then_linear
from evenodds.errors import CheckpointError, DataError

from builders import observation

SMALL = FitConfig(
    width=16, num_references=16, batch_size=64, epochs=30, warmup_steps=5, dropout=0.0
)


def synthetic(num_policies=4, num_questions=300, seed=0):
    """Difficulty hidden in one of eight dimensions, shifted by the strength of each policy."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(num_questions, 8, generator=generator)
    strength = torch.linspace(-1, 1, num_policies)[:, None]
    difficulty = torch.sigmoid(2 * embeddings[:, 3] + strength)
    return embeddings, difficulty


def test_learns_what_matters_and_keeps_the_best_epoch():
    embeddings, labels = synthetic()
    model, report = fit_predictor(embeddings, labels[:3], SMALL, validation_VN=labels[3:])
    assert report.loss[-1] < report.loss[0]
    assert report.best_epoch == int(np.argmin(report.validation_loss))
    assert report.validation_pearson[report.best_epoch] > 0.9
    rows = np.arange(0, 300, 15)
    references = observation(rows, labels[3].numpy()[rows])
    rest = np.setdiff1d(np.arange(300), rows)
    trained = AttentionPredictor.trained(model, embeddings, embedding_model="").predict(references)
    untrained = AttentionPredictor.untrained(embeddings).predict(references)
    truth = labels[3].numpy()[rest]
    assert pearson(trained[rest], truth) > pearson(untrained[rest], truth) + 0.1


def test_is_repeatable_and_leaves_the_global_generator_alone():
    embeddings, labels = synthetic()
    config = SMALL.replace(epochs=2, dropout=0.1)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, _ = fit_predictor(embeddings, labels, config)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    two, _ = fit_predictor(embeddings, labels, config)
    for left, right in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert torch.equal(left, right)


def test_missing_labels_are_left_out():
    embeddings, labels = synthetic()
    labels[0, 100:] = float("nan")
    _, report = fit_predictor(embeddings, labels, SMALL.replace(epochs=2))
    assert np.all(np.isfinite(report.loss))


def test_saved_and_loaded_predictors_are_equal(tmp_path):
    model = PredictorModel(8, 4, embedding_model="policy@abc").eval()
    model.save(tmp_path / "predictor.safetensors")
    loaded = PredictorModel.load(tmp_path / "predictor.safetensors")
    assert loaded.embedding_model == "policy@abc"
    queries, references = torch.randn(5, 8), torch.randn(3, 8)
    difficulty = torch.tensor([0.1, 0.5, 0.9])
    assert torch.equal(
        model(queries, references, difficulty), loaded(queries, references, difficulty)
    )


def test_trained_prediction_equals_the_module_of_the_paper():
    torch.manual_seed(0)
    model = PredictorModel(8, 16).eval()
    embeddings = torch.randn(40, 8)
    rows = np.array([1, 5, 30])
    references = observation(rows, [0.2, 0.9, 0.4])
    predicted = AttentionPredictor.trained(model, embeddings, embedding_model="").predict(
        references
    )
    own = torch.tensor([1, 5, 30])
    with torch.no_grad():
        expected = model(embeddings, embeddings[rows], torch.tensor([0.2, 0.9, 0.4]), own)
    assert predicted == pytest.approx(expected.numpy(), abs=1e-6)


def test_trained_prediction_from_16_bits_is_close():
    torch.manual_seed(0)
    model = PredictorModel(8, 16).eval()
    embeddings = torch.randn(40, 8)
    references = observation([1, 5, 30], [0.2, 0.9, 0.4])

    def predicted(embeddings, dtype):
        predictor = AttentionPredictor.trained(model, embeddings, embedding_model="", dtype=dtype)
        assert predictor.query_NH.dtype == dtype
        return predictor.predict(references)

    exact = predicted(embeddings, torch.float32)
    for dtype, tolerance in ((torch.bfloat16, 2e-3), (torch.float16, 3e-4)):
        assert predicted(embeddings, dtype) == pytest.approx(exact, abs=tolerance)
        assert predicted(embeddings.to(dtype), torch.float32) == pytest.approx(exact, abs=tolerance)


def test_training_goes_on_without_changing_a_predictor():
    torch.manual_seed(0)
    model = PredictorModel(8, 16).eval()
    embeddings = torch.randn(40, 8)
    references = observation([1, 5, 30], [0.2, 0.9, 0.4])
    predictor = AttentionPredictor.trained(model, embeddings, embedding_model="")
    before = predictor.predict(references)
    model.train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    np.testing.assert_array_equal(predictor.predict(references), before)


def test_another_embedding_model_is_refused():
    model = PredictorModel(8, 4, embedding_model="a@1")
    with pytest.raises(DataError, match=r"got: +embeddings of 'b@2'"):
        AttentionPredictor.trained(model, torch.randn(5, 8), embedding_model="b@2")
    with pytest.raises(DataError, match="size 9"):
        AttentionPredictor.trained(model, torch.randn(5, 9), embedding_model="a@1")


def test_the_name_before_the_digest_does_not_matter():
    model = PredictorModel(8, 4, embedding_model="policy@1f")
    AttentionPredictor.trained(model, torch.randn(5, 8), embedding_model="some/name@1f")


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "predictor.safetensors"
    PredictorModel(8, 4).save(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=r"predictor\.safetensors cannot be read"):
        PredictorModel.load(path)


def test_too_few_or_impossible_labels_are_refused():
    embeddings, labels = synthetic()
    with pytest.raises(DataError, match="a policy with 10 labelled questions"):
        fit_predictor(embeddings[:10], labels[:, :10], SMALL)
    labels[0, 0] = 1.5
    with pytest.raises(DataError, match=r"outside \[0, 1\]"):
        fit_predictor(embeddings, labels, SMALL)


def test_a_validation_policy_without_questions_to_predict_is_refused():
    embeddings, labels = synthetic()
    labels[3, 16:] = float("nan")
    with pytest.raises(DataError, match="16 references, 0 questions to predict"):
        fit_predictor(embeddings, labels[:3], SMALL, validation_VN=labels[3:])


def test_a_training_query_does_not_see_its_own_label():
    embeddings, labels = synthetic()
    model = PredictorModel(8, 4, dropout=0.0)
    queries, references = torch.tensor([2, 7, 5]), torch.tensor([5, 2, 90])
    masked = model(embeddings[queries], embeddings[references], labels[0][references],
                   torch.tensor([2, 0, -1]))  # fmt: skip
    expected = torch.nn.functional.binary_cross_entropy(masked, labels[0][queries])
    open_ = model(embeddings[queries], embeddings[references], labels[0][references])
    assert not torch.allclose(masked, open_)
    loss = _loss(model, embeddings, labels[0], queries, references)
    assert loss.item() == pytest.approx(expected.item())


def test_validation_predicts_what_is_no_reference():
    _, labels = synthetic()
    for queries in (None, torch.arange(300) % 3 == 0):
        for _, references, predicted in _Validation(labels[:2], queries, SMALL).sets:
            assert not set(references.tolist()) & set(predicted.tolist())
            expected = 300 - 16 if queries is None else 100
            assert len(predicted) == expected


def test_the_learning_rate_warms_up_and_falls_to_nothing():
    rates = [_warmup_then_linear(step, 4, 12) for step in (0, 1, 3, 4, 8, 12)]
    assert rates == pytest.approx([0.25, 0.5, 1.0, 1.0, 0.5, 0.0])

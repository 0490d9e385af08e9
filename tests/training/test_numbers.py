"""Weights and targets that are no numbers are refused before they reach the weights of a model."""

import keras
import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import MultipleChoice, MultiTask, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

pytestmark = pytest.mark.one_backend

TEXTS = ["the cat sat", "the big house"] * 4
NAN, INF = float("nan"), float("inf")
IDS = np.arange(3, 27).reshape(8, 3).astype("int32") % 20
WRONG = {"nan": [NAN, 1.0] * 4, "infinite": np.array([1, INF] * 4), "negative": [1, 1, 1, 1, 1, 1, 1, -1]}
MESSAGES = {"nan": "nan at 0", "infinite": "inf at 1", "negative": "-1 at 7"}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", [*TEXTS, "who sat"] * 9, 30)


@pytest.fixture(scope="module")
def bert(tokenizer):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=24)
    return Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **sizes))


def values_of(model):
    return [keras.ops.convert_to_numpy(variable).copy() for variable in model.weights if "seed" not in variable.path]


def refused(model, message, *data, **arguments):
    before = values_of(model)
    with pytest.raises(ValueError, match=message):
        model.fit(*data, verbose=0, batch_size=2, **arguments)
    for one, other in zip(values_of(model), before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", WRONG)
def test_sample_weights(kind, bert, tokenizer):
    """Of all tasks, for texts and arrays, in training, validation and evaluation; of datasets, batch by batch."""
    weights, message = WRONG[kind], f"`sample_weight` must be finite and at least 0. Received: {MESSAGES[kind]}"
    numbers = [0, 1] * 4
    classifier = TextClassifier(bert, labels=2, tokenizer=tokenizer)
    refused(classifier, message, TEXTS, numbers, sample_weight=weights)
    refused(classifier, message, {"token_ids": IDS}, np.array(numbers), sample_weight=weights)
    refused(classifier, message, TEXTS, numbers, validation_data=(TEXTS, numbers, weights))
    with pytest.raises(ValueError, match=message):
        classifier.evaluate(TEXTS, numbers, sample_weight=weights)
    refused(
        QuestionAnswerer(bert, tokenizer=tokenizer),
        message,
        [("who sat", "the cat sat")] * 8,
        [{"text": "cat", "start": 4}] * 8,
        sample_weight=weights,
    )
    chooser = MultipleChoice(bert, tokenizer=tokenizer)
    refused(chooser, message, [("the cat", ["sat", "big"])] * 8, numbers, sample_weight=weights)
    embedder = TextEmbedder(bert, tokenizer=tokenizer)
    refused(embedder, message, list(zip(TEXTS, TEXTS, strict=True)), [0.5] * 8, sample_weight=weights)
    tagger = TokenClassifier(bert, labels=["O", "X"], tokenizer=tokenizer)
    rows = np.array(weights)[:, None].repeat(3, 1)
    message = message.replace(" at 7", "").replace(" at 0", "").replace(" at 1", "")
    refused(tagger, message, {"token_ids": IDS}, IDS % 2, sample_weight=np.array(weights))
    refused(tagger, message, {"token_ids": IDS}, IDS % 2, sample_weight=rows)
    refused(MaskedLM(bert, tokenizer=tokenizer), message, {"token_ids": IDS}, IDS, sample_weight=rows)
    tasks = MultiTask(bert, {"a": {"labels": 2}}, tokenizer=tokenizer)
    refused(tasks, message, {"a": (TEXTS, numbers, weights)})
    dataset = ((TEXTS[i : i + 2], np.array([0, 1]), np.array(weights[i : i + 2])) for i in (6, 0))
    with pytest.raises(ValueError, match=message):
        classifier.fit(dataset, steps_per_epoch=2, verbose=0)
    assert all(np.isfinite(array).all() for array in values_of(classifier))


def test_other_weights(bert, tokenizer):
    classifier = TextClassifier(bert, labels=["a", "b"], tokenizer=tokenizer)
    y = ["a", "b"] * 4
    refused(
        classifier,
        "`class_weight` must be finite and at least 0. Received: nan for 'a'",
        TEXTS,
        y,
        class_weight={"a": NAN},
    )
    refused(classifier, "at least 0. Received: -1 for 1", TEXTS, [0, 1] * 4, class_weight={1: -1})
    refused(classifier, "at least 0. Received: '2' for 1", TEXTS, [0, 1] * 4, class_weight={1: "2"})
    refused(classifier, "`sample_weight` must be numbers. Received: str32, .*'x'", TEXTS, y, sample_weight=["x"] * 8)
    normalizer = np.array([NAN, 1] * 4, "float32")
    refused(
        MaskedLM(bert, tokenizer=tokenizer),
        "`loss_normalizer` must be finite and at least 0. Received: nan",
        {"token_ids": IDS, "loss_normalizer": normalizer},
        IDS,
    )


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_targets(value, bert, tokenizer):
    y = [0.5] * 7 + [value]
    scorer = TextClassifier(bert, labels=1, problem="score", tokenizer=tokenizer)
    embedder = TextEmbedder(bert, objective="cosine", tokenizer=tokenizer)
    pairs = list(zip(TEXTS, TEXTS, strict=True))
    for model, x in ((scorer, TEXTS), (embedder, pairs)):
        with pytest.raises(ValueError, match="(Scores|The labels of CosineSimilarity) must be finite.* Received: "):
            model.fit(x, y, verbose=0, batch_size=8)
        assert all(np.isfinite(array).all() for array in values_of(model))


def test_good_weights_are_used(bert, tokenizer):
    """Weights of 0 are weights: two examples with these do not change the loss."""
    classifier = TextClassifier(bert, labels=2, tokenizer=tokenizer)
    all_rows = classifier.evaluate(
        TEXTS[:3], [0, 1, 0], sample_weight=[1, 0, np.float32(0)], verbose=0, return_dict=True
    )
    first = classifier.evaluate(TEXTS[:1], [0], verbose=0, return_dict=True)
    assert all_rows["loss"] == pytest.approx(first["loss"], abs=1e-6)

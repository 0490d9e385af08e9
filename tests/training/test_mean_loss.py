"""The loss that `evaluate` and validation report does not depend on the batch size: rows that fill up count nothing."""

import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import QuestionAnswerer, Reranker, TextClassifier, TokenClassifier

WORDS = [f"w{number}" for number in range(20)]
TEXTS = [" ".join(WORDS[start : start + 2 + start % 5]) for start in range(11)]
TOKENIZER = Tokenizer.train("wordpiece", [" ".join(WORDS)] * 3, vocabulary_size=48)
SIZES = dict(num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=16, max_length=32)
SIZES |= dict(initializer_range=0.5, dropout=0.0, attention_dropout=0.0)


def backbone():
    return Bert(BertConfig(TOKENIZER.vocabulary_size, **SIZES))


def classified():
    model = TextClassifier(backbone(), labels=["a", "b", "c"], tokenizer=TOKENIZER)
    return model, (TEXTS, ["abc"[number % 3] for number in range(11)])


def tagged():
    model = TokenClassifier(backbone(), labels=["a", "b"], tokenizer=TOKENIZER)
    return model, ([text.split() for text in TEXTS], [["ab"[len(w) % 2] for w in text.split()] for text in TEXTS])


def answered():
    model = QuestionAnswerer(backbone(), tokenizer=TOKENIZER)
    spans = [(text.split()[-1], text.rindex(" ") + 1) for text in TEXTS]
    return model, ([("w1 w2", text) for text in TEXTS], spans)


def reranked():
    return Reranker(backbone(), tokenizer=TOKENIZER), ([("w1", text) for text in TEXTS], [i % 2 for i in range(11)])


def filled():
    model = MaskedLM(backbone(), tokenizer=TOKENIZER)
    generator = np.random.default_rng(0)
    ids = generator.integers(5, 20, (11, 8), "int32")
    positions = np.tile(np.arange(2, dtype="int32"), (11, 1))
    x = {"token_ids": ids, "masked_positions": positions}
    return model, (x, ids[:, :2], np.ones((11, 2), "float32"))


@pytest.mark.parametrize("make", [classified, tagged, answered, reranked, filled])
def test_the_loss_does_not_depend_on_the_batch_size(make):
    model, data = make()
    model.compile("sgd")
    x, y, *weights = data
    options = dict(sample_weight=weights[0]) if weights else {}
    losses = [model.evaluate(x, y, batch_size=size, verbose=0, return_dict=True, **options) for size in (1, 4, 11, 16)]
    for found in losses[1:]:  # Keras averages the losses of the start and the end of an answer by itself
        assert {**found, "start_loss": 0, "end_loss": 0} == pytest.approx({**losses[0], "start_loss": 0, "end_loss": 0})


def test_weights_of_rows_count():
    """The loss is the mean of the losses of all rows, weighted by the rows' weights."""
    model, (texts, labels) = classified()
    model.compile("sgd")
    weights = np.arange(11, dtype="float32")
    rows = zip(texts, labels, strict=True)
    each = [model.evaluate([text], [label], verbose=0, return_dict=True)["loss"] for text, label in rows]
    for size in (3, 8):
        found = model.evaluate(texts, labels, batch_size=size, sample_weight=weights, verbose=0, return_dict=True)
        assert found["loss"] == pytest.approx(np.average(each, weights=weights), rel=1e-5)


def test_validation_and_training():
    model, (texts, labels) = classified()
    model.compile("sgd")
    expected = model.evaluate(texts, labels, batch_size=11, verbose=0, return_dict=True)["loss"]
    model.optimizer.learning_rate = 0.0
    fit = model.fit(texts, labels, batch_size=4, validation_data=(texts, labels), verbose=0).history
    assert [*fit["val_loss"], *fit["loss"]] == pytest.approx([expected] * 2, rel=1e-5)

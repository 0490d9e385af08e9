"""Batches of texts with names of labels, from generators, datasets and loaders: the same numbers as from lists."""

import keras
import numpy as np
import pandas as pd
import pytest

from kerasbert.tasks import QuestionAnswerer, TextClassifier, TokenClassifier

from .test_columns import ANSWERS, NAMES, QUESTIONS, TAGS, TEXTS, WORDS

pytestmark = pytest.mark.one_backend

SECOND = TEXTS[::-1]
PAIRS = list(zip(TEXTS, SECOND, strict=True))
NUMBERS = [0, 1] * 3


class Steps(keras.utils.PyDataset):
    """Two batches of three."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.make(slice(3 * index, 3 * index + 3))


def generated(make):
    yield from (make(slice(start, start + 3)) for start in (0, 3))


def loader(items, batch_size=3):
    import torch.utils.data as data

    return data.DataLoader(items, batch_size=batch_size)


def rows(*columns):
    return list(zip(*columns, strict=True))


def streamed():
    import datasets

    return datasets.Dataset.from_dict({"text": TEXTS, "label": NUMBERS}).to_iterable_dataset()


SINGLE = {
    "generator": lambda: generated(lambda here: (TEXTS[here], NAMES[here])),
    "generator of arrays": lambda: generated(lambda here: (np.array(TEXTS[here]), np.array(NAMES[here]))),
    "generator of series": lambda: generated(
        lambda here: (pd.Series(TEXTS[here], index=[7, 8, 9]), pd.Series(NAMES[here], index=[7, 8, 9]))
    ),
    "generator of dicts": lambda: generated(lambda here: {"text": TEXTS[here], "label": NAMES[here]}),
    "generator with weights": lambda: generated(lambda here: (TEXTS[here], NAMES[here], [1.0, 1.0, 1.0])),
    "PyDataset": lambda: Steps(lambda here: (TEXTS[here], NAMES[here])),
    "PyDataset of dicts": lambda: Steps(lambda here: {"text": TEXTS[here], "label": NUMBERS[here]}),
    "DataLoader": lambda: loader(rows(TEXTS, NAMES)),
    "DataLoader of dicts": lambda: loader([{"text": text, "label": name} for text, name in rows(TEXTS, NAMES)]),
    "DataLoader of a stream": lambda: loader(streamed()),
    "stream of batches": lambda: streamed().batch(3),
}
PAIRED = {
    "DataLoader": lambda: loader(rows(PAIRS, NAMES)),
    "DataLoader of two": lambda: loader(rows(PAIRS, NUMBERS), batch_size=2),
    "DataLoader of dicts": lambda: loader(
        [{"text": one, "text_pair": other, "label": name} for one, other, name in rows(TEXTS, SECOND, NAMES)], 2
    ),
    "generator": lambda: generated(lambda here: (PAIRS[here], NAMES[here])),
    "generator of columns": lambda: generated(lambda here: ((TEXTS[here], SECOND[here]), NAMES[here])),
    "PyDataset of arrays": lambda: Steps(lambda here: (np.array(PAIRS[here]), NAMES[here])),
}


@pytest.fixture
def model(tiny_backbone, tokenizer):
    model = TextClassifier(tiny_backbone(), labels=["no", "yes"], tokenizer=tokenizer)
    model.compile(keras.optimizers.SGD(0.0))
    return model


@pytest.mark.parametrize("source", SINGLE.values(), ids=SINGLE)
def test_texts_with_names(source, model):
    assert model.evaluate(source(), verbose=0) == pytest.approx(model.evaluate(TEXTS, NAMES, verbose=0), abs=1e-5)
    np.testing.assert_allclose(model.predict(source(), verbose=0), model.predict(TEXTS, verbose=0), atol=1e-5)
    history = model.fit(source(), verbose=0, validation_data=source()).history
    assert history["val_loss"] == [pytest.approx(model.evaluate(TEXTS, NAMES, verbose=0)[0], abs=1e-5)]


@pytest.mark.parametrize("source", PAIRED.values(), ids=PAIRED)
def test_pairs_with_names(source, model):
    assert model.evaluate(source(), verbose=0) == pytest.approx(model.evaluate(PAIRS, NAMES, verbose=0), abs=1e-5)
    np.testing.assert_allclose(model.predict(source(), verbose=0), model.predict(PAIRS, verbose=0), atol=1e-5)


def test_what_a_loader_transposes_is_turned_back(tiny_backbone, tokenizer):
    """PyTorch's collation makes lists of columns of all lists and tuples, sentences and answers included."""
    tagger = TokenClassifier(tiny_backbone(), labels=["O", "B"], tokenizer=tokenizer)
    reader = QuestionAnswerer(tiny_backbone(), tokenizer=tokenizer)
    several = TextClassifier(tiny_backbone(), labels=["a", "b", "c"], problem="labels", tokenizer=tokenizer)
    numbers = [[int(tag == "B") for tag in tags] for tags in TAGS]
    kinds = [[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0]]
    for model, x, y, given in (
        (tagger, WORDS, TAGS, TAGS),
        (tagger, WORDS, TAGS, numbers),
        (reader, QUESTIONS, ANSWERS, ANSWERS),
        (several, TEXTS, kinds, kinds),
    ):
        model.compile(keras.optimizers.SGD(0.0))
        expected = model.evaluate(x, y, batch_size=2, verbose=0)
        assert model.evaluate(loader(rows(x, given), 2), verbose=0) == pytest.approx(expected, abs=1e-5)
    sets = [["a"], ["b", "c"], [], ["a", "b"], ["c"], ["a"]]
    found = several.evaluate(generated(lambda here: (TEXTS[here], sets[here])), verbose=0)
    assert found == pytest.approx(several.evaluate(TEXTS, kinds, verbose=0), abs=1e-5)


@pytest.mark.parametrize(
    "source, message",
    [
        (lambda: (row for row in rows(TEXTS, NAMES)), r"must yield batches.* Received: one example, \('a cat', 'no'\)"),
        (lambda: (row for row in rows(PAIRS, NAMES)), r"one example, \(\('a cat', 'in Rome'\), 'no'\)"),
        (lambda: streamed(), "must yield batches. Received: a row, {'text': 'a cat', 'label': 0}"),
        (lambda: iter([{"text": TEXTS, "label": NAMES, "idx": NUMBERS}]), "Received: the columns text, label, idx"),
        (lambda: iter([{"sentence": TEXTS, "label": NAMES}]), "Received: the columns sentence, label"),
        (lambda: iter([pd.DataFrame({"text": TEXTS, "label": NAMES})]), r'the columns text, label. Use df\["text"\]'),
    ],
)
def test_rows_and_other_columns(source, message, model):
    for call in (lambda: model.evaluate(source(), verbose=0), lambda: model.fit(source(), verbose=0)):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_loader_of_pairs_without_targets(model):
    """Its batches look like texts with labels; the second texts are no labels."""
    with pytest.raises(
        ValueError, match=r"must be labels, \['no', 'yes'\]. Received: 'in Rome'. Pairs of texts must be"
    ):
        model.predict(loader(PAIRS, 2), verbose=0)

"""Data that comes in batches: PyDataset, DataLoader, tf.data, datasets and generators, of arrays and of texts."""

import keras
import numpy as np
import pytest

from kerasbert.tasks import MultiTask, TextClassifier, TextEmbedder

TEXTS = ["Ann lives in Rome .", "Bob lives in Bonn .", "a cat", "a dog met a cat", "who met Bob ?", "a dog"]
LABELS = [0, 0, 1, 1, 0, 1]
PAIRS = [(text, "a cat") for text in TEXTS]


class Batches(keras.utils.PyDataset):
    """Batches of two; `wrong` names one whose mask is additive."""

    def __init__(self, x, y=None, wrong=None):
        super().__init__()
        self.x, self.y, self.wrong = x, y, wrong

    def __len__(self):
        return len(self.y) // 2

    def __getitem__(self, index):
        here = slice(2 * index, 2 * index + 2)
        x = self.x[here] if isinstance(self.x, list) else {key: array[here] for key, array in self.x.items()}
        if index == self.wrong:
            x = {**x, "padding_mask": np.full(x["token_ids"].shape, -1e9)}
        return x, np.array(self.y[here])


def loader(items, batch_size=2, **options):
    import torch.utils.data as data

    return data.DataLoader(items, batch_size=batch_size, **options)


def tensorflow_data(x, y):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2)


@pytest.fixture
def make(tiny_backbone, tokenizer):
    return lambda **options: TextClassifier(tiny_backbone(), labels=["no", "yes"], tokenizer=tokenizer, **options)


@pytest.fixture
def arrays(make):
    x = make().text_batches(TEXTS, None, None, 6, 1, 0, False)[0][0]
    return {key: np.array(array) for key, array in x.items()}


def rows(arrays):
    return [({key: array[i] for key, array in arrays.items()}, LABELS[i]) for i in range(6)]


SOURCES = {
    "PyDataset of arrays": lambda arrays: Batches(arrays, LABELS),
    "PyDataset of texts": lambda arrays: Batches(TEXTS, LABELS),
    "DataLoader of arrays": lambda arrays: loader(rows(arrays)),
    "DataLoader of texts": lambda arrays: loader(list(zip(TEXTS, LABELS, strict=True))),
    "tf.data of arrays": lambda arrays: tensorflow_data(arrays, LABELS),
    "tf.data of texts": lambda arrays: tensorflow_data(TEXTS, LABELS),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.backends("tensorflow") if "tf.data" in kind else pytest.mark.one_backend)
        for kind in SOURCES
    ],
)
def test_known_lengths_need_no_compile_and_no_steps(kind, make, arrays):
    model, source = make(), SOURCES[kind](arrays)
    history = model.fit(source, epochs=2, verbose=0, shuffle=False, validation_data=SOURCES[kind](arrays))
    assert len(history.history["loss"]) == len(history.history["val_loss"]) == 2 and model.optimizer.iterations == 6
    assert model.optimizer.schedule.steps == 6
    found = model.evaluate(source, verbose=0, return_dict=True)
    expected = model.evaluate(TEXTS, LABELS, batch_size=2, verbose=0, return_dict=True)
    assert found == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(model.predict(source, verbose=0), model.predict(TEXTS, verbose=0), atol=1e-5)


@pytest.mark.one_backend
def test_generators(make):
    def batches(texts=TEXTS, size=2):
        for start in range(0, 6, size):
            yield texts[start : start + size], np.array(LABELS[start : start + size])

    model = make()
    with pytest.raises(ValueError, match="with an unknown number of batches. Pass `steps_per_epoch`, or call `comp"):
        model.fit(batches(), verbose=0)
    model.fit(batches(), steps_per_epoch=3, verbose=0)
    assert model.optimizer.iterations == 3
    found = model.evaluate(batches(), verbose=0, return_dict=True)
    assert found == pytest.approx(model.evaluate(TEXTS, LABELS, batch_size=2, verbose=0, return_dict=True), rel=1e-4)
    pairs = make()
    pairs.compile(keras.optimizers.SGD(0.1))
    pairs.fit(batches(PAIRS, 3), verbose=0)
    with pytest.raises(ValueError, match="a batch of two examples, which may be two pairs or two columns"):
        pairs.evaluate(batches(PAIRS), verbose=0)
    np.testing.assert_allclose(
        pairs.predict((part for part, _ in batches(PAIRS, 3)), verbose=0), pairs.predict(PAIRS, verbose=0), atol=1e-5
    )


def test_every_batch_is_checked(make, arrays):
    model = make()
    with pytest.raises(ValueError, match="0 and 1. Received: float64"):
        model.evaluate(Batches(arrays, LABELS, wrong=2), verbose=0)
    with pytest.raises(ValueError, match="Targets must be indices from 0 to 1"):
        model.fit(Batches(arrays, [0, 1, 2, 0, 1, 5]), verbose=0)


@pytest.mark.one_backend
def test_columns_of_datasets(make):
    import datasets

    data = datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS})
    model = make()
    with pytest.raises(ValueError, match=r"columns text, label. .* fit\(dataset\['text'\], dataset\['label'\]"):
        model.fit(data, verbose=0)
    model.fit(data["text"], data["label"], batch_size=2, verbose=0)
    np.testing.assert_array_equal(model.predict(data["text"], verbose=0), model.predict(TEXTS, verbose=0))
    assert model.evaluate(data["text"], data["label"], verbose=0, return_dict=True)["loss"] > 0
    names = ["yes" if label else "no" for label in LABELS]
    named = datasets.Dataset.from_dict({"text": TEXTS, "label": names})
    model.fit(named["text"], named["label"], validation_data=(named["text"], named["label"]), verbose=0)


@pytest.mark.one_backend
def test_pairs_as_two_lists(make, tiny_backbone, tokenizer):
    model, columns = make(), (TEXTS, ["a cat"] * 6)
    model.fit(columns, LABELS, validation_data=(columns, LABELS), verbose=0)
    np.testing.assert_array_equal(model.predict(columns, verbose=0), model.predict(PAIRS, verbose=0))
    assert model.evaluate(columns, LABELS, verbose=0)[0] > 0
    found, expected = model.classify(columns), model.classify(PAIRS)
    assert [one["scores"] for one in found] == [pytest.approx(other["scores"], abs=1e-5) for other in expected]
    assert model.classify(PAIRS[0])["scores"] == pytest.approx(expected[0]["scores"], abs=1e-5)
    with pytest.raises(
        ValueError, match=r"Columns of texts must have the same length. Received: columns of lengths \[6, 5\]"
    ):
        model.predict((TEXTS, TEXTS[:5]), verbose=0)
    # Two examples: a tuple of lists is two columns, a list of pairs is two pairs.
    two = (TEXTS[:2], ["a cat"] * 2)
    np.testing.assert_array_equal(model.predict(two, verbose=0), model.predict(PAIRS[:2], verbose=0))
    several = MultiTask(tiny_backbone(), {"pairs": {"labels": 2}}, tokenizer=tokenizer)
    several.fit({"pairs": (columns, LABELS)}, verbose=0)
    embedder = TextEmbedder(tiny_backbone(), objective="cosine", tokenizer=tokenizer)
    embedder.fit(columns, np.linspace(-1, 1, 6), verbose=0)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "data, message",
    [
        (np.zeros((2, 3), "int32"), r"Received: ndarray of shape \(2, 3\). Put token ids into a dict"),
        (7, "Received: int"),
        ("a text", "Received: str"),
    ],
)
def test_other_data_is_named(data, message, make):
    model = make()
    for call in (lambda: model.fit(data, verbose=0), lambda: model.predict(data, verbose=0)):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.one_backend
def test_targets_beside_batches(make):
    with pytest.raises(ValueError, match="The batches of a Batches contain their targets. Received: y"):
        make().fit(Batches(TEXTS, LABELS), LABELS, verbose=0)


@pytest.mark.one_backend
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "float16"])
def test_predictions_are_float32(dtype, tiny_backbone, tokenizer):
    from kerasbert.models import Bert

    model = TextClassifier(Bert(tiny_backbone().config, dtype=dtype), labels=2, tokenizer=tokenizer)
    x = {"token_ids": np.ones((2, 3), "int32")}
    for outputs in (model.predict(TEXTS, verbose=0), model.predict(x, verbose=0)):
        assert outputs.dtype == "float32" and np.isfinite(outputs).all()

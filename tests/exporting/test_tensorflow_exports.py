"""Formats that TensorFlow writes: SavedModel and LiteRT."""

import json

import keras
import numpy as np
import pytest

from benchmarks.studies.exports.models import build
from kerasbert.backend.exporting import expanding
from kerasbert.exporting.runners import runner
from kerasbert.exporting.worker import write

pytestmark = pytest.mark.backends("tensorflow")  # the backend of the exporters


@pytest.fixture(scope="module")
def model():
    return build("BERT", "tagger", num_layers=1)


@pytest.mark.parametrize("format, file", [("tf_saved_model", "saved_model"), ("litert", "model.tflite")])
def test_programs_equal_the_model(model, tmp_path, format, file):
    write(model, tmp_path, format)
    described = json.loads((tmp_path / "kerasbert.json").read_text())["export"]
    assert (described["format"], described["file"]) == (format, file)
    run, generator = runner(format, tmp_path / file), np.random.default_rng(0)
    for rows, columns in ((1, 7), (8, 64)):
        x = {"token_ids": generator.integers(5, model.tokenizer.vocabulary_size, (rows, columns), dtype="int32")}
        x["padding_mask"] = np.ones((rows, columns), "int32")
        x["padding_mask"][-1, columns // 2 :] = 0
        x["segment_ids"] = generator.integers(0, 2, (rows, columns), dtype="int32")
        expected = keras.ops.convert_to_numpy(model({**x, "padding_mask": x["padding_mask"] > 0}))
        found = run(x)["logits"]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert np.ptp(expected) > 0.1


def test_axes_are_added_as_by_indexing():
    x = keras.ops.reshape(keras.ops.arange(24), (2, 3, 4))
    indexed = expanding(type(x).__getitem__)
    for index in (
        None,
        (slice(None), None, None, slice(1, None)),
        (Ellipsis, None),
        (None, Ellipsis, 0),
        (slice(None), 1, None),
        (0, None, Ellipsis, None, 2),
        (slice(None), slice(0, 2)),
    ):
        np.testing.assert_array_equal(indexed(x, index), keras.ops.convert_to_numpy(x)[index])

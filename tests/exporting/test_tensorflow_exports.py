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


@pytest.mark.parametrize("inner", ["backbone", "task"])
def test_keras_models_that_contain_ours_become_saved_models(inner, model, tmp_path):
    import tensorflow as tf

    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("token_ids", "segment_ids")}
    states = model(inputs) if inner == "task" else model.backbone(inputs)["sequence_output"]
    whole = keras.Model(inputs, keras.layers.Dense(2)(states))
    ids = np.random.default_rng(0).integers(5, 20, (3, 5), dtype="int32")
    x = {"token_ids": ids, "segment_ids": ids % 2}
    whole.export(tmp_path / "by_export", verbose=False)
    archive = keras.export.ExportArchive()
    archive.track(whole)
    archive.add_endpoint("serve", whole.call, [{name: tf.TensorSpec((None, None), "int32", name) for name in x}])
    archive.write_out(tmp_path / "by_archive", verbose=False)
    for folder in ("by_export", "by_archive"):
        loaded = tf.saved_model.load(str(tmp_path / folder))
        found = loaded.serve({name: tf.constant(part) for name, part in x.items()})
        np.testing.assert_allclose(found, whole(x), atol=1e-5)


def test_the_export_of_keras_names_ours(model, tmp_path):
    for part in (model, model.backbone):
        with pytest.raises(ValueError, match="Received: input_signature=None. .* use kerasbert.export"):
            part.export(tmp_path / "export")
    assert not (tmp_path / "export").exists()

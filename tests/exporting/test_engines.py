"""Models that are loaded with engine="onnx" are exported once, and compute the same."""

import json

import numpy as np
import pytest

import kerasbert
from benchmarks.studies.exports.models import build
from kerasbert.data import Tokenizer
from kerasbert.exporting import writing
from kerasbert.exporting.worker import export_folder
from kerasbert.objectives import Discriminator, ReplacedTokenDetection
from kerasbert.runtime import open_export
from kerasbert.runtime.cache import digest
from kerasbert.tasks import TextEmbedder
from pipelines.serve.exports import find_export

pytestmark = pytest.mark.backends("torch")  # the backend of the exporter

TEXTS = ["the cat sat on a mat", "who ran home", "one two three four five six seven and a red dog", "blue"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kerasbert" / "exports"


@pytest.fixture
def here(monkeypatch):
    """Exports in this process, which takes less time. Returns a list with the order of each export."""
    orders = []

    def export(order):
        orders.append(order)
        export_folder(**json.loads(json.dumps(order)))

    monkeypatch.setattr(writing, "run_exporter", export)
    return orders


def test_models_are_exported_once(tmp_path, cache, here):
    model, folder = build("Word vectors", "embedder"), tmp_path / "model"
    model.save_to_preset(folder)
    expected = TextEmbedder.from_preset(folder, normalize=False).embed(TEXTS)
    assert np.abs(expected - model.embed(TEXTS)).max() > 0.01
    for _ in range(2):
        loaded = TextEmbedder.from_preset(folder, engine="onnx", normalize=False)
        assert loaded.engine is not None
        np.testing.assert_allclose(loaded.embed(TEXTS), expected, atol=1e-6)
    assert len(here) == len(list(cache.iterdir())) == 1

    before = digest(folder, "{}")
    assert digest(folder, '{"normalize": true}') != before  # other arguments
    model.backbone.weights[0].assign(2 * model.backbone.weights[0])
    model.save_to_preset(folder)
    assert digest(folder, "{}") != before  # another model

    export = next(cache.iterdir())
    with pytest.raises(ValueError, match=r"An exported model cannot be changed.* Received: .* with {'pooling': 'cls'}"):
        TextEmbedder.from_preset(export, pooling="cls")
    assert kerasbert.load(export, engine="onnx").engine.programs.files["model"].parent == export
    assert len(here) == 1


def test_the_command_line_finds_the_export_that_load_has_written(tmp_path, cache, here, capsys):
    model, folder = build("Word vectors", "embedder"), tmp_path / "model"
    model.save_to_preset(folder)
    kerasbert.load(folder, engine="onnx")
    found = find_export(str(folder))
    assert found.parent == cache and find_export(str(found)) == found and capsys.readouterr().err == ""
    np.testing.assert_allclose(open_export(found).answer(TEXTS), model.embed(TEXTS), atol=1e-6)
    TextEmbedder.from_preset(folder, engine="onnx")  # the class that the folder names
    assert len(here) == 1


def test_arguments_that_have_no_export(tmp_path, cache, here):
    folder = tmp_path / "model"
    build("Word vectors", "embedder").save_to_preset(folder)
    tokenizer = Tokenizer.load(folder)
    for options, message in (
        ({"engine": "tensorrt"}, "must be \"onnx\" or None. Received: 'tensorrt'"),
        ({"engine": "onnx", "load_weights": False}, "needs the folder of a model, with its weights"),
        ({"engine": "onnx", "dtype": "bfloat16"}, "computes in float32. Received: dtype='bfloat16'"),
        (
            {"engine": "onnx", "tokenizer": tokenizer},
            r"that JSON can represent. Received: \['tokenizer'\]",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            TextEmbedder.from_preset(folder, **options)
    with pytest.raises(ValueError, match="needs the folder of a model"):
        Discriminator.from_preset("electra_small", engine="onnx")
    with pytest.raises(ValueError, match="runs a single model. Received: electra_small"):
        ReplacedTokenDetection.from_preset("electra_small", engine="onnx")
    assert not here and not cache.exists()

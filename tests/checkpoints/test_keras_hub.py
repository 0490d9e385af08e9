"""Presets of KerasHub: the outputs that KerasHub computes with them (tests/goldens/make_keras_hub.py)."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kerasbert.data import Tokenizer
from kerasbert.models import Backbone
from kerasbert.tasks import TextClassifier
from tests.models.reference import to_numpy

GOLDENS = Path(__file__).resolve().parent.parent / "goldens"
NAMES = {
    "bert": "Bert",
    "distil_bert": "DistilBert",
    "roberta": "Roberta",
    "xlm_roberta": "Roberta",
    "albert": "Albert",
    "electra": "Electra",
    "electra_wide": "Electra",
}
TEXTS = ["the things", "a cat sing"]


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    with zipfile.ZipFile(GOLDENS / "keras_hub_presets.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def goldens():
    return load_file(GOLDENS / "keras_hub.safetensors")


@pytest.mark.one_backend
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_keras_hub(name, presets, goldens, tmp_path):
    without = {"pooler": False} if "roberta" in name else {}  # which KerasHub has none for
    backbone = Backbone.from_preset(presets / name, **without)
    assert type(backbone).__name__ == NAMES[name]
    x = {"token_ids": goldens[f"{name}/token_ids"], "padding_mask": goldens[f"{name}/padding_mask"] > 0}
    if f"{name}/segment_ids" in goldens:
        x["segment_ids"] = goldens[f"{name}/segment_ids"]
    outputs = backbone(x)
    real = x["padding_mask"]
    found = to_numpy(outputs["sequence_output"])
    np.testing.assert_allclose(found[real], goldens[f"{name}/sequence_output"][real], atol=1e-5, rtol=1e-5)
    if getattr(backbone, "pooler", None) is not None:
        np.testing.assert_allclose(to_numpy(outputs["pooled_output"]), goldens[f"{name}/pooled_output"], atol=1e-5)
    backbone.save_to_preset(tmp_path)
    again = to_numpy(Backbone.from_preset(tmp_path, **without)(x)["sequence_output"])
    np.testing.assert_array_equal(again, found)


@pytest.mark.one_backend
@pytest.mark.parametrize("name", ["bert", "distil_bert", "roberta"])
def test_tokenizers_give_the_ids_of_keras_hub(name, presets, goldens):
    tokenizer = Tokenizer.load(presets / name)
    found = tokenizer.encode(TEXTS, add_special_tokens=False)
    for number, ids in enumerate(found):
        np.testing.assert_array_equal(ids, goldens[f"{name}/ids_{number}"])
    assert len(tokenizer.encode(TEXTS)[0]) == len(found[0]) + 2


@pytest.mark.one_backend
def test_a_preset_can_be_fine_tuned(presets):
    with pytest.warns(UserWarning, match="no weights for classifier/dense: new head"):
        classifier = TextClassifier.from_preset(presets / "bert", labels=["bad", "good"])
    assert classifier.tokenizer is not None
    assert {answer["label"] for answer in classifier.classify(TEXTS)} <= {"bad", "good"}


@pytest.mark.one_backend
def test_bad_presets(presets, tmp_path):
    def changed(**changes):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(presets / "bert", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        return folder

    with pytest.raises(ValueError, match="read for BertBackbone.*Received: GemmaBackbone"):
        Backbone.from_preset(changed(class_name="GemmaBackbone"))
    config = json.loads((presets / "bert" / "config.json").read_text())["config"]
    with pytest.raises(ValueError, match="does not know these arguments of BertBackbone: \\['gates'\\]"):
        Backbone.from_preset(changed(config={**config, "gates": 3}))
    with pytest.raises(ValueError, match="wrong shape: embeddings.word_embeddings.weight.*expected \\(40, 12\\)"):
        Backbone.from_preset(changed(config={**config, "vocabulary_size": 40}))
    with pytest.raises(ValueError, match="must hold layers/transformer_encoder_2/"):
        Backbone.from_preset(changed(config={**config, "num_layers": 3}))
    folder = changed()
    weights = folder / "model.weights.h5"
    weights.write_bytes(weights.read_bytes()[:-2_000])
    with pytest.raises(ValueError, match="not a complete HDF5 file"):
        Backbone.from_preset(folder)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="model.weights.h5"):
        Backbone.from_preset(folder)
    shutil.rmtree(folder / "assets")
    with pytest.raises(FileNotFoundError, match="vocabulary.txt"):
        Tokenizer.load(folder)

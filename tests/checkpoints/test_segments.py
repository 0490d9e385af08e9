"""Folders whose tokenizer gives no segment ids: pairs are read as in transformers, by every task and in exports."""

import inspect
import json

import numpy as np
import pytest

from kerasbert import models
from kerasbert.data import Tokenizer
from kerasbert.data.tasks.questions import QuestionRows
from kerasbert.exporting.signatures import input_names
from kerasbert.exporting.worker import write
from kerasbert.runtime import open_export
from kerasbert.tasks import QuestionAnswerer, Reranker, TextClassifier
from tests.models.reference import randomize

pytestmark = pytest.mark.one_backend

DOCUMENTS = ["the cat sat on the mat", "a dog ran over the hill", "they sat on a chair"] * 20
PAIR = ("the cat sat", "on the mat")
SIZES = dict(num_layers=2, num_heads=2, hidden_dim=16, embedding_dim=8, feed_forward_dim=32, max_length=64)
SIZES |= dict(bottleneck_dim=8, distance_buckets=8, num_segments=2)
FAMILIES = ("Bert", "Electra", "MobileBert", "Albert", "DebertaV2", "XLNet", "NomicBert", "Gte", "Roberta")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", DOCUMENTS, 50, lowercase=True)


def saved(kind, family, tokenizer, folder, **arguments):
    cls = getattr(models, family)
    fields = dict(SIZES, vocabulary_size=tokenizer.vocabulary_size)
    fields = {name: value for name, value in fields.items() if name in cls.family.config.__dataclass_fields__}
    pooler = {"pooler": True} if "pooler" in inspect.signature(cls.__init__).parameters else {}
    model = randomize(kind(cls(cls.family.config(**fields), **pooler), tokenizer=tokenizer, **arguments), 0.3)
    model.save_to_preset(folder)
    return model


def without_segments(folder):
    """The folder, whose settings say that models read no segment ids."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    assert "token_type_ids" in settings["model_input_names"] and "tokenizer_segments" not in settings
    path.write_text(json.dumps({**settings, "model_input_names": ["input_ids", "attention_mask"]}))
    return folder


def their_logits(folder):
    import torch
    import transformers

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    encoded = transformers.AutoTokenizer.from_pretrained(folder)(*PAIR, return_tensors="pt")
    assert set(encoded) == {"input_ids", "attention_mask"}
    with torch.no_grad():
        return theirs(**encoded).logits.numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_classifiers_of_all_families_with_segments(family, tokenizer, tmp_path):
    before = saved(TextClassifier, family, tokenizer, tmp_path / "folder", labels=3)
    model = TextClassifier.from_preset(without_segments(tmp_path / "folder"))
    found = model.predict([PAIR], verbose=0)
    np.testing.assert_allclose(found, their_logits(tmp_path / "folder"), atol=1e-4)
    assert np.abs(found - before.predict([PAIR], verbose=0)).max() > 5e-6
    assert input_names(model) == ["token_ids", "padding_mask"] and "segment_ids" in input_names(before)
    model.save_to_preset(tmp_path / "again")
    np.testing.assert_allclose(their_logits(tmp_path / "again"), found, atol=1e-4)
    again = TextClassifier.from_preset(tmp_path / "again")
    np.testing.assert_allclose(again.predict([PAIR], verbose=0), found, atol=1e-5)


def test_rerankers_and_their_exports(tokenizer, tmp_path):
    from sentence_transformers import CrossEncoder

    before = saved(Reranker, "Bert", tokenizer, tmp_path / "folder")
    model = Reranker.from_preset(without_segments(tmp_path / "folder"))
    found = model.score([PAIR])
    np.testing.assert_allclose(found, CrossEncoder(str(tmp_path / "folder"), device="cpu").predict([PAIR]), atol=1e-5)
    assert np.abs(found - before.score([PAIR])).max() > 1e-3
    (tmp_path / "export").mkdir()
    write(model, tmp_path / "export", "onnx")
    np.testing.assert_allclose(open_export(tmp_path / "export").answer([PAIR]), found, atol=1e-5)


def test_question_answerers(tokenizer, tmp_path):
    saved(QuestionAnswerer, "Bert", tokenizer, tmp_path)
    rows = {}
    for name in ("with", "without"):
        model = QuestionAnswerer.from_preset(tmp_path if name == "with" else without_segments(tmp_path))
        rows[name] = QuestionRows(model.tokenizer, [PAIR], model.max_length, model.stride, model.max_question_length).x
    assert "segment_ids" not in rows["without"]
    np.testing.assert_array_equal(rows["without"]["token_ids"], rows["with"]["token_ids"])


def test_a_tokenizer_outlives_a_model_without_segments(tokenizer, tmp_path):
    """ModernBERT reads no segments, but another model that takes its tokenizer does."""
    saved(TextClassifier, "ModernBert", tokenizer, tmp_path / "folder", labels=2)
    settings = json.loads((tmp_path / "folder" / "tokenizer_config.json").read_text())
    assert settings["model_input_names"] == ["input_ids", "attention_mask"] and settings["tokenizer_segments"]
    assert Tokenizer.load(tmp_path / "folder").has_segments
    tokenizer.save(tmp_path / "told")
    told = Tokenizer.load(without_segments(tmp_path / "told"))
    told.save(tmp_path / "again")
    for copy in (told, told.lower_casing, Tokenizer.from_json(told.to_json()), Tokenizer.load(tmp_path / "again")):
        assert not copy.has_segments and copy.template(pair=True) == tokenizer.template(pair=True)

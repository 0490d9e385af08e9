"""Classifiers of pairs are read by sentence-transformers' CrossEncoder, whose folders are those of rerankers."""

import json

import numpy as np
import pytest

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import Reranker, TextClassifier
from tests.models.reference import randomize

pytestmark = pytest.mark.one_backend

PAIRS = [("the cat", "a mat"), ("cat", "the the mat"), ("a mat sat", "on on")]
SIZES = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=20, max_length=32)


@pytest.mark.parametrize(
    ("options", "labels"), [({"problem": "score"}, ["score"]), ({"labels": ["a", "b", "c"]}, None)]
)
def test_a_classifier_becomes_a_cross_encoder_and_a_reranker(options, labels, tmp_path):
    from sentence_transformers import CrossEncoder
    from torch import nn

    tokenizer = Tokenizer.train("wordpiece", ["the cat sat on a mat"] * 20, 28)
    ours = TextClassifier(Bert(BertConfig(vocabulary_size=28, **SIZES)), tokenizer=tokenizer, **options)
    randomize(ours, 0.5).save_to_preset(tmp_path / "ours")
    theirs = CrossEncoder(str(tmp_path / "ours"))
    theirs.save_pretrained(str(tmp_path / "theirs"))
    names = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert "modules.json" in names and "kerasbert.json" not in names
    loaded = kerasbert.load(tmp_path / "theirs")
    assert type(loaded) is Reranker and loaded.labels == (labels or ours.labels)
    np.testing.assert_allclose(loaded.score(PAIRS), theirs.predict(PAIRS), atol=1e-5)
    again = TextClassifier.from_preset(tmp_path / "theirs")
    assert again.problem == ours.problem
    expected = theirs.predict(PAIRS, activation_fn=nn.Identity())
    np.testing.assert_allclose(again.predict(PAIRS, verbose=0).reshape(expected.shape), expected, atol=1e-5)


def test_other_folders_with_a_transformer_alone_are_refused(tmp_path):
    """An embedder needs a pooling, and nothing says that this is a classifier."""
    Bert(BertConfig(vocabulary_size=28, **SIZES)).save_to_preset(tmp_path)
    (tmp_path / "kerasbert.json").unlink()
    (tmp_path / "modules.json").write_text(
        json.dumps([{"path": "", "type": "sentence_transformers.models.Transformer"}])
    )
    with pytest.raises(ValueError, match="The modules after the encoder must be one Pooling"):
        kerasbert.load(tmp_path)

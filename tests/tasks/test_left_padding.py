"""Tokenizers that pad on the left, for models whose positions this moves: a warning, and where there is none."""

import warnings

import numpy as np
import pytest

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import GPT2, GPT2Config, Roberta, RobertaConfig
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

pytestmark = pytest.mark.one_backend

TEXTS = ["Ann lives in Rome .", "a cat"]


@pytest.fixture
def left(tokenizer):
    tokenizer = Tokenizer.from_json(tokenizer.to_json())
    tokenizer.padding_side = "left"
    return tokenizer


def test_a_vector_that_depends_on_its_batch_is_announced(left, tiny_backbone, tmp_path):
    for cls in (TextClassifier, MultipleChoice, MaskedLM):
        with pytest.warns(UserWarning, match="Padding on the left moves the positions of Bert"):
            cls(tiny_backbone(), tokenizer=left)
    with pytest.warns(UserWarning, match='set model.tokenizer.padding_side = "right"'):
        model = TextEmbedder(tiny_backbone(), tokenizer=left)
    assert np.abs(model.embed(TEXTS)[1] - model.embed(TEXTS[1])).max() > 1e-2
    model.save_to_preset(tmp_path)
    with pytest.warns(UserWarning, match="Padding on the left moves the positions of Bert"):
        model = kerasbert.load(tmp_path)
    model.tokenizer.padding_side = "right"
    np.testing.assert_allclose(model.embed(TEXTS)[1], model.embed(TEXTS[1]), atol=1e-5)


def test_no_warning_where_padding_moves_nothing(left, tiny_backbone):
    sizes = dict(vocabulary_size=left.vocabulary_size, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TextEmbedder(Roberta(RobertaConfig(max_length=32, **sizes)), tokenizer=left)
        TokenClassifier(tiny_backbone(), tokenizer=left)
        QuestionAnswerer(tiny_backbone(), tokenizer=left)
        config = GPT2Config(vocabulary_size=left.vocabulary_size, num_layers=1, num_heads=1, hidden_dim=4)
        CausalLM(GPT2(config), tokenizer=left)
    np.testing.assert_allclose(model.embed(TEXTS)[1], model.embed(TEXTS[1]), atol=1e-5)

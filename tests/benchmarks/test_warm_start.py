"""A ModernBERT that starts with the embeddings and the head of a BERT."""

import keras
import numpy as np
import pytest

import kerasbert
from benchmarks.studies.shipped_models.warm_start import main
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from pipelines.recipes.recipe import find_recipe

pytestmark = pytest.mark.one_backend

TEXT = "The cat sat on the mat. A dog met the cat."


def test_what_is_known_about_tokens_is_copied(tmp_path):
    tokenizer = Tokenizer.train("wordpiece", [TEXT] * 20, 39, lowercase=True)
    size = dict(num_layers=1, num_heads=4, hidden_dim=256, feed_forward_dim=12, max_length=32)
    config = BertConfig(**size, vocabulary_size=tokenizer.vocabulary_size)
    bert = MaskedLM(Bert(config, pooler=False), tokenizer=tokenizer)
    draw = np.random.default_rng(0)
    for weight in bert.trainable_weights:
        weight.assign(draw.normal(size=weight.shape))
    bert.save_to_preset(tmp_path / "bert")
    main(tmp_path / "bert", tmp_path / "start")
    model = kerasbert.load(tmp_path / "start")
    fields = find_recipe("modernbert.mini_en").model.config
    assert {name: getattr(model.backbone.config, name) for name in fields} == fields
    assert model.backbone.config.sep_id == tokenizer.sep_id and model.tokenizer.hash == tokenizer.hash
    # Of the same normalized vector, both heads give the same logits up to BERT's biases.
    old, new = bert.masked_lm, model.masked_lm
    old.dense.bias.assign(np.zeros(256))
    old.norm.beta.assign(np.zeros(256))
    x = draw.normal(size=(1, 3, 256)).astype("float32")
    tables = [half.backbone.token_embedding.embeddings for half in (bert, model)]
    np.testing.assert_array_equal(*(keras.ops.convert_to_numpy(table) for table in tables))
    logits = [keras.ops.convert_to_numpy(head(x, table)) for head, table in zip((old, new), tables, strict=True)]
    np.testing.assert_allclose(*logits, rtol=1e-3, atol=1e-2)

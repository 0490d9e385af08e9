"""Pictures of attention show the weights that the model returns."""

import base64
import json
import re

import keras
import numpy as np
import pytest

from kerasbert.models import GPT2, T5, Bert, BertConfig, GPT2Config, T5Config, WordVectors, WordVectorsConfig
from kerasbert.objectives import MaskedLM
from pipelines.show.attention import (
    Weights,
    attention_of,
    attention_page,
    head_figure,
    load_backbone,
    model_figure,
)
from pipelines.show.words import word_tokenizer

TEXT = "the cat sat on the mat"
SIZE = dict(num_layers=2, num_heads=2, hidden_dim=8)


def tokenizer_of(family):
    return word_tokenizer([TEXT], family, further=())


@pytest.fixture(scope="module")
def bert():
    tokenizer = tokenizer_of("bert")
    return Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, feed_forward_dim=12, **SIZE)), tokenizer


def test_weights_are_those_of_the_model(bert):
    backbone, tokenizer = bert
    (found,) = attention_of(*bert, TEXT)
    assert found.queries == found.keys == ["[CLS]", *TEXT.split(), "[SEP]"]
    x = {"token_ids": tokenizer.encode([TEXT])[0][None]}
    expected = [keras.ops.convert_to_numpy(w)[0] for w in backbone(x, attention_weights=True)["attention_weights"]]
    np.testing.assert_allclose(found.values, np.stack(expected), atol=1e-6)
    assert found.values.shape == (2, 2, 8, 8)
    np.testing.assert_allclose(found.values.sum(axis=-1), 1, atol=1e-5)


def test_pairs_of_texts(bert):
    (found,) = attention_of(*bert, "the cat", "the mat")
    assert found.keys == ["[CLS]", "the", "cat", "[SEP]", "the", "mat", "[SEP]"]


def test_a_decoder_attends_to_what_is_before():
    tokenizer = tokenizer_of("gpt2")
    backbone = GPT2(GPT2Config(vocabulary_size=tokenizer.vocabulary_size, **SIZE))
    (found,) = attention_of(backbone, tokenizer, TEXT)
    assert found.queries == TEXT.split()
    assert not np.triu(found.values, 1).any() and (np.tril(found.values) > 0).sum() == 4 * 21


def test_an_encoder_decoder_has_three_kinds_of_attention():
    tokenizer = tokenizer_of("t5")
    backbone = T5(T5Config(vocabulary_size=tokenizer.vocabulary_size, feed_forward_dim=12, **SIZE))
    found = attention_of(backbone, tokenizer, "the cat sat", "the mat")
    assert [one.name for one in found] == ["encoder", "decoder", "decoder to encoder"]
    assert [one.values.shape[2:] for one in found] == [(4, 4), (3, 3), (3, 4)]
    assert found[2].queries == ["<pad>", "the", "mat"] and found[2].keys == ["the", "cat", "sat", "</s>"]
    with pytest.raises(ValueError, match="needs a text for its decoder, too. Received: one text"):
        attention_of(backbone, tokenizer, "the cat sat")


def test_errors(bert):
    tokenizer = bert[1]
    vectors = WordVectors(WordVectorsConfig(vocabulary_size=tokenizer.vocabulary_size, hidden_dim=4))
    with pytest.raises(ValueError, match="needs a model with attention. Received: WordVectors, which has none"):
        attention_of(vectors, tokenizer, TEXT)
    with pytest.raises(ValueError, match="at most 4 tokens, or the picture is unreadable. Received: 8"):
        attention_of(*bert, TEXT, most=4)


def test_the_backbone_of_any_saved_model(bert, tmp_path):
    model = MaskedLM(bert[0], tokenizer=bert[1])
    model.save_to_preset(tmp_path / "mlm")
    backbone, tokenizer = load_backbone(str(tmp_path / "mlm"))
    (found,), (expected,) = attention_of(backbone, tokenizer, TEXT), attention_of(*bert, TEXT)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-6)


def stored(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_the_page_holds_the_weights():
    values = np.random.default_rng(0).dirichlet(np.ones(3), (2, 4, 3)).astype("float32")
    tokens = ["</script><b>", "cat", "日本"]
    page = attention_page("Attention & more", [Weights("self-attention", values, tokens, tokens)], block=1, head=3)
    data = stored(page)
    assert (data["block"], data["head"], data["sets"][0]["shape"]) == (1, 3, [2, 4, 3, 3])
    assert data["sets"][0]["queries"] == tokens
    bytes_ = np.frombuffer(base64.b64decode(data["sets"][0]["values"]), np.uint8).reshape(values.shape)
    np.testing.assert_allclose(bytes_ / 255, values, atol=0.5 / 255 + 1e-6)


def test_the_page_needs_no_network():
    page = attention_page("A", [Weights("self-attention", np.ones((1, 1, 1, 1), "float32"), ["a"], ["a"])])
    addresses = set(re.findall(r"https?://[^\"' ]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a vocabulary, which browsers do not load
    assert "import(" not in page and "fetch(" not in page and " src=" not in page and "<link" not in page


def test_figures(bert, tmp_path):
    (weights,) = attention_of(*bert, TEXT)
    model, head = model_figure(weights), head_figure(weights, 1, 0)
    titles = [axes.get_title() for axes in model.axes]
    assert titles[:2] == ["0", "1"] and [axes.get_ylabel() for axes in model.axes][:3:2] == ["0", "1"]
    assert model.axes[-1].get_ylabel() == "attention weight"
    heat = head.axes[1]
    assert [label.get_text() for label in heat.get_yticklabels()] == weights.queries
    assert (heat.get_xlabel(), heat.get_ylabel()) == ("to", "from")
    np.testing.assert_allclose(np.square(heat.images[0].get_array()), weights.values[1, 0], atol=1e-6)
    lines = [line for line in head.axes[0].lines if line.get_alpha() > 0.5]
    assert len(lines) == (weights.values[1, 0] > 0.5).sum()
    for figure in (model, head):
        figure.savefig(tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_one_half_of_t5():
    tokenizer = tokenizer_of("t5")
    sizes = dict(vocabulary_size=tokenizer.vocabulary_size, feed_forward_dim=12, **SIZE)
    for architecture, name in (("encoder", "encoder"), ("language_model", "decoder")):
        (found,) = attention_of(T5(T5Config(architecture=architecture, **sizes)), tokenizer, "the cat")
        assert (found.name, found.keys) == (name, ["the", "cat", "</s>"])

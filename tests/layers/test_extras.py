"""Attention layers and blocks return `(y, extras)`, whatever they are asked for; outputs of backbones stay a dict."""

import inspect

import keras
import numpy as np
import pytest

from kerasbert import models
from kerasbert.layers.extras import Extras
from kerasbert.layers.masks import AttentionMask
from tests.models.reference import to_numpy

pytestmark = pytest.mark.one_backend

TINY = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=32)
IDS = np.random.default_rng(0).integers(3, 61, (2, 7)).astype("int32")

DECODERS = {
    "GPT": lambda: models.GPT(models.GPTConfig(**TINY)),
    "GPT2": lambda: models.GPT2(models.GPT2Config(**TINY)),
    "ModernBertDecoder": lambda: models.ModernBertDecoder(models.ModernBertDecoderConfig(**{**TINY, "num_layers": 3})),
    "T5": lambda: models.T5(models.T5Config(**_t5(), architecture="language_model")),
    "XLNet": lambda: models.XLNet(models.XLNetConfig(**_without_length(), causal=True)),
    "TransformerXL": lambda: models.TransformerXL(models.TransformerXLConfig(**_without_length(), cutoffs=())),
}
ENCODER_DECODERS = {
    "T5": lambda: models.T5(models.T5Config(**_t5())),
    "Transformer": lambda: models.Transformer(models.TransformerConfig(**_without_length())),
    "Transformer, pre-norm": lambda: models.Transformer(models.TransformerConfig(**_without_length(), norm_first=True)),
}


def _without_length():
    return {name: value for name, value in TINY.items() if name != "max_length"}


def _t5():
    return {**_without_length(), "head_dim": 8}


def in_steps(backbone, cache, ids, prefix, **options):
    """The outputs of every call, with the tokens in three parts."""
    found = []
    for part in np.split(ids, [4, 6], axis=1):
        outputs = backbone({f"{prefix}token_ids": part}, cache=cache, **options)
        cache = outputs["cache"]
        found.append(outputs)
    return found


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_give_weights_with_a_cache(name):
    backbone = DECODERS[name]()
    whole = backbone({"token_ids": IDS}, attention_weights=True, hidden_states=True)
    plain = in_steps(backbone, backbone.empty_cache(2, 7), IDS, "")
    found = in_steps(backbone, backbone.empty_cache(2, 7), IDS, "", attention_weights=True, hidden_states=True)
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(*(to_numpy(x["sequence_output"]) for x in (one, other)), atol=1e-6)
        assert set(other) - set(one) == {"attention_weights", "hidden_states"}
    weights, expected = found[-1]["attention_weights"], whole["attention_weights"]
    if name == "T5":
        weights, expected = weights["decoder"], expected["decoder"]
    assert len(weights) == len(expected) == backbone.config.num_layers
    for one, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(to_numpy(one)[..., -7:], to_numpy(other)[:, :, 6:], atol=1e-5)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_encoder_decoders_give_weights_with_a_cache(name):
    backbone = ENCODER_DECODERS[name]()
    source = {"token_ids": IDS[:, :5], "lengths": np.array([5, 3], "int32")}
    whole = backbone({**source, "decoder_token_ids": IDS}, attention_weights=True)
    plain = in_steps(backbone, backbone.start_cache(source, 2, 7), IDS, "decoder_")
    found = in_steps(backbone, backbone.start_cache(source, 2, 7), IDS, "decoder_", attention_weights=True)
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(*(to_numpy(x["sequence_output"]) for x in (one, other)), atol=1e-6)
    for half in ("decoder", "cross"):
        for one, other in zip(found[-1]["attention_weights"][half], whole["attention_weights"][half], strict=True):
            np.testing.assert_allclose(to_numpy(one), to_numpy(other)[:, :, 6:], atol=1e-5)


def blocks():
    """Every class of the package whose calls can return attention probabilities."""
    found = {}
    for cls in models.FAMILIES.values():
        for base in inspect.getmro(cls)[:1]:
            for name, value in vars(inspect.getmodule(base)).items():
                if inspect.isclass(value) and issubclass(value, keras.layers.Layer) and name.endswith("Block"):
                    found[name] = value
    return found


def test_the_list_of_blocks():
    assert set(blocks()) >= {
        "AlbertAttentionBlock", "AlbertFeedForwardBlock", "BertBlock", "DebertaBlock", "DecoderBlock",
        "DistilBertBlock", "EncoderBlock", "EuroBertBlock", "GPT2Block", "GPTBertAttentionBlock",
        "GPTBertFeedForwardBlock", "GteBlock", "MPNetBlock", "MobileBertBlock", "ModernBertBlock", "NeoBertBlock",
        "NomicBertBlock", "PreNormDecoderBlock", "PreNormEncoderBlock", "PreNormTransformerXLBlock",
        "TransformerXLBlock", "XLNetBlock",
    }  # fmt: skip


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", ["Bert", "DistilBert", "MobileBert", "GPT2", "ModernBert", "Deberta", "Albert"])
def test_blocks_return_one_structure(name, weights):
    config = getattr(models, f"{name}Config")(**TINY, **_sizes(name))
    backbone = getattr(models, name)(config)
    x = np.random.default_rng(1).normal(size=(2, 7, 24)).astype("float32")
    asked = dict(attention_mask=AttentionMask(padding_mask=np.ones((2, 7), bool)), return_weights=weights)
    if name == "ModernBert":
        from kerasbert.layers.positions import Rotation

        asked["rotation"] = Rotation.at(np.arange(7)[None], 8, 1e4)
    block = backbone.attentions[0][0] if name == "Albert" else backbone.blocks[0]
    y, extras = block(x, **asked)
    assert tuple(y.shape) == (2, 7, 24) and isinstance(extras, Extras)
    assert (extras.weights is not None) == weights and extras.cache is None
    if weights:
        np.testing.assert_allclose(to_numpy(extras.weights).sum(-1), 1.0, atol=1e-5)


def _sizes(name):
    if name == "MobileBert":
        return dict(embedding_dim=8, bottleneck_dim=24)
    return {}

"""The Transformer against torch's own, its sinusoids, its cache, its layout, and its invariances."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

import kerasbert
from kerasbert.layers import sinusoidal_table
from kerasbert.models import Backbone, Transformer, TransformerConfig
from kerasbert.models.transformer import SIZES, sinusoids
from tests.models.reference import to_numpy

TINY = dict(
    vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, pad_id=4, dropout=0.0, eos_id=5
)


def batch(source=11, target=7, padded=False):
    """A batch of two rows; with `padded`, the second row is shorter on both sides, and padding has any id."""
    rng = np.random.default_rng(1)
    inputs = {
        "token_ids": rng.integers(0, 61, (2, source)).astype("int32"),
        "decoder_token_ids": rng.integers(0, 61, (2, target)).astype("int32"),
    }
    if padded:
        inputs["padding_mask"] = np.arange(source) < np.array([[source], [source - 4]])
        inputs["decoder_padding_mask"] = np.arange(target) < np.array([[target], [target - 2]])
    return inputs


def shaken(backbone):
    """Initial weights and noise: fresh biases and norms would hide errors."""
    rng = np.random.default_rng(0)
    for variable in backbone.trainable_variables:
        variable.assign(to_numpy(variable) + rng.normal(0, 0.1, variable.shape).astype("float32"))
    return backbone


@pytest.fixture(scope="module", params=[False, True], ids=["post_norm", "pre_norm"])
def backbone(request):
    return shaken(Transformer(TransformerConfig(**TINY, norm_first=request.param, attention_bias=True)))


def copy_to_torch(backbone, theirs):
    """Our weights in `torch.nn.Transformer`."""
    import torch

    def put(layer, dense):
        layer.weight.copy_(torch.from_numpy(to_numpy(dense.kernel).T.copy()))
        layer.bias.copy_(torch.from_numpy(to_numpy(dense.bias)))

    def put_norm(layer, norm):
        layer.weight.copy_(torch.from_numpy(to_numpy(norm.gamma)))
        layer.bias.copy_(torch.from_numpy(to_numpy(norm.beta)))

    def put_attention(layer, attention):
        dense = [attention.query, attention.key, attention.value]
        layer.in_proj_weight.copy_(torch.from_numpy(np.concatenate([to_numpy(d.kernel).T for d in dense])))
        layer.in_proj_bias.copy_(torch.from_numpy(np.concatenate([to_numpy(d.bias) for d in dense])))
        put(layer.out_proj, attention.project)

    with torch.no_grad():
        for their_blocks, our_blocks in (
            (theirs.encoder.layers, backbone.encoder_blocks),
            (theirs.decoder.layers, backbone.decoder_blocks),
        ):
            for their_block, block in zip(their_blocks, our_blocks, strict=True):
                put_attention(their_block.self_attn, block.attention)
                norms = [block.attention_norm, block.feed_forward_norm]
                if hasattr(their_block, "multihead_attn"):
                    put_attention(their_block.multihead_attn, block.cross_attention)
                    norms.insert(1, block.cross_attention_norm)
                put(their_block.linear1, block.feed_forward.inner)
                put(their_block.linear2, block.feed_forward.outer)
                for i, norm in enumerate(norms):
                    put_norm(getattr(their_block, f"norm{i + 1}"), norm)
        if backbone.config.norm_first:
            put_norm(theirs.encoder.norm, backbone.encoder_norm)
            put_norm(theirs.decoder.norm, backbone.decoder_norm)
        else:
            theirs.encoder.norm = theirs.decoder.norm = None  # the paper has none there


def test_outputs_equal_torch(backbone):
    import torch

    theirs = torch.nn.Transformer(
        24, 3, 3, 3, 40, layer_norm_eps=1e-6, batch_first=True, norm_first=backbone.config.norm_first
    ).eval()
    copy_to_torch(backbone, theirs)
    inputs = batch(padded=True)
    table = to_numpy(backbone.token_table)

    def embedded(ids):
        return torch.from_numpy(table[ids] * np.float32(24**0.5) + sinusoidal_table(ids.shape[1], 24))

    hidden, decoder_hidden = (torch.from_numpy(~inputs[key]) for key in ("padding_mask", "decoder_padding_mask"))
    with torch.no_grad():
        memory = theirs.encoder(embedded(inputs["token_ids"]), src_key_padding_mask=hidden)
        expected = theirs.decoder(
            embedded(inputs["decoder_token_ids"]),
            memory,
            tgt_mask=torch.triu(torch.ones(7, 7, dtype=torch.bool), 1),
            tgt_key_padding_mask=decoder_hidden,
            memory_key_padding_mask=hidden,
        )
    outputs = backbone(inputs)
    for name, other, real in (
        ("encoder_output", memory, inputs["padding_mask"]),
        ("sequence_output", expected, inputs["decoder_padding_mask"]),
    ):
        found = to_numpy(outputs[name])[real]
        if name == "encoder_output" and not backbone.config.norm_first:  # torch's fast path fills padding with zeros
            other = other[:, : found.shape[0]]
        np.testing.assert_allclose(found, other.numpy()[real], atol=1e-5)


def test_the_block_of_the_paper_in_numpy():
    """Post-norm without biases of attention, by the formulas of the paper."""
    backbone = shaken(Transformer(TransformerConfig(**{**TINY, "num_layers": 1})))
    inputs = batch()
    block = backbone.encoder_blocks[0]

    def norm(x, layer):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * to_numpy(layer.gamma) + to_numpy(layer.beta)

    x = to_numpy(backbone.token_table)[inputs["token_ids"]] * 24**0.5 + sinusoidal_table(11, 24)
    query, key, value = (
        (x @ to_numpy(getattr(block.attention, name).kernel)).reshape(2, 11, 3, 8).transpose(0, 2, 1, 3)
        for name in ("query", "key", "value")
    )
    scores = query @ key.transpose(0, 1, 3, 2) / 8**0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y = (weights @ value).transpose(0, 2, 1, 3).reshape(2, 11, 24) @ to_numpy(block.attention.project.kernel)
    x = norm(x + y, block.attention_norm)
    inner, outer = block.feed_forward.inner, block.feed_forward.outer
    y = np.maximum(x @ to_numpy(inner.kernel) + to_numpy(inner.bias), 0) @ to_numpy(outer.kernel) + to_numpy(outer.bias)
    x = norm(x + y, block.feed_forward_norm)
    found = backbone(inputs, attention_weights=True)
    np.testing.assert_allclose(to_numpy(found["encoder_output"]), x, atol=1e-5)
    np.testing.assert_allclose(to_numpy(found["attention_weights"]["encoder"][0]), weights, atol=1e-5)


@pytest.mark.one_backend
def test_sinusoids_are_the_papers():
    np.testing.assert_allclose(
        to_numpy(sinusoids(np.array([1], "int32"), 4))[0], [0.84147, 0.54030, 0.0099998, 0.99995], atol=1e-5
    )
    table = sinusoidal_table(3_000, 26)
    np.testing.assert_allclose(to_numpy(sinusoids(np.arange(3_000, dtype="int32"), 26)), table, atol=5e-7)


@pytest.mark.one_backend
def test_what_is_asked_for_is_returned(backbone):
    inputs = batch(padded=True)
    outputs = backbone(inputs, hidden_states=True, attention_weights=True)
    plain = backbone(inputs)
    for name in ("encoder_output", "sequence_output"):
        np.testing.assert_allclose(to_numpy(outputs[name]), to_numpy(plain[name]), atol=1e-5)
    np.testing.assert_array_equal(to_numpy(backbone.encode(inputs)), to_numpy(plain["encoder_output"]))
    states = outputs["hidden_states"]
    assert len(states["encoder"]) == len(states["decoder"]) == 4
    np.testing.assert_array_equal(to_numpy(states["encoder"][-1]), to_numpy(outputs["encoder_output"]))
    np.testing.assert_array_equal(to_numpy(states["decoder"][-1]), to_numpy(outputs["sequence_output"]))
    shapes = {name: [to_numpy(w).shape for w in found] for name, found in outputs["attention_weights"].items()}
    assert shapes == {"encoder": [(2, 3, 11, 11)] * 3, "decoder": [(2, 3, 7, 7)] * 3, "cross": [(2, 3, 7, 11)] * 3}
    cross = to_numpy(outputs["attention_weights"]["cross"][1])
    np.testing.assert_allclose(cross.sum(-1), 1, atol=1e-5)
    assert (
        cross[1, :, :, -4:].max() == 0 and np.triu(to_numpy(outputs["attention_weights"]["decoder"][1]), 1).max() == 0
    )


@pytest.mark.one_backend
def test_a_token_of_the_decoder_sees_nothing_behind_it(backbone):
    inputs = batch()
    changed = {**inputs, "decoder_token_ids": inputs["decoder_token_ids"].copy()}
    changed["decoder_token_ids"][:, 4:] = (changed["decoder_token_ids"][:, 4:] + 7) % 61
    found, other = (to_numpy(backbone(x)["sequence_output"]) for x in (inputs, changed))
    np.testing.assert_array_equal(found[:, :4], other[:, :4])
    assert np.abs(found[:, 4:] - other[:, 4:]).max(axis=-1).min() > 1e-3


@pytest.mark.one_backend
def test_batches_and_padding_change_nothing(backbone):
    inputs = batch(padded=True)
    expected = to_numpy(backbone(inputs)["sequence_output"])
    rows = {key: value[1:, : 7 if key == "token_ids" or key == "padding_mask" else 5] for key, value in inputs.items()}
    alone = {key: value for key, value in rows.items() if key.endswith("token_ids")}
    np.testing.assert_allclose(to_numpy(backbone(alone)["sequence_output"])[0], expected[1, :5], atol=1e-5)
    # The same row behind padding on the left, of both halves, with other ids under it; and by lengths.
    left = {key: np.pad(value, ((0, 0), (3, 0)), constant_values=9) for key, value in alone.items()}
    left |= {"padding_mask": np.arange(10)[None] >= 3, "decoder_padding_mask": np.arange(8)[None] >= 3}
    np.testing.assert_allclose(to_numpy(backbone(left)["sequence_output"])[0, 3:], expected[1, :5], atol=1e-5)
    ids = {key: value for key, value in inputs.items() if key.endswith("token_ids")}
    by_lengths = {**ids, "lengths": np.array([11, 7], "int32"), "decoder_lengths": np.array([7, 5], "int32")}
    np.testing.assert_allclose(to_numpy(backbone(by_lengths)["sequence_output"])[1, :5], expected[1, :5], atol=1e-5)


@pytest.mark.one_backend
def test_packed_pairs_are_alone(backbone):
    inputs = batch()
    packed = {
        "token_ids": np.concatenate([inputs["token_ids"][:1, :6], inputs["token_ids"][1:, :4], [[9]]], axis=1),
        "decoder_token_ids": np.concatenate(
            [inputs["decoder_token_ids"][:1, :3], inputs["decoder_token_ids"][1:, :4]], axis=1
        ),
        "sequence_ids": np.array([[1] * 6 + [2] * 4 + [0]], "int32"),
        "decoder_sequence_ids": np.array([[1] * 3 + [2] * 4], "int32"),
    }
    found = to_numpy(backbone({key: value.astype("int32") for key, value in packed.items()})["sequence_output"])[0]
    for row, source, target, places in ((0, 6, 3, slice(0, 3)), (1, 4, 4, slice(3, 7))):
        alone = {
            "token_ids": inputs["token_ids"][row : row + 1, :source],
            "decoder_token_ids": inputs["decoder_token_ids"][row : row + 1, :target],
        }
        np.testing.assert_allclose(found[places], to_numpy(backbone(alone)["sequence_output"])[0], atol=1e-5)
    with pytest.raises(ValueError, match="decoder_sequence_ids"):
        backbone({key: value for key, value in packed.items() if key != "decoder_sequence_ids"})


@pytest.mark.one_backend
@pytest.mark.optimized
def test_the_cache_gives_what_the_whole_text_gives(backbone):
    """In pieces of 3, 1 and 3 tokens, behind padding on the left in one row."""
    inputs = batch(padded=True)
    real = np.arange(7) >= np.array([[0], [2]])
    positions = np.maximum(np.cumsum(real, axis=1) - 1, 0).astype("int32")
    inputs = {**inputs, "decoder_padding_mask": real, "decoder_position_ids": positions}
    whole = to_numpy(backbone(inputs)["sequence_output"])
    context = {key: inputs.pop(key) for key in ("token_ids", "padding_mask")}
    cache, parts = backbone.start_cache(context, 2, 9), []
    for start, stop in ((0, 3), (3, 4), (4, 7)):
        outputs = backbone({key: value[:, start:stop] for key, value in inputs.items()}, cache=cache)
        cache = outputs["cache"]
        parts.append(to_numpy(outputs["sequence_output"]))
    np.testing.assert_allclose(np.concatenate(parts, axis=1)[real], whole[real], atol=1e-5)
    assert int(cache["start"]) == 7


@pytest.mark.one_backend
def test_folders_round_trip(backbone, tmp_path):
    backbone.save_to_preset(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["decoder.2.cross_attention.key.weight"].shape == (24, 24)
    assert ("encoder.norm.weight" in tensors) == backbone.config.norm_first
    for again in (Backbone.from_preset(tmp_path), kerasbert.load(tmp_path)):
        assert type(again) is Transformer and again.config == backbone.config
        for found, expected in zip(again.weights, backbone.weights, strict=True):
            np.testing.assert_array_equal(to_numpy(found), to_numpy(expected))


@pytest.mark.one_backend
@pytest.mark.parametrize(("name", "parameters"), [("transformer_base", 63_045_632), ("transformer_big", 214_171_648)])
def test_sizes_are_the_papers(name, parameters):
    config = TransformerConfig(**SIZES[name])
    m, f = config.hidden_dim, config.feed_forward_dim
    feed_forward, norm = 2 * m * f + f + m, 2 * m
    blocks = (4 * m * m + feed_forward + 2 * norm) + (8 * m * m + feed_forward + 3 * norm)
    assert config.vocabulary_size * m + config.num_layers * blocks == parameters
    assert m % config.num_heads == 0


@pytest.mark.one_backend
def test_layers_and_initial_weights_agree_with_the_closed_form():
    m, f = 24, 40
    blocks = 12 * m * m + 2 * (2 * m * f + f + m) + 5 * 2 * m
    small = Transformer(TransformerConfig(**TINY))
    assert small.count_params() == 61 * m + 3 * blocks
    wide = Transformer(TransformerConfig(**{**TINY, "num_layers": 1, "hidden_dim": 96, "vocabulary_size": 500}))
    assert abs(to_numpy(wide.token_table).std() * 96**0.5 - 1) < 0.03
    kernel = to_numpy(wide.decoder_blocks[0].feed_forward.inner.kernel)
    assert abs(np.abs(kernel).max() / (6 / (96 + 40)) ** 0.5 - 1) < 0.01
    assert not np.array_equal(
        to_numpy(wide.encoder_blocks[0].attention.query.kernel), to_numpy(wide.decoder_blocks[0].attention.query.kernel)
    )


@pytest.mark.one_backend
def test_half_precision_is_finite():
    inputs = batch(padded=True)
    inputs["padding_mask"][1] = False
    for dtype in ("float16", "mixed_bfloat16"):
        outputs = Transformer(TransformerConfig(**{**TINY, "num_layers": 1}), dtype=dtype)(inputs)
        assert np.isfinite(to_numpy(keras.ops.cast(outputs["sequence_output"], "float32"))).all()


@pytest.mark.one_backend
def test_wrong_inputs_are_refused(backbone):
    inputs = batch()
    with pytest.raises(ValueError, match="decoder_token_ids"):
        backbone({"token_ids": inputs["token_ids"]})
    with pytest.raises(ValueError, match="`decoder_token_ids` must be between 0 and 60"):
        backbone({**inputs, "decoder_token_ids": inputs["decoder_token_ids"] + 61})
    with pytest.raises(ValueError, match="`token_ids` must be between 0 and 60"):
        backbone({**inputs, "token_ids": inputs["token_ids"] - 1 - inputs["token_ids"].min()})

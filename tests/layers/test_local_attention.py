"""Attention in blocks gives what the whole rows give."""

import numpy as np
import pytest
from keras import ops

from kerasbert.layers.attention import attend, attention_probabilities
from kerasbert.layers.local_attention import in_blocks
from kerasbert.layers.masks import AttentionMask

RNG = np.random.default_rng(0)
QUERY, KEY = (RNG.normal(size=(2, 171, 3, 8)).astype("float32") for _ in range(2))
VALUE = RNG.normal(size=(2, 171, 3, 5)).astype("float32")
REAL = np.arange(171) < np.array([[171], [93]])
SEQUENCES = np.repeat([[1, 2, 3, 0], [1, 2, 3, 4]], [46, 70, 40, 15], axis=1).astype("int32")

MASKS = {
    "window": {},
    "causal": dict(causal=True),
    "right padding": dict(padding_mask=REAL),
    "left padding": dict(padding_mask=REAL[:, ::-1].copy()),
    "lengths": dict(lengths=np.array([171, 93], "int32")),
    "packed": dict(sequence_ids=SEQUENCES),
    "packed and causal": dict(sequence_ids=SEQUENCES, causal=True),
}


def as_tensor(part):
    return part if isinstance(part, bool) else ops.convert_to_tensor(part)


def whole_rows(mask, scale):
    weights = attention_probabilities(QUERY, KEY, mask, scale=scale)
    return ops.convert_to_numpy(ops.einsum("bhqk,bkhd->bqhd", weights, VALUE))


@pytest.mark.parametrize("parts", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("window", [4, 20])
def test_blocks_give_what_whole_rows_give(parts, window):
    mask = AttentionMask(
        window=window, **{k: v if k == "causal" else ops.convert_to_tensor(v) for k, v in parts.items()}
    )
    tensors = [ops.convert_to_tensor(x) for x in (QUERY, KEY, VALUE)]
    blocks = in_blocks(*tensors, mask)
    assert blocks[0].shape[1] < 171 and blocks[1].shape[1] <= 3 * blocks[0].shape[1]
    found = ops.convert_to_numpy(attend(*tensors, mask, scale=0.5))
    some = np.broadcast_to(ops.convert_to_numpy(mask.dense(171, 171)).any(axis=-1)[:, 0], (2, 171))
    np.testing.assert_allclose(found[some], whole_rows(mask, 0.5)[some], atol=1e-6)
    assert np.isfinite(found).all() and some.sum() > 100


def test_dropout_reaches_the_probabilities_of_the_blocks():
    tensors = [ops.convert_to_tensor(x) for x in (QUERY, KEY, VALUE)]
    mask = AttentionMask(window=4)
    found = attend(*tensors, mask, dropout=lambda probabilities: 3 * probabilities)
    np.testing.assert_allclose(ops.convert_to_numpy(found), 3 * ops.convert_to_numpy(attend(*tensors, mask)), atol=1e-5)


@pytest.mark.parametrize("parts", [dict(window=None), dict(window=40), dict(window=4, query_start=0)])
def test_short_rows_and_caches_stay_whole(parts):
    assert in_blocks(QUERY, KEY, VALUE, AttentionMask(**parts)) is None
    assert in_blocks(QUERY[:, :1], KEY, VALUE, AttentionMask(**parts)) is None

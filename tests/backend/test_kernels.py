"""Every way that attention is computed gives what is written out here."""

import numpy as np
import pytest
from keras import ops

from kerasbert.backend import kernels
from kerasbert.layers.attention import attend, attention_probabilities
from kerasbert.layers.dropout import Dropout
from kerasbert.layers.masks import AttentionMask
from tests.models.reference import to_numpy

LONG = 1_100
REAL = np.arange(LONG) < np.array([LONG, 700])[:, None]
MASKS = {
    "none": lambda: None,
    "causal": lambda: AttentionMask(causal=True),
    "lengths": lambda: AttentionMask(lengths=ops.convert_to_tensor(np.array([LONG, 700], "int32"))),
    "padding, causal": lambda: AttentionMask(padding_mask=ops.convert_to_tensor(REAL), causal=True),
    "packed": lambda: AttentionMask(sequence_ids=ops.convert_to_tensor(1 + (np.arange(LONG) > [[400], [900]]) * 1)),
}


def arrays(dtype="float32"):
    random = np.random.default_rng(0)
    return [ops.convert_to_tensor(random.normal(size=(2, LONG, 2, 4)), dtype) for _ in range(3)]


def written_out(query, key, value, *options):
    weights = attention_probabilities(query, key, *options)
    return ops.einsum("bhqk,bkhd->bqhd", ops.cast(weights, value.dtype), value)


@pytest.mark.parametrize("name", MASKS)
def test_long_rows(name):
    found = attend(*arrays(), MASKS[name]())
    np.testing.assert_allclose(to_numpy(found), to_numpy(written_out(*arrays(), MASKS[name]())), atol=2e-6)


def test_long_rows_in_half_precision():
    found, expected = (attention(*arrays("bfloat16")) for attention in (attend, written_out))
    difference = np.abs(to_numpy(ops.cast(found, "float32")) - to_numpy(ops.cast(expected, "float32")))
    assert difference.max() < 0.03


@pytest.mark.backends("jax")
def test_gradients_of_long_rows():
    import jax

    mask = MASKS["padding, causal"]()

    def loss(parts, attention):
        return (attention(*parts, mask)[:, :700] ** 2).sum()

    found, expected = (jax.grad(loss)(arrays(), attention) for attention in (attend, written_out))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("length", [9, kernels.LONGEST_UNFUSED + 1])
def test_gradients_in_half_precision(length, monkeypatch):
    """Short rows have gradients without torch's kernel, whose backward pass is slow on CPUs."""
    import torch

    calls, kernel = [], torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *args, **kw: calls.append(0) or kernel(*args, **kw)
    )

    def gradients(attention, dtype):
        parts = [part[:, :length].detach().to(dtype).requires_grad_() for part in arrays()]
        (attention(*parts, AttentionMask(causal=True)).float() ** 2).sum().backward()
        return [part.grad.float() for part in parts]

    found, expected = gradients(attend, torch.bfloat16), gradients(written_out, torch.float32)
    assert len(calls) == (length > kernels.LONGEST_UNFUSED)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() < 0.02 * theirs.norm()
    calls.clear()
    with torch.no_grad():
        attend(*[part[:, :length] for part in arrays("bfloat16")])
    assert len(calls) == 1


@pytest.mark.parametrize("dropout", [None, lambda x: x])
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (1, 9)])
def test_short_rows_with_a_bias(queries, keys, dropout):
    random = np.random.default_rng(1)
    shapes = ((2, queries, 3, 4), (2, keys, 3, 4), (2, keys, 3, 5), (1, 3, queries, keys))
    query, key, value, bias = (ops.convert_to_tensor(random.normal(size=shape), "float32") for shape in shapes)
    mask = AttentionMask(lengths=ops.convert_to_tensor(np.array([9, 4], "int32")), causal=True)
    found = attend(query, key, value, mask, bias, 0.3, dropout)
    np.testing.assert_allclose(to_numpy(found), to_numpy(written_out(query, key, value, mask, bias, 0.3)), atol=2e-6)


def test_dropout_of_the_weights():
    """Of values that are 1: sums of what is left, 1 on average; in half of the places of two equal weights, 2 or 0."""
    random = np.random.default_rng(2)
    query, key = (ops.convert_to_tensor(random.normal(size=(8, 64, 4, 8)), "float32") for _ in range(2))
    ones = ops.ones((8, 64, 4, 8))
    layer = Dropout(0.5)

    def dropout(weights):
        return layer(weights, training=True)

    mask = AttentionMask(lengths=ops.convert_to_tensor(np.full(8, 50, "int32")))
    y = to_numpy(attend(query, key, ones, mask, dropout=dropout))
    np.testing.assert_allclose(y, y[..., :1].repeat(8, -1), rtol=1e-5)
    assert abs(y.mean() - 1) < 0.02 < y[..., 0].std()
    pairs = to_numpy(attend(0 * query, 0 * key[:, :2], ones[:, :2], dropout=dropout))[..., 0]
    assert set(np.unique(pairs.round(5))) == {0, 1, 2}
    assert abs((pairs.round(5) == 1).mean() - 0.5) < 0.06

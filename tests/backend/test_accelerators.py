"""Kernels of accelerators against attention written out: TPUs' by Pallas's interpreter, cuDNN's by their arguments.

The kernels of TPUs are also compiled for them as far as that goes without one.
"""

import functools
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.backends("jax")

if keras.backend.backend() == "jax":
    import jax
    from jax import numpy as jnp
    from jax.experimental import pallas

    from kerasbert.backend import compiling_for, kernels
    from kerasbert.backend.tpu_attention import tpu_attention
    from kerasbert.layers.attention import attend, attention_scores
    from kerasbert.layers.masks import AttentionMask

LENGTH = 300  # of the rows; a kernel's have 384, in three blocks
REAL = np.array([300, 131])
IDS = np.where(np.arange(LENGTH) < REAL[:, None], 1 + (np.arange(LENGTH) > np.array([[140], [20]])), 0).astype("int32")


def make_bias(rows):
    return jnp.asarray(np.random.default_rng(1).normal(size=(rows, 2, LENGTH, LENGTH)), "float32")


CASES = {
    "full": lambda: (None, None),
    "lengths": lambda: (AttentionMask(lengths=jnp.asarray(REAL, "int32")), None),
    "padding mask": lambda: (AttentionMask(padding_mask=jnp.asarray(IDS > 0)), None),
    "packed": lambda: (AttentionMask(sequence_ids=jnp.asarray(IDS)), None),
    "causal": lambda: (AttentionMask(causal=True), None),
    "packed, window": lambda: (AttentionMask(sequence_ids=jnp.asarray(IDS), window=5), None),
    "causal, window": lambda: (AttentionMask(causal=True, window=5), None),
    "bias": lambda: (None, make_bias(1)),
    "bias of each row, causal, lengths": lambda: (
        AttentionMask(causal=True, lengths=jnp.asarray(REAL, "int32")),
        make_bias(2),
    ),
}


def arrays(dtype="float32", width=8):
    random = np.random.default_rng(0)
    return [jnp.asarray(random.normal(size=(2, LENGTH, 2, width)), dtype) for _ in range(3)]


def written_out(query, key, value, mask, bias, scale):
    weights = jax.nn.softmax(attention_scores(query, key, mask, bias, scale))
    return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(value.dtype), value)


def loss(attention, mask, parts, bias):
    """Of the real tokens; what padding attends to means nothing."""
    y = attention(*parts, mask, bias, 0.3)
    real = (np.arange(LENGTH) < REAL[:, None])[..., None, None]
    return (jnp.where(real, y, 0) ** 2).sum(), jnp.where(real, y, 0)


@pytest.fixture
def tpu():
    with compiling_for("tpu"):
        yield


@pytest.fixture
def interpreted(tpu, monkeypatch):
    call = pallas.pallas_call
    monkeypatch.setattr(pallas, "pallas_call", lambda *a, **options: call(*a, **{**options, "interpret": True}))
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("name", CASES)
def test_tpu_kernels_and_their_gradients(interpreted, name):
    mask, bias = CASES[name]()
    (_, found), gradients = jax.value_and_grad(functools.partial(loss, tpu_attention, mask), (0, 1), has_aux=True)(
        arrays(), bias
    )
    (_, expected), expected_gradients = jax.value_and_grad(
        functools.partial(loss, written_out, mask), (0, 1), has_aux=True
    )(arrays(), bias)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    for ours, theirs in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_a_tpu_kernel_of_fewer_queries_than_keys(interpreted):
    query, key, value = arrays()
    mask = AttentionMask(sequence_ids=jnp.asarray(IDS), query_sequence_ids=jnp.asarray(IDS[:, 100:250]))
    found = tpu_attention(query[:, 100:250], key, value, mask, None, 0.3)
    expected = written_out(query, key, value, mask.replace(query_sequence_ids=None), None, 0.3)[:, 100:250]
    np.testing.assert_allclose(found[0], expected[0], atol=2e-6)
    np.testing.assert_allclose(found[1, :31], expected[1, :31], atol=2e-6)


def test_a_row_without_keys_is_finite(interpreted):
    mask = AttentionMask(lengths=jnp.asarray([LENGTH, 0], "int32"))
    assert np.isfinite(tpu_attention(*arrays(), mask, None, 0.3)).all()


@pytest.mark.parametrize("name", ["full", "packed", "packed, window", "bias"])
def test_tpu_kernels_compile_for_it(tpu, name):
    mask, bias = CASES[name]()
    jax.clear_caches()
    gradient = jax.jit(jax.grad(lambda parts: loss(attend_with(mask, bias), mask, parts, bias)[0]))
    module = jax.export.export(gradient, platforms=["tpu"])(arrays("bfloat16", 64)).mlir_module()
    assert module.count("tpu_custom_call") == 3  # forward; the gradients of queries, and of keys and values
    assert f"2x2x{LENGTH}x{LENGTH}x" not in module  # no scores outside the kernels


def attend_with(mask, bias):
    return lambda query, key, value, *_: attend(query, key, value, mask, bias, 0.3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dict(allowed=jnp.ones((1, 1, LENGTH, LENGTH), bool)),
        lambda: dict(causal=True, prefix_mask=jnp.asarray(IDS == 1)),
        lambda: dict(causal=True, query_start=jnp.asarray(3)),
    ],
)
def test_masks_that_no_tpu_kernel_has(tpu, make):
    assert tpu_attention(*arrays(), AttentionMask(**make()), None, 0.3) is None


def test_short_rows_take_no_tpu_kernel(tpu):
    assert tpu_attention(*(x[:, :100] for x in arrays()), None, None, 0.3) is None


@pytest.mark.parametrize("name", CASES)
def test_what_cudnn_is_given(monkeypatch, name):
    """XLA's own attention gives the same for the arguments: what is hidden, what is a length, what is causal."""
    attention, given = jax.nn.dot_product_attention, {}

    def by_xla(*arguments, implementation, **options):
        given.update(options, implementation=implementation)
        return attention(*arguments, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    monkeypatch.setattr(kernels, "_has_flash_attention", lambda: True)
    mask, bias = CASES[name]()
    found = loss(kernels.fused_attention, mask, arrays("bfloat16"), bias)[1]
    expected = loss(written_out, mask, arrays("bfloat16"), bias)[1]
    np.testing.assert_allclose(found.astype("float32"), expected.astype("float32"), atol=0.05)
    assert given["implementation"] == "cudnn"
    assert given["is_causal"] == ("causal" in name)
    assert (given["key_value_seq_lengths"] is not None) == ("lengths" in name)


def test_cudnn_gets_what_it_takes(monkeypatch):
    monkeypatch.setattr(kernels, "_has_flash_attention", lambda: True)
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda *_, **__: pytest.fail("not for cuDNN"))
    odd = AttentionMask(sequence_ids=jnp.asarray(IDS[:, :299]))
    for parts, shown in (
        (arrays(), None),  # single precision
        (arrays("bfloat16", 4), None),  # width
        (arrays("bfloat16", 136), None),
        ([x[:, :299] for x in arrays("bfloat16")], odd),  # length
        (arrays("bfloat16"), AttentionMask(allowed=jnp.ones((1, 1, 1, LENGTH), bool))),
    ):
        found, expected = (attention(*parts, shown, None, 0.3) for attention in (kernels.fused_attention, written_out))
        np.testing.assert_allclose(found.astype("float32"), expected.astype("float32"), atol=0.05)


ON_TWO_DEVICES = """
import jax
import keras
import numpy as np
from jax.experimental import pallas

from kerasbert.backend import compiling_for, parallel
from kerasbert.backend.tpu_attention import tpu_attention

call = pallas.pallas_call
pallas.pallas_call = lambda *a, **options: call(*a, **{**options, "interpret": True})
context = compiling_for("tpu")
context.__enter__()
parts = np.random.default_rng(0).normal(size=(3, 4, 128, 2, 8)).astype("float32")
bias = np.random.default_rng(1).normal(size=(1, 2, 128, 128)).astype("float32")


def gradients():
    jax.clear_caches()
    loss = jax.jit(jax.grad(lambda parts, bias: (tpu_attention(*parts, None, bias, 0.3) ** 2).sum(), (0, 1)))
    return loss(parts, bias)


alone = gradients()
mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"])
layout = keras.distribution.LayoutMap(mesh)
keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch"))
assert tpu_attention(*parts, None, None, 0.3) is None
keras.distribution.set_distribution(parallel("tensor", mesh))
heads_shared = gradients()
y = jax.jit(lambda parts: tpu_attention(*parts, None, None, 0.3))(parts)
assert y.sharding.spec[2] == "model", y.sharding
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
shared = gradients()
y = jax.jit(lambda parts: tpu_attention(*parts, None, None, 0.3))(parts)
assert y.sharding.spec[0] == "batch", y.sharding
for found in (shared, heads_shared):
    for ours, theirs in zip(found, alone):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
"""


def test_devices_share_the_rows_of_a_tpu_kernel():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", ON_TWO_DEVICES], capture_output=True, text=True, env={**os.environ, "XLA_FLAGS": flags}
    )
    assert done.returncode == 0, done.stderr[-2_000:]

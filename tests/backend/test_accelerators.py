"""Kernels of accelerators against attention written out: by Pallas's interpreter, and cuDNN's by its arguments.

The kernels are also lowered for GPUs and TPUs, which needs neither.
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

    from kerasbert.backend import compiling_for, flash_attention, kernels
    from kerasbert.backend.tpu_attention import tpu_attention
    from kerasbert.layers.attention import attend, attention_scores
    from kerasbert.layers.dropout import Dropout
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
def interpreted(monkeypatch):
    call = pallas.pallas_call
    monkeypatch.setattr(pallas, "pallas_call", lambda *a, **options: call(*a, **{**options, "interpret": True}))
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("name", CASES)
def test_tpu_kernels_and_their_gradients(tpu, interpreted, name):
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


def test_a_tpu_kernel_of_fewer_queries_than_keys(tpu, interpreted):
    query, key, value = arrays()
    mask = AttentionMask(sequence_ids=jnp.asarray(IDS), query_sequence_ids=jnp.asarray(IDS[:, 100:250]))
    found = tpu_attention(query[:, 100:250], key, value, mask, None, 0.3)
    expected = written_out(query, key, value, mask.replace(query_sequence_ids=None), None, 0.3)[:, 100:250]
    np.testing.assert_allclose(found[0], expected[0], atol=2e-6)
    np.testing.assert_allclose(found[1, :31], expected[1, :31], atol=2e-6)


def test_a_row_without_keys_is_finite(tpu, interpreted):
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


# === NVIDIA GPUs ===

OF_CUDNN = ("full", "lengths", "causal", "causal, window", "bias", "bias of each row, causal, lengths")


@pytest.fixture
def gpu():
    with compiling_for("gpu"):
        yield


@pytest.fixture
def cudnn(gpu, monkeypatch):
    """XLA's own attention in the place of cuDNN's, with the restrictions of jax. Returns the arguments of calls."""
    from jax._src.cudnn import fused_attention_stablehlo as rules

    attention, calls = jax.nn.dot_product_attention, []

    def by_xla(query, key, value, bias, *, implementation, **options):
        assert implementation == "cudnn"
        layout = rules.AttentionLayout.BTNH.value
        # In training, a bias that is not given counts as one.
        rules.check_is_flash_attention(query, key, value, layout, rules.check_cudnn_version(), True, True)
        calls.append({"lengths": (query.shape[1], key.shape[1]), **options})
        return attention(query, key, value, bias, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    return calls


@pytest.mark.parametrize("name", OF_CUDNN)
def test_what_cudnn_is_given(cudnn, name):
    """XLA's own attention gives the same for the arguments: what is a length, what is causal, what is a window."""
    mask, bias = CASES[name]()
    found = loss(kernels.fused_attention, mask, arrays("bfloat16"), bias)[1]
    expected = loss(written_out, mask, arrays("bfloat16"), bias)[1]
    np.testing.assert_allclose(found.astype("float32"), expected.astype("float32"), atol=0.05)
    (given,) = cudnn
    assert given["is_causal"] == ("causal" in name)
    assert (given["key_value_seq_lengths"] is not None) == ("lengths" in name)
    assert given["local_window_size"] == ((5, 0) if "window" in name else None)


@pytest.mark.parametrize(
    "name, queries, keys, dtype",
    [("full", 21, 64, "bfloat16"), ("full", 64, 63, "float16"), ("lengths", 77, 131, "bfloat16")]
    + [("causal", 63, 63, "bfloat16"), ("causal, window", 63, 63, "bfloat16"), ("bias", 77, 77, "float16")]
    + [("bias of each row, causal, lengths", 63, 63, "bfloat16")],
)
def test_odd_numbers_of_queries_and_keys(cudnn, name, queries, keys, dtype):
    mask, bias = CASES[name]()
    mask = mask if mask is None or mask.lengths is None else mask.replace(lengths=jnp.asarray([keys, 40], "int32"))
    bias = None if bias is None else bias[:, :, :queries, :keys]
    query, key, value = arrays(dtype)
    parts = query[:, :queries], key[:, :keys], value[:, :keys]

    def of(attention, parts, bias):
        y = attention(*parts, mask, bias, 0.3)
        return (y[0].astype("float32") ** 2).sum() + (y[1, :40].astype("float32") ** 2).sum()

    found, expected = (
        jax.value_and_grad(functools.partial(of, attention), (0, 1))(parts, bias)
        for attention in (kernels.fused_attention, written_out)
    )
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = jnp.abs(theirs.astype("float32")).max()
        np.testing.assert_allclose(ours.astype("float32"), theirs.astype("float32"), atol=0.03 * scale)
    assert cudnn[0]["lengths"] == (queries + queries % 2, keys + keys % 2)


def test_cudnn_gets_what_it_takes(gpu, monkeypatch):
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda *_, **__: pytest.fail("not for cuDNN"))
    monkeypatch.setattr(kernels, "flash_attention", lambda *_: "ours")
    half = arrays("bfloat16")
    assert kernels.fused_attention(*arrays(), None, None, 0.3) == "ours"  # single precision
    assert kernels.fused_attention(*arrays("bfloat16", 4), None, None, 0.3) == "ours"  # width
    for name in ("padding mask", "packed", "packed, window"):
        mask, _ = CASES[name]()
        assert kernels.fused_attention(*half, mask, None, 0.3) == "ours"
    with compiling_for("gpu", capability=8.0):
        assert kernels.fused_attention(*arrays("bfloat16", 136), None, None, 0.3) == "ours"
    for described in (dict(cudnn=None), dict(cudnn=8904), dict(capability=7.5)):
        with compiling_for("gpu", **described):
            assert kernels.fused_attention(*half, None, None, 0.3) == "ours"


@pytest.mark.parametrize(
    "described, dtype, width, dropout, said",
    [
        (dict(capability=7.5), "bfloat16", 8, 0.0, "on a GPU of compute capability 7.5. NVIDIA GPUs of"),
        (dict(), "float32", 8, 0.0, "in float32 on a GPU. Use the dtype mixed_bfloat16."),
        (dict(), "bfloat16", 264, 0.0, "with heads of 264. Kernels support up to 256."),
        (dict(capability=7.5), "bfloat16", 8, 0.1, "on a GPU of compute capability 7.5. NVIDIA GPUs of"),
    ],
)
def test_why_attention_is_not_fused_is_said_once(monkeypatch, caplog, described, dtype, width, dropout, said):
    monkeypatch.setattr(kernels, "_said", set())
    parts = arrays(dtype, width)
    layer = Dropout(dropout, seed=1) if dropout else None
    with compiling_for("gpu", **described):
        for _ in range(2):
            assert kernels.fused_attention(*parts, None, None, 0.3, layer) is None
    (record,) = caplog.records
    assert record.message.startswith(f"Attention is computed without a fused kernel {said}")


# === Flash attention with dropout ===

PREFIXES = jnp.asarray(np.arange(LENGTH) < np.array([[20], [200]])) if keras.backend.backend() == "jax" else None
FLASH_CASES = {
    **CASES,
    "prefix": lambda: (AttentionMask(causal=True, prefix_mask=PREFIXES), None),
    "allowed": lambda: (
        AttentionMask(allowed=jnp.asarray(np.random.default_rng(2).random((2, 1, LENGTH, LENGTH)) < 0.5)),
        None,
    ),
}
RATE = 0.3


def shortened(name, queries, keys):
    """The mask and the bias of a case for the last queries and the first keys, and the queries that see a key."""
    mask, bias = FLASH_CASES[name]()
    if mask is not None:
        cut = {field: getattr(mask, field) for field in ("padding_mask", "sequence_ids", "prefix_mask")}
        cut = {field: value[:, :keys] for field, value in cut.items() if value is not None}
        if mask.sequence_ids is not None and queries > keys:
            cut["query_sequence_ids"] = mask.sequence_ids[:, :queries]
        allowed = None if mask.allowed is None else mask.allowed[:, :, :queries, :keys]
        mask = mask.replace(**cut, allowed=allowed)
    shown = None if mask is None else mask.dense(queries, keys)
    seen = np.ones((2, queries), bool)
    seen = seen if shown is None else np.broadcast_to(np.asarray(shown).any(-1).all(1), seen.shape)
    return mask, None if bias is None else bias[:, :, :queries, :keys], seen


def dropped_loss(attention, mask, seen, noise_shape, parts, bias):
    layer = Dropout(RATE, noise_shape, seed=3)
    y = jnp.where(seen[..., None, None], attention(*parts, mask, bias, 0.3, layer), 0)
    return (y.astype("float32") ** 2).sum(), y


def dropped_reference(query, key, value, mask, bias, scale, dropout):
    weights = dropout(jax.nn.softmax(attention_scores(query, key, mask, bias, scale)), training=True)
    return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(value.dtype), value)


@pytest.mark.parametrize(
    "kind, name, queries, keys, noise_shape",
    [("gpu", name, 131, 131, None) for name in ("packed, window", "bias of each row, causal, lengths")]
    + [("gpu", "causal, window", 61, 140, None), ("gpu", "allowed", 77, 140, None)]
    + [("gpu", "bias", 70, 90, (None, None, 1, None))]
    + [("tpu", "packed, window", 300, 300, None), ("tpu", "bias", 21, 300, (None, None, 1, None))],
)
def test_flash_attention_drops_what_the_reference_drops(
    interpreted, monkeypatch, kind, name, queries, keys, noise_shape
):
    """Odd numbers of queries and keys, heads of 6, in single precision: outputs and all gradients."""
    mask, bias, seen = shortened(name, queries, keys)
    query, key, value = arrays(width=6)
    parts = query[:, :queries], key[:, :keys], value[:, :keys]
    monkeypatch.setattr(flash_attention, "_is_supported", lambda *_: True)  # GPUs take half precision only
    with compiling_for(kind):
        found, expected = (
            jax.value_and_grad(
                functools.partial(dropped_loss, attention, mask, seen, noise_shape), (0, 1), has_aux=True
            )(parts, bias)
            for attention in (flash_attention.flash_attention, dropped_reference)
        )
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_flash_attention_in_half_precision(gpu, interpreted, dtype):
    """It is as close to single precision as the reference implementation is."""
    parts, seen = [x[:, :131] for x in arrays(dtype)], np.ones((2, 131), bool)
    single = [x.astype("float32") for x in parts]
    ours, reference, exact = (
        jax.tree.leaves(
            jax.value_and_grad(functools.partial(dropped_loss, attention, None, seen, None), has_aux=True)(inputs, None)
        )
        for attention, inputs in (
            (attend_with_dropout, parts),
            (dropped_reference, parts),
            (dropped_reference, single),
        )
    )
    for found, other, expected in zip(ours, reference, exact, strict=True):
        error, allowed = (np.abs(x.astype("float32") - expected).mean() for x in (found, other))
        assert error <= 1.5 * allowed + 1e-6 * np.abs(expected).mean()


def attend_with_dropout(query, key, value, mask, bias, scale, dropout):
    return attend(query, key, value, mask, bias, scale, dropout)


def test_dropout_masks_change_from_step_to_step(gpu, interpreted):
    layer, parts = Dropout(RATE, seed=3), arrays("bfloat16")
    first, second = (flash_attention.flash_attention(*parts, None, None, 0.3, layer) for _ in range(2))
    again = flash_attention.flash_attention(*parts, None, None, 0.3, Dropout(RATE, seed=3))
    assert np.abs((first - second).astype("float32")).max() > 0.1
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("kind, platform, call", [("gpu", "cuda", "gpu.triton"), ("tpu", "tpu", "tpu_custom_call")])
@pytest.mark.parametrize("name", ["full", "packed, window", "bias", "prefix", "allowed"])
def test_flash_attention_lowers(kind, platform, call, name):
    mask, bias = FLASH_CASES[name]()
    layer = Dropout(RATE, seed=3)

    def of(parts):
        return (attend(*parts, mask, bias, 0.3, layer).astype("float32") ** 2).sum()

    with compiling_for(kind):
        lowered = jax.jit(jax.grad(of)).trace(arrays("bfloat16", 64)).lower(lowering_platforms=(platform,)).as_text()
    assert lowered.count(f"@{call}" if kind == "tpu" else call) == 2
    if bias is None:
        assert f"2x2x{LENGTH}x{LENGTH}xf32" not in lowered  # no scores outside the kernels


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

# Dropout masks are those of one device.
from kerasbert.backend import flash_attention
from kerasbert.layers.dropout import Dropout

flash_attention._is_supported = lambda *_: True


def dropped():
    jax.clear_caches()
    layer = Dropout(0.3, seed=1)

    def loss(parts, bias):
        y = flash_attention.flash_attention(*parts, None, bias, 0.3, layer)
        return (y.astype("float32") ** 2).sum(), y

    (_, y), (found, of_bias) = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(parts, bias)
    return y, *found, of_bias


for kind in ("gpu", "tpu"):
    with compiling_for(kind):
        keras.distribution.set_distribution(None)
        alone = dropped()
        for layout in (parallel("tensor", mesh), keras.distribution.DataParallel(auto_shard_dataset=False)):
            keras.distribution.set_distribution(layout)
            shared = dropped()
            assert {"batch", "model"} & set(shared[0].sharding.spec), shared[0].sharding
            for ours, theirs in zip(shared, alone, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-5)
"""


def test_devices_share_the_rows_of_a_tpu_kernel():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", ON_TWO_DEVICES], capture_output=True, text=True, env={**os.environ, "XLA_FLAGS": flags}
    )
    assert done.returncode == 0, done.stderr[-2_000:]

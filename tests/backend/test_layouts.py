"""Layouts of variables on several devices, from their shapes and names alone."""

import math

import keras
import numpy as np
import pytest

from kerasbert.backend import layouts, parallel
from kerasbert.backend.layouts import axes_of, check_layout
from kerasbert.models import FAMILIES


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("shape", "devices", "axes"),
    [
        ((30_522, 768), 8, (None, "batch")),  # 8 does not divide 30,522
        ((32_128, 768), 8, ("batch", None)),
        ((768, 3_072), 16, (None, "batch")),
        ((768, 768), 4, ("batch", None)),  # the first of equal axes
        ((512, 770), 512, ("batch", None)),
        ((129, 131), 8, (None, None)),  # nothing divides
        ((3_072,), 8, (None,)),
        ((64, 64), 8, (None, None)),  # small
        ((2,), 2, (None,)),
    ],
)
def test_fsdp_divides_the_longest_axis_that_fits(shape, devices, axes):
    assert axes_of("fsdp", "any/kernel", shape, {"batch": devices}) == axes


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("path", "shape", "axes"),
    [
        ("bert/block_0/attention/query/kernel", (768, 768), (None, "model")),
        ("bert/block_0/attention/query/bias", (768,), ("model",)),
        ("bert/block_0/attention/project/kernel", (768, 768), ("model", None)),
        ("bert/block_0/attention/project/bias", (768,), (None,)),
        ("bert/block_0/feed_forward/inner/kernel", (768, 3_072), (None, "model")),
        ("bert/block_0/feed_forward/outer/kernel", (3_072, 768), ("model", None)),
        ("t5/encoder/block_0/feed_forward/gate/kernel", (768, 2_048), (None, "model")),
        ("bert/token_embedding/embeddings", (30_524, 768), ("model", None)),
        ("bert/token_embedding/embeddings", (30_522, 768), (None, None)),  # 4 does not divide 30,522
        ("bert/position_embedding/embeddings", (512, 768), (None, None)),
        ("head/dense/kernel", (768, 768), (None, None)),
        ("bert/block_0/norm/gamma", (768,), (None,)),
        ("seed_generator/state", (2,), (None,)),
    ],
)
def test_tensor_divides_heads_inner_units_and_the_vocabulary(path, shape, axes):
    assert axes_of("tensor", path, shape, {"batch": 2, "model": 4}) == axes


def tiny(cls):
    fields = cls.family.config.__dataclass_fields__
    sizes = dict(num_layers=2, hidden_dim=128, num_heads=4, feed_forward_dim=256, vocabulary_size=1_000)
    size = next(iter(cls.family.sizes))
    given = {name: value for name, value in {**sizes, "cutoffs": ()}.items() if name in fields}
    return cls.from_preset(size, load_weights=False, **given)


@pytest.mark.one_backend
@pytest.mark.parametrize("name", ["bert", "t5", "electra", "modernbert", "xlnet", "gpt2", "deberta-v2", "transfo-xl"])
def test_layouts_divide_most_weights_of_every_family(name):
    if name not in FAMILIES:
        pytest.fail(f"no family {name} in {sorted(FAMILIES)}")
    backbone = tiny(FAMILIES[name])
    found = {}
    for layout in ("fsdp", "tensor"):
        sizes = {v.path: math.prod(v.shape) for v in backbone.trainable_variables}
        divided = [
            v.path
            for v in backbone.trainable_variables
            if any(axes_of(layout, v.path, v.shape, {"batch": 4, "model": 4}))
        ]
        found[layout] = sum(sizes[path] for path in divided) / sum(sizes.values())
    assert found["fsdp"] > 0.95 and found["tensor"] > 0.6, found


def test_layouts_that_cannot_be():
    with pytest.raises(ValueError, match="`layout` must be one of data, fsdp, tensor. Received: 'zero'."):
        parallel("zero")
    if keras.backend.backend() != "jax":
        with pytest.raises(ValueError, match="need JAX. Received: the backend (torch|tensorflow). Set KERAS_BACKEND"):
            parallel("data")
        return
    for layout in ("fsdp", "tensor"):
        with pytest.raises(ValueError, match=f"'{layout}' divides weights .* Received: one device, so nothing would"):
            parallel(layout)
    mesh = keras.distribution.DeviceMesh((1,), ("rows",))
    with pytest.raises(ValueError, match="needs a mesh with the axes batch, in this order. Received: rows."):
        parallel("data", mesh)
    assert isinstance(parallel("data"), keras.distribution.DataParallel)


@pytest.mark.backends("jax")
def test_layouts_that_do_not_suit_a_model(monkeypatch):
    made_before = keras.Variable(np.zeros((4, 4), "float32"), name="table")
    mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), keras.distribution.list_devices()[:1])
    distribution = layouts._distribution_class()("tensor", mesh)
    with distribution.scope():
        with pytest.raises(ValueError, match="variables on one device, such as table. Create it after"):
            check_layout([made_before])
        variable = keras.Variable(np.zeros((4, 4), "float32"))
        with pytest.raises(ValueError, match="'tensor' would divide none of the 1 weights .*'batch': 1, 'model': 1"):
            check_layout([variable])
        distribution.device_mesh._shape = (1, 8)
        with pytest.raises(ValueError, match="Received: num_heads=12 and 8 devices. Use a smaller axis"):
            check_layout([variable], num_heads=12)
    check_layout([made_before])

"""The device for which programs are compiled can be another one than this machine's."""

import ast
import re
from pathlib import Path

import keras
import pytest

from kerasbert.backend import chosen_policy, compiling_for, device, target

PACKAGE = Path(__file__).resolve().parents[2] / "kerasbert"


def test_the_target_is_the_default_device_or_the_one_that_is_said():
    backend, found = keras.backend.backend(), device()
    if backend == "jax":
        import jax

        assert (found.kind, found.count) == (jax.default_backend(), jax.device_count())
    assert found.kind in ("cpu", "gpu", "tpu")
    with compiling_for("tpu", devices=8):
        assert (target(), device().count, device().capability) == ("tpu", 8, None)
        with compiling_for("gpu"):
            assert (target(), device().capability, device().cudnn, device().count) == ("gpu", 9.0, 91000, 1)
            with compiling_for("gpu", capability=8):
                assert device().capability == 8.0
            assert device().capability == 9.0
        assert target() == "tpu"
    assert device() == found
    with pytest.raises(RuntimeError), compiling_for("tpu"):
        raise RuntimeError
    assert device() == found


@pytest.mark.parametrize(
    "described, attention, cudnn, head",
    [
        ({}, True, True, 256),
        (dict(capability=8.0), True, True, 128),
        (dict(capability=7.5), False, False, 128),
        (dict(cudnn=None), True, False, 256),
        (dict(cudnn=8904), True, False, 256),
        (dict(capability=10.0), True, True, 256),
    ],
)
def test_what_a_gpu_has(described, attention, cudnn, head):
    with compiling_for("gpu", **described):
        found = device()
        assert (found.is_nvidia, found.has_cudnn_attention, found.largest_cudnn_head) == (attention, cudnn, head)


def test_what_auto_stands_for():
    for described, policy in (
        (dict(kind="cpu"), "float32"),
        (dict(kind="tpu"), "mixed_bfloat16"),
        (dict(kind="gpu"), "mixed_bfloat16"),
        (dict(kind="gpu", capability=8.0, cudnn=None), "mixed_bfloat16"),
        (dict(kind="gpu", capability=7.5), "float32"),  # has no bfloat16
    ):
        with compiling_for(**described):
            assert (chosen_policy("auto"), chosen_policy("float16")) == (policy, "float16")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("TPU",), "`kind` must be one of cpu, gpu, tpu. Received: 'TPU'."),
        (("gpu", "9.0"), "`capability` must be a number, such as 9.0. Received: '9.0'."),
        (("gpu", True), "`capability` must be a number, such as 9.0. Received: True."),
        (("tpu", 9.0), "Only GPUs have a compute capability. Received: kind='tpu', capability=9.0."),
        (("gpu", 9.0, "9.10"), "`cudnn` must be a whole number, such as 91000 for 9.10.0. Received: '9.10'."),
        (("gpu", 9.0, 91000, 0), "`devices` must be a number of devices of at least 1. Received: 0."),
    ],
)
def test_what_is_no_description(arguments, said):
    with pytest.raises(ValueError, match=re.escape(said)), compiling_for(*arguments):
        pass


@pytest.mark.backends("jax")
def test_jax_asks_what_it_asked_before():
    """Programs for GPUs are lowered without one because the questions of jax's attention are answered."""
    import jax
    from jax import numpy as jnp
    from jax._src.cudnn import fused_attention_stablehlo as asked

    from kerasbert.backend.cudnn import QUESTIONS

    message = f"jax {jax.__version__} asks other questions about the GPU: adapt `kerasbert.backend.cudnn`."
    before = [getattr(asked, name, None) for name in QUESTIONS]
    assert None not in before, message
    source = ast.parse(Path(asked.__file__).read_text())
    asking = {
        function.name
        for function in source.body
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id in ("xla_bridge", "cuda_versions")
    }
    assert asking == set(QUESTIONS), message

    def attention(x):
        return jax.nn.dot_product_attention(x, x, x, implementation="cudnn").astype("float32").sum()

    def lowered(width):
        x = jnp.ones((2, 64, 2, width), "bfloat16")
        return jax.jit(jax.grad(attention)).trace(x).lower(lowering_platforms=("cuda",)).as_text()

    with compiling_for("gpu"):
        assert lowered(256).count("__cudnn$fmha") == 2, message
    with compiling_for("gpu", capability=8.0), pytest.raises(NotImplementedError, match="head dim must be <= 128"):
        lowered(256)
    assert [getattr(asked, name) for name in QUESTIONS] == before


# What asks a backend about devices. Classes of errors and of devices are another matter.
QUESTION = re.compile(
    r"jax\.(default_backend|devices|local_devices|device_count|local_device_count)\b|list_(logical|physical)_devices"
    r"|cuda\.(is_available|device_count|get_device|current_device)|compute_capability|cudnn_(get_)?version\("
    r"|\bmps\.is_available|xla_bridge|get_build_info|cuda_versions"
)
ASKING = {"devices.py", "cudnn.py", "random_state.py"}  # the last one saves the states of torch's generators


@pytest.mark.one_backend
def test_devices_are_asked_about_in_one_place():
    wrong = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (path.parent.name == "backend" and path.name in ASKING)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if QUESTION.search(line)
    ]
    assert not wrong, "Ask `kerasbert.backend.device()` instead:\n" + "\n".join(wrong)

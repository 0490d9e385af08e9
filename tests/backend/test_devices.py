"""The device for which programs are compiled can be another one than this machine's."""

import keras
import pytest

from kerasbert.backend import compiling_for, target


def test_the_target_is_the_default_device_or_the_one_that_is_said():
    backend, found = keras.backend.backend(), target()
    if backend == "jax":
        import jax

        assert found == jax.default_backend()
    assert found in ("cpu", "gpu", "tpu")
    with compiling_for("tpu"):
        assert target() == "tpu"
        with compiling_for("gpu"):
            assert target() == "gpu"
        assert target() == "tpu"
    assert target() == found
    with pytest.raises(RuntimeError), compiling_for("tpu"):
        raise RuntimeError
    assert target() == found


def test_an_unknown_target():
    with pytest.raises(ValueError, match="`kind` must be one of cpu, gpu, tpu. Received: 'TPU'."), compiling_for("TPU"):
        pass

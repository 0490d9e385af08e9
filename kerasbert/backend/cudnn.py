"""cuDNN's attention in jax, and the questions about the device that jax asks before it uses it.

jax looks at the devices and libraries of this machine. `answering` answers for a described device instead, so that
programs for GPUs are lowered on machines without one. `tests/backend/test_devices.py` checks that jax asks the same
questions as before.
"""

import contextlib
import functools

import keras

# What jax asks, in the module `jax._src.cudnn.fused_attention_stablehlo`.
QUESTIONS = ("check_cudnn_version", "check_compute_capability", "is_cuda_compute_capability_equal")


def cudnn_version():
    """Returns the version of cuDNN that jax has loaded, such as 91000 for 9.10.0, or None if there is none."""
    from jax._src.lib import cuda_versions

    try:
        return None if cuda_versions is None else cuda_versions.cudnn_get_version()
    except RuntimeError:  # the library cannot be loaded
        return None


@contextlib.contextmanager
def answering(device):
    """Context manager in which jax's questions about the GPU and cuDNN are answered for a described device.

    Args:
        device: a `Device`. If it is no GPU, or on other backends, nothing changes.
    """
    if keras.backend.backend() != "jax" or device.kind != "gpu":
        yield
        return
    from jax._src.cudnn import fused_attention_stablehlo as asked

    def version():
        if device.cudnn is None:
            raise RuntimeError("cuDNN is not detected.")
        return device.cudnn

    answers = (version, lambda least: device.capability >= float(least), lambda c: device.capability == float(c))
    before = [getattr(asked, name) for name in QUESTIONS]
    try:
        for name, answer, original in zip(QUESTIONS, answers, before, strict=True):
            setattr(asked, name, functools.wraps(original)(answer))
        yield
    finally:
        for name, original in zip(QUESTIONS, before, strict=True):
            setattr(asked, name, original)

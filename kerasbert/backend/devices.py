"""The device for which programs are compiled. All questions about devices are asked here."""

import contextlib
import dataclasses
import numbers

import keras

from .cudnn import answering, cudnn_version

KINDS = ("cpu", "gpu", "tpu")
AMPERE, HOPPER = 8.0, 9.0  # compute capabilities of an A100 and an H100
CUDNN = 91000  # the version that `compiling_for` describes: 9.10.0
OLDEST_CUDNN = 90100  # versions before 9.1 lack the backward pass of some masks
_given = []


@dataclasses.dataclass(frozen=True)
class Device:
    """A device for which programs are compiled.

    Args:
        kind: "cpu", "gpu" or "tpu".
        capability: compute capability of an NVIDIA GPU, such as 9.0 for an H100. None for other devices.
        cudnn: version of cuDNN, such as 91000 for 9.10.0. None if it is not installed, and for other devices.
        count: number of devices of all hosts.
        local_count: number of devices of this host.
    """

    kind: str
    capability: float | None = None
    cudnn: int | None = None
    count: int = 1
    local_count: int = 1

    @property
    def is_nvidia(self):
        """Whether the device is an NVIDIA GPU of the Ampere generation or later, whose kernels these are."""
        return self.kind == "gpu" and self.capability is not None and self.capability >= AMPERE

    @property
    def has_cudnn_attention(self):
        """Whether cuDNN has flash attention for the device."""
        return self.is_nvidia and self.cudnn is not None and self.cudnn >= OLDEST_CUDNN

    @property
    def largest_cudnn_head(self):
        """The largest head size of cuDNN's attention."""
        return 256 if self.is_nvidia and self.capability >= HOPPER else 128


def device():
    """Returns the `Device` for which programs are compiled.

    This is the first device of the backend, unless `compiling_for` describes another one.
    """
    if _given:
        return _given[-1]
    return {"jax": _jax_device, "tensorflow": _tensorflow_device, "torch": _torch_device}[keras.backend.backend()]()


def target():
    """Returns the kind of device for which programs are compiled: "cpu", "gpu" or "tpu"."""
    return device().kind


def chosen_policy(dtype):
    """Returns the dtype policy that "auto" stands for on the device, or `dtype` itself.

    "auto" is mixed_bfloat16 on TPUs and on NVIDIA GPUs of the Ampere generation or later, whose fused attention needs
    half precision, and float32 on other devices.

    Args:
        dtype: "auto", or a dtype policy of Keras.
    """
    if dtype != "auto":
        return dtype
    found = device()
    return "mixed_bfloat16" if found.kind == "tpu" or found.is_nvidia else "float32"


@contextlib.contextmanager
def compiling_for(kind, capability=None, cudnn=CUDNN, devices=1):
    """Context manager that traces programs for a device that this machine may not have.

    On JAX, programs for TPUs and NVIDIA GPUs can be lowered on any machine, and compiled where the compiler is
    installed. A function that was traced outside the context is not traced again inside it, so create a new `jax.jit`
    there. Example:

        with compiling_for("gpu", capability=8.0):  # an A100
            lowered = jax.jit(step).trace(*arguments).lower(lowering_platforms=("cuda",))

    Args:
        kind: "cpu", "gpu" or "tpu".
        capability: compute capability of an NVIDIA GPU. Default: 9.0, an H100; 8.0 is an A100. None for other kinds.
        cudnn: version of cuDNN on a GPU, such as 91000 for 9.10.0, or None if it is not installed.
        devices: number of devices.
    """
    if kind not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}. Received: {kind!r}.")
    if kind != "gpu" and capability is not None:
        raise ValueError(f"Only GPUs have a compute capability. Received: kind={kind!r}, capability={capability!r}.")
    if capability is not None and (isinstance(capability, bool) or not isinstance(capability, numbers.Real)):
        raise ValueError(f"`capability` must be a number, such as 9.0. Received: {capability!r}.")
    if cudnn is not None and (isinstance(cudnn, bool) or not isinstance(cudnn, int)):
        raise ValueError(f"`cudnn` must be a whole number, such as 91000 for 9.10.0. Received: {cudnn!r}.")
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise ValueError(f"`devices` must be a number of devices of at least 1. Received: {devices!r}.")
    described = Device(kind, count=devices, local_count=devices)
    if kind == "gpu":
        described = dataclasses.replace(
            described, capability=HOPPER if capability is None else float(capability), cudnn=cudnn
        )
    _given.append(described)
    try:
        with answering(described):
            yield
    finally:
        _given.pop()


def jax_devices():
    """Returns all devices of all hosts, which a mesh is made of."""
    import jax

    return jax.devices()


def _jax_device():
    import jax

    kind, counts = jax.default_backend(), (jax.device_count(), jax.local_device_count())
    kind = {"cuda": "gpu", "rocm": "gpu"}.get(kind, kind)
    if kind != "gpu":
        return Device(kind, None, None, *counts)
    found = getattr(jax.local_devices()[0], "compute_capability", None)
    capability = _number(found)  # AMD's are names, such as "gfx90a"
    return Device(kind, capability, None if capability is None else cudnn_version(), *counts)


def _tensorflow_device():
    import tensorflow as tf

    for kind in ("TPU", "GPU"):
        devices = tf.config.list_logical_devices(kind)
        if devices:
            break
    else:
        return Device("cpu")
    if kind == "TPU":
        return Device("tpu", None, None, len(devices), len(devices))
    details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
    capability = details.get("compute_capability")
    capability = None if capability is None else float("{}.{}".format(*capability))
    return Device("gpu", capability, None, len(devices), len(devices))


def _torch_device():
    import torch

    if not torch.cuda.is_available():
        return Device("cpu")
    count = torch.cuda.device_count()
    if torch.version.hip is not None:
        return Device("gpu", None, None, count, count)
    capability = float("{}.{}".format(*torch.cuda.get_device_capability(0)))
    return Device("gpu", capability, torch.backends.cudnn.version(), count, count)


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None

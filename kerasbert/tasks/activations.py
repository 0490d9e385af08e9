"""The activations that folders of sentence-transformers name by their classes in PyTorch."""

from collections.abc import Callable
from typing import Any

from keras import ops

from ..data.text.json_files import shortened

# Our name -> (class in `torch.nn.modules`, the function). The classes have their default arguments.
ACTIVATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "identity": ("linear.Identity", lambda x: x),
    "sigmoid": ("activation.Sigmoid", ops.sigmoid),
    "tanh": ("activation.Tanh", ops.tanh),
    "softmax": ("activation.Softmax", lambda x: ops.softmax(x, axis=-1)),
    "log_softmax": ("activation.LogSoftmax", lambda x: ops.log_softmax(x, axis=-1)),
    "softmin": ("activation.Softmin", lambda x: ops.softmax(-x, axis=-1)),
    "log_sigmoid": ("activation.LogSigmoid", ops.log_sigmoid),
    "relu": ("activation.ReLU", ops.relu),
    "relu6": ("activation.ReLU6", ops.relu6),
    "leaky_relu": ("activation.LeakyReLU", lambda x: ops.leaky_relu(x, negative_slope=0.01)),
    "elu": ("activation.ELU", ops.elu),
    "celu": ("activation.CELU", ops.celu),
    "selu": ("activation.SELU", ops.selu),
    "gelu": ("activation.GELU", lambda x: ops.gelu(x, approximate=False)),
    "silu": ("activation.SiLU", ops.silu),
    "mish": ("activation.Mish", lambda x: x * ops.tanh(ops.softplus(x))),
    "softplus": ("activation.Softplus", ops.softplus),
    "softsign": ("activation.Softsign", ops.softsign),
    "soft_shrink": ("activation.Softshrink", ops.soft_shrink),
    "hard_shrink": ("activation.Hardshrink", ops.hard_shrink),
    "tanh_shrink": ("activation.Tanhshrink", ops.tanh_shrink),
    "hard_tanh": ("activation.Hardtanh", ops.hard_tanh),
    "hard_sigmoid": ("activation.Hardsigmoid", ops.hard_sigmoid),
    "hard_swish": ("activation.Hardswish", ops.hard_swish),
}
AXIS_ACTIVATIONS = ("softmax", "log_softmax", "softmin")  # over the components of a vector, not of each by itself
_PREFIXES = ("torch.nn.", "torch.nn.modules.", "torch.nn.modules.activation.", "torch.nn.modules.linear.")


def torch_path(name: str) -> str:
    """Returns the path of an activation's class in PyTorch: sigmoid -> torch.nn.modules.activation.Sigmoid"""
    return f"torch.nn.modules.{ACTIVATIONS[name][0]}"


def activation_of(path: str, source: object) -> str:
    """Returns our name of an activation: torch.nn.modules.activation.Sigmoid -> sigmoid

    Args:
        path: the path of its class in PyTorch.
        source: where the path comes from, for the message.
    """
    module, _, cls = path.rpartition(".")
    names = {theirs.rpartition(".")[2]: ours for ours, (theirs, _) in ACTIVATIONS.items()}
    if f"{module}." not in _PREFIXES or cls not in names:
        raise ValueError(
            f"The activation in {source} must be one of torch.nn: {', '.join(names)}. Received: {shortened(path)}."
        )
    return names[cls]

"""The position-wise feed-forward network, and the activation functions that Hugging Face configs name."""

from typing import Any

import keras

from ..backend.gradients import keeping_input
from .composite import Composite
from .dense import Dense
from .dropout import Dropout


@keeping_input
def _gelu(x):
    """Exact GELU. On JAX in float32, it uses erf, because XLA takes twice as long with erfc, which Keras uses."""
    if keras.backend.backend() != "jax" or x.dtype != "float32":
        return keras.activations.gelu(x, approximate=False)
    return x * (0.5 + 0.5 * keras.ops.erf(x * 0.5**0.5))


@keeping_input
def _tanh_gelu(x):
    return keras.activations.gelu(x, approximate=True)


_SILU = keeping_input(keras.activations.silu)

# The names are those of Hugging Face configs, so that the name in a loaded config is saved unchanged.
ACTIVATIONS = {
    "gelu": _gelu,
    "gelu_new": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": keras.activations.relu,
    "silu": _SILU,
    "swish": _SILU,
    "tanh": keras.activations.tanh,
    "linear": keras.activations.linear,
}


def activation_function(name):
    """Returns the activation function with this name in `ACTIVATIONS`.

    `gelu` is the exact function (erf). `gelu_new`, `gelu_fast` and `gelu_pytorch_tanh` are the tanh approximation.

    Raises: ValueError for an unknown name.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"`activation` must be one of {', '.join(ACTIVATIONS)}. Received: {name!r}.")
    return ACTIVATIONS[name]


class FeedForward(Composite):
    """Feed-forward network W2 act(W1 x): two dense layers with an activation in between, applied to each position.

    Args:
        hidden_dim: width m of the input and the output.
        feed_forward_dim: width between the two layers.
        activation: name of the activation function, one of `ACTIVATIONS`.
        kernel_initializer: initializer of both kernels.
        use_bias: whether both layers have a bias.
        output_initializer: initializer of the second kernel. Default: `kernel_initializer`.
        dropout: dropout rate after the activation.

    Call:
        x: float (b, s, m).

    Returns: float (b, s, m).
    """

    def __init__(
        self,
        hidden_dim,
        feed_forward_dim,
        activation="gelu",
        kernel_initializer="glorot_uniform",
        use_bias=True,
        output_initializer=None,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.activation = activation_function(activation)
        dense: dict[str, Any] = dict(kernel_initializer=kernel_initializer, use_bias=use_bias, dtype=self.dtype_policy)
        self.inner = Dense(feed_forward_dim, name="inner", **dense)
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        dense["kernel_initializer"] = output_initializer or kernel_initializer
        self.outer = Dense(hidden_dim, name="outer", **dense)

    def call(self, x):
        return self.outer(self.dropout(self.activation(self.inner(x))))


class GatedFeedForward(Composite):
    """Gated feed-forward network W3 (act(W1 x) * W2 x): two inner layers are multiplied and passed to an outer layer.

    With the activation gelu, this is GeGLU. With silu, it is SwiGLU (Shazeer 2020, arXiv 2002.05202).

    Args:
        hidden_dim: width m of the input and the output.
        feed_forward_dim: width of both inner layers.
        activation: name of the activation function, one of `ACTIVATIONS`.
        dropout: dropout rate of the product.
        kernel_initializer: initializer of the kernels of the inner layers.
        use_bias: whether the three layers have a bias; "outer": only the outer layer has one.
        output_initializer: initializer of the kernel of the outer layer. Default: `kernel_initializer`.

    Call:
        x: float (b, s, m).

    Returns: float (b, s, m).
    """

    def __init__(
        self,
        hidden_dim,
        feed_forward_dim,
        activation="gelu",
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        use_bias: bool | str = True,
        output_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.activation = activation_function(activation)
        dense: dict[str, Any] = dict(kernel_initializer=kernel_initializer, dtype=self.dtype_policy)
        dense["use_bias"] = use_bias is True
        self.inner = Dense(feed_forward_dim, name="inner", **dense)
        self.gate = Dense(feed_forward_dim, name="gate", **dense)
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        dense |= dict(kernel_initializer=output_initializer or kernel_initializer, use_bias=bool(use_bias))
        self.outer = Dense(hidden_dim, name="outer", **dense)

    def call(self, x):
        return self.outer(self.dropout(self.activation(self.inner(x)) * self.gate(x)))

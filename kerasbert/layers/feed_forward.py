"""The position-wise feed-forward network and the activations that checkpoints name."""

import functools

import keras

from .composite import Composite
from .dense import Dense
from .dropout import Dropout


def _gelu(x):
    """Exact GELU; on JAX in float32 it uses erf, because XLA's erfc takes twice as long."""
    if keras.backend.backend() != "jax" or x.dtype != "float32":
        return keras.activations.gelu(x, approximate=False)
    return x * (0.5 + 0.5 * keras.ops.erf(x * 0.5**0.5))


_TANH_GELU = functools.partial(keras.activations.gelu, approximate=True)

# The names are those of Hugging Face configs, so that a config survives the round trip.
ACTIVATIONS = {
    "gelu": _gelu,
    "gelu_new": _TANH_GELU,
    "gelu_fast": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
    "relu": keras.activations.relu,
    "silu": keras.activations.silu,
    "swish": keras.activations.silu,
    "tanh": keras.activations.tanh,
    "linear": keras.activations.linear,
}


def activation_function(name):
    """The activation `name` of a config: `gelu` is exact (erf), `gelu_new` and the like are the tanh approximation."""
    if name not in ACTIVATIONS:
        raise ValueError(f"`activation` must be one of {', '.join(ACTIVATIONS)}. Received: {name!r}.")
    return ACTIVATIONS[name]


class FeedForward(Composite):
    """W2 act(W1 x): two dense layers with an activation in between, applied to each position.

    Args:
        hidden_dim: width of the residual stream.
        feed_forward_dim: width between the two layers.
        activation: a name of `ACTIVATIONS`.
        kernel_initializer: for both kernels.
        use_bias: whether both layers have a bias.
        output_initializer: for the second kernel; default `kernel_initializer`.
        dropout: rate after the activation.

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
        dense = dict(kernel_initializer=kernel_initializer, use_bias=use_bias, dtype=self.dtype_policy)
        self.inner = Dense(feed_forward_dim, name="inner", **dense)
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        dense["kernel_initializer"] = output_initializer or kernel_initializer
        self.outer = Dense(hidden_dim, name="outer", **dense)

    def call(self, x):
        return self.outer(self.dropout(self.activation(self.inner(x))))


class GatedFeedForward(Composite):
    """W3 (act(W1 x) * W2 x): the activated output of one inner layer is multiplied by that of the other.

    Shazeer 2020, arXiv 2002.05202: GeGLU with gelu, SwiGLU with silu.

    Args:
        hidden_dim: width of the residual stream.
        feed_forward_dim: width of both inner layers.
        activation: a name of `ACTIVATIONS`.
        dropout: rate on the product.
        kernel_initializer: for the kernels of the inner layers.
        use_bias: whether the three layers have a bias.
        output_initializer: for the kernel of the outer layer; default `kernel_initializer`.

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
        use_bias=True,
        output_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.activation = activation_function(activation)
        dense = dict(kernel_initializer=kernel_initializer, use_bias=use_bias, dtype=self.dtype_policy)
        self.inner = Dense(feed_forward_dim, name="inner", **dense)
        self.gate = Dense(feed_forward_dim, name="gate", **dense)
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        dense["kernel_initializer"] = output_initializer or kernel_initializer
        self.outer = Dense(hidden_dim, name="outer", **dense)

    def call(self, x):
        return self.outer(self.dropout(self.activation(self.inner(x)) * self.gate(x)))

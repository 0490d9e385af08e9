"""The activations of a reranker's scores, in numpy; see `tasks.activations`."""

import math

import numpy as np

_SELU = 1.0507009873554805, 1.6732632423543772  # scale and alpha (Klambauer et al. 2017, arXiv 1706.02515)
_erf = np.vectorize(math.erf, otypes=["float64"])


def _sigmoid(x):
    return np.exp(-np.logaddexp(0.0, -x))


def _softplus(x):
    return np.logaddexp(0.0, x)


def _log_softmax(x):
    return x - np.logaddexp.reduce(x, axis=-1, keepdims=True)


def _elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


def _hard_sigmoid(x):
    return np.clip(x / 6.0 + 0.5, 0.0, 1.0)


# Name -> the function, with the default arguments of PyTorch.
ACTIVATIONS = {
    "identity": lambda x: x,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "softmax": lambda x: np.exp(_log_softmax(x)),
    "log_softmax": _log_softmax,
    "softmin": lambda x: np.exp(_log_softmax(-x)),
    "log_sigmoid": lambda x: -_softplus(-x),
    "relu": lambda x: np.maximum(x, 0.0),
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": _elu,
    "celu": _elu,
    "selu": lambda x: _SELU[0] * np.where(x > 0, x, _SELU[1] * _elu(x)),
    "gelu": lambda x: x * (1.0 + _erf(x / math.sqrt(2.0))) / 2.0,
    "silu": lambda x: x * _sigmoid(x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "softplus": _softplus,
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "soft_shrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0.0),
    "hard_shrink": lambda x: np.where(np.abs(x) > 0.5, x, 0.0),
    "tanh_shrink": lambda x: x - np.tanh(x),
    "hard_tanh": lambda x: np.clip(x, -1.0, 1.0),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda x: x * _hard_sigmoid(x),
}


def activated(name: str, x: np.ndarray) -> np.ndarray:
    """Applies an activation, computed in double precision. Returns float32."""
    return np.asarray(ACTIVATIONS[name](np.asarray(x, "float64")), "float32")

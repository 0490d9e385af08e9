"""Dense layers that treat all positions of all rows as one matrix, which is 1.5 times faster with XLA on a CPU."""

import keras
from keras import ops

from ..backend.gradients import add_bias, matrix_product
from .registered import Registered


class Dense(Registered, keras.layers.Dense):
    """Keras's dense layer.

    Call:
        x: float (..., m).

    Returns: float (..., units).
    """

    def call(self, x, training=None):
        rows, sizes = _as_rows(x)
        y = matrix_product(rows, self.kernel)
        y = y if self.bias is None else add_bias(y, self.bias)
        y = y if self.activation is None else self.activation(y)
        return y if rows is x else ops.reshape(y, (*sizes, self.units))


def tied_logits(x, table, bias=None):
    """The product of hidden states and a token table, with a bias.

    Call:
        x: float (b, p, m).
        table: float (v, m).
        bias: float (v,), or None.

    Returns: float (b, p, v).
    """
    rows, sizes = _as_rows(x)
    y = ops.einsum("bpm,vm->bpv", x, table) if rows is x else matrix_product(rows, table, axis=1)
    y = y if bias is None else add_bias(y, bias)
    return y if rows is x else ops.reshape(y, (*sizes, table.shape[0]))


def _as_rows(x):
    """(`x` (..., m) as (n, m) where that is faster, otherwise unchanged; its other sizes, -1 for a symbolic batch)."""
    if keras.backend.backend() != "jax" or len(x.shape) < 3:
        return x, None
    return ops.reshape(x, (-1, x.shape[-1])), [-1 if size is None else size for size in x.shape[:-1]]

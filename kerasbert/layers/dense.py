"""Dense layers that reshape their inputs to a matrix on JAX, which is 1.5 times faster with XLA on a CPU."""

import keras
from keras import ops

from ..backend.devices import target
from ..backend.gradients import add_bias, matrix_product
from ..backend.keras_adapter import base_kernel
from ..core.registered import Registered


class Dense(Registered, keras.layers.Dense):
    """Keras's dense layer, with the same arguments, implemented as a product of two matrices.

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

    def quantized_call(self, x, training=None):
        """Computes Keras's result. For int8 on CPUs, it multiplies floats, because products of integers are slow.

        The sums are the same up to rounding. Gradients pass through the rounding of the inputs, as in Keras.
        """
        if self.quantization_mode != "int8" or target() != "cpu":
            return super().quantized_call(x, training=training)
        y = x
        if self.inputs_quantizer is not None:
            rounded, scale = self.inputs_quantizer(x, axis=-1)
            y = x + ops.stop_gradient(ops.cast(rounded, x.dtype) / scale - x)
        kernel = ops.cast(base_kernel(self), x.dtype) / self.kernel_scale
        rows, sizes = _as_rows(y)
        y = matrix_product(rows, kernel)
        if self.lora_enabled:
            product = ops.matmul(ops.matmul(_as_rows(x)[0], self.lora_kernel_a), self.lora_kernel_b)
            y = y + ops.cast(self.lora_alpha / self.lora_rank * product, y.dtype)
        y = y if self.bias is None else add_bias(y, self.bias)
        y = y if self.activation is None else self.activation(y)
        return y if sizes is None else ops.reshape(y, (*sizes, self.units))

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantizes the kernel as in Keras, which does not support subclasses because it would not use their `call`."""
        super().quantize(mode, type_check=False, config=config)


def tied_logits(x, table, bias=None):
    """Computes logits with the token embeddings as output weights: x table^T + bias.

    Args:
        x: float (b, p, m), hidden states.
        table: float (v, m), the token embeddings.
        bias: float (v,), or None.

    Returns: logits, float (b, p, v).
    """
    rows, sizes = _as_rows(x)
    y = ops.einsum("bpm,vm->bpv", x, table) if rows is x else matrix_product(rows, table, axis=1)
    y = y if bias is None else add_bias(y, bias)
    return y if rows is x else ops.reshape(y, (*sizes, table.shape[0]))


def _as_rows(x):
    """Reshapes x from (..., m) to (n, m) if this is faster.

    Returns: (x, list of the original sizes except m, with -1 for a symbolic batch size). If x is unchanged, the second
        item is None.
    """
    if keras.backend.backend() != "jax" or len(x.shape) < 3:
        return x, None
    return ops.reshape(x, (-1, x.shape[-1])), [-1 if size is None else size for size in x.shape[:-1]]

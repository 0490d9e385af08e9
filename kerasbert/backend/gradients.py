"""Faster versions of operations whose gradients XLA or torch compute slowly."""

import contextlib
import functools
from typing import Any

import keras

from .devices import target


def no_gradients():
    """Returns a context manager that disables gradients on torch.

    On other backends, it does nothing, and `stop_gradient` must be applied to the results.
    """
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Returns the cross-entropy -log softmax(logits)[labels].

    On JAX, half-precision logits are not copied to float32.

    Args:
        logits: float (..., v).
        labels: int32 (...), in [0, v).

    Returns: float32 (...), in nats.
    """
    logits = keras.ops.convert_to_tensor(logits)
    labels = keras.ops.cast(labels, "int32")
    backend = keras.backend.backend()
    if backend == "jax":
        return _cross_entropy_jax()(logits, labels)
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, "float32"))
    import torch

    rows, chosen = logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1).long()
    return torch.nn.functional.cross_entropy(rows, chosen, reduction="none").reshape(labels.shape)


def add_bias(x, bias):
    """Returns x + bias, for x (..., n) and bias (n,).

    The gradient of the bias is a sum over rows. On CPUs, XLA computes it faster as a product with a row of ones.
    """
    if keras.backend.backend() != "jax":
        return keras.ops.add(x, bias)
    if target() != "cpu":
        return keras.ops.add(x, bias)
    import jax

    return _add_bias_jax()(x, jax.numpy.asarray(bias))


def matrix_product(x, kernel, axis=0):
    """Returns the product of two matrices, (n, v).

    On CPUs, XLA has fast bfloat16 products only with float32 results. On processors that support bfloat16, they are
    five times as fast as other products.

    Args:
        x: float (n, m).
        kernel: float (m, v) if `axis` is 0, or (v, m) if `axis` is 1.
        axis: the axis of the kernel over which the product is summed.
    """
    if keras.backend.backend() == "jax":
        import jax

        half = all(keras.backend.standardize_dtype(a.dtype) == "bfloat16" for a in (x, kernel))
        if half and target() == "cpu":
            return _bfloat16_product_jax(axis)(x, jax.numpy.asarray(kernel))
    return keras.ops.matmul(x, kernel) if axis == 0 else keras.ops.einsum("nm,vm->nv", x, kernel)


def keeping_input(function):
    """Returns an elementwise function whose backward pass computes all but its input again.

    On JAX, GELU would otherwise store the normal distribution and its density beside the input and the output: four
    arrays of the size of the inner layer instead of two. GPUs and TPUs compute them in less time than they take to read
    them. On CPUs, they are stored.

    Args:
        function: function of one array, float (...), that returns float (...).
    """

    @functools.wraps(function)
    def applied(x):
        if keras.backend.backend() != "jax" or target() == "cpu" or isinstance(x, keras.KerasTensor):
            return function(x)
        import jax

        return jax.checkpoint(function)(x)

    return applied


@functools.cache
def _cross_entropy_jax():
    import jax
    import jax.numpy as jnp

    def forward(logits, labels):
        total = jax.nn.logsumexp(logits.astype("float32"), axis=-1)
        chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return total - chosen.astype("float32"), (logits, labels, total)

    def backward(saved, gradient):
        # A comparison with the label runs in the same pass over memory as the softmax. A scatter would need separate
        # passes.
        logits, labels, total = saved
        probabilities = jnp.exp(logits.astype("float32") - total[..., None])
        label = jnp.arange(logits.shape[-1]) == labels[..., None]
        return ((probabilities - label) * gradient[..., None]).astype(logits.dtype), None

    function = jax.custom_vjp(lambda logits, labels: forward(logits, labels)[0])
    function.defvjp(forward, backward)
    return function


@functools.cache
def _add_bias_jax():
    import jax
    import jax.numpy as jnp

    def backward(_, gradient):
        rows = gradient.reshape(-1, gradient.shape[-1])
        return gradient, (jnp.ones((1, rows.shape[0]), rows.dtype) @ rows)[0]

    function = jax.custom_vjp(lambda x, bias: x + bias)
    function.defvjp(lambda x, bias: (x + bias, None), backward)
    return function


@functools.cache
def _bfloat16_product_jax(axis):
    import jax

    def product(a, b, axes):
        return jax.lax.dot_general(a, b, (axes, ((), ())), preferred_element_type="float32").astype("bfloat16")

    def backward(operands, gradient):
        x, kernel = operands
        # XLA uses the slow product if there is one axis of rows, but not if there are two.
        a, b = (gradient, x) if axis else (x, gradient)
        return product(gradient, kernel, ((1,), (1 - axis,))), product(a[None], b[None], ((0, 1), (0, 1)))

    function = jax.custom_vjp(lambda x, kernel: product(x, kernel, ((1,), (axis,))))
    function.defvjp(lambda x, kernel: (function(x, kernel), (x, kernel)), backward)
    return function

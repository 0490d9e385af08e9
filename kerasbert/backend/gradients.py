"""Operations whose gradients XLA or torch would compute slowly."""

import contextlib
import functools

import keras


def no_gradients():
    """A context without gradients on torch; on other backends, the results need `stop_gradient`."""
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


def cross_entropy(logits, labels):
    """-log softmax(logits)[labels] in float32; on JAX without a float32 copy of half-precision `logits`.

    Call:
        logits: float (..., v).
        labels: int32 (...), in [0, v).

    Returns: float32 (...), nats.
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
    """`x` (..., n) + `bias` (n,).

    The gradient of a bias is a sum over rows, which XLA on a CPU computes slower than a product with a row of ones.
    """
    if keras.backend.backend() != "jax":
        return keras.ops.add(x, bias)
    import jax

    if jax.default_backend() != "cpu":
        return keras.ops.add(x, bias)
    return _add_bias_jax()(x, jax.numpy.asarray(bias))


def matrix_product(x, kernel, axis=0):
    """`x` (n, m) times `kernel`, whose `axis` has size m: (m, v), or (v, m) for axis 1.

    XLA on a CPU has fast bfloat16 products, but only with float32 results: they are five times as fast as the others
    on processors with a unit for them.
    """
    if keras.backend.backend() == "jax":
        import jax

        half = all(keras.backend.standardize_dtype(a.dtype) == "bfloat16" for a in (x, kernel))
        if half and jax.default_backend() == "cpu":
            return _bfloat16_product_jax(axis)(x, jax.numpy.asarray(kernel))
    return keras.ops.matmul(x, kernel) if axis == 0 else keras.ops.einsum("nm,vm->nv", x, kernel)


@functools.cache
def _cross_entropy_jax():
    import jax
    import jax.numpy as jnp

    def forward(logits, labels):
        total = jax.nn.logsumexp(logits.astype("float32"), axis=-1)
        chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return total - chosen.astype("float32"), (logits, labels, total)

    def backward(saved, gradient):
        # A comparison with the label is part of the same pass as the softmax; a scatter would need separate passes.
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
        # With one row axis XLA would use the slow product, with two it does not.
        a, b = (gradient, x) if axis else (x, gradient)
        return product(gradient, kernel, ((1,), (1 - axis,))), product(a[None], b[None], ((0, 1), (0, 1)))

    function = jax.custom_vjp(lambda x, kernel: product(x, kernel, ((1,), (axis,))))
    function.defvjp(lambda x, kernel: (function(x, kernel), (x, kernel)), backward)
    return function

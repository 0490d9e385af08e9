"""Operations whose gradient XLA or torch would find the slow way."""

import functools

import keras


def cross_entropy(logits, labels):
    """-log softmax(logits)[labels] in float32; of `logits` in half precision there is no second copy in float32.

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

    The gradient of a bias is a sum over rows, which XLA on a CPU does slower than a product with a row of ones.
    """
    if keras.backend.backend() != "jax":
        return keras.ops.add(x, bias)
    import jax

    if jax.default_backend() != "cpu":
        return keras.ops.add(x, bias)
    return _add_bias_jax()(x, jax.numpy.asarray(bias))


@functools.cache
def _cross_entropy_jax():
    import jax
    import jax.numpy as jnp

    def forward(logits, labels):
        total = jax.nn.logsumexp(logits.astype("float32"), axis=-1)
        chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return total - chosen.astype("float32"), (logits, labels, total)

    def backward(saved, gradient):
        # As a comparison the label goes into the same pass as the softmax; as a scatter it would be passes of its own.
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

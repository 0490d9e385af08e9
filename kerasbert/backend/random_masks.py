"""Fast random masks for dropout. On CPUs, the masks of the backends take up to a third of a training step."""

import math

import keras
import numpy as np

from .keras_adapter import has_fixed_seed


def dropped(x, rate, noise_shape, seed_generator):
    """Applies dropout: sets each value to 0 with probability `rate`, and divides the others by 1 - `rate`.

    Args:
        x: float, any shape.
        rate: probability, above 0 and below 1.
        noise_shape: shape of the mask, as in Keras. Along axes of size 1, all values share the mask. None stands for
            the size of x.
        seed_generator: a Keras `SeedGenerator`. If it was created without a seed, the global generator is used on
            torch.

    Returns: float, in the shape of x, or None if Keras's dropout should be used because it is faster.
    """
    if keras.backend.backend() == "torch":
        is_special = noise_shape is not None or has_fixed_seed(seed_generator)
        on_cpu = getattr(getattr(x, "device", None), "type", None) == "cpu"
        return x * _factors(x, rate) if on_cpu and not is_special else None
    if keras.backend.backend() not in ("jax", "tensorflow") or isinstance(x, keras.KerasTensor):
        return None
    shape = keras.ops.shape(x)
    if noise_shape is not None:
        shape = tuple(fixed or size for fixed, size in zip(noise_shape, shape, strict=True))
    mask = kept(shape, rate, seed_generator.next())
    return keras.ops.where(mask, x / (1 - rate), keras.ops.zeros((), x.dtype))


def _factors(x, rate):
    """Returns 0 or 1 / (1 - rate) for each value of x, on torch.

    Each value takes 16 random bits, so that a 64-bit random number gives four values. The computation is in float32,
    because torch has fast loops for float32, but not for bool.
    """
    import torch

    count, steps = x.numel(), 2**15
    hidden = min(round(rate * 2 * steps), 2 * steps - 1)
    bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    bits = bits[:count].view(x.shape).to(torch.float32)  # from -32,768 to 32,767; the lowest are dropped
    scale = 1 / (1 - hidden / (2 * steps))
    return bits.sub_(hidden - steps - 1).mul_(scale).clamp_(0, scale).to(x.dtype)


# === Masks from a hash ===


def kept(shape, rate, seed):
    """Returns a random mask on JAX and TensorFlow, as a pure function of a seed.

    The mask is a hash of the positions, which XLA fuses with the operation that uses it. The hash function is
    "lowbias32" (Chris Wellons 2018), applied in two rounds, each of which mixes in one word of the seed.

    Args:
        shape: shape of the mask.
        rate: probability of False.
        seed: integers (2,).

    Returns: bool, in the given shape.
    """
    return is_kept(_positions(shape), rate, words_of(seed))


def words_of(seed):
    """Returns the two uint32 words of a seed (2,) that `is_kept` mixes into the positions."""
    low, high = (keras.ops.cast(seed[n], "uint32") for n in range(2))
    first = _scrambled(low ^ _scrambled(high, np.uint32(0)), np.uint32(0))
    return first, _scrambled(first + high, np.uint32(0))


def is_kept(positions, rate, words):
    """Whether dropout keeps the values at these positions of a mask.

    On JAX, kernels in Pallas can call this function.

    Args:
        positions: uint32, numbers of the values in the mask, in row-major order.
        rate: probability of False.
        words: see `words_of`.

    Returns: bool, in the shape of `positions`.
    """
    bits = _scrambled(positions + words[0], words[1])
    return bits >= np.uint32(min(round(rate * 2**32), 2**32 - 1))


def _scrambled(x, key):
    """Returns a hash of the uint32 numbers x and the key."""
    x = (x ^ _shifted(x, 16)) * np.uint32(0x21F0AAAD) ^ key
    x = (x ^ _shifted(x, 15)) * np.uint32(0x735A2D97)
    return x ^ _shifted(x, 15)


def _shifted(x, bits):
    bits = np.uint32(bits)
    return x >> bits if keras.backend.backend() == "jax" else keras.ops.bitwise_right_shift(x, bits)


def _positions(shape):
    """Returns the numbers 0, 1, 2, ... as uint32, in the given shape."""
    if keras.backend.backend() == "jax":
        from jax import lax
        from jax import numpy as jnp

        return lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    positions = keras.ops.arange(math.prod(shape), dtype="int32")
    return keras.ops.cast(keras.ops.reshape(positions, shape), "uint32")

"""Fast random masks for dropout. On CPUs, the masks of the backends take up to a third of a training step."""

import contextlib
import contextvars
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
    part = _PART.get()
    if keras.backend.backend() == "torch":
        is_special = noise_shape is not None or has_fixed_seed(seed_generator)
        on_cpu = getattr(getattr(x, "device", None), "type", None) == "cpu"
        if is_special or not on_cpu:
            return None
        return x * (_factors(x, rate) if part is None or x.numel() % part.rows else _factors_by_row(x, rate, part))
    if keras.backend.backend() not in ("jax", "tensorflow") or isinstance(x, keras.KerasTensor):
        return None
    shape = keras.ops.shape(x)
    if noise_shape is not None:
        shape = tuple(fixed or size for fixed, size in zip(noise_shape, shape, strict=True))
    size = math.prod(shape)
    first = 0 if part is None or size % part.rows else part.first * (size // part.rows)
    mask = kept(shape, rate, seed_generator.next(), first)
    return keras.ops.where(mask, x / (1 - rate), keras.ops.zeros((), x.dtype))


class _Part:
    """Which rows of a batch are computed; on torch, also a seed of the batch, and the number of masks so far."""

    def __init__(self, first, rows, seed=0):
        self.first, self.rows, self.seed, self.masks = first, rows, seed, 0


_PART = contextvars.ContextVar("part of the batch", default=None)


@contextlib.contextmanager
def part_of_batch(first, rows, seed=0):
    """Context manager in which the rows of arrays are `rows` rows of a larger batch, from number `first` on.

    Their masks are those that they have in the whole batch, if the seeds are the same.

    Args:
        first: int, or an integer tensor.
        rows: int.
        seed: int, the seed of all masks on torch. It must be drawn for each batch.
    """
    token = _PART.set(_Part(first, rows, seed))
    try:
        yield
    finally:
        _PART.reset(token)


def _factors_by_row(x, rate, part):
    """Like `_factors`, but every row of the batch has a random generator of its own."""
    import torch

    count, generator = x.numel() // part.rows, torch.Generator()
    bits = torch.empty(part.rows, -(-count // 4), dtype=torch.int64)
    for row in range(part.rows):
        generator.manual_seed(_mixed(part.seed, part.masks, part.first + row))
        bits[row].random_(-(2**63), None, generator=generator)
    part.masks += 1
    return _scaled(bits.view(torch.int16)[:, :count].reshape(x.shape), rate, x.dtype)


def _mixed(*numbers):
    """Returns a 32-bit hash of integers, by the mixing function of SplitMix64 (Steele et al. 2014)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % 2**64
        state ^= state >> 31
    return state % 2**32


def _factors(x, rate):
    """Returns 0 or 1 / (1 - rate) for each value of x, on torch.

    Each value takes 16 random bits, so that a 64-bit random number gives four values. The computation is in float32,
    because torch has fast loops for float32, but not for bool.
    """
    import torch

    count = x.numel()
    bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    return _scaled(bits[:count].view(x.shape), rate, x.dtype)


def _scaled(bits, rate, dtype):
    """Returns 0 or 1 / (1 - rate) for random int16 values, on torch. The lowest become 0."""
    import torch

    steps = 2**15
    hidden = min(round(rate * 2 * steps), 2 * steps - 1)
    scale = 1 / (1 - hidden / (2 * steps))
    return bits.to(torch.float32).sub_(hidden - steps - 1).mul_(scale).clamp_(0, scale).to(dtype)


# === Masks from a hash ===


def kept(shape, rate, seed, first=0):
    """Returns a random mask on JAX and TensorFlow, as a pure function of a seed.

    The mask is a hash of the positions, which XLA fuses with the operation that uses it. The hash function is
    "lowbias32" (Chris Wellons 2018), applied in two rounds, each of which mixes in one word of the seed.

    Args:
        shape: shape of the mask.
        rate: probability of False.
        seed: integers (2,).
        first: number of the first value, if the mask is a part of a larger one: int, or an integer tensor.

    Returns: bool, in the given shape.
    """
    positions = _positions(shape)
    if not isinstance(first, int) or first:
        positions = positions + keras.ops.cast(first, "uint32")
    return is_kept(positions, rate, words_of(seed))


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

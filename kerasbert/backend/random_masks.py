"""Fast random masks: on CPUs, those of the backends take up to a third of the time of a training step."""

import math

import keras

from ..core.keras_adapter import has_fixed_seed


def dropped(x, rate, noise_shape, seed_generator):
    """`x` with a fraction `rate` of its values 0, the others divided by 1 - `rate`; None where Keras's dropout is best.

    Args:
        x: float, any shape.
        rate: more than 0, less than 1.
        noise_shape: as in Keras: axes of size 1 share their mask, None is the size of `x`.
        seed_generator: of Keras. If it was created without a seed, torch draws from its global generator.
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
    """On torch: 0 or 1 / (1 - `rate`) for each value of `x`, from 16 random bits each.

    Each number of the generator gives four values. Torch has fast loops for float32, but not for bool.
    """
    import torch

    count, steps = x.numel(), 2**15
    hidden = min(round(rate * 2 * steps), 2 * steps - 1)
    bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    bits = bits[:count].view(x.shape).to(torch.float32)  # -32,768, ..., 32,767, of which the lowest are dropped
    scale = 1 / (1 - hidden / (2 * steps))
    return bits.sub_(hidden - steps - 1).mul_(scale).clamp_(0, scale).to(x.dtype)


# === Masks from a hash ===


def kept(shape, rate, seed):
    """On JAX and TensorFlow: bool of `shape`, False for a fraction `rate`; a pure function of `seed`, integers (2,).

    XLA fuses it with the operation that uses it. The hash has two rounds, which were found by search ("lowbias32",
    Chris Wellons 2018), with one word of the seed mixed in before each.
    """
    low, high = _uint32(seed[0]), _uint32(seed[1])
    first = _scrambled(low ^ _scrambled(high, _uint32(0)), _uint32(0))
    bits = _scrambled(_positions(shape) + first, _scrambled(first + high, _uint32(0)))
    return bits >= _uint32(min(round(rate * 2**32), 2**32 - 1))


def _scrambled(x, key):
    x = (x ^ _shifted(x, 16)) * _uint32(0x21F0AAAD) ^ key
    x = (x ^ _shifted(x, 15)) * _uint32(0x735A2D97)
    return x ^ _shifted(x, 15)


def _shifted(x, bits):
    return keras.ops.bitwise_right_shift(x, _uint32(bits))


def _uint32(x):
    return keras.ops.cast(x, "uint32")


def _positions(shape):
    """0, 1, 2, ... in `shape`."""
    if keras.backend.backend() == "jax":
        from jax import lax
        from jax import numpy as jnp

        return lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return _uint32(keras.ops.reshape(keras.ops.arange(math.prod(shape), dtype="int32"), shape))

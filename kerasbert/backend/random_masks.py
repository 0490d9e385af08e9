"""Random masks on JAX as a hash of each position, which costs a fifteenth of the bits that JAX draws."""

import math


def kept(shape, rate, seed):
    """bool of `shape`, False for a share of `rate`: a pure function of `seed`, uint32 (2,).

    XLA computes it inside the pass that uses it. The hash is one of two rounds found by search ("lowbias32", Chris
    Wellons 2018), with one word of the seed in front of each.
    """
    from jax import lax
    from jax import numpy as jnp

    first = _scrambled(seed[0] ^ _scrambled(seed[1], 0), 0)
    positions = lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    bits = _scrambled(positions + first, _scrambled(first + seed[1], 0))
    return bits >= jnp.uint32(min(round(rate * 2**32), 2**32 - 1))


def _scrambled(x, key):
    from jax import numpy as jnp

    x = (x ^ (x >> 16)) * jnp.uint32(0x21F0AAAD) ^ key
    x = (x ^ (x >> 15)) * jnp.uint32(0x735A2D97)
    return x ^ (x >> 15)

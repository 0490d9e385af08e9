"""Rematerialization: activations are recomputed in the backward pass instead of being stored."""

import contextlib
import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from .devices import target
from .keras_adapter import all_layers, is_training

STRIDE = 9_973  # difference between the seeds of a generator that is used more than once in a call


def rematerialized(layer):
    """Returns a replacement for the `call` method of a layer that stores only the arguments during training.

    The backward pass computes the activations again. It calls the layer rather than its method, because Keras knows the
    compute dtype and whether it is training only inside such a call. It uses the seeds of the first call, so that
    dropout has the same masks. Gradients do not change.
    """
    call, inside = layer.call, []

    def kept_small(*args, **kwargs):
        if inside or not is_training(layer):
            return call(*args, **kwargs)
        leaves, structure = keras.tree.flatten((args, kwargs)), []
        places = [i for i, leaf in enumerate(leaves) if _takes_gradients(leaf)]
        seeds = [(generator, generator.next()) for generator in _generators(layer)]

        def run(*tensors):
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            positional, named = keras.tree.pack_sequence_as((args, kwargs), filled)
            inside.append(True)
            try:
                with _drawn(seeds):
                    outputs = layer(*positional, **{**named, "training": True})
            finally:
                inside.pop()
            # Not every backend accepts outputs that are not tensors.
            structure[:] = [keras.tree.map_structure(lambda leaf: leaf is not None, outputs)]
            return [leaf for leaf in keras.tree.flatten(outputs) if leaf is not None]

        tensors = iter(_recomputed(run, [leaves[place] for place in places]))
        return keras.tree.map_structure(lambda is_there: next(tensors) if is_there else None, structure[0])

    replacement: Any = functools.wraps(call)(kept_small)
    replacement.recomputes = True  # for `is_rematerialized`
    return replacement


def is_rematerialized(layer):
    """Whether the `call` of a layer was replaced by the result of `rematerialized`."""
    return getattr(vars(layer).get("call"), "recomputes", False)


def _recomputed(function, tensors):
    """Returns `function(*tensors)`, whose activations are recomputed in the backward pass."""
    if keras.backend.backend() == "jax" and target() == "cpu":
        return _recomputed_on_cpu(function, tensors)
    return keras.remat(function)(*tensors)


def _recomputed_on_cpu(function, tensors):
    """Like `_recomputed`, but for JAX on CPUs, where `jax.checkpoint` has no effect.

    XLA would merge the identical computations of forward and backward pass into one. Adding 0 times the gradient, which
    XLA does not simplify, to the inputs of the second computation prevents this.
    """
    import jax
    from jax import numpy as jnp

    # The weights, which `function` reads but does not take as arguments, also need gradients.
    function, weights = jax.closure_convert(function, *tensors)
    several = jax.custom_vjp(lambda tensors, weights: function(*tensors, *weights))

    def backward(kept, gradients):
        tensors, weights = kept
        floats = [leaf for leaf in jax.tree.leaves(gradients) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        nothing = 0 * sum(leaf[(0,) * leaf.ndim].astype("float32") for leaf in floats)
        tensors = [tensor + nothing.astype(tensor.dtype) for tensor in tensors]
        return jax.vjp(lambda tensors, weights: function(*tensors, *weights), tensors, weights)[1](gradients)

    several.defvjp(lambda tensors, weights: (several(tensors, weights), (tensors, weights)), backward)
    return several(tensors, weights)


def _takes_gradients(leaf):
    return ops.is_tensor(leaf) and keras.backend.is_float_dtype(keras.backend.standardize_dtype(leaf.dtype))


def _generators(layer):
    found = [getattr(part, "seed_generator", None) for part in all_layers(layer)]
    return [generator for generator in found if generator is not None]


@contextlib.contextmanager
def _drawn(seeds):
    """Context manager that makes seed generators return seeds that were drawn from them before.

    Their state does not change.

    Args:
        seeds: list of (generator, seed).
    """

    def next_of(seed):
        draws = []

        def next_seed(ordered=True):
            draws.append(seed)
            return seed + ops.convert_to_tensor(np.array([STRIDE * (len(draws) - 1), 0]), dtype=seed.dtype)

        return next_seed

    before = [vars(generator).get("next") for generator, _ in seeds]
    for generator, seed in seeds:
        generator.next = next_of(seed)
    try:
        yield
    finally:
        for (generator, _), previous in zip(seeds, before, strict=True):
            del generator.next
            if previous is not None:  # of `chunks.in_chunks`
                generator.next = previous

"""Rematerialisation: what a layer computes is computed again in the backward pass instead of being kept for it."""

import contextlib
import functools

import keras
import numpy as np
from keras import ops

STRIDE = 9_973  # between the seeds of a generator that draws more than once in a call


def rematerialized(layer):
    """The `call` of `layer` such that training keeps its arguments only.

    Keras forgets, outside a call, whether it trains and in which dtype it computes, and dropout would draw anew: so the
    second time, too, is a call of the layer, with the seeds of the first. Gradients are those of the layer as it was.
    """
    call, inside = layer.call, []

    @functools.wraps(call)
    def kept_small(*args, **kwargs):
        if inside or not layer._get_call_context().get_value("training"):
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
            # Not every backend takes an output that is no tensor.
            structure[:] = [keras.tree.map_structure(lambda leaf: leaf is not None, outputs)]
            return [leaf for leaf in keras.tree.flatten(outputs) if leaf is not None]

        tensors = iter(_recomputed(run, [leaves[place] for place in places]))
        return keras.tree.map_structure(lambda is_there: next(tensors) if is_there else None, structure[0])

    return kept_small


def _recomputed(function, tensors):
    """`function(*tensors)`, of which the backward pass computes again what it needs."""
    if keras.backend.backend() == "jax":
        import jax

        if jax.default_backend() == "cpu":
            return _recomputed_on_cpu(function, tensors)
    return keras.remat(function)(*tensors)


def _recomputed_on_cpu(function, tensors):
    """On a CPU XLA sees through `jax.checkpoint`: it finds the same computation twice, and keeps the first result.

    So the second one is made from other numbers: the tensors plus 0 times the gradient, which is 0 to all but XLA.
    """
    import jax
    from jax import numpy as jnp

    # Weights, which `function` reads without being given them, take gradients too.
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
    found = [getattr(part, "seed_generator", None) for part in layer._flatten_layers()]
    return [generator for generator in found if generator is not None]


@contextlib.contextmanager
def _drawn(seeds):
    """Generators give the seeds that were drawn from them, and have no state to change."""

    def next_of(seed):
        draws = []

        def next_seed(ordered=True):
            draws.append(seed)
            return seed + ops.convert_to_tensor(np.array([STRIDE * (len(draws) - 1), 0]), dtype=seed.dtype)

        return next_seed

    for generator, seed in seeds:
        generator.next = next_of(seed)
    try:
        yield
    finally:
        for generator, _ in seeds:
            del generator.next

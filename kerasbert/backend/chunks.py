"""Encoding of many rows a chunk at a time, with the gradients of the whole batch (GradCache)."""

import contextlib
import functools

import keras
from keras import ops

from .keras_adapter import all_layers
from .random_masks import part_of_batch


def in_chunks(function, inputs, chunk, model):
    """Returns `function(inputs)`, computed for `chunk` rows at a time.

    In the forward pass, only the outputs are kept. The backward pass computes each chunk again, and adds up the
    gradients of the weights (Gao et al. 2021, arXiv 2101.06983). Dropout has the masks that the rows would have in the
    whole batch, so that the chunks do not change the gradients.

    Args:
        function: function of a dict of arrays that returns float32 (rows, ...), and treats every row by itself. It must
            pass `training=True` to the layers that it calls.
        inputs: a dict of arrays with the rows on the first axis.
        chunk: number of rows, or None for all of them.
        model: the model whose random generators the function uses.
    """
    backend = keras.backend.backend()
    inputs = {name: array for name, array in inputs.items() if array is not None}
    if backend == "torch":
        return _in_chunks_torch(function, inputs, chunk, _Generators(model))
    if chunk is None:
        return function(inputs)
    names, arrays = list(inputs), [ops.convert_to_tensor(array) for array in inputs.values()]
    rows = ops.shape(arrays[0])[0]
    count = (rows + chunk - 1) // chunk
    parts = [ops.reshape(_filled(a, count * chunk - rows), (count, chunk, *ops.shape(a)[1:])) for a in arrays]
    generators = _Generators(model)

    def encode(number, *part):
        with generators.at_start(), part_of_batch(number * chunk, chunk):
            return function(dict(zip(names, part, strict=True)))

    outputs = {"jax": _map_jax, "tensorflow": _map_tensorflow}[backend](encode, count, parts)
    generators.advance()
    return ops.reshape(outputs, (-1, *outputs.shape[2:]))[:rows]


def recomputed_blocks(function, blocks, others):
    """Returns `function(*block, *others)` for each block, stacked, without keeping what it computes on the way.

    The backward pass computes each block again.

    Args:
        function: function of tensors that returns float32 (...), and reads no other tensors.
        blocks: a list of tensors, whose first axis counts the blocks.
        others: a list of further tensors, which are the same for all blocks.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        from torch import stack
        from torch.utils.checkpoint import checkpoint

        return stack(
            [checkpoint(function, *block, *others, use_reentrant=False) for block in zip(*blocks, strict=True)]
        )
    if backend == "jax":
        import jax

        recomputed = jax.checkpoint(function, prevent_cse=False)
        return jax.lax.map(lambda block: recomputed(*block, *others), tuple(blocks))
    import tensorflow as tf

    recomputed = tf.recompute_grad(function)
    run = functools.partial(tf.map_fn, fn_output_signature="float32", parallel_iterations=1)
    return run(lambda block: recomputed(*block, *others), tuple(blocks))


def _filled(array, missing):
    """Adds copies of the first row, which are harmless inputs, at the end of an array."""
    if isinstance(missing, int) and not missing:
        return array
    return ops.concatenate([array, ops.repeat(array[:1], missing, axis=0)], axis=0)


class _Generators:
    """The seed generators of a model, which give every chunk the seeds that the whole batch would have."""

    def __init__(self, model):
        found = [getattr(layer, "seed_generator", None) for layer in all_layers(model)]
        self.generators = list({id(g): g for g in found if g is not None}.values())
        self.states = [generator.state.value * 1 for generator in self.generators]
        self.draws = [0] * len(self.generators)

    @contextlib.contextmanager
    def at_start(self):
        """Context manager in which the generators begin with the seeds of the whole batch; no state changes."""
        self.draws = [0] * len(self.generators)
        before = [vars(generator).get("next") for generator in self.generators]
        for number, generator in enumerate(self.generators):
            generator.next = functools.partial(self._next, number)
        try:
            yield
        finally:
            for generator, previous in zip(self.generators, before, strict=True):
                if previous is None:
                    del generator.next
                else:
                    generator.next = previous

    def _next(self, number, ordered=True):
        seed = self._later(number, self.draws[number])
        self.draws[number] += 1
        return seed

    def _later(self, number, draws):
        state = self.states[number]
        return state + ops.convert_to_tensor([0, draws], dtype=keras.backend.standardize_dtype(state.dtype))

    def advance(self):
        """Sets the generators to the state after the batch."""
        for number, generator in enumerate(self.generators):
            generator.state.assign(self._later(number, self.draws[number]))


def _in_chunks_torch(function, inputs, chunk, generators):
    import torch

    arrays = {name: ops.convert_to_tensor(array) for name, array in inputs.items()}
    rows = next(iter(arrays.values())).shape[0]
    seed = int(torch.randint(2**62, ()))
    chunk = rows if chunk is None else chunk

    def encode(start):
        with generators.at_start(), part_of_batch(start, min(chunk, rows - start), seed):
            return function({name: array[start : start + chunk] for name, array in arrays.items()})

    if chunk >= rows or not torch.is_grad_enabled():
        outputs = torch.cat([encode(start) for start in range(0, rows, chunk)])
    else:
        # The weights are no arguments of the function, which therefore needs another one with a gradient.
        outputs = _chunks_torch().apply(torch.zeros((), requires_grad=True), encode, range(0, rows, chunk))
    generators.advance()
    return outputs


@functools.cache
def _chunks_torch():
    import torch

    class Chunks(torch.autograd.Function):
        """Computes chunks without a graph, and once more in the backward pass, where the weights get gradients."""

        @staticmethod
        def forward(ctx, _, encode, starts):
            ctx.encode, ctx.starts = encode, starts
            return torch.cat([encode(start) for start in starts])

        @staticmethod
        def backward(ctx, *upstream):
            for start, gradient in zip(ctx.starts, upstream[0].split(ctx.starts.step), strict=True):
                with torch.enable_grad():
                    outputs = ctx.encode(start)
                torch.autograd.backward(outputs, gradient)
            return torch.zeros(()), None, None

    return Chunks


def _map_jax(encode, count, parts):
    import jax

    # The two loops are separate programs to XLA, which therefore cannot merge the two computations of a chunk.
    encode = jax.checkpoint(encode, prevent_cse=False)
    return jax.lax.map(lambda part: encode(*part), (jax.numpy.arange(count), *parts))


def _map_tensorflow(encode, count, parts):
    import tensorflow as tf

    def chunk_of(number):
        return encode(number, *(part[number] for part in parts))

    @tf.custom_gradient
    def outputs():
        vectors = tf.map_fn(chunk_of, tf.range(count), fn_output_signature="float32", parallel_iterations=1)

        def gradients(upstream, variables=()):
            def add(number, *sums):
                with tf.GradientTape() as tape:
                    product = tf.reduce_sum(chunk_of(number) * upstream[number])
                found = tape.gradient(product, variables, unconnected_gradients="zero")
                found = [tf.cast(tf.convert_to_tensor(gradient), "float32") for gradient in found]
                return number + 1, *(a + b for a, b in zip(sums, found, strict=True))

            start = (tf.constant(0), *(tf.zeros(variable.shape) for variable in variables))
            most = count if isinstance(count, int) else None
            _, *sums = tf.while_loop(
                lambda number, *_: number < count, add, start, parallel_iterations=1, maximum_iterations=most
            )
            return [], [tf.cast(a, variable.dtype) for a, variable in zip(sums, variables, strict=True)]

        return vectors, gradients

    return outputs()

"""The kernels of flash attention: see `flash_attention`, which prepares their arguments.

Each program computes one block of one head of one row. The forward pass visits the blocks of keys. The backward pass
visits the blocks of queries for the gradients of keys and values, and the blocks of keys for those of queries.
"""

import dataclasses
import functools

import numpy as np

from .random_masks import is_kept

HIDDEN = -1e30  # the score of masked keys, as in the reference implementation


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a kernel is compiled for.

    Args:
        kind: "gpu" or "tpu".
        scale: factor of the scores.
        lengths: numbers of queries and keys.
        blocks: numbers of queries and keys in a block.
        count: number of blocks of queries, and of keys.
        offset: position of the first query among the keys.
        causal, window: see `AttentionMask`.
        rate: dropout rate.
        strides: what the number of a score in the dropout mask grows by along batch, heads, queries and keys.
    """

    kind: str
    scale: float
    lengths: tuple[int, int]
    blocks: tuple[int, int]
    count: int
    offset: int = 0
    causal: bool = False
    window: int | None = None
    rate: float = 0.0
    strides: tuple[int, int, int, int] = (0, 0, 0, 0)


@functools.cache
def attention():
    """Returns the differentiable function of (plan, query, key, value, bias, inputs); see `_masks` for the inputs."""
    import jax

    def forward(plan, query, key, value, bias, inputs):
        y, total = _forward(plan, query, key, value, bias, inputs)
        return y, (query, key, value, bias, inputs, y, total)

    def backward(plan, kept, gradient):
        return *_backward(plan, *kept, gradient), None

    attention = jax.custom_vjp(lambda *arguments: forward(*arguments)[0], nondiff_argnums=(0,))
    attention.defvjp(forward, backward)
    return attention


def _forward(plan, query, key, value, bias, inputs):
    """Returns attention (b, q, h, d), and the logarithm of the sum of the exponential scores, float32 (b, h, q)."""
    import jax

    batch, length, heads, width = query.shape
    call = _Call(plan, batch, heads, width)
    arrays = [call.heads_first(x) for x in (query, key, value)]
    shapes = [call.shape(query.shape[:3] + value.shape[3:], query.dtype)]
    shapes.append(jax.ShapeDtypeStruct((batch, heads, length, 1), "float32"))
    specs = [call.block(plan.blocks[0], shapes[0].shape[-1]), call.column()]
    y, total = call(functools.partial(_forward_kernel, plan), arrays, (), bias, inputs, shapes, specs)
    return call.heads_first(y), total[..., 0]


def _forward_kernel(plan, query_ref, key_ref, value_ref, bias_ref, inputs, y_ref, total_ref):
    import jax
    from jax import numpy as jnp

    place, (rows, columns) = _place(plan), plan.blocks
    query = _slice(query_ref, place[2], rows)
    tile = functools.partial(_scores, plan, bias_ref, inputs)

    def of_block(j, carry):
        y, highest, total = carry
        key, value = _slice(key_ref, j, columns), _slice(value_ref, j, columns)
        scores = tile(query, key, place[2], j)
        new = jnp.maximum(highest, scores.max(axis=1, keepdims=True))
        shrink, weights = jnp.exp(highest - new), jnp.exp(scores - new)
        total = total * shrink + weights.sum(axis=1, keepdims=True)
        weights = _dropped(plan, place, inputs, place[2], j, weights)
        return y * shrink + _product(weights.astype(value.dtype), value), new, total

    start = (
        jnp.zeros((rows, value_ref.shape[-1]), "float32"),
        jnp.full((rows, 1), HIDDEN, "float32"),
        jnp.zeros((rows, 1), "float32"),
    )
    y, highest, total = jax.lax.fori_loop(*_key_blocks(plan, place, inputs), of_block, start)
    total = jnp.where(total > 0, total, 1.0)  # of queries whose keys are all in blocks that were skipped
    y_ref[...] = (y / total).astype(y_ref.dtype)
    total_ref[...] = highest + jnp.log(total)


def _backward(plan, query, key, value, bias, inputs, y, total, gradient):
    """Returns the gradients of query, key, value and bias."""
    import jax
    from jax import numpy as jnp

    batch, _, heads, width = query.shape
    call = _Call(plan, batch, heads, width)
    product = jnp.einsum("bqhd,bqhd->bhq", gradient, y, preferred_element_type="float32")
    arrays = [call.heads_first(x) for x in (query, key, value, gradient)]
    shapes = [call.shape(x.shape, x.dtype) for x in (query, key, value)]
    blocks = (plan.blocks[0], plan.blocks[1], plan.blocks[1])
    specs = [call.block(block, x.shape[-1]) for block, x in zip(blocks, shapes, strict=True)]
    if bias is not None:
        shapes.append(jax.ShapeDtypeStruct((batch, heads, *bias.shape[2:]), query.dtype))
        specs.append(call.rows(bias.shape[3]))
    columns = [x[..., None] for x in (total, product)]
    gradients = call(functools.partial(_backward_kernel, plan), arrays, columns, bias, inputs, shapes, specs)
    query, key, value = (call.heads_first(x) for x in gradients[:3])
    if bias is None:
        return query, key, value, None
    axes = tuple(axis for axis in (0, 1) if bias.shape[axis] == 1 and gradients[3].shape[axis] > 1)
    of_bias = gradients[3].sum(axes, keepdims=True, dtype="float32") if axes else gradients[3]
    return query, key, value, of_bias.astype(bias.dtype)


def _backward_kernel(
    plan, query_ref, key_ref, value_ref, gradient_ref, total_ref, product_ref, bias_ref, inputs, *outputs
):
    """Computes the gradients of one block of keys and values, and then those of one block of queries."""
    import jax
    from jax import numpy as jnp

    place, (rows, columns) = _place(plan), plan.blocks
    of_query, of_key, of_value, *of_bias = outputs
    tile = functools.partial(_scores, plan, bias_ref, inputs)

    def of_scores(i, j, query, key, value):
        """Returns (gradient of the outputs, dropped weights, gradient of the scores) of queries i and keys j."""
        gradient = _slice(gradient_ref, i, rows)
        weights = jnp.exp(tile(query, key, i, j) - _slice(total_ref, i, rows))
        of_weights = _product(gradient, value, (1, 1))
        of_weights = _dropped(plan, place, inputs, i, j, of_weights)
        of_scores = weights * (of_weights - _slice(product_ref, i, rows))
        return gradient, _dropped(plan, place, inputs, i, j, weights), of_scores

    j = place[2]
    key, value = _slice(key_ref, j, columns), _slice(value_ref, j, columns)

    def of_queries(i, carry):
        query = _slice(query_ref, i, rows)
        gradient, weights, scores = of_scores(i, j, query, key, value)
        of_key = carry[0] + _product(scores.astype(query.dtype), query, (0, 0))
        return of_key, carry[1] + _product(weights.astype(gradient.dtype), gradient, (0, 0))

    zeros = [jnp.zeros((columns, ref.shape[-1]), "float32") for ref in (key_ref, value_ref)]
    found, found_value = jax.lax.fori_loop(*_query_blocks(plan, place, inputs), of_queries, tuple(zeros))
    of_key[...] = (found * plan.scale).astype(of_key.dtype)
    of_value[...] = found_value.astype(of_value.dtype)

    i = place[2]
    query = _slice(query_ref, i, rows)

    def of_keys(j, carry):
        key, value = _slice(key_ref, j, columns), _slice(value_ref, j, columns)
        _, _, scores = of_scores(i, j, query, key, value)
        if of_bias:
            _store(of_bias[0], j, columns, scores)
        return carry + _product(scores.astype(key.dtype), key)

    visited = (0, plan.count) if of_bias else _key_blocks(plan, place, inputs)  # the whole gradient is written
    found = jax.lax.fori_loop(*visited, of_keys, jnp.zeros((rows, query_ref.shape[-1]), "float32"))
    of_query[...] = (found * plan.scale).astype(of_query.dtype)


def _product(a, b, axes=(1, 0)):
    """Returns the product of two matrices in float32, summed over the given axis of each."""
    import jax

    return jax.lax.dot_general(a, b, (((axes[0],), (axes[1],)), ((), ())), preferred_element_type="float32")


def _slice(ref, number, size):
    """Reads rows of a block of an array (s, n)."""
    from jax.experimental import pallas as pl

    return ref[pl.ds(pl.multiple_of(number * size, size), size), :]


def _columns(ref, number, size):
    """Reads the columns of a block of an array (n, s)."""
    from jax.experimental import pallas as pl

    return ref[:, pl.ds(pl.multiple_of(number * size, size), size)]


def _store(ref, number, size, values):
    from jax.experimental import pallas as pl

    ref[:, pl.ds(pl.multiple_of(number * size, size), size)] = values.astype(ref.dtype)


def _tile(ref, i, j, blocks):
    """Reads a block of an array (q, k)."""
    from jax.experimental import pallas as pl

    rows, columns = (pl.ds(pl.multiple_of(n * size, size), size) for n, size in zip((i, j), blocks, strict=True))
    return ref[rows, columns]


def _scores(plan, bias_ref, inputs, query, key, i, j):
    """Computes the scores of queries i and keys j, float32 (rows, columns), with `HIDDEN` where the mask says so."""
    from jax import numpy as jnp

    scores = _product(query, key, (1, 1)) * plan.scale
    if bias_ref is not None:
        scores = scores + _tile(bias_ref, i, j, plan.blocks).astype("float32")
    row, column = _positions(plan, i, j)
    shown = column < plan.lengths[1]
    if "key_ids" in inputs:
        of_keys = _columns(inputs["key_ids"], j, plan.blocks[1])
        shown = shown & (_slice(inputs["query_ids"], i, plan.blocks[0]) == of_keys) & (of_keys > 0)
    if "allowed" in inputs:
        shown = shown & (_tile(inputs["allowed"], i, j, plan.blocks).astype("int32") > 0)
    if plan.causal:
        earlier = column <= row + plan.offset
        if "prefix" in inputs:
            earlier = earlier | (_columns(inputs["prefix"], j, plan.blocks[1]) > 0)
        shown = shown & earlier
    if plan.window is not None:
        shown = shown & (jnp.abs(row + plan.offset - column) <= plan.window)
    return jnp.where(shown, scores, HIDDEN)


def _dropped(plan, place, inputs, i, j, x):
    """Applies dropout to the weights of queries i and keys j, or to the gradients of dropped weights."""
    from jax import numpy as jnp

    if not plan.rate:
        return x
    row, column = _positions(plan, i, j)
    along_batch, along_heads, along_queries, along_keys = (np.int32(stride) for stride in plan.strides)
    words = [inputs["words"][n] for n in range(3)]
    base = words[2] + place[0] * along_batch + place[1] * along_heads
    positions = (base + row * along_queries + column * along_keys).astype("uint32")
    keep = is_kept(positions, plan.rate, [word.astype("uint32") for word in words[:2]])
    return jnp.where(keep, x * (1 / (1 - plan.rate)), 0.0)


def _positions(plan, i, j):
    """Returns the positions of queries i and keys j in their rows, int32 (rows, columns)."""
    import jax

    rows, columns = (jax.lax.broadcasted_iota("int32", plan.blocks, axis) for axis in (0, 1))
    return rows + i * plan.blocks[0], columns + j * plan.blocks[1]


def _key_blocks(plan, place, inputs):
    """Returns the first block of keys that queries of block i may attend to, and the one after the last."""
    rows, columns = plan.blocks
    first = place[2] * rows + plan.offset
    return _visited(plan, place, inputs.get("key_blocks"), first, rows, columns, "prefix" not in inputs, False)


def _query_blocks(plan, place, inputs):
    """Returns the first block of queries that may attend to keys of block j, and the one after the last."""
    rows, columns = plan.blocks
    first = place[2] * columns - plan.offset
    return _visited(plan, place, inputs.get("query_blocks"), first, columns, rows, "prefix" not in inputs, True)


def _visited(plan, place, blocks_ref, first, size, other, ordered, are_keys):
    """Returns a range of blocks of `other` positions.

    The block that attends, or is attended to, begins at position `first` of the other axis, and has `size` positions.
    """
    from jax import numpy as jnp

    begin, end = jnp.int32(0), jnp.int32(plan.count)
    bits = np.int32(other.bit_length() - 1)  # blocks are powers of two
    if plan.causal and ordered:
        if are_keys:
            begin = jnp.maximum(first, 0) >> bits
        else:
            end = jnp.minimum(end, (jnp.maximum(first + size - 1, 0) >> bits) + 1)
    if plan.window is not None and ordered:
        begin = jnp.maximum(begin, jnp.maximum(first - plan.window, 0) >> bits)
        end = jnp.minimum(end, (jnp.maximum(first + size - 1 + plan.window, 0) >> bits) + 1)
    if blocks_ref is not None:
        begin = jnp.maximum(begin, blocks_ref[place[0], place[2], 0])
        end = jnp.minimum(end, blocks_ref[place[0], place[2], 1])
    return begin, end


def _place(plan):
    """Returns the numbers of the row, the head and the block that a program computes."""
    from jax.experimental import pallas as pl

    numbers = [pl.program_id(axis) for axis in range(3)]
    return numbers if plan.kind == "tpu" else numbers[::-1]


class _Call:
    """A call of a kernel, one program for each row, head and block.

    TPUs need the heads before the rows of an array, and run the programs of the last axis after each other. GPUs read
    any layout. Each program sees whole rows of its head, from which it reads blocks.

    Args:
        plan: a `Plan`.
        batch, heads: numbers of rows and heads.
        width: size of a head.
    """

    def __init__(self, plan, batch, heads, width):
        self.plan, self.width = plan, width
        self.on_tpu = plan.kind == "tpu"
        grid = (batch, heads, plan.count)
        self.grid = grid if self.on_tpu else grid[::-1]

    def heads_first(self, x):
        """Transposes (b, s, h, d) to (b, h, s, d), and back, on TPUs only."""
        return x.swapaxes(1, 2) if self.on_tpu else x

    def shape(self, shape, dtype):
        """The shape of an output (b, s, h, d) in the layout of the kernel."""
        import jax

        batch, length, heads, width = shape
        return jax.ShapeDtypeStruct((batch, heads, length, width) if self.on_tpu else tuple(shape), dtype)

    def spec(self, block, place):
        """The part of an array that a program sees, by a function of its row, head and block."""
        from jax.experimental import pallas as pl

        return pl.BlockSpec(block, place if self.on_tpu else lambda n, head, row: place(row, head, n))

    def block(self, size, width):
        """A block of `size` positions of an output."""
        if self.on_tpu:
            return self.spec((None, None, size, width), lambda row, head, n: (row, head, n, 0))
        return self.spec((None, size, None, width), lambda row, head, n: (row, n, head, 0))

    def column(self):
        """A block of an output (b, h, q, 1)."""
        return self.spec((None, None, self.plan.blocks[0], 1), lambda row, head, n: (row, head, n, 0))

    def rows(self, columns):
        """Rows of a block of queries in an output (b, h, q, k)."""
        return self.spec((None, None, self.plan.blocks[0], columns), lambda row, head, n: (row, head, n, 0))

    def whole(self, x):
        """Whole rows of one head of (b, s, h, d), or of (b, h, s, d) on TPUs."""
        if self.on_tpu:
            return self.of_head(x)
        return self.spec((None, x.shape[1], None, x.shape[3]), lambda row, head, n: (row, 0, head, 0))

    def of_head(self, x):
        """All of one head of (b or 1, h or 1, q, k)."""
        rows, heads = (int(size > 1) for size in x.shape[:2])
        return self.spec((None, None, *x.shape[2:]), lambda row, head, n: (row * rows, head * heads, 0, 0))

    def of_row(self, x):
        """All of one row of (b, n, m)."""
        return self.spec((None, *x.shape[1:]), lambda row, head, n: (row, 0, 0))

    def scalars(self, x):
        """All of an array of integers that are read one by one."""
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import tpu

        return pl.BlockSpec(memory_space=tpu.SMEM) if self.on_tpu else pl.BlockSpec()

    def __call__(self, kernel, arrays, columns, bias, inputs, shapes, specs):
        """Calls a kernel.

        Args:
            kernel: function of the inputs and outputs.
            arrays: arrays (b, s, h, d), or (b, h, s, d) on TPUs.
            columns: arrays (b, h, q, 1).
            bias: float (b or 1, h or 1, q, k), or None.
            inputs: dict of the masks.
            shapes, specs: shapes of the outputs, and what a program writes of them.
        """
        from jax.experimental import pallas as pl

        kinds = dict(query_ids=self.of_row, key_ids=self.of_row, prefix=self.of_row, allowed=self.of_head)
        given = [*map(self.whole, arrays), *map(self.of_head, columns), None if bias is None else self.of_head(bias)]
        given.append({name: kinds.get(name, self.scalars)(x) for name, x in inputs.items()})
        call = pl.pallas_call(
            kernel, grid=self.grid, in_specs=given, out_specs=specs, out_shape=shapes, compiler_params=self.options()
        )
        return call(*arrays, *columns, bias, inputs)

    def options(self):
        if self.on_tpu:
            from jax.experimental.pallas import tpu

            return tpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary"))
        from jax.experimental.pallas import triton

        return triton.CompilerParams(num_warps=4 if self.width <= 64 else 8, num_stages=2)  # no registers are spilled

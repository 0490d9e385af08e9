"""What the Pallas kernels of attention are given: padded rows, and masks as segment ids."""


def padded(x, size, axis=1, value=0):
    """Pads an array to `size` along an axis."""
    from jax import numpy as jnp

    missing = [(0, size - length if i == axis else 0) for i, length in enumerate(x.shape)]
    return jnp.pad(x, missing, constant_values=value) if size > x.shape[axis] else x


def segment_ids(query, key, mask):
    """Returns the segment ids of queries and keys, int32 (b, q) and (b, k).

    A query attends to the keys with the same id. They come from the padding and the packed sequences of a mask; its
    other conditions are ignored. The ids of padding are 0.

    Args:
        query, key: (b, q, h, d) and (b, k, h, d).
        mask: an `AttentionMask`, or None.
    """
    from jax import numpy as jnp

    batch, length = key.shape[:2]
    queries, keys = jnp.ones((batch, query.shape[1]), "int32"), jnp.ones((batch, length), "int32")
    if mask is None:
        return queries, keys
    if mask.sequence_ids is not None:
        keys = jnp.asarray(mask.sequence_ids, "int32")
        queries = mask.query_sequence_ids
        queries = keys[:, -query.shape[1] :] if queries is None else jnp.asarray(queries, "int32")
    if mask.padding_mask is not None:
        keys = keys * jnp.asarray(mask.padding_mask, "bool")
    if mask.lengths is not None:
        keys = keys * (jnp.arange(length) < jnp.asarray(mask.lengths)[:, None])
    return queries, keys

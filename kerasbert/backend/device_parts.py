"""Calls of kernels on several devices, each of which computes its rows and heads: XLA does not partition kernels."""

import keras

from .distribution import batch_shards
from .layouts import PARTS


def head_parts(num_heads):
    """Returns into how many equal parts the layout divides the heads, or None if no kernel supports the layout."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return 1
    mesh = distribution.device_mesh
    sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    others = [size for axis, size in sizes.items() if axis != distribution.batch_dim_name and size > 1]
    if not others:
        return 1
    parts = sizes.get(PARTS)
    return parts if getattr(distribution, "layout", None) == "tensor" and num_heads % parts == 0 else None


def on_each_device(attention, parts, letters, inputs):
    """Calls `attention` on each device for its rows and heads.

    Args:
        attention: function of the inputs that returns one array.
        parts: number of equal parts into which the heads are divided.
        letters: nested strings with one letter for each axis: those of the inputs, and that of the result. Axes b are
            divided as the rows of a batch are, and axes h as the heads are, unless they have the size 1.
        inputs: list of nested arrays. None stands for an array that is not given.
    """
    import jax
    from jax.sharding import PartitionSpec

    distribution = keras.distribution.distribution()
    if distribution is None or (batch_shards() == 1 and parts == 1):
        return attention(*inputs)
    names = {"b": distribution.batch_dim_name, "h": PARTS if parts > 1 else None}

    def of_array(x, axes):
        divided = zip(axes, x.shape, strict=True)
        return PartitionSpec(*(names.get(axis) if size > 1 else None for axis, size in divided))

    *of_inputs, of_result = letters
    divided = jax.shard_map(
        attention,
        mesh=distribution.device_mesh.backend_mesh,
        in_specs=tuple(jax.tree.map(of_array, x, axes) for x, axes in zip(inputs, of_inputs, strict=True)),
        out_specs=PartitionSpec(*map(names.get, of_result)),
        check_vma=False,
    )
    return divided(*inputs)


def places(num_rows, num_heads):
    """Returns the numbers of the first row and the first head of this device, inside `on_each_device`.

    Args:
        num_rows, num_heads: how many of them the device has.
    """
    import jax

    distribution = keras.distribution.distribution()
    if distribution is None:
        return 0, 0
    sizes = dict(zip(distribution.device_mesh.axis_names, distribution.device_mesh.shape, strict=True))
    inside = jax.sharding.get_abstract_mesh().axis_names

    def first(axis, size):
        return jax.lax.axis_index(axis) * size if sizes.get(axis, 1) > 1 and axis in inside else 0

    return first(distribution.batch_dim_name, num_rows), first(PARTS, num_heads)

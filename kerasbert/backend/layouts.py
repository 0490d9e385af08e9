"""Layouts, which divide the variables of a model among devices. They are derived from shapes and names of variables."""

import math
from typing import Any

import keras

from .devices import device, jax_devices
from .keras_adapter import layout_of

LAYOUTS = ("data", "fsdp", "tensor")
ROWS, PARTS = "batch", "model"  # names of the axes of a device mesh: rows of a batch, parts of a layer
SMALLEST = 2**14  # variables with fewer elements are not divided: gathering them takes longer than it saves
# The layers that read what is divided: the names of the output layers of attention and of feed-forward networks.
OUTPUTS = ("project", "outer")
# The layers that write what they read.
INPUTS = ("query", "key", "value", "inner", "gate", "distance", "relative_key", "relative_query", "in_projection")
TABLES = ("token_embedding",)


def parallel(layout: str, mesh: Any = None):
    """Returns a Keras distribution for several devices, on one or more hosts. JAX only.

    Pass it to `keras.distribution.set_distribution` before models are created. All layouts divide the rows of a batch,
    and compute the same losses and gradients as one device.

    - "data": every device has all weights.
    - "fsdp": weights, gradients and the state of the optimizer are divided among all devices. Each weight of at least
      `SMALLEST` elements is divided along the longest axis that the number of devices divides, and gathered when it is
      used (Rajbhandari et al. 2020, arXiv 1910.02054).
    - "tensor": the heads of attention, the inner units of feed-forward networks and the vocabulary are divided among
      the devices of the axis "model" (Shoeybi et al. 2019, arXiv 1909.08053), and rows among those of "batch".

    Args:
        layout: one of `LAYOUTS`.
        mesh: a `keras.distribution.DeviceMesh` with an axis "batch", and for "tensor" also an axis "model". Default:
            all devices of all hosts; for "tensor", those of one host are the axis "model".

    Raises:
        ValueError: if `layout` is unknown, the backend is not JAX, the mesh lacks an axis, or there is one device only
            for a layout that divides weights.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)}. Received: {layout!r}.")
    if keras.backend.backend() != "jax":
        raise ValueError(
            f"Layouts of devices need JAX. Received: the backend {keras.backend.backend()}. Set KERAS_BACKEND=jax."
        )
    mesh = _default_mesh(layout) if mesh is None else mesh
    _check_mesh(layout, mesh)
    if layout == "data" and len(mesh.shape) == 1:
        return keras.distribution.DataParallel(device_mesh=mesh, auto_shard_dataset=False)
    return _distribution_class()(layout, mesh)


def _default_mesh(layout):
    devices = jax_devices()
    if layout != "tensor":
        return keras.distribution.DeviceMesh((len(devices),), (ROWS,), devices)
    local = device().local_count
    return keras.distribution.DeviceMesh((len(devices) // local, local), (ROWS, PARTS), devices)


def _check_mesh(layout, mesh):
    names = tuple(mesh.axis_names)
    needed = (ROWS, PARTS) if layout == "tensor" else (ROWS,)
    sizes = dict(zip(names, mesh.shape, strict=True))
    if names not in ((ROWS,), (ROWS, PARTS)) or not set(needed) <= set(names):
        raise ValueError(
            f"The layout {layout!r} needs a mesh with the axes {', '.join(needed)}, in this order. Received: "
            f"{', '.join(names)}."
        )
    divided = {"fsdp": ROWS, "tensor": PARTS}.get(layout)
    if divided and sizes[divided] == 1:
        raise ValueError(
            f"The layout {layout!r} divides weights among the devices of the axis {divided!r}. Received: one device, "
            "so nothing would be divided. Use more devices, or the layout 'data'."
        )


def axes_of(layout, path, shape, sizes):
    """Returns the mesh axes along which a variable is divided, one name or None per axis of the variable.

    fsdp on 8 devices: (30522, 768) -> (None, "batch")

    Args:
        layout: one of `LAYOUTS`.
        path: path of the variable, such as "bert/block_0/attention/query/kernel".
        shape: shape of the variable.
        sizes: {name of a mesh axis: number of devices}.
    """
    whole = [None] * len(shape)
    if layout == "fsdp" and len(shape) > 1 and math.prod(shape) >= SMALLEST:
        fitting = [axis for axis, size in enumerate(shape) if size % sizes[ROWS] == 0]
        if fitting:
            whole[max(fitting, key=lambda axis: shape[axis])] = ROWS
    if layout == "tensor":
        axis = _divided_axis(path, len(shape))
        if axis is not None and shape[axis] % sizes[PARTS] == 0:
            whole[axis] = PARTS
    return tuple(whole)


def _divided_axis(path, rank):
    """The axis that tensor parallelism divides: outputs of a sublayer's first layers, or inputs of its last layer."""
    layer, name = (["", *path.split("/")])[-2:]
    if name == "kernel" and rank == 2:
        return 0 if layer in OUTPUTS else 1 if layer in INPUTS else None
    if name == "bias" and rank == 1 and layer in INPUTS:
        return 0
    return 0 if name == "embeddings" and layer in TABLES else None


def _distribution_class():
    """Creates the class of distributions. It is created on demand, because not every backend has distributions."""

    class Layouts(keras.distribution.ModelParallel):
        """Divides variables by `axes_of`, and batches by rows."""

        def __init__(self, layout, mesh):
            super().__init__(
                layout_map=keras.distribution.LayoutMap(mesh), batch_dim_name=ROWS, auto_shard_dataset=False
            )
            self.layout = layout
            self._sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))

        def get_variable_layout(self, variable):
            chosen = layout_of(variable)
            if chosen is not None:
                return chosen
            axes = axes_of(self.layout, variable.path, variable.shape, self._sizes)
            return keras.distribution.TensorLayout(axes, self.device_mesh)

    return Layouts


def gathered_for_use(values, variables):
    """Returns the values of weights. With the layout "fsdp", all weights are gathered on every device.

    Weights and rows are divided along the same axis of the mesh. Without this function, XLA would gather rows and
    divide hidden states instead of gathering weights. Gradients are divided as the weights are, so each device gets the
    sum over all devices of its part only.

    Args:
        values: the values of the variables, in the same order.
        variables: Keras variables.
    """
    distribution = keras.distribution.distribution() if keras.backend.backend() == "jax" else None
    if getattr(distribution, "layout", None) != "fsdp":
        return values
    import jax

    constrained = jax.lax.with_sharding_constraint
    everywhere = jax.sharding.NamedSharding(distribution.device_mesh.backend_mesh, jax.sharding.PartitionSpec())

    def gathered(value, variable):
        divided = distribution.get_variable_layout(variable).backend_layout
        gather = jax.custom_vjp(lambda value: constrained(value, everywhere))
        gather.defvjp(
            lambda value: (constrained(value, everywhere), None),
            lambda _, gradient: (constrained(gradient, divided),),
        )
        return gather(value)

    return [gathered(value, variable) for value, variable in zip(values, variables, strict=True)]


def check_layout(variables, num_heads=None):
    """Raises a ValueError if a model cannot be divided according to the layout of the devices.

    Args:
        variables: the trainable variables of the model.
        num_heads: number of attention heads of the model, or None.
    """
    distribution = keras.distribution.distribution() if keras.backend.backend() == "jax" else None
    if distribution is None:
        return
    layouts = [layout_of(variable) for variable in variables]
    if None in layouts:
        raise ValueError(
            "The distribution of devices must be set before a model is created. Received: a model with variables on "
            f"one device, such as {variables[layouts.index(None)].path}. Create it after `set_distribution`."
        )
    layout = getattr(distribution, "layout", "data")
    parts = dict(zip(distribution.device_mesh.axis_names, distribution.device_mesh.shape, strict=True)).get(PARTS, 1)
    if layout == "tensor" and num_heads is not None and num_heads % parts:
        raise ValueError(
            f"The layout 'tensor' divides heads: `num_heads` must be a multiple of the devices of the axis {PARTS!r}. "
            f"Received: num_heads={num_heads} and {parts} devices. Use a smaller axis, such as --devices tensor=2."
        )
    if layout != "data" and not any(any(found.axes) for found in layouts):
        raise ValueError(
            f"The layout {layout!r} would divide none of the {len(layouts)} weights of this model: they are too small, "
            "or no size is a multiple of the number of devices. Received: the mesh "
            f"{dict(zip(distribution.device_mesh.axis_names, distribution.device_mesh.shape, strict=True))}. Use the "
            "layout 'data', or another number of devices."
        )

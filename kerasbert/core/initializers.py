"""Weight initializers. While a model is loaded, they create zeros, because the file provides the values."""

import contextlib
import contextvars
import math

import keras
import numpy as np

from ..backend.arrays import lazy_zeros
from ..backend.compilation import concrete_array

_BUDGET = contextvars.ContextVar("budget", default=None)
# Allowance for poolers and other layers that may be missing from a file: slightly more than one matrix of the widest
# published model.
SPARE_NUMBERS = 20_000_000


class _Budget:
    """Counts the weight elements of a model while it is created, and raises an error if there are too many.

    Keras calls an initializer several times per variable, mostly to infer its shape. Only calls that create values are
    counted.

    Args:
        limit: the number of elements in the weight file, or None for no limit.
    """

    def __init__(self, limit):
        self.limit = limit
        self.used = 0
        self.asked = None

    def spend(self, shape):
        size = math.prod(shape)
        if concrete_array(keras.ops.zeros((1,))) is not None:
            self.used += size
        if self.limit is not None and max(size, self.used) > self.limit + SPARE_NUMBERS:
            self.asked = self.asked or tuple(shape)  # Keras may request other shapes before it gives up
            raise ValueError(self.message())

    def message(self):
        return (
            "The sizes in config.json must match the weights. Received: sizes that require a tensor of shape "
            f"{tuple(self.asked)}, and weights with {self.limit:,} elements in total."
        )


@keras.saving.register_keras_serializable("kerasbert")
class CountedZeros(keras.initializers.Zeros):
    """Initializes weights with zeros, and counts them while a model is created from a file.

    `from_config` returns the replaced initializer, because the weights of a layer that is created from a config are not
    read from a file.

    Args:
        budget: the `_Budget` that counts the weights, or None.
        replaced: the replaced initializer, as (name of a class in `keras.initializers`, *arguments without the seed),
            or an empty tuple.
    """

    def __init__(self, budget=None, replaced=()):
        self.budget, self.replaced = budget, replaced

    def __call__(self, shape, dtype=None):
        if self.budget is not None:
            self.budget.spend(shape)
        return lazy_zeros(shape, dtype)

    def get_config(self):
        return {"replaced": list(self.replaced)}

    @classmethod
    def from_config(cls, config):
        if not config.get("replaced"):
            return cls()
        name, *arguments = config["replaced"]
        return initializer(getattr(keras.initializers, name), *arguments)


@contextlib.contextmanager
def zero_weights(limit=None):
    """Context manager that creates kernels and embedding tables of new models as zeros, to be filled from a file.

    Args:
        limit: number of elements in the file. Creating a model that needs clearly more raises a ValueError before the
            memory is allocated.
    """
    budget = _Budget(limit)
    token = _BUDGET.set(budget)
    try:
        yield
    except ValueError:
        if budget.asked is None:
            raise
        raise ValueError(budget.message()) from None  # Keras would append the arguments of every enclosing layer
    finally:
        budget.limit = None
        _BUDGET.reset(token)


def initializer(cls, *arguments):
    """Returns an initializer: `CountedZeros` inside `zero_weights`, otherwise an instance of `cls`.

    The instance has a seed generator, so that layers of the same shape get different weights.

    Args:
        cls: a class of `keras.initializers`.
        *arguments: positional arguments of the class, without the seed.
    """
    budget = _BUDGET.get()
    if budget is None:
        return cls(*arguments, seed=keras.random.SeedGenerator())
    return CountedZeros(budget, (cls.__name__, *arguments))


def truncated_normal(stddev: float, cutoff: float = 2.0):
    """Normal distribution, truncated at `cutoff` standard deviations; zeros inside `zero_weights`."""
    if cutoff == 2.0:
        return initializer(keras.initializers.TruncatedNormal, 0.0, stddev)
    return CutoffNormal(stddev, cutoff)


@keras.saving.register_keras_serializable("kerasbert")
class CutoffNormal(keras.initializers.Initializer):
    """Normal distribution, truncated at any number of standard deviations. Keras's initializer truncates at two.

    Args:
        stddev: standard deviation before truncation.
        cutoff: maximum distance from the mean, in standard deviations.
    """

    def __init__(self, stddev, cutoff):
        self.stddev, self.cutoff = stddev, cutoff
        most = min(math.erf(cutoff * 0.5**0.5), 1 - 2**-20)
        self.uniform = initializer(keras.initializers.RandomUniform, -most, most)

    def __call__(self, shape, dtype=None):
        return keras.ops.erfinv(self.uniform(shape, dtype)) * (2**0.5 * self.stddev)

    def get_config(self):
        return {"stddev": self.stddev, "cutoff": self.cutoff}


def normal(stddev, mean=0.0):
    """Normal distribution; zeros inside `zero_weights`."""
    return initializer(keras.initializers.RandomNormal, mean, stddev)


def glorot_uniform():
    """Uniform distribution from -a to a with a = (6 / (inputs + outputs)) ** 0.5; zeros inside `zero_weights`."""
    return initializer(keras.initializers.GlorotUniform)


def orthogonal():
    """Matrices with orthonormal columns; zeros inside `zero_weights`."""
    return Orthogonal()


@keras.saving.register_keras_serializable("kerasbert")
class Orthogonal(keras.initializers.Initializer):
    """Keras's orthogonal initializer, computed in float32, as the QR decomposition does not support half precision."""

    def __init__(self):
        self.single = initializer(keras.initializers.Orthogonal)

    def __call__(self, shape, dtype=None):
        return keras.ops.cast(self.single(shape, "float32"), dtype or keras.config.floatx())


def uniform(limit):
    """Uniform distribution from -limit to limit; zeros inside `zero_weights`."""
    return initializer(keras.initializers.RandomUniform, -limit, limit)


def uniform_by_inputs():
    """Uniform distribution from -n ** -0.5 to n ** -0.5, where n is the number of inputs of the layer.

    This is the default of torch's Linear. Zeros inside `zero_weights`.
    """
    return initializer(keras.initializers.VarianceScaling, 1 / 3, "fan_in", "uniform")


def with_zero_row(initializer, row):
    """Returns an embedding initializer that sets one row of the table to zeros.

    Args:
        initializer: the initializer of the other rows.
        row: index of the row, usually the padding id. None: `initializer` is returned unchanged.
    """
    return initializer if row is None else ZeroRow(initializer, row)


@keras.saving.register_keras_serializable("kerasbert")
class ZeroRow(keras.initializers.Initializer):
    """Initializes one row of an embedding table with zeros, and the other rows with another initializer.

    Args:
        initializer: the initializer of the other rows.
        row: index of the row of zeros.
    """

    def __init__(self, initializer, row):
        self.initializer, self.row = keras.initializers.get(initializer), row

    def __call__(self, shape, dtype=None):
        others = keras.ops.arange(shape[0])[:, None] != self.row
        return keras.ops.where(others, self.initializer(shape, dtype), keras.ops.zeros((), dtype))

    def get_config(self):
        return {"initializer": keras.initializers.serialize(self.initializer), "row": self.row}


def sinusoidal_table(length, dim):
    """Returns sinusoidal position encodings, with wavelengths from 2 pi to 10,000 * 2 pi.

    Even columns hold sines, and odd columns cosines (Vaswani et al. 2017, arXiv 1706.03762, section 3.5).

    Returns: numpy float32 (length, dim).
    """
    columns = np.arange(dim)
    angles = np.arange(length)[:, None] / 10_000 ** (2 * (columns // 2) / dim)
    return np.where(columns % 2 == 0, np.sin(angles), np.cos(angles)).astype("float32")


@keras.saving.register_keras_serializable("kerasbert")
class SinusoidalTable(keras.initializers.Initializer):
    """Initializes a table of shape (positions, dimension) with `sinusoidal_table`."""

    def __call__(self, shape, dtype=None):
        return keras.ops.convert_to_tensor(sinusoidal_table(*shape), dtype)

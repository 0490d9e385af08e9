"""Initializers, which create zeros while a model is loaded, and no more of them than the file can fill."""

import contextlib
import contextvars
import math

import keras

from ..backend.compilation import concrete_array
from ..layers.positions import sinusoidal_table

_BUDGET = contextvars.ContextVar("budget", default=None)
# Allowance for poolers and other parts that a file may lack: a bit more than one matrix of the widest published model.
SPARE_NUMBERS = 20_000_000


class _Budget:
    """How many weight elements a model may have, and how many it has so far.

    Keras calls an initializer several times per variable, mostly only for its shape: only created values count.
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
            self.asked = self.asked or tuple(shape)  # Keras may request others before it gives up
            raise ValueError(self.message())

    def message(self):
        return (
            "The sizes in config.json must match the weights. Received: sizes that require a tensor of shape "
            f"{tuple(self.asked)}, and weights with {self.limit:,} elements in total."
        )


@keras.saving.register_keras_serializable("kerasbert")
class CountedZeros(keras.initializers.Zeros):
    """Zeros that are counted while a model is created from a file.

    A layer that is created from the config of such a layer has no file: it gets the initializer that this one replaces.

    Args:
        budget: a `_Budget`, or None.
        replaced: name of a class of `keras.initializers`, and its arguments without the seed; or nothing.
    """

    def __init__(self, budget=None, replaced=()):
        self.budget, self.replaced = budget, replaced

    def __call__(self, shape, dtype=None):
        if self.budget is not None:
            self.budget.spend(shape)
        return super().__call__(shape, dtype)

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
    """Kernels and embedding tables created inside are zeros, to be filled from a file.

    Args:
        limit: number of elements in the file. A model that needs clearly more raises a ValueError early.
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
    """Zeros inside `zero_weights`, else `cls`, with a seed generator so that layers of one shape are not identical."""
    budget = _BUDGET.get()
    if budget is None:
        return cls(*arguments, seed=keras.random.SeedGenerator())
    return CountedZeros(budget, (cls.__name__, *arguments))


def truncated_normal(stddev, cutoff=2.0):
    """Normal distribution, truncated at `cutoff` standard deviations; zeros inside `zero_weights`."""
    if cutoff == 2.0:
        return initializer(keras.initializers.TruncatedNormal, 0.0, stddev)
    return CutoffNormal(stddev, cutoff)


@keras.saving.register_keras_serializable("kerasbert")
class CutoffNormal(keras.initializers.Initializer):
    """Normal distribution, truncated at any number of standard deviations: Keras's is truncated at two.

    Args:
        stddev: of the distribution before truncation.
        cutoff: in standard deviations.
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
    """Uniform distribution up to (6 / (inputs + outputs)) ** 0.5; zeros inside `zero_weights`."""
    return initializer(keras.initializers.GlorotUniform)


def orthogonal():
    """Matrices with orthonormal columns; zeros inside `zero_weights`."""
    return Orthogonal()


@keras.saving.register_keras_serializable("kerasbert")
class Orthogonal(keras.initializers.Initializer):
    """Keras's orthogonal matrices, computed in float32: half precision has no QR decomposition."""

    def __init__(self):
        self.single = initializer(keras.initializers.Orthogonal)

    def __call__(self, shape, dtype=None):
        return keras.ops.cast(self.single(shape, "float32"), dtype or keras.config.floatx())


def uniform(limit):
    """Uniform distribution from -limit to limit; zeros inside `zero_weights`."""
    return initializer(keras.initializers.RandomUniform, -limit, limit)


def uniform_by_inputs():
    """Uniform distribution from -n ** -0.5 to n ** -0.5 for n inputs, torch's default; zeros inside `zero_weights`."""
    return initializer(keras.initializers.VarianceScaling, 1 / 3, "fan_in", "uniform")


def with_zero_row(initializer, row):
    """An embedding initializer whose padding `row` starts at zero; with None, no row does."""
    return initializer if row is None else ZeroRow(initializer, row)


@keras.saving.register_keras_serializable("kerasbert")
class ZeroRow(keras.initializers.Initializer):
    """Another initializer, but zeros in one row.

    Args:
        initializer: of the other rows.
        row: its index.
    """

    def __init__(self, initializer, row):
        self.initializer, self.row = keras.initializers.get(initializer), row

    def __call__(self, shape, dtype=None):
        others = keras.ops.arange(shape[0])[:, None] != self.row
        return keras.ops.where(others, self.initializer(shape, dtype), keras.ops.zeros((), dtype))

    def get_config(self):
        return {"initializer": keras.initializers.serialize(self.initializer), "row": self.row}


@keras.saving.register_keras_serializable("kerasbert")
class SinusoidalTable(keras.initializers.Initializer):
    """The rows of `sinusoidal_table`, one for each position."""

    def __call__(self, shape, dtype=None):
        return keras.ops.convert_to_tensor(sinusoidal_table(*shape), dtype)

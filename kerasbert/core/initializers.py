"""Initializers, which create zeros while a model is loaded, and no more of them than the file can fill."""

import contextlib
import contextvars
import math

import keras

from ..backend.compilation import concrete_array

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
    """Zeros that are counted while a model is created from a file."""

    def __init__(self, budget=None):
        self.budget = budget

    def __call__(self, shape, dtype=None):
        if self.budget is not None:
            self.budget.spend(shape)
        return super().__call__(shape, dtype)


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
    return cls(*arguments, seed=keras.random.SeedGenerator()) if budget is None else CountedZeros(budget)


def truncated_normal(stddev, cutoff=2.0):
    """Normal distribution, truncated at `cutoff` standard deviations; zeros inside `zero_weights`."""
    if cutoff == 2.0:
        return initializer(keras.initializers.TruncatedNormal, 0.0, stddev)
    most = min(math.erf(cutoff * 0.5**0.5), 1 - 2**-20)
    uniform = initializer(keras.initializers.RandomUniform, -most, most)
    return lambda shape, dtype=None: keras.ops.erfinv(uniform(shape, dtype)) * (2**0.5 * stddev)


def normal(stddev, mean=0.0):
    """Normal distribution; zeros inside `zero_weights`."""
    return initializer(keras.initializers.RandomNormal, mean, stddev)


def glorot_uniform():
    """Uniform distribution up to (6 / (inputs + outputs)) ** 0.5; zeros inside `zero_weights`."""
    return initializer(keras.initializers.GlorotUniform)


def orthogonal():
    """Matrices with orthonormal columns; zeros inside `zero_weights`."""
    single = initializer(keras.initializers.Orthogonal)  # half precision has no QR decomposition
    return lambda shape, dtype=None: keras.ops.cast(single(shape, "float32"), dtype or keras.config.floatx())


def uniform(limit):
    """Uniform distribution from -limit to limit; zeros inside `zero_weights`."""
    return initializer(keras.initializers.RandomUniform, -limit, limit)


def uniform_by_inputs():
    """Uniform distribution up to inputs ** -0.5 of a layer, torch's default; zeros inside `zero_weights`."""
    return initializer(keras.initializers.VarianceScaling, 1 / 3, "fan_in", "uniform")


def with_zero_row(initializer, row):
    """An embedding initializer whose padding `row` starts at zero; with None, no row does."""
    if row is None:
        return initializer

    def initialize(shape, dtype=None):
        others = keras.ops.arange(shape[0])[:, None] != row
        return keras.ops.where(others, initializer(shape, dtype), keras.ops.zeros((), dtype))

    return initialize

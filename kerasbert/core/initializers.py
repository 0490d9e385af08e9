"""Making models that a file is about to fill: zeros in the place of draws, no more of them than the file can fill."""

import contextlib
import contextvars
import math

import keras

from ..backend.compilation import concrete_array

_BUDGET = contextvars.ContextVar("budget", default=None)
# Poolers and other parts that a file may lack: numbers, one matrix of the widest published model and a bit.
SPARE_NUMBERS = 20_000_000


class _Budget:
    """How many numbers a model may have, and how many it has so far.

    Keras asks for the value of a variable several times, most of them only for its shape: what is made counts.
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
            self.asked = self.asked or tuple(shape)  # Keras may try others before it gives up
            raise ValueError(self.message())

    def message(self):
        return (
            "The sizes in config.json must be those of the weights. Received: sizes that need a tensor of shape "
            f"{tuple(self.asked)}, and weights of {self.limit:,} numbers in all."
        )


@keras.saving.register_keras_serializable("kerasbert")
class CountedZeros(keras.initializers.Zeros):
    """Zeros that are counted while a model is made from a file."""

    def __init__(self, budget=None):
        self.budget = budget

    def __call__(self, shape, dtype=None):
        if self.budget is not None:
            self.budget.spend(shape)
        return super().__call__(shape, dtype)


@contextlib.contextmanager
def zero_weights(limit=None):
    """Kernels and tables made inside are zeros: a file is about to fill them.

    Args:
        limit: how many numbers the file has. A model that needs clearly more is a ValueError before they are made.
    """
    budget = _Budget(limit)
    token = _BUDGET.set(budget)
    try:
        yield
    except ValueError:
        if budget.asked is None:
            raise
        raise ValueError(budget.message()) from None  # Keras adds the arguments of every layer on the way
    finally:
        budget.limit = None
        _BUDGET.reset(token)


def initializer(cls, *arguments):
    """Zeros inside `zero_weights`. Draws anew at every call: with a plain seed, layers of one shape would be twins."""
    budget = _BUDGET.get()
    return cls(*arguments, seed=keras.random.SeedGenerator()) if budget is None else CountedZeros(budget)


def truncated_normal(stddev, cutoff=2.0):
    """Normal draws, those beyond `cutoff` standard deviations redrawn; zeros inside `zero_weights`."""
    if cutoff == 2.0:
        return initializer(keras.initializers.TruncatedNormal, 0.0, stddev)
    most = min(math.erf(cutoff * 0.5**0.5), 1 - 2**-20)
    uniform = initializer(keras.initializers.RandomUniform, -most, most)
    return lambda shape, dtype=None: keras.ops.erfinv(uniform(shape, dtype)) * (2**0.5 * stddev)


def normal(stddev, mean=0.0):
    """Normal draws; zeros inside `zero_weights`."""
    return initializer(keras.initializers.RandomNormal, mean, stddev)


def glorot_uniform():
    """Uniform draws up to (6 / (inputs + outputs)) ** 0.5; zeros inside `zero_weights`."""
    return initializer(keras.initializers.GlorotUniform)


def orthogonal():
    """Matrices with orthonormal columns; zeros inside `zero_weights`."""
    single = initializer(keras.initializers.Orthogonal)  # half precision has no such decomposition
    return lambda shape, dtype=None: keras.ops.cast(single(shape, "float32"), dtype or keras.config.floatx())


def uniform(limit):
    """Uniform draws from -limit to limit; zeros inside `zero_weights`."""
    return initializer(keras.initializers.RandomUniform, -limit, limit)


def uniform_by_inputs():
    """Uniform draws up to a layer's number of inputs ** -0.5, torch's default; zeros inside `zero_weights`."""
    return initializer(keras.initializers.VarianceScaling, 1 / 3, "fan_in", "uniform")


def with_zero_row(initializer, row):
    """A table's initializer whose `row`, the one of padding, starts at zero; None: no row does."""
    if row is None:
        return initializer

    def initialize(shape, dtype=None):
        others = keras.ops.arange(shape[0])[:, None] != row
        return keras.ops.where(others, initializer(shape, dtype), keras.ops.zeros((), dtype))

    return initialize


@contextlib.contextmanager
def leaving_nothing_behind():
    """Makes Keras forget the variables of a model that could not be made.

    Keras creates variables in two steps and keeps those that await the second one in a list. After a failure (of
    memory, say) in that step it would try them all again while the next model is made, and fail on the first.
    """
    # There is no public way to the list; the module that holds it is known to each function that uses it.
    state = keras.StatelessScope.__enter__.__globals__["global_state"]
    name = "uninitialized_variables"
    before = len(state.get_global_attribute(name) or ())
    try:
        yield
    except BaseException:
        del (state.get_global_attribute(name) or [])[before:]
        raise

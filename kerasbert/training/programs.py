"""The compiled programs of a model: which of them a run uses, and when they are compiled again."""

import logging
import warnings
from typing import Any

import keras

from ..backend.compilation import (
    CORE_SPEED,
    compiled_quickly,
    compiles_quickly,
    seconds_of_a_program,
    slots_of_a_program,
)
from ..backend.distribution import num_replicas
from ..backend.keras_adapter import TrainingMode, all_layers, use_batch_loss, weigh_loss
from .alternating import with_loss_scale

log = logging.getLogger("kerasbert")
JIT_FROM = 1_000_000  # models with this many parameters are trained with XLA on TensorFlow, if runs are long
XLA_TOKENS = 2.0  # on TensorFlow, XLA saves a quarter of each step, and its compilation takes longer than on JAX
OPTIMIZED_TOKENS = 0.12  # on a CPU, the optimization of a program saves half of each step


class Programs(TrainingMode):
    """A Keras model that compiles its training step fast for short runs, and to a fast program for long runs.

    Each kind of program is kept until the model is compiled again.
    """

    _is_long = True  # whether the current programs are those for long runs
    _chooses_programs = False  # whether `compile` left the choice to this class
    _is_automatic = False  # whether `fit` or `evaluate` has compiled the model

    def compile(
        self, optimizer: str | keras.optimizers.Optimizer = "rmsprop", jit_compile: bool | str = "auto", **kwargs: Any
    ) -> None:
        """Configures the model for training, as Keras's `compile` does, with two differences.

        For mixed_float16, the optimizer is wrapped in a `LossScale`, which detects every overflow. On TensorFlow,
        `jit_compile="auto"` enables XLA for models with at least `JIT_FROM` parameters if a run is long enough: steps
        take about a quarter less time, but XLA compiles a separate program for every input shape.
        """
        self._is_automatic = False
        optimizer = keras.optimizers.get(optimizer)
        if self.dtype_policy.name == "mixed_float16":
            optimizer = with_loss_scale(optimizer)
        elif self.dtype_policy.compute_dtype == "float16":
            log.warning(
                "Gradients below 6e-8 are 0 in %s. Use mixed_float16 or mixed_bfloat16.", self.dtype_policy.name
            )
        kwargs["auto_scale_loss"] = False  # the loss scale of Keras misses overflows
        self._chooses_programs = jit_compile == "auto" and not kwargs.get("run_eagerly") and num_replicas() == 1
        if self._chooses_programs and keras.backend.backend() == "tensorflow":
            jit_compile = self.count_params() >= JIT_FROM
        self.forget_programs()
        with warnings.catch_warnings():  # if operations must be deterministic, Keras does not use XLA, and warns
            warnings.filterwarnings("ignore", message=".*jit_compile=True.*")
            super().compile(optimizer, jit_compile=jit_compile, **kwargs)
        use_batch_loss(self)

    def batch_weight(self, x: Any, sample_weight: Any) -> Any:
        """Returns the weight of the loss of a batch in the mean over batches, or None for its number of rows.

        Rows that only fill up a batch have no weight in its loss, and must have none in the mean.
        """
        return None

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        weight = self.batch_weight(x, sample_weight)
        if weight is not None:
            weigh_loss(self, weight)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def forget_programs(self):
        """Makes the next calls of `fit`, `evaluate` and `predict` compile their programs anew."""
        self.train_function = self.test_function = self.predict_function = None
        self.__dict__["_other_programs"], self.__dict__["_tokens_so_far"] = (None, None), 0

    def choose_programs(self, tokens, widths=1, is_resumable=False):
        """Switches to the programs for a run.

        Many short runs count as a long one.

        Args:
            tokens: number of tokens in the training steps of the run.
            widths: number of different widths of its batches.
            is_resumable: whether the run has checkpoints. Its programs must then not depend on earlier runs, because an
                interrupted run must resume bit-exactly.
        """
        if not self._chooses_programs:
            return
        if not is_resumable:
            tokens = self.__dict__["_tokens_so_far"] = tokens + self.__dict__.get("_tokens_so_far", 0)
        if keras.backend.backend() == "tensorflow":
            is_long = tokens >= XLA_TOKENS * widths * program_tokens(self)
        else:
            is_long = not compiles_quickly() or tokens >= OPTIMIZED_TOKENS * widths * program_tokens(self)
        if is_long != self._is_long:
            others = self.train_function, self.test_function
            self.train_function, self.test_function = self.__dict__.get("_other_programs", (None, None))
            self.__dict__["_other_programs"], self._is_long = others, is_long
        if keras.backend.backend() == "tensorflow":
            self.jit_compile = is_long and self.count_params() >= JIT_FROM

    def make_train_function(self, force=False):
        before = self.train_function
        function = super().make_train_function(force)
        if not self._is_long and self.train_function is not before:
            self.train_function = compiled_quickly(self.train_function)
        return function

    def make_test_function(self, force=False):
        before = self.test_function
        function = super().make_test_function(force)
        if not self._is_long and self.test_function is not before:
            self.test_function = compiled_quickly(self.test_function)
        return function

    def make_predict_function(self, force=False):
        chosen = self.jit_compile
        if keras.backend.backend() == "tensorflow":  # XLA would compile a program for each of many shapes
            self.jit_compile = False
        try:
            return super().make_predict_function(force)
        finally:
            self.jit_compile = chosen


def program_tokens(model):
    """Estimates how many tokens a model could process in the time of compiling a new shape."""
    config = model.backbone.config
    layers, dim = getattr(config, "num_layers", 4), getattr(config, "hidden_dim", 128)
    return slots_of_a_program(layers, 12 * layers * dim**2)


def training_program_tokens(model):
    """Estimates how many tokens two cores could train a model on in the time of compiling a new shape.

    It is the same on all machines and backends, because the batches of a run depend on it.
    """
    config = model.backbone.config
    layers, dim = getattr(config, "num_layers", 4), getattr(config, "hidden_dim", 128)
    return seconds_of_a_program(layers) * 2 * CORE_SPEED / (3 * 2 * 12 * layers * dim**2)


# Public attributes that calls, and `fit`, set themselves; "training" belongs to torch modules.
OF_CALLS = {"training", "built"}
OF_FIT = {
    "initial_step", "tokens_per_step", "stop_training", "compiled", "loss", "steps_per_execution",
    "train_function", "test_function", "predict_function",
}  # fmt: skip


def traced_state(model):
    """Returns what a compiled training step of a model contains as constants, in a form that can be compared.

    This is which variables there are and which of them are trained, and all plain public attributes of the model and
    its layers, such as dropout rates. Methods that were replaced, as by `rematerialize`, belong to it, too.
    """
    trained = {id(variable) for variable in model.trainable_variables}
    variables = [(variable, id(variable) in trained) for variable in model.variables]
    layers = [(layer, _attributes(layer, layer is model)) for layer in all_layers(model)]
    return variables, layers, keras.distribution.distribution()


def is_same_state(first, second):
    """Whether two results of `traced_state` are equal. Variables and layers are compared by identity."""
    if first is None or first[2] is not second[2]:
        return False
    return all(
        len(ours) == len(theirs) and all(a is b and p == q for (a, p), (b, q) in zip(ours, theirs, strict=True))
        for ours, theirs in zip(first[:2], second[:2], strict=True)
    )


def _attributes(layer, is_model):
    """The plain public attributes of a layer, and its `call` if it was replaced."""
    left_out = OF_CALLS | OF_FIT if is_model else OF_CALLS
    kinds = (bool, int, float, str, tuple, type(None))
    return {
        name: value
        for name, value in vars(layer).items()
        if name == "call" or (isinstance(value, kinds) and name[0] != "_" and name not in left_out)
    }

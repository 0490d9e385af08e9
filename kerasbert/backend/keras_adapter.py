"""Wrappers of the private Keras functions that this package uses, checked by `tests/backend/test_keras_adapter.py`.

The optimizers of this package also override protected methods of Keras's optimizers (`_clip_gradients`,
`_apply_weight_decay`, `_backend_update_step`, `_get_current_learning_rate`), which the same test checks.
"""

import contextlib
from typing import Any

import keras

from .kept_weights import KeptWeights


class Exported:
    """Adds to a Keras model that it can be part of a SavedModel. Must come before `keras.Model` among the base classes.

    On TensorFlow, Keras traces every model inside an exported one as if all of its inputs were floats, which token ids
    are not. The trace is only for users who restore the inner model from the file.
    """

    _default_save_signature = None

    def export(self, filepath: Any, *args: Any, input_signature: Any = None, **kwargs: Any) -> None:
        """Keras's `export`, which needs an `input_signature` for models whose inputs are not floats.

        `kerasbert.export` writes tasks and objectives with their tokenizer, and needs none.

        Raises: ValueError if there is no `input_signature`.
        """
        if input_signature is None:
            raise ValueError(
                f"Keras cannot infer the inputs of a {type(self).__name__} for `export`. Received: "
                "input_signature=None. For a task or an objective, use kerasbert.export(model, path, "
                "format='tf_saved_model'); for a backbone, export a functional Keras model that contains it."
            )
        super().export(filepath, *args, input_signature=input_signature, **kwargs)  # pyright: ignore


class TrainingMode(Exported, KeptWeights):
    """A model that tells its layers whether it is training, although its `call` has no `training` argument.

    Keras passes the flag only to models whose `call` has this argument. On JAX, it never reaches the layers inside the
    model, so dropout would be off during training.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._call_has_training_arg = True  # for the trainer

    def stateless_call(self, *args, training=None, **kwargs):
        """Calls Keras's method with `training` set in the call context, where layers read it."""
        self._get_call_context().set_value("training", training)
        if "training" in self.call_signature_parameters:
            kwargs["training"] = training
        try:
            return super().stateless_call(*args, **kwargs)
        finally:
            self._maybe_reset_call_context()


def replica_scope(model):
    """Context manager in which new variables belong to the `tf.distribute` strategy of a model, if it has one."""
    strategy = getattr(model, "distribute_strategy", None)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def is_training(layer):
    """Whether the model that contains `layer` is currently called in a training step."""
    return bool(layer._get_call_context().get_value("training"))


def is_validation(options):
    """Whether `evaluate` was called by `fit`, which passes it a private keyword argument.

    Args:
        options: the keyword arguments of `evaluate`.
    """
    return options.get("_use_cached_eval_dataset", False)


class BatchLoss(keras.metrics.Mean):
    """The mean loss of batches, whose weights are first their numbers of rows, as Keras has them."""

    def update_state(self, values, sample_weight=None):
        super().update_state(values, sample_weight)
        self.__dict__["latest"] = values, sample_weight

    def weigh(self, weight):
        """Replaces the weight of the latest batch, if there is one."""
        values, rows = self.__dict__.pop("latest", (None, 0))  # Keras also calls `compute_metrics` without a loss
        if values is not None:
            super().update_state(values, weight - keras.ops.cast(rows, weight.dtype))


def use_batch_loss(model):
    """Has a compiled model compute the mean of its losses by `BatchLoss`."""
    model.__dict__["_loss_tracker"] = BatchLoss(name="loss")  # not an assignment, by which Keras would list it twice


def weigh_loss(model, weight):
    """Replaces the weight of the latest batch in the mean that a compiled model reports as `loss`.

    Args:
        model: the model.
        weight: a scalar.
    """
    model._loss_tracker.weigh(weight)


def track_loss(model, loss, rows):
    """Adds the loss of a batch to the mean that a compiled model reports as `loss`.

    Args:
        model: the model.
        loss: a scalar.
        rows: number of rows in the batch, which is the weight of the loss in the mean.
    """
    model._loss_tracker.update_state(loss, sample_weight=rows)


def all_layers(layer, include_self=True, recursive=True):
    """Returns the layers inside a layer or model, in the order in which they were assigned.

    Args:
        layer: a layer or model.
        include_self: whether the list begins with the layer itself.
        recursive: whether to include layers at any depth, rather than direct sublayers only.
    """
    return list(layer._flatten_layers(include_self=include_self, recursive=recursive))


def base_kernel(dense):
    """The kernel variable of a dense layer, without the low-rank product that `enable_lora` adds to it."""
    return dense._kernel


def has_fixed_seed(generator):
    """Whether a `SeedGenerator` was created with a seed."""
    return generator._initial_seed is not None


def layout_of(variable):
    """Returns the layout on several devices that a variable has been given, or None."""
    return getattr(variable, "_layout", None)


def lay_out(variable, layout):
    """Changes the layout of an existing variable on several devices, but not its value.

    Args:
        variable: a Keras variable, on JAX.
        layout: a `keras.distribution.TensorLayout`.
    """
    variable._layout = layout
    variable.assign(variable.value)


@contextlib.contextmanager
def forgetting_failed_variables():
    """Context manager that makes Keras forget the variables of a model whose construction fails inside it.

    Keras creates variables in two steps, and keeps a list of variables that wait for the second step. If this step
    fails, for example for lack of memory, Keras would try again to create the listed variables together with the next
    model, and fail again.
    """
    # Keras does not expose this list. The module that holds it is in the globals of the functions that use it.
    state = keras.StatelessScope.__enter__.__globals__["global_state"]
    name = "uninitialized_variables"
    before = len(state.get_global_attribute(name) or ())
    try:
        yield
    except BaseException:
        del (state.get_global_attribute(name) or [])[before:]
        raise

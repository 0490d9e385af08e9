"""The private parts of Keras that this package uses, one function each; `tests/core/test_keras_adapter.py` checks them.

Optimizers also override protected methods of Keras's optimizers (`_clip_gradients`, `_apply_weight_decay`,
`_backend_update_step`, `_get_current_learning_rate`), which the same test checks.
"""

import contextlib

import keras


class TrainingMode(keras.Model):
    """A model that tells the layers inside it whether it is training, without a `training` argument on the way.

    Keras passes the flag only to a model whose `call` has the argument, and on JAX to no layer inside it: dropout would
    be off during training.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._call_has_training_arg = True  # for the trainer

    def stateless_call(self, *args, training=None, **kwargs):
        """As Keras's method, within the call context that a layer's `__call__` creates and `stateless_call` skips."""
        self._get_call_context().set_value("training", training)
        if "training" in self.call_signature_parameters:
            kwargs["training"] = training
        try:
            return super().stateless_call(*args, **kwargs)
        finally:
            self._maybe_reset_call_context()


def is_training(layer):
    """Whether the call that `layer` is part of trains a model."""
    return bool(layer._get_call_context().get_value("training"))


def is_validation(options):
    """Whether `fit` called `evaluate` with these options: it then evaluates on the data that `fit` received."""
    return options.get("_use_cached_eval_dataset", False)


def all_layers(layer, include_self=True, recursive=True):
    """The layers inside a layer or model, at any depth if `recursive`, in the order in which they were assigned."""
    return list(layer._flatten_layers(include_self=include_self, recursive=recursive))


def base_kernel(dense):
    """The kernel variable of a dense layer without the low-rank product of `enable_lora`."""
    return dense._kernel


def has_fixed_seed(generator):
    """Whether a `SeedGenerator` was created with a seed."""
    return generator._initial_seed is not None


@contextlib.contextmanager
def forgetting_failed_variables():
    """Makes Keras forget the variables of a model whose construction failed inside.

    Keras creates variables in two steps and keeps a list of those that wait for the second one. After a failure in that
    step, such as running out of memory, it would try all of them again with the next model, and fail again.
    """
    # Keras does not expose the list; its module is in the globals of the functions that use it.
    state = keras.StatelessScope.__enter__.__globals__["global_state"]
    name = "uninitialized_variables"
    before = len(state.get_global_attribute(name) or ())
    try:
        yield
    except BaseException:
        del (state.get_global_attribute(name) or [])[before:]
        raise

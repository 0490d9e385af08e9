"""Weights that are still there after an error, also one in the first step of JAX."""

import contextlib
from collections.abc import Iterator

import keras


class KeptWeights(keras.Model):
    """A model whose variables keep their values if an error ends `fit`, `evaluate` or `predict`.

    On JAX, Keras takes the values out of the variables for the steps of an epoch. After an error, `fit` puts back those
    of the last step, but not if the first step fails, for example while its program is compiled; `evaluate` and
    `predict` put nothing back.
    """

    _taken: tuple = ()  # (variable, its value), for the variables whose values Keras has taken

    def _purge_model_variables(self, **kinds):
        optimizer = getattr(getattr(self, "optimizer", None), "variables", ())  # none before `compile`
        variables = (*self.trainable_variables, *self.non_trainable_variables, *self.metrics_variables, *optimizer)
        self.__dict__["_taken"] = tuple((variable, variable._value) for variable in variables)
        super()._purge_model_variables(**kinds)

    @contextlib.contextmanager
    def keeping_weights(self) -> Iterator[None]:
        """Context manager, around a method of Keras, that puts the values back after an error."""
        try:
            yield
        except BaseException:
            if keras.backend.backend() == "jax":
                self.jax_state_sync()
            for variable, value in self._taken:
                if variable._value is None and not value.is_deleted():  # a step deletes the values that it replaces
                    variable._value = value
            raise
        finally:
            self.__dict__["_taken"] = ()

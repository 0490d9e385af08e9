"""Models that tell the layers inside whether they train, without a `training` in every `call` on the way."""

import keras


class TrainingMode(keras.Model):
    """Keras tells a model that it trains only if its `call` asks, and on JAX no layer inside: dropout would sleep."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._call_has_training_arg = True  # for the trainer

    def stateless_call(self, *args, training=None, **kwargs):
        """As Keras's, within the context that a layer's `__call__` makes, which it goes around."""
        self._get_call_context().set_value("training", training)
        if "training" in self.call_signature_parameters:
            kwargs["training"] = training
        try:
            return super().stateless_call(*args, **kwargs)
        finally:
            self._maybe_reset_call_context()

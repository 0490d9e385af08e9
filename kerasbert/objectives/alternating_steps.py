"""Training of a generator and a discriminator by one optimizer, or by two that take turns."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from ..backend.distribution import num_replicas
from ..backend.keras_adapter import track_loss
from ..backend.training_steps import run_step, update
from ..core.inputs import checked_inputs, inputs_are_checked
from ..training.alternating import AlternatingOptimizers
from .objective import PairObjective
from .shared_embeddings import trained_by_both


class AlternatingSteps(PairObjective):
    """Base class of pairs of a `generator` and a `discriminator` that `AlternatingOptimizers` can train.

    Other optimizers minimize the sum of both losses in one step. Subclasses implement `generator_outputs`,
    `discriminator_outputs`, `generator_loss` and `discriminator_loss`.
    """

    PARTS = ("generator", "discriminator")

    def generator_outputs(self, inputs, training):
        """Returns a dict of the generator's outputs, including what the discriminator reads."""
        raise NotImplementedError

    def discriminator_outputs(self, inputs, filled, training):
        """Returns a dict of the discriminator's outputs. `filled` are those of the generator."""
        raise NotImplementedError

    def generator_loss(self, x, y, y_pred, sample_weight):
        """Computes the loss of the generator and updates its metrics. The arguments are those of `compute_loss`."""
        raise NotImplementedError

    def discriminator_loss(self, x, y, y_pred, sample_weight):
        """Computes the weighted loss of the discriminator and updates its metrics; `y_pred` has all outputs."""
        raise NotImplementedError

    def call(self, inputs, training=None):
        filled = self.generator_outputs(inputs, training)
        return {**filled, **self.discriminator_outputs(inputs, filled, training)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        first = self.generator_loss(x, y, y_pred, sample_weight)
        return first + self.discriminator_loss(x, y, y_pred, sample_weight)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer,
        loss: None = None,
        metrics: Sequence | Mapping | None = None,
        **kwargs: Any,
    ) -> None:
        """Configures the training, with one optimizer, or with `training.AlternatingOptimizers` for two steps."""
        alternates = isinstance(optimizer, AlternatingOptimizers)
        if alternates:
            self._check_parts()
        super().compile(optimizer, loss, metrics, **kwargs)
        if alternates:
            self.optimizer.divide(self.generator.trainable_variables)

    def _check_parts(self):
        shared = trained_by_both(self.generator, self.discriminator)
        if shared:
            raise ValueError(
                f"Two optimizers must not train the same weights. Received: {len(shared)} weights of both models, such "
                f'as {shared[0].path}. Use embedding_sharing="disentangled" or "none", or one optimizer.'
            )
        frozen = [part for part in self.PARTS if not getattr(self, part).trainable]
        if frozen:
            raise ValueError(
                f"Each of the two optimizers needs weights to train. Received: a frozen {frozen[0]}. Use one optimizer."
            )

    def train_step(self, *arguments):
        if not isinstance(self.optimizer, AlternatingOptimizers):
            return super().train_step(*arguments)
        return run_step(self, self._two_steps, arguments)

    def _two_steps(self, batch):
        """Updates the generator, and then the discriminator, on the same batch."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        if not inputs_are_checked():
            self.check_batch(x)

        def first():
            outputs = self.generator_outputs(x, True)
            return self.generator_loss(x, y, outputs, sample_weight), outputs

        def second():
            outputs = {**filled, **self.discriminator_outputs(x, filled, True)}
            return self.discriminator_loss(x, y, outputs, sample_weight), outputs

        variables = self.optimizer.split(self.trainable_variables)
        with checked_inputs():
            first_loss, filled = update(self, self.optimizer.generator, variables[0], first)
            second_loss, outputs = update(self, self.optimizer.discriminator, variables[1], second)
        loss = (first_loss + second_loss) * num_replicas()  # which the losses are divided by
        track_loss(self, loss, keras.ops.shape(x["token_ids"])[0])
        return self.compute_metrics(x, y, outputs, sample_weight)

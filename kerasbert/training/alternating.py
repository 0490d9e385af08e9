"""Two optimizers that update the two models of a pair one after the other in every step."""

from collections.abc import Sequence
from typing import Any, Self

import keras

from .optimizers import LossScale


@keras.saving.register_keras_serializable("kerasbert")
class AlternatingOptimizers(keras.optimizers.Optimizer):
    """Two optimizers for `ReplacedTokenDetection`: each batch updates the generator first, then the discriminator.

    The loss of the discriminator is computed after the update of the generator, so that it reads the updated
    embeddings. Its tokens are those that the generator sampled before the update (He, Gao, Chen 2021, arXiv 2111.09543,
    and the official code). Each optimizer has its own moments, clipping, schedule, and for float16 its own loss scale.
    With a single optimizer instead, the sum of both losses is minimized in one step.

    With gradient accumulation, both optimizers update after the last batch of an update. The gradients of the
    discriminator for the earlier batches have been computed before the update of the generator.

    Args:
        generator, discriminator: the two optimizers, or names of Keras optimizers. They must have the same
            `gradient_accumulation_steps`.
        name: name of the pair. Default: a unique one.

    Raises:
        ValueError: if both optimizers are the same one, or their `gradient_accumulation_steps` differ.
    """

    def __init__(
        self,
        generator: str | keras.optimizers.Optimizer,
        discriminator: str | keras.optimizers.Optimizer,
        name: str | None = None,
    ):
        parts = tuple(map(keras.optimizers.get, (generator, discriminator)))
        if parts[0] is parts[1]:
            raise ValueError("Each part needs an optimizer of its own. Received: the same optimizer twice. Create two.")
        accumulation = [plain_optimizers(part)[0].gradient_accumulation_steps for part in parts]
        if accumulation[0] != accumulation[1]:
            raise ValueError(
                "Both optimizers must have the same `gradient_accumulation_steps`. Received: "
                f"{accumulation[0]} and {accumulation[1]}."
            )
        super().__init__(0.0, gradient_accumulation_steps=accumulation[0], name=name)
        self.generator, self.discriminator = parts
        self._first = None  # the ids of the variables of the generator

    @property
    def parts(self) -> tuple[keras.optimizers.Optimizer, keras.optimizers.Optimizer]:
        """The optimizers of the generator and of the discriminator."""
        return self.generator, self.discriminator

    def with_loss_scale(self) -> Self:
        """Returns optimizers that scale the loss, which training in float16 requires."""
        return type(self)(*map(with_loss_scale, self.parts), name=self.name)

    def divide(self, generator_variables: Sequence[keras.Variable]) -> None:
        """Sets which variables belong to the generator. All others belong to the discriminator."""
        self._first = frozenset(map(id, generator_variables))

    def split(self, variables: Sequence[keras.Variable]) -> tuple[list, list]:
        """Divides variables into those of the generator and those of the discriminator."""
        if self._first is None:
            raise ValueError(
                "AlternatingOptimizers must be passed to the `compile` of a ReplacedTokenDetection, whose two models "
                "they update. Received: another model, or a loss scale around both. Use one optimizer, or scale the "
                "loss of each."
            )
        return [v for v in variables if id(v) in self._first], [v for v in variables if id(v) not in self._first]

    def build(self, variables):
        for part, trained in zip(self.parts, self.split(variables), strict=True):
            part.build(trained)
        self.built = True

    @property
    def variables(self):
        return [variable for part in self.parts for variable in part.variables]

    @property
    def iterations(self):
        return self.generator.iterations

    @property
    def learning_rate(self):
        """The learning rate of the generator's optimizer. Assigning a rate sets it for both."""
        return self.generator.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        for part in self.parts:
            part.learning_rate = learning_rate

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        raise ValueError("AlternatingOptimizers have no joint update. Use `generator.apply` and `discriminator.apply`.")

    def finalize_variable_values(self, var_list):
        for part, trained in zip(self.parts, self.split(var_list), strict=True):
            part.finalize_variable_values(trained)

    def get_config(self):
        parts = {"generator": self.generator, "discriminator": self.discriminator}
        return {"name": self.name, **{key: keras.optimizers.serialize(part) for key, part in parts.items()}}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        parts = {
            key: keras.optimizers.deserialize(config[key], custom_objects) for key in ("generator", "discriminator")
        }
        return cls(**{**config, **parts})


def plain_optimizers(optimizer):
    """Returns a list of the optimizers in an optimizer, without loss scaling: one, or both `AlternatingOptimizers`."""
    parts = optimizer.parts if isinstance(optimizer, AlternatingOptimizers) else (optimizer,)
    return [getattr(part, "inner_optimizer", part) for part in parts]


def with_loss_scale(optimizer):
    """Returns the optimizer, wrapped in a `LossScale` if it does not scale the loss yet."""
    if isinstance(optimizer, AlternatingOptimizers):
        return optimizer.with_loss_scale()
    return optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else LossScale(optimizer)

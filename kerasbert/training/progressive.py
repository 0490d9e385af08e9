"""Learning rates for progressive knowledge transfer, which trains one block after another."""

from typing import Any

import keras
from keras import ops

from .optimizers import TransformerAdamW, block_depths
from .tensor_scaled import TransformerLamb


class Progressive:
    """Mixin that makes an optimizer train one block after another, for `KnowledgeTransfer(strategy="progressive")`.

    The first `transfer_steps` updates are divided into one phase per block. In each phase, the learning rate is
    multiplied by 3 * b for the block of that phase, by 0.3 * b for the blocks before it, and by 0 for the blocks after
    it, the embeddings and the heads. Within a phase, b rises from 0 to 1 in the first tenth and then falls to 0.9.
    After `transfer_steps` updates, the rates are not modified. This follows the official code of Sun et al. 2020 (arXiv
    2004.02984).

    Args:
        learning_rate, **options: arguments of the optimizer that this mixin extends.
        transfer_steps: number of updates of all phases together; a multiple of the number of blocks.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1.5e-3,
        transfer_steps: int = 240_000,
        **options: Any,
    ):
        super().__init__(learning_rate, **options)
        self.transfer_steps = transfer_steps

    def _rates_by_layer(self, variables):
        depths = [depth or 0 for depth in block_depths(variables)]
        self._phase_steps = max(1, self.transfer_steps // max(1, *depths))
        return [depth - 1 for depth in depths]  # index of the block, -1 outside the blocks

    def _rate_factor(self, variable):
        block = self._layer_rates[self._get_variable_index(variable)]
        step = ops.convert_to_tensor(self.iterations)
        phase = ops.cast(step // self._phase_steps, "int32")
        place = ops.cast(step % self._phase_steps, "float32") / self._phase_steps
        background = ops.minimum(10.0 * place, 0.9 + 0.1 * ops.sqrt(1.0 - place))
        turn = 0.0 if block < 0 else ops.where(phase == block, 1.0, ops.where(phase > block, 0.1, 0.0))
        return ops.where(step < self.transfer_steps, 3.0 * turn * background, 1.0)

    def get_config(self):
        return {**super().get_config(), "transfer_steps": self.transfer_steps}


@keras.saving.register_keras_serializable("kerasbert")
class ProgressiveAdamW(Progressive, TransformerAdamW):
    """`TransformerAdamW` with the rates of `Progressive`.

    Raises:
        ValueError: as in `TransformerAdamW`.
    """


@keras.saving.register_keras_serializable("kerasbert")
class ProgressiveLamb(Progressive, TransformerLamb):
    """`TransformerLamb` with the rates of `Progressive`. The official code uses this optimizer.

    Raises:
        ValueError: as in `TransformerLamb`.
    """

"""A convolution over the input of a transformer block, which does not mix the sequences of packed rows."""

from typing import Any

import keras
from keras import ops

from ...layers.composite import Layer
from ...layers.dropout import Dropout
from ...layers.feed_forward import activation_function


class NeighborConvolution(Layer):
    """Adds a convolution of a block's input to the output of the block, and normalizes the sum.

    From DeBERTa version 2 (He et al. 2020, arXiv 2006.03654). Neighbors of a token that are padding, or belong to
    another sequence of a packed row, count as zeros.

    Args:
        width: kernel size in tokens, odd.
        groups: number of groups of channels that are convolved separately. Must divide the number of channels m.
        activation: name of the activation function after the convolution.
        dropout: dropout rate before the activation.
        epsilon: epsilon of the layer norm.
        kernel_initializer: initializer of the convolution kernel.

    Call:
        x: float (b, s, m), the output of the block.
        block_input: float (b, s, m), the input of the block, which is convolved.
        sequence_ids: int32 (b, s), the number of each token's sequence, 0 for padding. None if every row is one
            sequence without padding.

    Returns: float (b, s, m), zeros at padding.
    """

    def __init__(
        self,
        width,
        groups=1,
        activation="tanh",
        dropout=0.0,
        epsilon=1e-7,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.kernel_initializer = kernel_initializer
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.width, self.groups = width, groups
        self.activation = activation_function(activation)
        self.dropout = Dropout(dropout, name="dropout", **common)
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon, name="norm", **common)

    def build(self, x_shape):
        width = x_shape[-1]
        shape = (self.width, width // self.groups, width)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.kernel_initializer)
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")

    def call(self, x, block_input, sequence_ids=None):
        # One matrix product per neighbor, because a convolution would mix the sequences of a packed row.
        reach, length, per_group = self.width // 2, ops.shape(x)[1], x.shape[-1] // self.groups
        kernel = ops.reshape(self.kernel, (self.width, per_group, self.groups, per_group))
        around = ops.pad(block_input, ((0, 0), (reach, reach), (0, 0)))
        y = 0.0
        for i in range(self.width):
            neighbor = around[:, i : i + length]
            if sequence_ids is not None:
                ids_around = ops.pad(sequence_ids, ((0, 0), (reach, reach)))
                together = ids_around[:, i : i + length] == sequence_ids
                neighbor = ops.where(together[..., None], neighbor, 0)
            neighbor = ops.reshape(neighbor, (-1, length, self.groups, per_group))
            y = y + ops.einsum("bsgi,igo->bsgo", neighbor, kernel[i])
        y = ops.reshape(y, (-1, length, x.shape[-1])) + self.bias
        if sequence_ids is None:
            return self.norm(x + self.activation(self.dropout(y)))
        real = sequence_ids[..., None] > 0
        y = self.activation(self.dropout(ops.where(real, y, 0)))
        return ops.where(real, self.norm(x + y), 0)

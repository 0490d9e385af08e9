"""Entries of a family's Hugging Face tables for tensors and fields that a plain name cannot describe.

In `HUGGINGFACE_NAMES`, a plain string is the name of a dense layer, norm or embedding in the file, to which `.weight`
or `.bias` is appended. The weight of a dense layer is transposed. `{i}` and `{j}` match numbers. In
`HUGGINGFACE_CONFIG`, a plain string is the name of a field whose value is stored unchanged.
"""

import dataclasses
from collections.abc import Callable

import numpy as np


def _same(array):
    return array


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a file, with the functions that convert between its stored form and ours.

    Args:
        name: the full name of the tensor, including `.weight` or `.bias` if it ends with one of them.
        load: function that converts the stored numpy array to our array.
        save: function that converts our array to the stored one.
    """

    name: str
    load: Callable = _same
    save: Callable = _same


@dataclasses.dataclass(frozen=True)
class Part:
    """A dense layer that is stored as part of a fused layer, such as query, key and value in one tensor.

    Args:
        name: the name of the fused layer, without `.weight` or `.bias`.
        index: index of this layer among the layers that are fused along the output axis, counted from 0.
        count: number of fused layers, which must have equal sizes.
        transposed: whether the stored weight has the shape (out, in), as in torch's Linear, rather than (in, out), as
            in the Conv1D of transformers.
        by_head: whether the outputs of all fused layers for the first attention head are followed by those for the
            second head, and so on, rather than all outputs of the first layer by those of the second.
    """

    name: str
    index: int
    count: int
    transposed: bool = True
    by_head: bool = False

    def outputs(self, size, config):
        """Returns the slice, or the indices, of this layer's outputs among those of the fused layer.

        The middle one of 3 layers has the outputs 2 and 3 of 6, or 1 and 4 by head if there are 2 heads.

        Args:
            size: number of outputs of the fused layer.
            config: the config of the model.

        Raises: ValueError if the outputs cannot be divided.
        """
        if self.by_head:
            return np.arange(size).reshape(config.num_heads, self.count, -1)[:, self.index].ravel()
        width, rest = divmod(size, self.count)
        if rest:
            raise ValueError(f"{size} outputs cannot be divided into {self.count} equal parts.")
        return slice(self.index * width, (self.index + 1) * width)


@dataclasses.dataclass(frozen=True)
class Heads:
    """A kernel that is stored with a separate axis for heads. Its dense layer has no bias.

    The stored shape is (m, h, d): model dimension, heads, head size.

    Args:
        name: the full name of the tensor.
        output: True if the layer maps the heads (h * d) to the model dimension m, False if it maps m to the heads.
    """

    name: str
    output: bool = False

    def load(self, array):
        kernel = array.reshape(len(array), -1)
        return kernel.T if self.output else kernel

    def save(self, kernel, num_heads):
        kernel = kernel.T if self.output else kernel
        return kernel.reshape(len(kernel), num_heads, -1)


@dataclasses.dataclass(frozen=True)
class Field:
    """A config field whose stored value has a different meaning from ours.

    Args:
        name: the name of the field in the stored config.
        load: function that computes our value from the stored config, a dict.
        save: function that computes the stored value from our config.
    """

    name: str
    load: Callable
    save: Callable

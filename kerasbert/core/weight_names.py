"""Entries of a family's Hugging Face tables for tensors and fields that a plain name cannot describe.

In `HUGGINGFACE_NAMES`, a plain string names the tensors of a layer: `weight` and `bias` of a dense layer (the weight
transposed), of a norm, of an embedding; `{i}` and `{j}` match numbers. In `HUGGINGFACE_CONFIG`, it names a value
that is stored unchanged.
"""

import dataclasses
from collections.abc import Callable


def _same(array):
    return array


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor, by its full name, with the functions that convert between its stored form and ours.

    Args:
        name: the full name, with `weight` or `bias` if it has one.
        load: stored numpy array -> ours.
        save: ours -> stored.
    """

    name: str
    load: Callable = _same
    save: Callable = _same


@dataclasses.dataclass(frozen=True)
class Part:
    """A dense layer that is stored fused with others of equal size.

    Args:
        name: the name of the fused layer, without `weight` or `bias`.
        index, count: this layer is part `index` of `count` equal parts along the output axis.
        transposed: whether the file holds (out, in), as torch's Linear does; its Conv1D holds (in, out).
    """

    name: str
    index: int
    count: int
    transposed: bool = True


@dataclasses.dataclass(frozen=True)
class Heads:
    """The kernel of a dense layer without bias, stored as an einsum operand with an axis for heads: (m, h, d).

    Args:
        name: the full name.
        output: whether the layer maps the heads (h * d) back to m, rather than m to the heads.
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
        name: the stored field.
        load: the stored config (a dict) -> our value.
        save: our config -> the stored value.
    """

    name: str
    load: Callable
    save: Callable

"""Entries of a family's Hugging Face tables for what is stored otherwise than a plain name can say.

In `HUGGINGFACE_NAMES` a plain string names the tensors of a layer: `weight` and `bias` of a dense layer (the weight
transposed), of a norm, of an embedding; `{i}` and `{j}` stand for numbers. In `HUGGINGFACE_CONFIG` it names a value
that is stored as it is.
"""

import dataclasses
from collections.abc import Callable


def _same(array):
    return array


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor, named whole, with the two functions between its stored form and ours.

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
    """A dense layer stored as one of several that are fused side by side.

    Args:
        name: of the fused layer, without `weight` or `bias`.
        index, count: this is part `index` of `count` equal ones along the output axis.
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
    """A config field whose stored value means something else than ours.

    Args:
        name: of the stored value.
        load: the stored config (a dict) -> our value.
        save: our config -> the stored value.
    """

    name: str
    load: Callable
    save: Callable

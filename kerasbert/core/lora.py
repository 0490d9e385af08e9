"""Low-rank adaptation: adds a few trainable parameters to frozen ones (Hu et al. 2021, arXiv 2106.09685)."""

import dataclasses
import math
from collections.abc import Iterable

import keras
import numpy as np

from ..backend.keras_adapter import all_layers, base_kernel


def add_lora(
    model: keras.Model, rank: int = 8, targets: Iterable[str] = ("query", "value"), alpha: float | None = None
) -> int:
    """Freezes the backbone, and adds trainable products of two low-rank matrices to its dense layers in `targets`.

    It uses Keras's `Dense.enable_lora`. Layers outside the backbone, such as heads, are left as they are, and poolers
    that the loaded file did not contain stay trainable.

    Call it before `compile`. Without an optimizer of your own, `fit` then has ten times its usual learning rate.
    `save_to_preset` merges the products into the kernels, so that the folder holds an ordinary model. `save_adapter`
    writes the products alone.

    Args:
        model: an objective, a task, a backbone, or any Keras model that contains backbones.
        rank: rank of the two matrices.
        targets: names of dense layers, such as query, key, value, project, inner and outer.
        alpha: each product is multiplied by alpha / rank. Default: `rank`.

    Returns: the number of trainable parameters of the model afterwards.

    Raises:
        ValueError: if `rank` is below 1, the model contains no backbone, or the backbone no layer that `targets` names.

    Example:
        >>> from kerasbert.tasks import TextClassifier
        >>> from kerasbert.training import add_lora
        >>> model = TextClassifier.from_preset("bert_mini_en", labels=["bad", "good"])
        >>> add_lora(model, rank=8, targets=("query", "value"))
        115458
        >>> model.count_params()
        5409026
        >>> history = model.fit(["What a lovely day!", "I hated it."], ["good", "bad"], verbose=0)
        >>> model.save_adapter("adapters/mood")
    """
    if rank < 1:
        raise ValueError(f"`rank` must be at least 1. Received: {rank}.")
    backbones = _backbones(model)
    dense = [layer for part in backbones for layer in all_layers(part) if isinstance(layer, keras.layers.Dense)]
    chosen = [layer for layer in dense if layer.name in targets]
    if not chosen:
        raise ValueError(
            f"`targets` must name dense layers of the backbone. Received: {', '.join(targets)}. "
            f"It has: {', '.join(sorted({layer.name for layer in dense}))}."
        )
    for backbone in backbones:
        freeze(backbone)
    for layer in chosen:
        layer.enable_lora(rank, lora_alpha=alpha)
    for backbone in backbones:
        backbone.note_depths()  # the new variables need a depth, too
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def _backbones(model):
    """Returns the backbone of an objective or task, or the backbones among the layers of any other model."""
    layers = all_layers(getattr(model, "backbone", model))
    found = [layer for layer in layers if hasattr(layer, "note_depths")]
    if not found:
        raise ValueError(f"`model` must be or contain a backbone of kerasbert. Received: {type(model).__name__}.")
    return found


def freeze(backbone):
    """Freezes the weights of a backbone, except for new layers that the loaded file did not contain."""
    for variable in backbone.weights:
        variable.trainable = getattr(variable, "is_new", False)


@dataclasses.dataclass(frozen=True)
class Product:
    """A product of two low-rank matrices, alpha / r * a b.

    Args:
        a: float32 (inputs, r).
        b: float32 (r, outputs).
        alpha: the scaling factor of the product, multiplied by r.
    """

    a: np.ndarray
    b: np.ndarray
    alpha: float


def add_products(model, products, merge):
    """Adds products to dense layers.

    Args:
        model: the model that contains the layers.
        products: list of (dense layer, `Product`).
        merge: whether to add the products to the kernels. Otherwise, they are separate, trainable weights.
    """
    for layer, product in products:
        rank = product.a.shape[1]
        if merge:
            kernel = base_kernel(layer)
            value = keras.ops.convert_to_numpy(kernel).astype("float32")
            kernel.assign(value + product.alpha / rank * product.a @ product.b)
        else:
            layer.enable_lora(rank, lora_alpha=product.alpha)
            layer.lora_kernel_a.assign(product.a)
            layer.lora_kernel_b.assign(product.b)
    backbone = getattr(model, "backbone", model)
    if hasattr(backbone, "note_depths"):
        backbone.note_depths()


def merged_kernels(model):
    """Returns {id of a kernel: the kernel plus its low-rank product} for the layers with LoRA."""
    layers = [layer for layer in all_layers(model) if getattr(layer, "lora_enabled", False)]
    return {id(base_kernel(layer)): layer.kernel for layer in layers}

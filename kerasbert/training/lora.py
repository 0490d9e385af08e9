"""Low-rank adaptation: few trainable parameters added to frozen ones (Hu et al. 2021, arXiv 2106.09685)."""

import math

import keras

from ..core.keras_adapter import all_layers, base_kernel


def add_lora(model, rank=8, targets=("query", "value"), alpha=None):
    """Freezes the backbone and adds a trainable product of two low-rank matrices to the dense layers in `targets`.

    It uses `Dense.enable_lora` of Keras; heads stay trainable. Call it before `compile`. `save_to_preset` merges the
    products into the kernels, so that the folder holds an ordinary model.

    Args:
        model: an objective, a task or a backbone.
        rank: rank of the two matrices.
        targets: names of dense layers, such as query, key, value, project, inner and outer.
        alpha: each product is multiplied by alpha / rank. Default: `rank`.

    Returns: the number of trainable parameters of the model afterwards.
    """
    if rank < 1:
        raise ValueError(f"`rank` must be at least 1. Received: {rank}.")
    backbone = getattr(model, "backbone", model)
    dense = [layer for layer in all_layers(backbone) if isinstance(layer, keras.layers.Dense)]
    chosen = [layer for layer in dense if layer.name in targets]
    if not chosen:
        raise ValueError(
            f"`targets` must name dense layers of the backbone. Received: {', '.join(targets)}. "
            f"It has: {', '.join(sorted({layer.name for layer in dense}))}."
        )
    for variable in backbone.weights:
        variable.trainable = False
    for layer in chosen:
        layer.enable_lora(rank, lora_alpha=alpha)
    if hasattr(backbone, "note_depths"):
        backbone.note_depths()  # the new variables need a depth, too
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def merged_kernels(model):
    """Returns {id of a kernel: the kernel plus its low-rank product} for the layers with LoRA."""
    layers = [layer for layer in all_layers(model) if getattr(layer, "lora_enabled", False)]
    return {id(base_kernel(layer)): layer.kernel for layer in layers}

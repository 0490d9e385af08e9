"""Low-rank adaptation: few trainable parameters beside frozen ones (Hu et al. 2021, arXiv 2106.09685)."""

import math

import keras


def add_lora(model, rank=8, targets=("query", "value"), alpha=None):
    """Freezes the backbone and gives its dense layers of these names a trainable product of two thin matrices.

    Keras does the work (`Dense.enable_lora`); heads stay trainable. Call it before `compile`. `save_to_preset` writes
    the products added to the kernels, so that the folder is one of an ordinary model.

    Args:
        model: an objective, a task or a backbone.
        rank: of the products.
        targets: names of dense layers, such as query, key, value, project, inner, outer.
        alpha: the products are multiplied by alpha / rank. Default: `rank`.

    Returns: how many parameters are trainable now.
    """
    if rank < 1:
        raise ValueError(f"`rank` must be at least 1. Received: {rank}.")
    backbone = getattr(model, "backbone", model)
    dense = [layer for layer in backbone._flatten_layers() if isinstance(layer, keras.layers.Dense)]
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
        backbone.note_depths()  # of the new variables, too
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def merged_kernels(model):
    """{id of a kernel: the kernel with its product added} of the layers that have one."""
    layers = [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]
    return {id(layer._kernel): layer.kernel for layer in layers}

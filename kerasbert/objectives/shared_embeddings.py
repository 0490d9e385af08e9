"""Embeddings that a generator and its discriminator have in common.

A family takes part by a constructor argument `embeddings` and a property of that name: a tuple of the layers that may
be shared (tables and their norms; None for one that a config lacks).
"""

import keras
import numpy as np

from ..core.initializers import zero_weights
from ..layers.embeddings import DisentangledEmbedding

SHARING = ("shared", "disentangled", "none")


def share_embeddings(generator, discriminator, sharing, keep_tables=False):
    """The two backbones with the embeddings of their training; those that need others are copied.

    Args:
        generator, discriminator: backbones.
        sharing: "shared", both have the discriminator's layers and both train them (Clark et al. 2020, section 3.2);
            "disentangled", the discriminator's tables are the generator's plus a difference, which alone its loss
            trains (He et al. 2021, arXiv 2111.09543, section 3.3); "none".
        keep_tables: with "disentangled", let the difference be such that the discriminator's tables stay as they are;
            otherwise it is zero.

    Returns: generator, discriminator.
    """
    if sharing not in SHARING:
        raise ValueError(f"`embedding_sharing` must be one of {', '.join(SHARING)}. Received: {sharing!r}.")
    if sharing == "none":
        return generator, discriminator
    for backbone in (generator, discriminator):
        if getattr(backbone, "embeddings", None) is None or type(backbone) is not type(generator):
            raise ValueError(
                "Embeddings can be shared by two backbones of one family that has `embeddings`, such as Electra. "
                f"Received: {type(generator).__name__} and {type(discriminator).__name__}. "
                'Use embedding_sharing="none".'
            )
    if sharing == "shared":
        return with_embeddings(generator, discriminator.embeddings), discriminator
    layers = []
    for theirs, own in zip(generator.embeddings, discriminator.embeddings, strict=True):
        if isinstance(own, keras.layers.Embedding):
            difference = own.embeddings - theirs.embeddings if keep_tables else None
            own = DisentangledEmbedding(theirs, name=own.name, dtype=own.dtype_policy)
            own.build()
            if difference is not None:
                own.difference.assign(difference)
        layers.append(own)
    return generator, with_embeddings(discriminator, tuple(layers))


def with_embeddings(backbone, embeddings=None):
    """The backbone once more, its other weights copied, with the `embeddings` of another one.

    None gives it plain tables of its own, which hold what the tables of the backbone amount to.
    """
    if embeddings is not None and all(one is other for one, other in zip(embeddings, backbone.embeddings, strict=True)):
        return backbone
    arguments = {name: value for name, value in backbone.get_config().items() if name not in ("config", "dtype")}
    with zero_weights():
        copy = type(backbone)(backbone.config, embeddings=embeddings, dtype=backbone.dtype_policy, **arguments)
    given = {id(variable) for layer in embeddings or () if layer is not None for variable in layer.weights}
    values = {_name(variable): variable for variable in backbone.weights}
    for variable in copy.weights:
        if id(variable) not in given:
            copy_value(values[_name(variable)], variable)
    if embeddings is None:
        for new, old in zip(copy.embeddings, backbone.embeddings, strict=True):
            if isinstance(new, keras.layers.Embedding):
                copy_value(old.embeddings, new.embeddings)
    return copy


def copy_value(source, variable):
    """Assigns a copy: of two variables with one JAX buffer, a step of training would take it from the other."""
    variable.assign(np.array(keras.ops.convert_to_numpy(source)))


def _name(variable):
    return variable.path.split("/", 1)[1]

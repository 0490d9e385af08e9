"""Embedding sharing between a generator and its discriminator.

Families that support it have a property `embeddings`, a tuple of the layers that can be shared (embedding layers and
their norms, or None for layers that the config does not use), and a constructor argument of the same name.
"""

import keras
from keras import ops

from ..backend.compilation import concrete_array
from ..backend.keras_adapter import all_layers
from ..core.initializers import zero_weights
from ..core.quantization import has_integers
from ..layers.composite import Layer
from ..layers.embeddings import float_table

SHARING = ("shared", "disentangled", "none")


class DisentangledEmbedding(Layer):
    """Gradient-disentangled embedding sharing (He, Gao, Chen 2021, arXiv 2111.09543, section 3.3).

    The embeddings are stop_gradient(base) + difference. This layer trains only the difference, which starts at zero.
    The base is trained by the model to which it belongs.

    Args:
        base: the embedding layer whose table is shared.

    Call:
        ids: int32, any shape.

    Returns: float, the shape of `ids` with an axis of size m appended.
    """

    def __init__(self, base, **kwargs):
        super().__init__(**kwargs)
        self.base = base

    def build(self, ids_shape=None):
        self.difference = self.add_weight(name="difference", shape=self.base.embeddings.shape, initializer="zeros")

    @property
    def embeddings(self):
        return ops.stop_gradient(float_table(self.base)) + self.difference

    def call(self, ids):
        base = ops.stop_gradient(ops.take(float_table(self.base), ids, axis=0))
        return ops.cast(base + ops.take(self.difference, ids, axis=0), self.compute_dtype)


def share_embeddings(generator, discriminator, sharing, keep_tables=False, from_generator=False):
    """Shares the embeddings of two backbones.

    The given backbones are not changed. If a backbone needs other embeddings, a copy is returned in its place.

    Args:
        generator, discriminator: backbones.
        sharing: "shared": both use and train the embeddings of the discriminator (Clark et al. 2020, section 3.2).
            "disentangled": the embeddings of the discriminator are those of the generator plus a difference, and the
            loss of the discriminator trains only the difference (He et al. 2021, arXiv 2111.09543, section 3.3).
            "none": nothing is shared.
        keep_tables: with "disentangled", whether the discriminator's embeddings keep their values, which determines the
            initial difference. Otherwise, the difference starts at zero.
        from_generator: with "shared", whether the shared embeddings are those of the generator.

    Returns: (generator, discriminator).
    """
    if sharing not in SHARING:
        raise ValueError(f"`embedding_sharing` must be one of {', '.join(SHARING)}. Received: {sharing!r}.")
    if sharing == "none":
        return generator, discriminator
    for backbone in (generator, discriminator):
        if getattr(backbone, "embeddings", None) is None or type(backbone) is not type(generator):
            raise ValueError(
                "To share embeddings, both backbones must be of one family that has `embeddings`, such as Electra. "
                f"Received: {type(generator).__name__} and {type(discriminator).__name__}. "
                'Use embedding_sharing="none".'
            )
    if any(has_integers(backbone) for backbone in (generator, discriminator)):
        raise ValueError(
            "Embeddings can be shared only in full precision. Received: a quantized backbone. Use "
            'embedding_sharing="none", or quantize the part that will be used after training.'
        )
    if sharing == "shared" and from_generator:
        return generator, with_embeddings(discriminator, generator.embeddings)
    if sharing == "shared":
        return with_embeddings(generator, discriminator.embeddings), discriminator
    layers = []
    for base, layer in zip(generator.embeddings, discriminator.embeddings, strict=True):
        if isinstance(layer, keras.layers.Embedding):
            difference = layer.embeddings - base.embeddings if keep_tables else None
            layer = DisentangledEmbedding(base, name=layer.name, dtype=layer.dtype_policy)
            layer.build()
            if difference is not None:
                layer.difference.assign(difference)
        layers.append(layer)
    return generator, with_embeddings(discriminator, tuple(layers))


def trained_by_both(generator, discriminator):
    """Returns the variables that the losses of both models train. A table that the discriminator only reads is none."""
    tables = [layer for layer in all_layers(discriminator) if isinstance(layer, DisentangledEmbedding)]
    read = {id(table.base.embeddings) for table in tables}
    trained = {id(variable) for variable in generator.trainable_variables} - read
    return [variable for variable in discriminator.trainable_variables if id(variable) in trained]


def with_embeddings(backbone, embeddings=None):
    """Returns a copy of a backbone with other embedding layers.

    Args:
        backbone: the backbone to copy.
        embeddings: the attribute `embeddings` of another backbone, whose layers the copy shares. None: the copy gets
            separate, ordinary embedding layers with the values of the backbone's embeddings.
    """
    if embeddings is not None and all(new is old for new, old in zip(embeddings, backbone.embeddings, strict=True)):
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
    """Assigns a copy of the value of `source` to `variable`.

    On JAX, two variables must not share a buffer, because training steps donate the buffers of variables. The copy is
    made on the devices, as a process cannot read the parts of a value that are on the devices of others.
    """
    if concrete_array(keras.ops.zeros((1,))) is None:  # in a trace, tensors have no values
        return
    variable.assign(keras.ops.copy(source))


def _name(variable):
    return variable.path.split("/", 1)[1]

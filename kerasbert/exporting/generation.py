"""The programs with which an exported model generates text: an encoder, if it has one, and a step of the decoder."""

import keras
import numpy as np
from keras import ops

from ..core.inputs import checked_inputs
from ..objectives.next_token import NextToken
from .signatures import Program

# Part of a cache (see `layers.cache`) -> the axes of its arrays.
_AXES = {
    "start": (),
    "real": ("batch", "capacity"),
    "blocks": ("batch", "capacity", None, None),
    "contexts": ("batch", "source_length", None, None),
    "real_context": ("batch", "source_length"),
}
OF_THE_SOURCE = ("contexts", "real_context")
EXAMPLE = {"batch": 3, "length": 4, "capacity": 17, "source_length": 11}  # different sizes, see `signatures.EXAMPLE`


def generation_programs(model):
    """The programs of a model that generates text with a cache of keys and values; an empty list for other models."""
    if not isinstance(model, NextToken):
        return []
    if not hasattr(model.backbone, "start_cache" if _has_encoder(model) else "empty_cache"):
        return []
    size = EXAMPLE["batch"], EXAMPLE["source_length"]
    source = {"token_ids": np.ones(size, "int32"), "padding_mask": np.ones(size, bool)}
    with checked_inputs():
        cache = model.start_cache(source, EXAMPLE["batch"], EXAMPLE["capacity"])
    if not set(cache) <= set(_AXES):
        return []
    encoder = [_encoder(model)] if _has_encoder(model) else []
    return [*encoder, _decoder(model, cache)]


def _has_encoder(model):
    return not model.continues


def _encoder(model):
    def function(inputs):
        source = {"token_ids": inputs["token_ids"], "padding_mask": inputs["padding_mask"] != 0}
        with checked_inputs():
            cache = model.start_cache(source, ops.shape(inputs["token_ids"])[0], 1)
        return _named({name: cache[name] for name in OF_THE_SOURCE})

    size = EXAMPLE["batch"], EXAMPLE["source_length"]
    inputs = dict.fromkeys(("token_ids", "padding_mask"), (np.ones(size, "int32"), ("batch", "source_length")))
    with checked_inputs():
        example = model.start_cache({"token_ids": np.ones(size, "int32")}, 1, 1)
    outputs = _named({name: example[name] for name in OF_THE_SOURCE})
    return Program("encoder", function, inputs, {name: _AXES[name.partition(".")[0]] for name in outputs})


def _decoder(model, cache):
    """The program that reads new tokens and the cache, and returns the next token's logits and the next cache."""
    names = list(_named(cache))

    def function(inputs):
        # Copied, because the program would otherwise overwrite its inputs.
        leaves = [ops.copy(inputs[name]) for name in names]
        leaves = [leaf != 0 if name.startswith("real") else leaf for name, leaf in zip(names, leaves, strict=True)]
        tokens = {name: inputs[name] for name in ("token_ids", "position_ids")}
        tokens["padding_mask"] = inputs["padding_mask"] != 0
        with checked_inputs():
            logits, following = model.next_logits(tokens, keras.tree.pack_sequence_as(cache, leaves))
        following = {name: part for name, part in following.items() if name not in OF_THE_SOURCE}
        return {"logits": logits, **{f"next.{name}": leaf for name, leaf in _named(following).items()}}

    tokens = np.ones((EXAMPLE["batch"], EXAMPLE["length"]), "int32")
    inputs = dict.fromkeys(("token_ids", "padding_mask", "position_ids"), (tokens, ("batch", "length")))
    for name, leaf in _named(cache).items():
        array = ops.convert_to_numpy(leaf)
        inputs[name] = array.astype("int32" if array.dtype == bool else array.dtype), _AXES[name.partition(".")[0]]
    outputs = {f"next.{name}": axes for name, (_, axes) in inputs.items() if name.partition(".")[0] in _AXES}
    outputs = {name: axes for name, axes in outputs.items() if name.split(".")[1] not in OF_THE_SOURCE}
    return Program("decoder", function, inputs, {"logits": ("batch", "vocabulary"), **outputs})


def _named(cache):
    """{path, such as "blocks.0.1": tensor} of a cache; masks are int32."""
    found = {}
    for path, leaf in keras.tree.flatten_with_path(cache):
        is_mask = path[0].startswith("real")
        found[".".join(map(str, path))] = ops.cast(leaf, "int32") if is_mask else leaf
    return found

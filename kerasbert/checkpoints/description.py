"""Describes a model by the two JSON files of its folder."""

import keras

from ..core.family import FAMILIES
from ..core.quantization import has_integers
from ..core.variables import parts_of
from . import quantized
from .config_checks import OWN_QUANTIZATION
from .huggingface_config import write_config

NOT_SAVED = ("config", "name", "dtype", "quantization")  # items of a backbone's `get_config` that are no arguments


def description(model):
    """Returns the contents of `config.json` and `kerasbert.json` for a model.

    Args:
        model: a backbone, objective or task.
    """
    backbone = parts_of(model)
    family = backbone.family
    registered = keras.saving.get_registered_name(type(model))
    name = "Backbone" if model is backbone else registered.removeprefix("kerasbert>")
    extra = {} if model is backbone else model.config_extras()
    variant = model.variant()
    classes = family.huggingface.of_type("classes", backbone.config.model_type)
    architecture = classes.get(variant, classes["Backbone"])
    arguments = {key: value for key, value in backbone.get_config().items() if key not in NOT_SAVED}
    saved = {"class": name, "backbone": arguments}
    if FAMILIES.get(backbone.config.model_type) is not type(backbone):
        saved["backbone_class"] = keras.saving.get_registered_name(type(backbone)).removeprefix("kerasbert>")
    if has_integers(model):
        extra = {**extra, "quantization_config": OWN_QUANTIZATION}
        saved["quantization"] = quantized.description(model)
    if model is not backbone:
        saved["arguments"] = model.arguments()
    return write_config(backbone, architecture, extra.items()), saved

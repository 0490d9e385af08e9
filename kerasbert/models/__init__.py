"""Backbones: one file a family, each readable like its paper."""

from .backbone import Backbone
from .bert import Bert, BertConfig

__all__ = ["Backbone", "Bert", "BertConfig"]

# model_type of a Hugging Face config -> the class that reads it
FAMILIES = {"bert": Bert}

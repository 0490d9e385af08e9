"""Backbones: one file a family, each readable like its paper."""

from .backbone import Backbone
from .bert import Bert, BertConfig
from .distilbert import DistilBert, DistilBertConfig
from .roberta import Roberta, RobertaConfig

__all__ = ["Backbone", "Bert", "BertConfig", "DistilBert", "DistilBertConfig", "Roberta", "RobertaConfig"]

# model_type of a Hugging Face config -> the class that reads it
FAMILIES = {
    "bert": Bert,
    "distilbert": DistilBert,
    "roberta": Roberta,
    "xlm-roberta": Roberta,
    "camembert": Roberta,
}

"""Backbones: one file a family, each readable like its paper."""

from .backbone import Backbone
from .bert import Bert, BertConfig
from .distilbert import DistilBert, DistilBertConfig
from .mobilebert import MobileBert, MobileBertConfig
from .roberta import Roberta, RobertaConfig
from .xlm import Xlm, XlmConfig

__all__ = [
    "Backbone",
    "Bert",
    "BertConfig",
    "DistilBert",
    "DistilBertConfig",
    "MobileBert",
    "MobileBertConfig",
    "Roberta",
    "RobertaConfig",
    "Xlm",
    "XlmConfig",
]

# model_type of a Hugging Face config -> the class that reads it
FAMILIES = {
    "bert": Bert,
    "distilbert": DistilBert,
    "roberta": Roberta,
    "xlm-roberta": Roberta,
    "camembert": Roberta,
    "mobilebert": MobileBert,
    "ib-bert": MobileBert,
    "xlm": Xlm,
}

"""Backbones: one file a family, each readable like its paper."""

from .albert import Albert, AlbertConfig
from .backbone import Backbone
from .bert import Bert, BertConfig
from .deberta import Deberta, DebertaConfig
from .deberta_v2 import DebertaV2, DebertaV2Config
from .distilbert import DistilBert, DistilBertConfig
from .electra import Electra, ElectraConfig
from .elmo import Elmo, ElmoConfig
from .gpt import GPT, GPTConfig
from .gpt2 import GPT2, GPT2Config
from .mobilebert import MobileBert, MobileBertConfig
from .modernbert import ModernBert, ModernBertConfig
from .modernbert_decoder import ModernBertDecoder, ModernBertDecoderConfig
from .roberta import Roberta, RobertaConfig
from .seq2seq_attention import Seq2SeqAttention, Seq2SeqAttentionConfig
from .t5 import T5, T5Config
from .transformer import Transformer, TransformerConfig
from .transformer_xl import TransformerXL, TransformerXLConfig
from .word_vectors import WordVectors, WordVectorsConfig
from .xlm import XLM, XLMConfig
from .xlnet import XLNet, XLNetConfig

__all__ = [
    "Albert",
    "AlbertConfig",
    "Backbone",
    "Bert",
    "BertConfig",
    "Deberta",
    "DebertaConfig",
    "DebertaV2",
    "DebertaV2Config",
    "DistilBert",
    "DistilBertConfig",
    "Electra",
    "ElectraConfig",
    "Elmo",
    "ElmoConfig",
    "GPT",
    "GPT2",
    "GPT2Config",
    "GPTConfig",
    "MobileBert",
    "MobileBertConfig",
    "ModernBert",
    "ModernBertConfig",
    "ModernBertDecoder",
    "ModernBertDecoderConfig",
    "Roberta",
    "RobertaConfig",
    "T5",
    "T5Config",
    "Seq2SeqAttention",
    "Seq2SeqAttentionConfig",
    "Transformer",
    "TransformerConfig",
    "TransformerXL",
    "TransformerXLConfig",
    "WordVectors",
    "WordVectorsConfig",
    "XLM",
    "XLMConfig",
    "XLNet",
    "XLNetConfig",
]

# model_type of a Hugging Face config -> the class that reads it
FAMILIES = {
    "albert": Albert,
    "bert": Bert,
    "deberta": Deberta,
    "deberta-v2": DebertaV2,
    "electra": Electra,
    "distilbert": DistilBert,
    "elmo": Elmo,
    "gpt2": GPT2,
    "openai-gpt": GPT,
    "mobilebert": MobileBert,
    "ib-bert": MobileBert,
    "modernbert": ModernBert,
    "modernbert-decoder": ModernBertDecoder,
    "roberta": Roberta,
    "xlm-roberta": Roberta,
    "camembert": Roberta,
    "t5": T5,
    "t5-lm": T5,
    "mt5": T5,
    "mt5-lm": T5,
    "umt5": T5,
    "umt5-lm": T5,
    "seq2seq_attention": Seq2SeqAttention,
    "transfo-xl": TransformerXL,
    "transformer": Transformer,
    "word_vectors": WordVectors,
    "xlm": XLM,
    "xlnet": XLNet,
}

"""Backbones. Each family has a file or a folder, which is meant to be read alongside its paper."""

from ..core.blocks import BlockOutputs, run_blocks
from ..core.family import FAMILIES, Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ..core.initializers import truncated_normal
from ..core.weight_names import Field, Heads, Part, Tensor
from .albert import Albert, AlbertConfig
from .backbone import Backbone
from .bart import Bart, BartConfig
from .bert import Bert, BertConfig
from .deberta.deberta import Deberta, DebertaConfig
from .deberta.deberta_v2 import DebertaV2, DebertaV2Config
from .distilbert import DistilBert, DistilBertConfig
from .electra import Electra, ElectraConfig
from .elmo import Elmo, ElmoConfig
from .encoder_decoder import EncoderDecoderBackbone
from .eurobert import EuroBert, EuroBertConfig
from .gpt import GPT, GPTConfig
from .gpt2 import GPT2, GPT2Config
from .gpt_bert import GPTBert, GPTBertConfig
from .gte import Gte, GteConfig
from .jina_embeddings_v3 import JinaEmbeddingsV3, JinaEmbeddingsV3Config
from .mobilebert import MobileBert, MobileBertConfig
from .modernbert.decoder import ModernBertDecoder, ModernBertDecoderConfig
from .modernbert.modernbert import ModernBert, ModernBertConfig
from .mpnet import MPNet, MPNetConfig
from .neobert import NeoBert, NeoBertConfig
from .nomic_bert import NomicBert, NomicBertConfig
from .roberta import Roberta, RobertaConfig
from .seq2seq_attention.seq2seq_attention import Seq2SeqAttention, Seq2SeqAttentionConfig
from .t5.t5 import T5, T5Config
from .transformer import Transformer, TransformerConfig
from .transformer_xl.transformer_xl import TransformerXL, TransformerXLConfig
from .word_vectors import WordVectors, WordVectorsConfig
from .xlm import XLM, XLMConfig
from .xlnet.xlnet import XLNet, XLNetConfig

__all__ = [
    "BlockOutputs",
    "Config",
    "EncoderDecoderBackbone",
    "FAMILIES",
    "Family",
    "Field",
    "Heads",
    "HuggingFaceLayout",
    "Part",
    "Tensor",
    "register_family",
    "run_blocks",
    "transformers_classes",
    "truncated_normal",
    "Albert",
    "AlbertConfig",
    "Backbone",
    "Bart",
    "BartConfig",
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
    "EuroBert",
    "EuroBertConfig",
    "GPT",
    "GPT2",
    "GPT2Config",
    "GPTConfig",
    "Gte",
    "GteConfig",
    "JinaEmbeddingsV3",
    "JinaEmbeddingsV3Config",
    "GPTBert",
    "GPTBertConfig",
    "MobileBert",
    "MobileBertConfig",
    "ModernBert",
    "ModernBertConfig",
    "ModernBertDecoder",
    "ModernBertDecoderConfig",
    "MPNet",
    "MPNetConfig",
    "NeoBert",
    "NeoBertConfig",
    "NomicBert",
    "NomicBertConfig",
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

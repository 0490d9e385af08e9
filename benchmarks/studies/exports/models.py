"""The tiny models that `run.py` exports: each family of the package with each head that it has."""

from collections.abc import Callable

import numpy as np

from kerasbert import models
from kerasbert.data import Tokenizer
from kerasbert.objectives import CausalLM, Discriminator, MaskedLM, Seq2SeqLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

WORDS = "the cat sat on a mat and dog ran home who where red blue one two three four five six seven".split()
SHAPE = dict(num_heads=3, hidden_dim=24, feed_forward_dim=40, num_layers=2)
POSITIONS = dict(max_length=512)
ENDS = dict(pad_id=0, bos_id=2, eos_id=3, cls_id=2, sep_id=3)
MODERN = dict(SHAPE, **POSITIONS, local_attention=16, **ENDS) | dict(num_layers=4)

# Family -> (backbone class, config fields).
FAMILIES = {
    "BERT": (models.Bert, dict(SHAPE, **POSITIONS)),
    "RoBERTa": (models.Roberta, dict(SHAPE, **POSITIONS)),
    "ALBERT": (models.Albert, dict(SHAPE, **POSITIONS, embedding_dim=16)),
    "DistilBERT": (models.DistilBert, dict(SHAPE, **POSITIONS)),
    "ELECTRA": (models.Electra, dict(SHAPE, **POSITIONS, embedding_dim=16)),
    "MobileBERT": (models.MobileBert, dict(SHAPE, **POSITIONS, embedding_dim=16, bottleneck_dim=12)),
    "ModernBERT": (models.ModernBert, MODERN),
    "DeBERTa": (models.Deberta, dict(SHAPE, **POSITIONS)),
    "DeBERTa-v2": (models.DebertaV2, dict(SHAPE, **POSITIONS, distance_buckets=32, convolution_width=3)),
    "XLM": (models.XLM, dict(num_heads=3, hidden_dim=24, num_layers=2, **POSITIONS)),
    "XLNet": (models.XLNet, dict(SHAPE)),
    "GPT": (models.GPT, dict(SHAPE, **POSITIONS, bos_id=2, eos_id=3)),
    "GPT-2": (models.GPT2, dict(SHAPE, **POSITIONS, bos_id=2, eos_id=3)),
    "ModernBERT decoder": (models.ModernBertDecoder, MODERN),
    "T5": (models.T5, dict(SHAPE, head_dim=8)),
    "T5 encoder": (models.T5, dict(SHAPE, head_dim=8, architecture="encoder")),
    "Transformer": (models.Transformer, dict(SHAPE)),
    "Attention seq2seq": (
        models.Seq2SeqAttention,
        dict(hidden_dim=24, embedding_dim=12, alignment_dim=10, output_dim=14),
    ),
    "Transformer-XL": (
        models.TransformerXL,
        dict(SHAPE, head_dim=8, embedding_dim=16, cutoffs=(20, 40), memory_length=8),
    ),
    "ELMo": (models.Elmo, dict(hidden_dim=24, cell_dim=32, characters=False)),
    "Word vectors": (models.WordVectors, dict(hidden_dim=24)),
}
# Head -> (name in a family's record, function from a backbone and a tokenizer to a model).
HEADS: dict[str, tuple[str | None, Callable]] = {
    "classifier": ("classifier", lambda backbone, t: TextClassifier(backbone, labels=["a", "b", "c"], tokenizer=t)),
    "tagger": ("tagger", lambda backbone, t: TokenClassifier(backbone, labels=["O", "B-X", "I-X"], tokenizer=t)),
    "answerer": ("span", lambda backbone, t: QuestionAnswerer(backbone, tokenizer=t)),
    "choice": ("choice", lambda backbone, t: MultipleChoice(backbone, tokenizer=t)),
    "embedder": (None, lambda backbone, t: TextEmbedder(backbone, normalize=True, tokenizer=t)),
    "masked LM": ("masked_lm", lambda backbone, t: MaskedLM(backbone, tokenizer=t)),
    "discriminator": ("replaced_token", lambda backbone, t: Discriminator(backbone, tokenizer=t)),
    "causal LM": ("causal_lm", lambda backbone, t: CausalLM(backbone, tokenizer=t)),
    "seq2seq LM": ("seq2seq_lm", lambda backbone, t: Seq2SeqLM(backbone, tokenizer=t)),
}
NO_VECTORS = ("T5", "Transformer", "Attention seq2seq")  # encoder-decoders


def cells() -> list[tuple[str, str]]:
    """The pairs (family, head) that exist."""
    found = []
    for family, (cls, fields) in FAMILIES.items():
        heads = cls.family.heads
        if cls is models.T5:
            heads = ["tagger"] if "architecture" in fields else ["classifier", "span", "seq2seq_lm"]
        for head, (name, _) in HEADS.items():
            if name in heads or (name is None and family not in NO_VECTORS):
                found.append((family, head))
    return found


def tokenizer() -> Tokenizer:
    texts = [" ".join(np.random.default_rng(i).choice(WORDS, 12)) for i in range(50)]
    return Tokenizer.train("wordpiece", texts, vocabulary_size=61, lowercase=True)


def build(family: str, head: str, **changes):
    """A tiny model with random weights, far from those of its initialization, so that outputs differ.

    Args:
        family: a key of `FAMILIES`.
        head: a key of `HEADS`.
        **changes: other values of config fields.
    """
    cls, fields = FAMILIES[family]
    fields = fields | changes
    words = tokenizer()
    if head == "causal LM" and "causal" in cls.family.config.__dataclass_fields__:
        fields = {**fields, "causal": True}
    config = cls.family.config(vocabulary_size=words.vocabulary_size, **fields)
    needs_pooler = HEADS[head][0] in cls.family.pooled_heads
    backbone = cls(config, pooler=needs_pooler) if "pooler" in cls.__init__.__code__.co_varnames else cls(config)
    model = HEADS[head][1](backbone, words)
    generator = np.random.default_rng(0)
    for weight in model.weights:
        if weight.dtype.startswith("float"):
            weight.assign(weight + 0.1 * generator.standard_normal(weight.shape).astype("float32"))
    return model

"""RoBERTa: BERT's encoder, trained longer, with masked tokens as the only objective.

Liu, Ott, Goyal, Du, Joshi, Chen, Levy, Lewis, Zettlemoyer, Stoyanov 2019, arXiv 1907.11692. New in this paper:
pretraining without segments and sentence pairs, and so without a pooler; byte-level BPE; new random masks in every
epoch. Positions count only real tokens, so padding on the left does not change them. XLM-RoBERTa (Conneau et al. 2019,
arXiv 1911.02116), CamemBERT (Martin et al. 2019, arXiv 1911.03894) and DistilRoBERTa (Sanh et al. 2019, arXiv
1910.01108) are this model with other vocabularies and sizes.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ..core.initializers import normal, with_zero_row
from ..core.weight_names import Field
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import needed_positions, needed_tokens
from ..layers.heads import FirstTokenClassifier, PooledClassifier, TokenHead, masked_lm, of_config
from ..layers.masks import AttentionMask, real_tokens
from ..layers.positions import token_positions
from .backbone import Backbone
from .bert import ENCODER_NAMES, BertBlock
from .bert import HUGGINGFACE_CONFIG as BERT_CONFIG

# === Config ===


@dataclasses.dataclass(frozen=True)
class RobertaConfig(Config):
    vocabulary_size: int = 50_265
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072
    max_length: int = 512  # in tokens; there are pad_id + 1 additional position embeddings
    num_segments: int = 1  # the paper has none; one segment embedding of zeros is equivalent and fits the file layout
    dropout: float = 0.1  # after the embeddings and after each sublayer
    attention_dropout: float = 0.1  # of the attention probabilities
    classifier_dropout: float | None = None  # before fine-tuning heads; None: the same rate as `dropout`
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int = 1
    bos_id: int = 0
    eos_id: int = 2
    model_type: str = "roberta"

    def __post_init__(self):
        if self.pad_id is None:
            raise ValueError(
                "`pad_id` must be a token id, because positions are counted from `pad_id` + 1. Received: None "
                "(`pad_token_id: null` in config.json). The released models use 1."
            )

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

_LARGE = dict(num_layers=24, hidden_dim=1_024, num_heads=16, feed_forward_dim=4_096)
_XLM_ROBERTA = dict(model_type="xlm-roberta", vocabulary_size=250_002)
_CAMEMBERT = dict(model_type="camembert", vocabulary_size=32_005, bos_id=5, eos_id=6)

SIZES = {
    "roberta_base": dict(),
    "roberta_large": _LARGE,
    "distilroberta_base": dict(num_layers=6),
    "xlm_roberta_base": _XLM_ROBERTA,
    "xlm_roberta_large": {**_XLM_ROBERTA, **_LARGE},
    "camembert_base": _CAMEMBERT,
    "camembert_large": {**_CAMEMBERT, **_LARGE},
}

# === Backbone (its block is BERT's) ===


@keras.saving.register_keras_serializable("kerasbert")
class Roberta(Backbone):
    """The encoder of RoBERTa, XLM-RoBERTa and CamemBERT.

    Args:
        config: a `RobertaConfig`.
        pooler: whether to build the pooler, a dense layer with tanh on the first token. Only the multiple-choice head
            needs it.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids` (from 0), `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.
        output_positions: int32 (b, p), the only positions that the last block computes, so that `sequence_output` is
            (b, p, m). Cannot be combined with `hidden_states` or `attention_weights`.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), `pooled_output` (b, m) if there is a
        pooler, and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights`
        (num_layers tensors (b, h, s, s)). For packed rows, `first_output` and `pooled_output` are (b, n, m), or missing
        if the batch has no `first_positions`.
    """

    has_output_positions = True
    counts_real_tokens = True

    def __init__(self, config: RobertaConfig, pooler: bool = True, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer = config.kernel_initializer()
        table: dict[str, Any] = dict(embeddings_initializer=with_zero_row(initializer, config.pad_id), **common)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, name="token_embedding", **table
        )
        self.position_embedding = keras.layers.Embedding(
            config.max_length + config.pad_id + 1, config.hidden_dim, name="position_embedding", **table
        )
        self.segment_embedding = keras.layers.Embedding(
            config.num_segments, config.hidden_dim, embeddings_initializer="zeros", name="segment_embedding", **common
        )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="embedding_norm", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.blocks = [BertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.pooler = None
        if pooler:
            self.pooler = Dense(config.hidden_dim, "tanh", kernel_initializer=initializer, name="pooler", **common)
        self.build_now()

    def embed_tokens(self, inputs):
        token_ids = inputs["token_ids"]
        segment_ids = inputs.get("segment_ids")
        segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = self.token_embedding(token_ids) + self.segment_embedding(segment_ids)
        x = x + self.position_vectors(inputs)
        return self.embedding_dropout(self.embedding_norm(x))

    def position_vectors(self, inputs):
        return self.position_embedding(position_rows(inputs, self.config.pad_id))

    def call(self, inputs, hidden_states=False, attention_weights=False, output_positions=None):
        x = self.embed_tokens(inputs)

        blocks = run_blocks(
            self.blocks,
            x,
            last={"positions": needed_positions(inputs, output_positions)},
            attention_mask=AttentionMask.from_inputs(inputs),
            return_weights=attention_weights,
        )
        x, first = needed_tokens(blocks.states[-1], inputs, output_positions)
        pooled = None if first is None or self.pooler is None else self.pooler(first)
        outputs = present(sequence_output=x, first_output=first, pooled_output=pooled)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def get_config(self):
        return {**super().get_config(), "pooler": self.pooler is not None}


def position_rows(inputs, pad_id):
    """Returns the index of each token's position embedding.

    Real tokens are counted from `pad_id` + 1, and padding has the index `pad_id`. For example, with pad_id=1, the token
    ids [0, 31414, 232, 328, 2, 1, 1] have the position embeddings [2, 3, 4, 5, 6, 1, 1].

    Args:
        inputs: a batch with `token_ids` (b, s).
        pad_id: id of the padding token.

    Returns: int32 (b, s) or (1, s).
    """
    positions = token_positions(inputs, counted=True)
    real = real_tokens(inputs) if inputs.get("position_ids") is None else None  # given positions are all used
    return pad_id + 1 + (positions if real is None else ops.where(real, positions, -1))


# === Heads ===


def _head_dropout(config):
    return config.dropout if config.classifier_dropout is None else config.classifier_dropout


HEADS = {
    "masked_lm": masked_lm(activation="gelu"),  # exact gelu, whatever the activation of the blocks
    "classifier": lambda config, num_labels, **common: FirstTokenClassifier(
        num_labels,
        config.hidden_dim,
        "tanh",
        _head_dropout(config),
        _head_dropout(config),
        config.kernel_initializer(),
        **common,
    ),
    "tagger": of_config(TokenHead, "classifier_dropout"),
    "span": of_config(TokenHead, num_labels=2),
    "choice": of_config(PooledClassifier, "dropout", num_labels=1),
}


# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    **BERT_CONFIG,
    "max_length": Field(
        "max_position_embeddings",
        load=lambda stored: stored["max_position_embeddings"] - (stored["pad_token_id"] or 0) - 1,
        save=lambda config: config.max_length + config.pad_id + 1,
    ),
    "bos_id": "bos_token_id",
    "eos_id": "eos_token_id",
}

_DEFAULTS = dict(max_position_embeddings=512, type_vocab_size=2, layer_norm_eps=1e-12, pad_token_id=1)

HUGGINGFACE_DEFAULTS = {
    "roberta": _DEFAULTS,
    "xlm-roberta": {**_DEFAULTS, "vocab_size": 30_522},
    "camembert": {**_DEFAULTS, "vocab_size": 30_522},
}


HUGGINGFACE_CLASSES = {
    "roberta": transformers_classes("Roberta"),
    "xlm-roberta": transformers_classes("XLMRoberta"),
    "camembert": transformers_classes("Camembert"),
}


def _shared_type(stored):
    """The original files of jina-embeddings-v3 have the model type of XLM-RoBERTa, with rotary positions."""
    rotary = stored["model_type"] == "xlm-roberta" and stored.get("position_embedding_type") == "rotary"
    return "jina_embeddings_v3" if rotary else stored["model_type"]


HEAD_NAMES = {
    "pooler": "pooler.dense",
    "masked_lm/dense": "lm_head.dense",
    "masked_lm/norm": "lm_head.layer_norm",
    "masked_lm/bias": "lm_head.bias",
    "classifier/dense": "classifier.dense",
    "classifier/project": "classifier.out_proj",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/dense": "classifier",
}

HUGGINGFACE_NAMES = {**ENCODER_NAMES, **HEAD_NAMES}

HUGGINGFACE_TIED = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}

register_family(
    Roberta,
    Family(
        config=RobertaConfig,
        model_types=("roberta", "xlm-roberta", "camembert"),
        sizes=SIZES,
        heads=HEADS,
        pooled_heads=frozenset({"choice"}),
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={
                **{"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
                "use_flash_attn": False,  # of jina-reranker-v2, whose tensors have other names
            },
            defaults=HUGGINGFACE_DEFAULTS,
            classes=HUGGINGFACE_CLASSES,
            prefix="roberta",  # for all three model types
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
            shared_type=_shared_type,
        ),
    ),
)

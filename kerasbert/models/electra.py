"""ELECTRA: an encoder that is pretrained to detect which tokens a smaller encoder has replaced.

Clark, Luong, Le, Manning 2020, arXiv 2003.10555. New in this paper: a generator (a masked language model) fills masked
positions with samples, and a discriminator predicts for each token whether it is the original. Generator and
discriminator are both encoders of this class, and share their embeddings (section 3.2). The embeddings may be narrower
than the hidden states. There is no pooler: the hidden state of the first token represents the sequence.
"""

import dataclasses
from typing import Any

import keras

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ..core.initializers import truncated_normal
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import needed_positions, needed_tokens
from ..layers.feed_forward import activation_function
from ..layers.heads import FirstTokenClassifier, TokenHead, masked_lm
from ..layers.masks import AttentionMask
from ..layers.positions import token_positions
from .backbone import Backbone
from .bert import ENCODER_NAMES, BertBlock
from .bert import HUGGINGFACE_CONFIG as BERT_CONFIG

# === Config ===


@dataclasses.dataclass(frozen=True)
class ElectraConfig(Config):
    vocabulary_size: int = 30_522
    embedding_dim: int = 128  # width of the embeddings and of the masked LM head
    num_layers: int = 12
    num_heads: int = 4
    hidden_dim: int = 256
    feed_forward_dim: int = 1_024
    max_length: int = 512  # number of position embeddings
    num_segments: int = 2
    dropout: float = 0.1  # after the embeddings and after each sublayer
    attention_dropout: float = 0.1  # of the attention probabilities
    classifier_dropout: float | None = None  # in the classifier and before the tagger; None: the same as `dropout`
    choice_dropout: float = 0.1  # before the output layer of the multiple-choice head
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02  # standard deviation before truncation at twice this value
    pad_id: int = 0
    model_type: str = "electra"

    def kernel_initializer(self):
        return truncated_normal(self.initializer_range)


# === Sizes ===

SIZES = {
    "electra_small": dict(num_layers=12, embedding_dim=128, hidden_dim=256, num_heads=4, feed_forward_dim=1_024),
    "electra_base": dict(num_layers=12, embedding_dim=768, hidden_dim=768, num_heads=12, feed_forward_dim=3_072),
    "electra_large": dict(num_layers=24, embedding_dim=1_024, hidden_dim=1_024, num_heads=16, feed_forward_dim=4_096),
    # Generators have as many layers as their discriminators, and a quarter (base: a third) of the width.
    "electra_small_generator": dict(num_layers=12, embedding_dim=128, hidden_dim=64, num_heads=1, feed_forward_dim=256),
    "electra_base_generator": dict(
        num_layers=12, embedding_dim=768, hidden_dim=256, num_heads=4, feed_forward_dim=1_024
    ),
    "electra_large_generator": dict(
        num_layers=24, embedding_dim=1_024, hidden_dim=256, num_heads=4, feed_forward_dim=1_024
    ),
}

# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class Electra(Backbone):
    """The encoder of ELECTRA's generator and discriminator, which consists of BERT's blocks.

    Args:
        config: an `ElectraConfig`.
        embeddings: the attribute `embeddings` of another Electra, to share its embeddings, which must have the same
            sizes. Default: new embeddings.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids`, `sequence_ids`, `first_positions`.
        hidden_states: whether to return the projected embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.
        output_positions: int32 (b, p), the only positions that the last block computes, so that `sequence_output` is
            (b, p, m). Cannot be combined with `hidden_states` or `attention_weights`.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), `pooled_output`, which is the same as
        `first_output`, and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and
        `attention_weights` (num_layers tensors (b, h, s, s)). For packed rows, `first_output` is (b, n, m), or missing
        if the batch has no `first_positions`.
    """

    has_output_positions = True

    def __init__(self, config: ElectraConfig, embeddings: Any = None, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        embeddings = _new_embeddings(config, common) if embeddings is None else _checked(embeddings, config)
        self.token_embedding, self.position_embedding, self.segment_embedding, self.embedding_norm = embeddings
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.embedding_projection = None
        if config.embedding_dim != config.hidden_dim:
            # Keras's default initializer (Glorot), as in the official code, which also uses it in the heads.
            self.embedding_projection = Dense(config.hidden_dim, name="embedding_projection", **common)
        self.blocks = [BertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, output_positions=None):
        token_ids = inputs["token_ids"]
        segment_ids = inputs.get("segment_ids")
        segment_ids = keras.ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = self.token_embedding(token_ids) + self.segment_embedding(segment_ids)
        x = x + self.position_embedding(token_positions(inputs))
        x = self.embedding_dropout(self.embedding_norm(x))
        x = self.embedding_projection(x) if self.embedding_projection else x

        blocks = run_blocks(
            self.blocks,
            x,
            last={"positions": needed_positions(inputs, output_positions)},
            attention_mask=AttentionMask.from_inputs(inputs),
            return_weights=attention_weights,
        )
        x, first = needed_tokens(blocks.states[-1], inputs, output_positions)
        outputs = present(sequence_output=x, first_output=first, pooled_output=first)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    @property
    def embeddings(self):
        """The layers that a generator shares with its discriminator: three embedding layers and their layer norm."""
        return self.token_embedding, self.position_embedding, self.segment_embedding, self.embedding_norm


def _new_embeddings(config, common):
    table: dict[str, Any] = dict(embeddings_initializer=config.kernel_initializer(), **common)
    return (
        keras.layers.Embedding(config.vocabulary_size, config.embedding_dim, name="token_embedding", **table),
        keras.layers.Embedding(config.max_length, config.embedding_dim, name="position_embedding", **table),
        keras.layers.Embedding(config.num_segments, config.embedding_dim, name="segment_embedding", **table),
        keras.layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name="embedding_norm", **common),
    )


def _checked(embeddings, config):
    rows = (config.vocabulary_size, config.max_length, config.num_segments)
    expected = [(count, config.embedding_dim) for count in rows]
    found = [tuple(table.embeddings.shape) for table in embeddings[:3]]
    if found != expected:
        raise ValueError(
            "Shared embeddings must have the shapes that the config requires: vocabulary_size, max_length and "
            f"num_segments by embedding_dim. Received: {found} instead of {expected}. Use a config with the other "
            "backbone's sizes."
        )
    return embeddings


# === Heads ===


class ReplacedTokenHead(Composite):
    """The head of the discriminator: a dense layer, an activation, and a dense layer with one logit per token.

    Args:
        hidden_dim: width of the first dense layer.
        activation: name of the activation function.
        kernel_initializer: initializer of the first dense layer. The output layer has Keras's default initializer.

    Call:
        outputs: dict of the outputs of a backbone, of which `sequence_output` (b, s, m) is used.

    Returns: logits, float (b, s), of the probability that the token was replaced.
    """

    def __init__(self, hidden_dim, activation="gelu", kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.activation = activation_function(activation)
        self.dense = Dense(hidden_dim, kernel_initializer=kernel_initializer, name="dense", **common)
        self.project = Dense(1, name="project", **common)

    def call(self, outputs):
        x = self.activation(self.dense(outputs["sequence_output"]))
        return keras.ops.squeeze(self.project(x), axis=-1)


def _head_dropout(config):
    return config.dropout if config.classifier_dropout is None else config.classifier_dropout


HEADS = {
    "masked_lm": masked_lm("embedding_dim", activation="gelu"),
    "replaced_token": lambda config, **common: ReplacedTokenHead(
        config.hidden_dim, config.activation, config.kernel_initializer(), **common
    ),
    "classifier": lambda config, num_labels, **common: FirstTokenClassifier(
        num_labels,
        config.hidden_dim,
        "gelu",
        dropout=_head_dropout(config),
        input_dropout=_head_dropout(config),
        **common,
    ),
    "tagger": lambda config, num_labels, **common: TokenHead(num_labels, _head_dropout(config), **common),
    "span": lambda config, **common: TokenHead(2, 0.0, **common),
    "choice": lambda config, **common: FirstTokenClassifier(
        1, config.hidden_dim, "gelu", dropout=config.choice_dropout, **common
    ),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    **BERT_CONFIG,
    "embedding_dim": "embedding_size",
    "choice_dropout": "summary_last_dropout",
}

# Fields for which only these values are supported. Any other value is an error.
HUGGINGFACE_ONLY = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": "gelu",
}

HUGGINGFACE_NAMES = {
    **ENCODER_NAMES,
    "embedding_projection": "embeddings_project",
    "masked_lm/dense": "generator_predictions.dense",
    "masked_lm/norm": "generator_predictions.LayerNorm",
    "masked_lm/bias": "generator_lm_head.bias",
    "replaced_token/dense": "discriminator_predictions.dense",
    "replaced_token/project": "discriminator_predictions.dense_prediction",
    "classifier/dense": "classifier.dense",
    "classifier/project": "classifier.out_proj",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/dense": "sequence_summary.summary",
    "choice/project": "classifier",
}


register_family(
    Electra,
    Family(
        config=ElectraConfig,
        model_types=("electra",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            classes={**transformers_classes("Electra"), "Discriminator": "ElectraForPreTraining"},
            prefix="electra",
            names=HUGGINGFACE_NAMES,
            # Two names for the same tensor. Files contain one of the names or both.
            tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        ),
    ),
)

"""What all DeBERTa versions have in common: embeddings, the enhanced mask decoder, heads, and the names in files."""

from typing import Any

import keras
from keras import ops

from ...core.weight_names import Field
from ...layers.composite import Composite
from ...layers.dense import Dense
from ...layers.dropout import Dropout
from ...layers.heads import FirstTokenClassifier, TokenHead, masked_lm, of_config
from ...layers.masks import real_tokens
from ...layers.positions import token_positions
from ..bert import HUGGINGFACE_CONFIG as BERT_CONFIG

# === Configs ===


def position_terms(terms):
    """Converts position terms in any form found in configs (a tuple, a list, a str "c2p|p2c" or None) to a tuple."""
    terms = terms.lower().split("|") if isinstance(terms, str) else terms or ()
    terms = tuple(term.strip() for term in terms)
    if set(terms) - {"c2p", "p2c"} or len(set(terms)) < len(terms):
        raise ValueError(
            "`position_terms` may contain c2p (content to position) and p2c (position to content), each at most once. "
            f'Received: {terms}. Use ("c2p", "p2c").'
        )
    return terms


def complete(config):
    """Fills in the fields whose default is the value of another field. Raises a ValueError for inconsistent fields."""

    def set_field(name, value):
        object.__setattr__(config, name, value)  # the dataclass is frozen

    if config.hidden_dim % config.num_heads:
        raise ValueError(
            f"`hidden_dim` must be a multiple of `num_heads`. Received: hidden_dim={config.hidden_dim}, num_heads="
            f"{config.num_heads}. Use {config.hidden_dim + -config.hidden_dim % config.num_heads}."
        )
    set_field("position_terms", position_terms(config.position_terms))
    set_field("embedding_dim", config.embedding_dim or config.hidden_dim)
    set_field("max_distance", config.max_length if config.max_distance is None else config.max_distance)
    if config.max_distance < 1:
        raise ValueError(f"`max_distance` must be at least 1, or None. Received: {config.max_distance}.")
    if config.mask_decoder and config.absolute_positions:
        raise ValueError(
            "`mask_decoder` is for encoders without absolute positions. Received: mask_decoder=True, "
            "absolute_positions=True. Set one of them to False."
        )
    if config.embedding_dim != config.hidden_dim:
        set_field("legacy_head", True)  # the other layout cannot store a head that projects to `embedding_dim`


# === Layers ===


def sequences_of(inputs):
    """Returns the number of the sequence to which each token belongs, int32 (b, s), 0 for padding.

    None if every row is one sequence without padding. Tokens attend within their sequence. Padding attends to no token,
    because its outputs are never used.
    """
    real, sequences = real_tokens(inputs), inputs.get("sequence_ids")
    if sequences is None:
        return None if real is None else ops.cast(real, "int32")
    return ops.where(real, ops.convert_to_tensor(sequences), 0)


class DebertaEmbeddings(Composite):
    """The sum of token embeddings and, depending on the config, position and segment embeddings.

    The sum is projected if `embedding_dim` differs from `hidden_dim`, and then normalized.

    Args:
        config: a config with DeBERTa's fields.
        tables: tuple of the token, position and segment embedding layers of another backbone, to share them. Layers
            that the config does not use are None. Default: new layers.

    Call:
        inputs: a batch.
        sequence_ids: the result of `sequences_of` for the batch.

    Returns: float (b, s, m), zeros at padding.
    """

    def __init__(self, config, tables, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        tables = _new_tables(config, self.dtype_policy) if tables is None else _checked(tables, config)
        self.token_embedding, self.position_embedding, self.segment_embedding = tables
        self.projection = None
        if config.embedding_dim != config.hidden_dim:
            dense: dict[str, Any] = dict(use_bias=False, kernel_initializer=config.kernel_initializer(), **common)
            self.projection = Dense(config.hidden_dim, name="projection", **dense)
        self.norm = keras.layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name="norm", **common)
        self.dropout = Dropout(config.dropout, name="dropout", **common)

    def call(self, inputs, sequence_ids=None):
        token_ids = inputs["token_ids"]
        x = self.token_embedding(token_ids)
        if self.position_embedding is not None:
            x = x + self.position_embedding(token_positions(inputs))
        if self.segment_embedding is not None:
            segment_ids = inputs.get("segment_ids")
            x = x + self.segment_embedding(ops.zeros_like(token_ids) if segment_ids is None else segment_ids)
        x = self.norm(x if self.projection is None else self.projection(x))
        return self.dropout(x if sequence_ids is None else ops.where(sequence_ids[..., None] > 0, x, 0))


def _rows(config):
    """Returns {embedding layer: number of embeddings}, with 0 for layers that the config does not use."""
    positions = config.max_length if config.absolute_positions else 0
    return dict(
        token_embedding=config.vocabulary_size, position_embedding=positions, segment_embedding=config.num_segments
    )


def _new_tables(config, dtype):
    table: dict[str, Any] = dict(
        output_dim=config.embedding_dim, embeddings_initializer=config.kernel_initializer(), dtype=dtype
    )
    return [keras.layers.Embedding(rows, name=name, **table) if rows else None for name, rows in _rows(config).items()]


def _checked(tables, config):
    expected = [(rows, config.embedding_dim) if rows else None for rows in _rows(config).values()]
    found = [None if table is None else tuple(table.embeddings.shape) for table in tables]
    if found != expected:
        raise ValueError(
            "Shared embeddings must have the shapes that the config requires: tokens, positions and segments by "
            f"embedding_dim. Received: {found} instead of {expected}. Use a config with the other backbone's sizes."
        )
    return tables


def run_mask_decoder(block, x, query, return_weights=False, **arguments):
    """Applies the last block twice as the enhanced mask decoder (section 3.2 of the paper).

    Args:
        block: the last block of the encoder.
        x: float (b, s, m), the input of the block, from which keys and values are computed both times.
        query: float (b, s, m), x plus absolute positions, from which the queries are computed the first time. The
            second time, they are computed from the output of the first pass.
        return_weights: whether to return the attention probabilities of the second pass.
        **arguments: other arguments of the block.

    Returns: float (b, s, m), and `Extras` with the attention probabilities if requested.
    """
    for _ in range(2):
        query, extras = block(x, query=query, return_weights=return_weights, **arguments)
    return query, extras


# === Heads ===


def first_token_classifier(num_labels, config, common):
    """Returns the head for classification and multiple choice."""
    return FirstTokenClassifier(
        num_labels,
        config.hidden_dim,
        config.pooler_activation,
        config.dropout if config.classifier_dropout is None else config.classifier_dropout,
        config.pooler_dropout,
        config.kernel_initializer(),
        **common,
    )


HEADS = {
    "masked_lm": masked_lm("embedding_dim"),
    "classifier": lambda config, num_labels, **common: first_token_classifier(num_labels, config, common),
    "tagger": of_config(TokenHead, "dropout"),
    "span": of_config(TokenHead, num_labels=2),
    "choice": lambda config, **common: first_token_classifier(1, config, common),
}

# === Hugging Face ===

CONFIG = {
    **BERT_CONFIG,
    "embedding_dim": "embedding_size",
    "absolute_positions": "position_biased_input",
    "mask_decoder": "mask_decoder",  # kerasbert only; transformers keeps unknown fields
    "relative_attention": "relative_attention",
    "position_terms": Field(
        "pos_att_type",
        load=lambda stored: position_terms(stored["pos_att_type"]),
        save=lambda config: list(config.position_terms),
    ),
    "max_distance": Field(
        "max_relative_positions",
        load=lambda stored: stored["max_relative_positions"] if stored["max_relative_positions"] > 0 else None,
        save=lambda config: config.max_distance,
    ),
    "pooler_dropout": "pooler_dropout",
    "classifier_dropout": "cls_dropout",
    "pooler_activation": "pooler_hidden_act",
    "legacy_head": "legacy",
}

NAMES = {
    "embed/token_embedding": "embeddings.word_embeddings",
    "embed/position_embedding": "embeddings.position_embeddings",
    "embed/segment_embedding": "embeddings.token_type_embeddings",
    "embed/projection": "embeddings.embed_proj",
    "embed/norm": "embeddings.LayerNorm",
    "relative_embedding": "encoder.rel_embeddings",
    "mask_decoder": "embeddings.position_embeddings",
    "block_{i}/attention/project": "encoder.layer.{i}.attention.output.dense",
    "block_{i}/attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "block_{i}/feed_forward/inner": "encoder.layer.{i}.intermediate.dense",
    "block_{i}/feed_forward/outer": "encoder.layer.{i}.output.dense",
    "block_{i}/feed_forward_norm": "encoder.layer.{i}.output.LayerNorm",
    "masked_lm/dense": "lm_predictions.lm_head.dense",
    "masked_lm/norm": "lm_predictions.lm_head.LayerNorm",
    "masked_lm/bias": "lm_predictions.lm_head.bias",
    "classifier/dense": "pooler.dense",
    "classifier/project": "classifier",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/dense": "pooler.dense",
    "choice/project": "classifier",
}

# The position embeddings of the mask decoder may be missing from files, because transformers ignores them.
OPTIONAL = {"mask_decoder"}

# {name in files with a "legacy" config: name in other files}, for the masked LM head.
_LEGACY = {
    "cls.predictions.transform.dense.weight": "lm_predictions.lm_head.dense.weight",
    "cls.predictions.transform.dense.bias": "lm_predictions.lm_head.dense.bias",
    "cls.predictions.transform.LayerNorm.weight": "lm_predictions.lm_head.LayerNorm.weight",
    "cls.predictions.transform.LayerNorm.bias": "lm_predictions.lm_head.LayerNorm.bias",
    "cls.predictions.bias": "lm_predictions.lm_head.bias",
}

TIED = {
    **_LEGACY,
    "cls.predictions.decoder.bias": "lm_predictions.lm_head.bias",
    "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
}


def legacy_spelling(config):
    """Returns {name in `NAMES`: name in files} for tensors that have a different name in files with this config."""
    return {new: old for old, new in _LEGACY.items()} if config.legacy_head else {}

"""MPNet: BERT's masks and XLNet's permutations in one objective, with the positions of the whole sentence.

Song, Tan, Qin, Lu, Liu 2020, arXiv 2004.09297. New in this paper: masked and permuted language modeling. Masked tokens
are predicted one after the other in random order, and each prediction has access to the tokens that were predicted
before it, as in XLNet. In place of the others, it has access to mask tokens, so that it knows the positions of all
tokens, as in BERT (position compensation). The encoder is RoBERTa's without segments, and with T5's bias by distance,
which all blocks share.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from ..backend.compilation import concrete_array
from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ..core.initializers import normal, with_zero_row
from ..layers.attention import MultiHeadAttention
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import gather_positions, needed_positions, needed_tokens, scatter_positions
from ..layers.feed_forward import FeedForward
from ..layers.heads import FirstTokenClassifier, PooledClassifier, TokenHead, masked_lm, of_config
from ..layers.masks import AttentionMask, real_tokens
from ..layers.relative_bias import BucketedBias
from .backbone import Backbone
from .roberta import HEAD_NAMES, position_rows
from .roberta import HUGGINGFACE_CONFIG as ROBERTA_CONFIG
from .roberta import HUGGINGFACE_TIED as ROBERTA_TIED

# === Config ===

PAD_ID, NUM_BUCKETS, MAX_DISTANCE = 1, 32, 128  # constants in the official code and in transformers


@dataclasses.dataclass(frozen=True)
class MPNetConfig(Config):
    vocabulary_size: int = 30_527
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072
    max_length: int = 512  # in tokens; there are two additional position embeddings
    dropout: float = 0.1  # after the embeddings, after each sublayer and before fine-tuning heads
    attention_dropout: float = 0.1  # of the attention probabilities
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int = PAD_ID
    bos_id: int = 0
    eos_id: int = 2
    model_type: str = "mpnet"

    def __post_init__(self):
        if self.pad_id != PAD_ID:
            raise ValueError(
                f"`pad_id` must be {PAD_ID}, which is a constant in the code of MPNet. Received: {self.pad_id}. Train "
                'the tokenizer with family="mpnet", which gives this id to the padding token.'
            )

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

SIZES = {"mpnet_base": {}}

# === Block ===


class MPNetBlock(Composite):
    """BERT's post-norm block with a bias of the attention scores, and with a separate context for the two streams.

    Args:
        config: an `MPNetConfig`.

    Call:
        x: float (b, q, m).
        context: float (b, k, m), the hidden states from which keys and values are computed. Default: `x`.
        attention_mask: an `AttentionMask`.
        bias: float (1, h, q, k) or (b, h, q, k), added to the attention scores.
        return_weights: whether to return the attention probabilities.
        positions: int32 (b, p), the only positions of x to compute, so that the output is (b, p, m). Default: all.

    Returns: float (b, q, m), and `Extras` with the attention probabilities (b, h, q, k) if requested.
    """

    AFTER_ATTENTION = "attention_norm"

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        initializer = config.kernel_initializer()
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        norm: dict[str, Any] = dict(epsilon=config.layer_norm_epsilon, **common)
        self.attention = MultiHeadAttention(
            config.hidden_dim, config.num_heads, config.attention_dropout, initializer, name="attention", **common
        )
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.feed_forward = FeedForward(
            config.hidden_dim, config.feed_forward_dim, config.activation, initializer, name="feed_forward", **common
        )
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)
        self.attention_output_dropout = Dropout(config.dropout, name="attention_output_dropout", **common)
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)

    def call(self, x, context=None, attention_mask=None, bias=None, return_weights=False, positions=None):
        context = x if context is None else context
        if positions is not None:
            x, attention_mask = gather_positions(x, positions), attention_mask.of_queries(positions)
            bias = ops.take_along_axis(bias, positions[:, None, :, None], axis=2)
        y, extras = self.attention(x, context, attention_mask=attention_mask, bias=bias, return_weights=return_weights)
        x = self.attention_norm(x + self.attention_output_dropout(y))
        y = self.feed_forward(x)
        x = self.feed_forward_norm(x + self.feed_forward_dropout(y))
        return x, extras


# === The two streams ===

PREDICTED = "masked_positions", "original_ids"  # the keys of a batch that has them


@dataclasses.dataclass(frozen=True)
class Streams:
    """The tokens of the content stream and, after them, those of the query stream.

    The content stream holds the s tokens of a row without masks, followed by the p mask tokens. It is the context of
    both streams. The query stream holds the p mask tokens once more.

    Args:
        token_ids: int32 (b, s + 2 p).
        places: int32 (b, s + 2 p), the position of each token in the row.
        mask: the `AttentionMask` of s + 2 p queries and s + p keys.
        num_keys: s + p, the length of the content stream.
    """

    token_ids: Any
    places: Any
    mask: AttentionMask
    num_keys: int

    @classmethod
    def of(cls, inputs):
        """Returns the streams for a batch with `masked_positions` and `original_ids` (section 2.2 of the paper)."""
        ids, slots, originals = (ops.convert_to_tensor(inputs[key]) for key in ("token_ids", *PREDICTED))
        at, masked = ops.maximum(slots, 0), ops.take_along_axis(ids, ops.maximum(slots, 0), axis=1)

        def streams(tokens, masks):
            return ops.concatenate([tokens, masks, masks], axis=1)

        num_keys = ops.shape(ids)[1] + ops.shape(slots)[1]
        mask = AttentionMask(allowed=visible(slots, ops.shape(ids)[1])[:, None])
        real = real_tokens(inputs)
        if real is not None:
            real = ops.broadcast_to(real, ops.shape(ids))
            mask = mask.replace(padding_mask=ops.concatenate([real, slots >= 0], axis=1))
        if inputs.get("sequence_ids") is not None:
            sequences = ops.convert_to_tensor(inputs["sequence_ids"])
            sequences = streams(sequences, ops.take_along_axis(sequences, at, axis=1))
            mask = mask.replace(sequence_ids=sequences[:, :num_keys], query_sequence_ids=sequences)
        columns = ops.zeros_like(ids) + ops.arange(ops.shape(ids)[1], dtype="int32")
        tokens = streams(scatter_positions(ids, originals, slots), masked)
        return cls(tokens, streams(columns, at), mask, num_keys)

    def queries_only(self):
        """Returns the mask of the query stream alone."""
        mask = self.mask.replace(allowed=self.mask.allowed[:, :, self.num_keys :])
        if mask.query_sequence_ids is not None:
            mask = mask.replace(query_sequence_ids=mask.query_sequence_ids[:, self.num_keys :])
        return mask


def visible(slots, length):
    """Determines which tokens of the content stream the tokens of both streams may attend to.

    For each position, a token may attend either to the token there or to its mask, so that all see every position once.
    Tokens that are not predicted are visible to all. Of the predicted tokens, one that is predicted in slot i sees
    those of slots up to i in the content stream, and those of slots before i in the query stream. All others see none
    of them.

    positions 3 and 4 of 5, in this order -> rows 1110011 three times, 1111001, 1111100, 1110011 twice in the content
    stream; 1110011, 1111001 in the query stream

    Args:
        slots: int32 (b, p), the predicted positions in the order of prediction, -1 in unused entries.
        length: s, number of tokens in a row.

    Returns: bool (b, s + 2 p, s + p).
    """
    order = ops.arange(1, ops.shape(slots)[1] + 1, dtype="int32") + ops.zeros_like(slots)
    here = slots[:, None, :] == ops.arange(length, dtype="int32")[None, :, None]
    ranks = ops.sum(ops.where(here, order[:, None, :], 0), axis=-1)  # of tokens: 0 if they are not predicted
    seen = ops.concatenate([ranks, ops.zeros_like(slots), order - 1], axis=1)[:, :, None]  # largest visible rank
    tokens, masks = ranks[:, None, :] <= seen, order[:, None, :] > seen
    return ops.concatenate([tokens, masks & (slots >= 0)[:, None, :]], axis=-1)


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class MPNet(Backbone):
    """The encoder of MPNet, and in pretraining its two streams.

    A batch with `masked_positions` and `original_ids` holds the predicted positions in the order of prediction. The
    query stream then predicts each of them, with access to all tokens that are not predicted, to the original tokens of
    earlier entries, and to the masks of itself and of later entries. `MaskedLM` reads the query stream.

    Args:
        config: an `MPNetConfig`.
        pooler: whether to build the pooler, a dense layer with tanh on the first token. Only the multiple-choice head
            needs it.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `position_ids` (from 0),
            `sequence_ids`, `first_positions`, `masked_positions` and `original_ids` (b, p).
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.
        output_positions: int32 (b, p), the only positions that the last block computes, so that `sequence_output` is
            (b, p, m). Cannot be combined with `hidden_states` or `attention_weights`.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), `pooled_output` (b, m) if there is a
        pooler, and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights`
        (num_layers tensors (b, h, s, s)). For packed rows, `first_output` and `pooled_output` are (b, n, m), or missing
        if the batch has no `first_positions`. With `original_ids`, the only output is `query_output` (b, p, m).
    """

    has_output_positions = True
    counts_real_tokens = True
    takes_segments = False

    def __init__(self, config: MPNetConfig, pooler: bool = True, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer = config.kernel_initializer()
        table: dict[str, Any] = dict(embeddings_initializer=with_zero_row(initializer, PAD_ID), **common)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, name="token_embedding", **table
        )
        self.position_embedding = keras.layers.Embedding(
            config.max_length + PAD_ID + 1, config.hidden_dim, name="position_embedding", **table
        )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="embedding_norm", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.relative_bias = BucketedBias(
            config.num_heads, NUM_BUCKETS, MAX_DISTANCE, initializer, name="relative_bias", **common
        )
        self.blocks = [MPNetBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.pooler = None
        if pooler:
            self.pooler = Dense(config.hidden_dim, "tanh", kernel_initializer=initializer, name="pooler", **common)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, output_positions=None):
        if inputs.get("original_ids") is not None:
            if hidden_states or attention_weights or output_positions is not None:
                raise ValueError(
                    "With `original_ids`, the only output is that of the query stream. Received: hidden_states="
                    f"{hidden_states}, attention_weights={attention_weights}, output_positions={output_positions}. "
                    "Drop these arguments, or `original_ids`."
                )
            return {"query_output": self._query_stream(inputs)}
        x = self.embed_tokens(inputs)
        places = inputs.get("position_ids")
        places = ops.arange(ops.shape(x)[1], dtype="int32")[None] if places is None else places

        blocks = run_blocks(
            self.blocks,
            x,
            last={"positions": needed_positions(inputs, output_positions)},
            attention_mask=AttentionMask.from_inputs(inputs),
            bias=self._bias(places, places),
            return_weights=attention_weights,
        )
        x, first = needed_tokens(blocks.states[-1], inputs, output_positions)
        pooled = None if first is None or self.pooler is None else self.pooler(first)
        outputs = present(sequence_output=x, first_output=first, pooled_output=pooled)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def _query_stream(self, inputs):
        """Returns the output of the query stream, float (b, p, m). Only its tokens are computed in the last block."""
        streams, first = Streams.of(inputs), 0
        rows = position_rows(inputs, PAD_ID) + ops.zeros_like(ops.convert_to_tensor(inputs["token_ids"]))
        x = self._embed(streams.token_ids, ops.take_along_axis(rows, streams.places, axis=1))
        places = streams.places
        bias, mask = self._bias(places, places[:, : streams.num_keys]), streams.mask
        for block in self.blocks:
            if block is self.blocks[-1]:
                first, mask = streams.num_keys, streams.queries_only()
            content = x[:, : streams.num_keys]
            x, _ = block(x[:, first:], context=content, attention_mask=mask, bias=bias[:, :, first:])
        return x

    def embed_tokens(self, inputs):
        return self._embed(inputs["token_ids"], position_rows(inputs, PAD_ID))

    def position_vectors(self, inputs):
        return self.position_embedding(position_rows(inputs, PAD_ID))

    def _embed(self, token_ids, rows):
        return self.embedding_dropout(
            self.embedding_norm(self.token_embedding(token_ids) + self.position_embedding(rows))
        )

    def _bias(self, queries, keys):
        """Returns the bias for queries and keys at the given positions, int32 (b, q) and (b, k)."""
        return self.relative_bias(keys[:, None, :] - queries[:, :, None])

    def predict_from(self, inputs):
        if inputs.get("original_ids") is None:
            return super().predict_from(inputs)
        outputs = self(inputs)
        return outputs, outputs["query_output"]

    def check_inputs(self, inputs):
        super().check_inputs(inputs)
        if inputs.get("original_ids") is None:
            return
        if inputs.get("masked_positions") is None:
            raise ValueError(
                "`original_ids` are the tokens at the `masked_positions`. Received: a batch without "
                "`masked_positions`. Add them, or drop `original_ids`."
            )
        slots = concrete_array(inputs["masked_positions"])
        if slots is not None:
            ascending = np.sort(slots, axis=1)
            twice = (np.diff(ascending, axis=1) == 0) & (ascending[:, 1:] >= 0)
            if twice.any():
                raise ValueError(
                    "With `original_ids`, each position is predicted once. Received: `masked_positions` with position "
                    f"{int(ascending[:, 1:][twice][0])} twice in a row. Use a noise that does not repeat positions."
                )

    def input_limits(self):
        return [*super().input_limits(), ("original_ids", self.config.vocabulary_size, "vocabulary_size")]

    def get_config(self):
        return {**super().get_config(), "pooler": self.pooler is not None}


# === Heads (RoBERTa's, without a separate dropout) ===


HEADS = {
    "masked_lm": masked_lm(activation="gelu"),  # exact gelu, whatever the activation of the blocks
    "classifier": lambda config, num_labels, **common: FirstTokenClassifier(
        num_labels,
        config.hidden_dim,
        "tanh",
        config.dropout,
        config.dropout,
        config.kernel_initializer(),
        **common,
    ),
    "tagger": of_config(TokenHead, "dropout"),
    "span": of_config(TokenHead, num_labels=2),
    "choice": of_config(PooledClassifier, "dropout", num_labels=1),
}

# === Hugging Face ===

# All fields are stored as in RoBERTa's files.
HUGGINGFACE_CONFIG = {field.name: ROBERTA_CONFIG[field.name] for field in dataclasses.fields(MPNetConfig)}

HUGGINGFACE_DEFAULTS = dict(max_position_embeddings=512, layer_norm_eps=1e-12, pad_token_id=PAD_ID)

HUGGINGFACE_ONLY = {
    "relative_attention_num_buckets": NUM_BUCKETS,
    "pad_token_id": PAD_ID,
    "tie_word_embeddings": True,
}

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "relative_bias": "encoder.relative_attention_bias",
    "block_{i}/attention/query": "encoder.layer.{i}.attention.attn.q",
    "block_{i}/attention/key": "encoder.layer.{i}.attention.attn.k",
    "block_{i}/attention/value": "encoder.layer.{i}.attention.attn.v",
    "block_{i}/attention/project": "encoder.layer.{i}.attention.attn.o",
    "block_{i}/attention_norm": "encoder.layer.{i}.attention.LayerNorm",
    "block_{i}/feed_forward/inner": "encoder.layer.{i}.intermediate.dense",
    "block_{i}/feed_forward/outer": "encoder.layer.{i}.output.dense",
    "block_{i}/feed_forward_norm": "encoder.layer.{i}.output.LayerNorm",
    **HEAD_NAMES,
}

HUGGINGFACE_TIED = {name: stored.replace("roberta.", "mpnet.") for name, stored in ROBERTA_TIED.items()}

register_family(
    MPNet,
    Family(
        config=MPNetConfig,
        model_types=("mpnet",),
        sizes=SIZES,
        heads=HEADS,
        pooled_heads=frozenset({"choice"}),
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            defaults=HUGGINGFACE_DEFAULTS,
            written={"relative_attention_num_buckets": lambda config: NUM_BUCKETS},
            classes=transformers_classes("MPNet"),
            prefix="mpnet",
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
        ),
    ),
)

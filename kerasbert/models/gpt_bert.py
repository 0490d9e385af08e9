"""GPT-BERT: one network that is a masked and a causal language model, because both predict the next token.

Charpentier and Samuel 2024, arXiv 2410.24159, the winner of the BabyLM challenge 2024. New in this paper: masked
next-token prediction, in which a masked token is predicted from the output of the token before it, as in a causal
language model. The two objectives then differ only in the inputs and the attention mask. They share all weights, and
the rows of one batch may be of both kinds. The network is LTG-BERT's (Samuel et al. 2023, arXiv 2303.09859), with
disentangled attention, layer norms without parameters and GeGLU, to which the paper adds a gate in attention and
averages over the outputs of all earlier sublayers (DenseFormer, Pagliardini et al. 2024, arXiv 2402.02622).
"""

import dataclasses
import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from ..core.blocks import BlockOutputs, present
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import truncated_normal
from ..core.weight_names import Part, Tensor
from ..layers.attention import attend, attention_probabilities, merge_heads, split_heads
from ..layers.cache import advanced, caches_of, causal_inputs, empty_cache, write
from ..layers.composite import Composite, Layer
from ..layers.dense import Dense, tied_logits
from ..layers.disentangled import cached_disentangled_bias, disentangled_bias, distances_in_use, log_buckets
from ..layers.dropout import Dropout
from ..layers.embeddings import first_tokens, gather_positions
from ..layers.extras import Extras
from ..layers.feed_forward import activation_function
from ..layers.masks import AttentionMask, real_tokens
from .backbone import Backbone

# === Config ===


@dataclasses.dataclass(frozen=True)
class GPTBertConfig(Config):
    vocabulary_size: int = 8_192
    num_layers: int = 12
    num_heads: int = 6
    hidden_dim: int = 384
    feed_forward_dim: int = 1_280  # width of both inner layers of the gated feed-forward network
    max_length: int = 512  # distances from this one on share the last bucket; the model itself has no limit
    distance_buckets: int = 32  # in each direction, including the distance 0; half of them hold one distance each
    causal: bool = False  # whether a token attends only to preceding tokens, unless the batch has `causal_rows`
    dropout: float = 0.1  # after the embeddings and feed-forward networks, and before the output layer of heads
    attention_dropout: float = (
        0.1  # of the distance embeddings, the attention probabilities and the output of attention
    )
    layer_norm_epsilon: float = 1e-5
    pad_id: int | None = 3
    bos_id: int | None = 1
    eos_id: int | None = 2
    model_type: str = "gpt_bert"

    def __post_init__(self):
        if self.hidden_dim % self.num_heads:
            raise ValueError(
                "`hidden_dim` must be a multiple of `num_heads`. Received: "
                f"hidden_dim={self.hidden_dim}, num_heads={self.num_heads}."
            )
        if not 1 <= self.distance_buckets // 2 < self.max_length - 1:
            raise ValueError(
                "Half of `distance_buckets` must be at least 1 and less than `max_length` - 1. Received: "
                f"distance_buckets={self.distance_buckets}, max_length={self.max_length}."
            )

    def kernel_initializer(self, scale=1.0):
        return truncated_normal(scale * (2 / (5 * self.hidden_dim)) ** 0.5)

    def norm(self, **common):
        """Returns a layer norm without parameters."""
        return keras.layers.LayerNormalization(epsilon=self.layer_norm_epsilon, center=False, scale=False, **common)

    def distance_rows(self):
        """Returns the row of the distance embedding for each distance -n, ..., n, int32 (2 n + 1)."""
        last = self.distance_buckets - 1  # the row of the distance 0
        return np.clip(log_buckets(self.distance_buckets, self.max_length) + last, 0, 2 * last).astype("int32")


# === Sizes ===

SIZES = {
    "gpt_bert_small": {},
    "gpt_bert_base": dict(vocabulary_size=16_384, num_layers=12, num_heads=12, hidden_dim=768, feed_forward_dim=2_560),
}

# === Block ===


class GatedAttention(Composite):
    """Disentangled attention with a gate: the outputs of all heads are multiplied by gelu of a projection of x.

    The product is normalized before the output layer. The query and key layers project the distance embeddings, too.

    Args:
        config: a `GPTBertConfig`.

    Call: as in `GPTBertAttentionBlock`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = config.num_heads
        # The scores are the sum of three dot products: of contents, and of the content of one token and the distance.
        self.scale = (3 * (config.hidden_dim // config.num_heads)) ** -0.5
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(kernel_initializer=config.kernel_initializer(), **common)
        self.query = Dense(config.hidden_dim, name="query", **dense)
        self.key = Dense(config.hidden_dim, name="key", **dense)
        self.value = Dense(config.hidden_dim, name="value", **dense)
        self.gate = Dense(config.hidden_dim, name="gate", **dense)
        self.activation = activation_function("gelu")
        self.norm = config.norm(name="norm", **common)
        self.project = Dense(config.hidden_dim, name="project", **dense)
        self.distance_dropout = Dropout(config.attention_dropout, name="distance_dropout", **common)
        self.dropout = Dropout(config.attention_dropout, dtype="float32", name="dropout")

    def call(
        self, x, distances: Any = None, attention_mask: Any = None, return_weights=False, cache=None, training=None
    ):
        query, key, value = (split_heads(layer(x), self.num_heads) for layer in (self.query, self.key, self.value))
        if cache is not None:
            key, value = (write(*pair, attention_mask.query_start) for pair in zip(cache, (key, value), strict=True))
        distances = (self.distance_dropout(distances[0]), distances[1])
        scores = disentangled_bias if cache is None else cached_disentangled_bias
        bias = scores(query, key, distances, self.key, self.query, self.scale)
        dropout = self.dropout if training and self.dropout.rate > 0 else None
        y = merge_heads(attend(query, key, value, attention_mask, bias, self.scale, dropout))
        y = self.project(self.norm(y * self.activation(self.gate(x))))
        weights = attention_probabilities(query, key, attention_mask, bias, self.scale) if return_weights else None
        return y, Extras(weights, None if cache is None else (key, value))


class GPTBertAttentionBlock(Composite):
    """Gated attention, which normalizes its input and is added to it (pre-norm).

    Args:
        config: a `GPTBertConfig`.

    Call:
        x: float (b, s, m).
        distances: tuple of the distance embeddings in use, float (r, m), and the indices into them, int32 (2 s - 1),
            see `distances_in_use`; with a cache, int32 (s, k).
        attention_mask: an `AttentionMask`.
        return_weights: whether to return the attention probabilities.
        cache: tuple of the keys and values of preceding tokens, each (b, k, h, d), or None.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) and the cache, if requested.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.attention_norm = config.norm(name="attention_norm", **common)
        self.attention = GatedAttention(config, name="attention", **common)
        self.attention_output_dropout = Dropout(config.attention_dropout, name="attention_output_dropout", **common)

    def call(self, x, distances=None, attention_mask=None, return_weights=False, cache=None):
        options = dict(attention_mask=attention_mask, return_weights=return_weights, cache=cache)
        y, extras = self.attention(self.attention_norm(x), distances=distances, **options)
        return x + self.attention_output_dropout(y), extras


class NormedFeedForward(Composite):
    """Gated feed-forward network W3 norm(W1 x * gelu(W2 x)), with GeGLU in its tanh approximation and without biases.

    Args:
        config: a `GPTBertConfig`.
        depth: number of feed-forward networks up to this one, which makes the initial weights smaller.

    Call:
        x: float (b, s, m).

    Returns: float (b, s, m).
    """

    def __init__(self, config, depth, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer = config.kernel_initializer((2 * depth) ** -0.5)
        dense: dict[str, Any] = dict(use_bias=False, kernel_initializer=initializer, **common)
        self.inner = Dense(config.feed_forward_dim, name="inner", **dense)
        self.gate = Dense(config.feed_forward_dim, name="gate", **dense)
        self.activation = activation_function("gelu_new")
        self.norm = config.norm(name="norm", **common)
        self.outer = Dense(config.hidden_dim, name="outer", **dense)

    def call(self, x):
        return self.outer(self.norm(self.inner(x) * self.activation(self.gate(x))))


class GPTBertFeedForwardBlock(Composite):
    """A gated feed-forward network, which normalizes its input and is added to it (pre-norm).

    Args:
        config, depth: as in `NormedFeedForward`.

    Call:
        x: float (b, s, m).

    Returns: float (b, s, m), and empty `Extras`.
    """

    def __init__(self, config, depth, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.feed_forward_norm = config.norm(name="feed_forward_norm", **common)
        self.feed_forward = NormedFeedForward(config, depth, name="feed_forward", **common)
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)

    def call(self, x):
        return x + self.feed_forward_dropout(self.feed_forward(self.feed_forward_norm(x))), Extras()


class DepthAverage(Layer):
    """A learned weighted sum of the embeddings and the outputs of all sublayers so far.

    Pagliardini et al. 2024, arXiv 2402.02622. At first, it is the last output.

    Call:
        states: tuple of n tensors, float (b, s, m).

    Returns: float (b, s, m).
    """

    def build(self, states_shape):
        def last_only(shape, dtype=None):
            return ops.one_hot(shape[0] - 1, shape[0], dtype=dtype)

        self.alphas = self.add_weight(name="alphas", shape=(len(states_shape),), initializer=last_only)

    def call(self, states):
        alphas: Any = ops.convert_to_tensor(self.alphas)
        return functools.reduce(ops.add, (alphas[i] * state for i, state in enumerate(states)))


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class GPTBert(Backbone):
    """The network of GPT-BERT, a bidirectional encoder and a causal decoder with the same weights.

    Each output predicts the next token. So, for a masked language model, a token is predicted from the output of the
    token before it (`predict_from`).

    Args:
        config: a `GPTBertConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `sequence_ids`,
            `first_positions`, and `causal_rows` (b,), True for rows whose tokens attend only to preceding tokens.
        hidden_states: whether to return the embeddings and the output of each pair of blocks.
        attention_weights: whether to return the attention probabilities of each attention block.
        cache: the cache of the preceding tokens, from `empty_cache` or from the previous call of a causal model. It
            must not be used again.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), with a cache the next `cache`, and if
        requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers
        tensors (b, h, s, s)). For packed rows, `first_output` is (b, n, m), or missing if the batch has no
        `first_positions`.
    """

    learned_positions = False
    takes_segments = False
    predicts_next = True  # a masked token is predicted from the output of the token before it

    def __init__(self, config: GPTBertConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        table: dict[str, Any] = dict(embeddings_initializer=config.kernel_initializer(), **common)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, name="token_embedding", **table
        )
        self.embedding_norm = config.norm(name="embedding_norm", **common)
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.distance_embedding = keras.layers.Embedding(
            2 * config.distance_buckets - 1, config.hidden_dim, name="distance_embedding", **table
        )
        self.distance_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="distance_norm", **common
        )
        self.blocks = [
            (
                GPTBertAttentionBlock(config, name=f"attention_{i}", **common),
                DepthAverage(name=f"average_{2 * i}", **common),
                GPTBertFeedForwardBlock(config, i + 1, name=f"feed_forward_{i}", **common),
                DepthAverage(name=f"average_{2 * i + 1}", **common),
            )
            for i in range(config.num_layers)
        ]
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        x = self.embedding_dropout(self.embedding_norm(self.token_embedding(inputs["token_ids"])))
        mask = self._mask(inputs) if cache is None else causal_inputs(inputs, cache)[0]
        sizes: Any = ops.shape(x)
        used, rows = self._distances(sizes[1], cache)
        distances = (self.distance_norm(self.distance_embedding(used)), rows)

        states, outputs, all_extras = (x,), [x], []  # states before averaging, outputs after it
        for i, (attention, average, feed_forward, last_average) in enumerate(self.blocks):
            options = dict(attention_mask=mask, return_weights=attention_weights, **caches_of(cache)(i))
            x, extras = attention(x, distances=distances, **options)
            states = (*states, x)
            x, _ = feed_forward(average(states))
            states = (*states, x)
            x = last_average(states)
            outputs.append(x)
            all_extras.append(extras)
        blocks = BlockOutputs(outputs, all_extras)
        found = present(sequence_output=x, first_output=first_tokens(x, inputs))
        if cache is not None:
            found["cache"] = advanced(mask, x.shape[1], blocks.caches)
        return {**found, **blocks.requested(hidden_states, attention_weights)}

    def _distances(self, length, cache: Any):
        """Returns the rows of the distance embedding in use, and the indices into them; see `distances_in_use`.

        With a cache, there is an index for each of the `length` new tokens and each column of the cache.
        """
        rows = self.config.distance_rows()
        if cache is None:
            return distances_in_use(rows, length)
        limit, columns = len(rows) // 2, ops.arange(cache["real"].shape[1], dtype="int32")
        places: Any = ops.arange(length, dtype="int32")
        distances: Any = ops.clip(cache["start"] + places[:, None] - columns, -limit, limit)
        return np.arange(rows.max() + 1, dtype="int32"), ops.take(rows, distances + limit)

    def empty_cache(self, batch_size, length):
        """Returns an empty cache with space for `length` tokens."""
        config = self.config
        head_dim = config.hidden_dim // config.num_heads
        return empty_cache(batch_size, length, config.num_layers, config.num_heads, head_dim, self.compute_dtype)

    def _mask(self, inputs):
        causal_rows = inputs.get("causal_rows")
        if causal_rows is None:
            return AttentionMask.from_inputs(inputs, causal=self.config.causal)
        visible: Any = ops.logical_not(ops.cast(causal_rows, "bool"))
        visible = ops.broadcast_to(visible[:, None], ops.shape(inputs["token_ids"]))
        return AttentionMask.from_inputs(inputs, causal=True, prefix_mask=visible)

    def predict_from(self, inputs):
        """Calls the backbone on behalf of a masked LM head; see `Backbone.predict_from`.

        The hidden states are those of the tokens before the predicted ones. The first token of a sequence is predicted
        from its own output.
        """
        outputs = self(inputs)
        positions = inputs.get("masked_positions")
        if positions is None:
            ids: Any = ops.convert_to_tensor(inputs["token_ids"])
            sizes: Any = ops.shape(ids)
            zeros: Any = ops.zeros_like(ids)
            positions = zeros + ops.arange(sizes[1], dtype=ids.dtype)
        return outputs, gather_positions(outputs["sequence_output"], previous_positions(positions, inputs))


def previous_positions(positions, inputs):
    """Returns the position of the token before each position, or the position itself if a sequence begins there.

    Args:
        positions: int32 (b, p), -1 in unused entries, for which the result is 0.
        inputs: the batch.
    """
    positions = ops.maximum(ops.cast(positions, "int32"), 0)
    before = ops.maximum(ops.subtract(positions, 1), 0)
    sequences, real = inputs.get("sequence_ids"), real_tokens(inputs)
    if sequences is None:
        sequences = real
    if sequences is None:
        return before
    sequences = ops.cast(sequences, "int32")
    here, there = (ops.take_along_axis(sequences, at, axis=1) for at in (positions, before))
    return ops.where(here == there, before, positions)


# === Heads ===


class NextTokenHead(Layer):
    """Logits over the vocabulary: norm, dense layer, gelu, norm, dropout, product with the token embeddings, bias.

    Args:
        config: a `GPTBertConfig`.

    Call:
        x: float (b, p, m), hidden states.
        table: float (v, m), the token embeddings.

    Returns: logits, float (b, p, v).
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.transform = GPTBertTransform(config, name="transform", dtype=self.dtype_policy)

    def build(self, x_shape, table_shape):
        self.bias = self.add_weight(name="bias", shape=table_shape[:1], initializer="zeros")

    def call(self, x, table):
        return tied_logits(self.transform(x), table, self.bias)


class FirstTokenHead(Composite):
    """Logits of labels, computed from the first token: norm, dense layer, gelu, norm, dropout and a dense output layer.

    Args:
        config: a `GPTBertConfig`.
        num_labels: number of logits per sequence.

    Call:
        outputs: dict of the outputs of a backbone, of which `first_output` (b, m) or (b, n, m) is used.

    Returns: logits, float (b, num_labels) or (b, n, num_labels).
    """

    def __init__(self, config, num_labels, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.transform = GPTBertTransform(config, name="transform", **common)
        self.project = Dense(num_labels, kernel_initializer=config.kernel_initializer(), name="project", **common)

    def call(self, outputs):
        if outputs.get("first_output") is None:
            raise ValueError(
                "This head reads one token of each sequence. Received: packed rows (`sequence_ids`) without "
                "`first_positions`. Add `first_positions` (b, n)."
            )
        return self.project(self.transform(outputs["first_output"]))


class GPTBertTransform(Composite):
    """The first layers of every head: norm, dense layer, gelu, norm and dropout, (..., m) to (..., m).

    Args:
        config: a `GPTBertConfig`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.norm = config.norm(name="norm", **common)
        self.dense = Dense(config.hidden_dim, kernel_initializer=config.kernel_initializer(), name="dense", **common)
        self.activation = activation_function("gelu")
        self.output_norm = config.norm(name="output_norm", **common)
        self.dropout = Dropout(config.dropout, name="dropout", **common)

    def call(self, x):
        return self.dropout(self.output_norm(self.activation(self.dense(self.norm(x)))))


def _language_model(causal):
    def make(config, **common):
        if config.causal != causal:
            kind = "Causal" if causal else "Masked"
            raise ValueError(
                f"{kind} language modeling needs causal={causal}. Received: a config with causal={config.causal}."
            )
        return NextTokenHead(config, **common)

    return make


HEADS = {"masked_lm": _language_model(False), "causal_lm": _language_model(True), "classifier": FirstTokenHead}

# === Hugging Face (files of the official code; transformers has no such model) ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "feed_forward_dim": "intermediate_size",
    "max_length": "max_position_embeddings",
    "distance_buckets": "position_bucket_size",
    "causal": "is_decoder",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "pad_id": "pad_token_id",
    "bos_id": "bos_token_id",
    "eos_id": "eos_token_id",
    "model_type": "model_type",
}

HUGGINGFACE_CLASSES = {
    "Backbone": "GPTBertModel",
    "HybridLM": "GPTBertForMaskedLM",
    "MaskedLM": "GPTBertForMaskedLM",
    "CausalLM": "GPTBertForCausalLM",
    "TextClassifier": "GPTBertForSequenceClassification",
}

# The released configs have no model type, and a misspelled architecture.
HUGGINGFACE_ARCHITECTURES = {"LtgbertFoCausalLM": "CausalLM"}

_ATTENTION, _FEED_FORWARD = "transformer.attention_layers.{i}", "transformer.mlp_layers.{i}.mlp"
_LM_HEAD = {"dense": "classifier.nonlinearity.1", "bias": Tensor("classifier.nonlinearity.5.bias")}

HUGGINGFACE_NAMES = {
    "token_embedding": "embedding.word_embedding",
    "distance_embedding/embeddings": Tensor("embedding.relative_embedding"),
    "distance_norm": "embedding.relative_layer_norm",
    "attention_{i}/attention/query": Part(f"{_ATTENTION}.in_proj_qk", 0, 2),
    "attention_{i}/attention/key": Part(f"{_ATTENTION}.in_proj_qk", 1, 2),
    "attention_{i}/attention/value": Part(f"{_ATTENTION}.in_proj_vg", 0, 2),
    "attention_{i}/attention/gate": Part(f"{_ATTENTION}.in_proj_vg", 1, 2),
    "attention_{i}/attention/project": f"{_ATTENTION}.out_proj",
    "feed_forward_{i}/feed_forward/inner": Part(f"{_FEED_FORWARD}.1", 0, 2),
    "feed_forward_{i}/feed_forward/gate": Part(f"{_FEED_FORWARD}.1", 1, 2),
    "feed_forward_{i}/feed_forward/outer": f"{_FEED_FORWARD}.4",
    "average_{i}/alphas": Tensor("transformer.dwa_modules.alphas.{i}"),
    **{f"{kind}/transform/dense": _LM_HEAD["dense"] for kind in ("masked_lm", "causal_lm")},
    **{f"{kind}/bias": _LM_HEAD["bias"] for kind in ("masked_lm", "causal_lm")},
    "classifier/transform/dense": "head.nonlinearity.1",
    "classifier/project": "head.nonlinearity.5",
}

HUGGINGFACE_TIED = {"classifier.nonlinearity.5.weight": "embedding.word_embedding.weight"}


def huggingface_implied(config):
    """Returns the table of rows by query and key position, which files contain once per layer."""
    places = np.arange(config.max_length)
    distances = places[:, None] - places
    rows = config.distance_rows()
    limit = len(rows) // 2
    table = rows[np.clip(distances, -limit, limit) + limit].astype("int64")
    return {f"transformer.attention_layers.{i}.position_indices": table for i in range(config.num_layers)}


register_family(
    GPTBert,
    Family(
        config=GPTBertConfig,
        model_types=("gpt_bert",),
        sizes=SIZES,
        heads=HEADS,
        needed_fields={
            "CausalLM": {"causal": True},
            **{name: {"causal": False} for name in ("HybridLM", "MaskedLM", "TextClassifier")},
        },
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            classes=HUGGINGFACE_CLASSES,
            architectures=HUGGINGFACE_ARCHITECTURES,
            older_prefixes=("model",),
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
            implied=huggingface_implied,
            remote_code=True,
        ),
    ),
)

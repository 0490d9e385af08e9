"""XLNet: an encoder that is pretrained to predict the tokens of a text in random order.

Yang, Dai, Yang, Carbonell, Salakhutdinov, Le 2019, arXiv 1906.08237. New in this paper: two streams of hidden states
with shared weights. The content stream has access to each token, and the query stream only to the position of the token
that it predicts. Attention scores depend on content, on distance and on whether query and key are in the same segment,
so that nothing is added to the embeddings. The memory of previous segments works as in Transformer-XL.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from ...core.blocks import BlockOutputs, present
from ...core.family import Config, Family, HuggingFaceLayout, register_family
from ...core.initializers import normal
from ...core.weight_names import Field, Heads, Tensor
from ...layers.composite import Composite
from ...layers.dropout import Dropout
from ...layers.embeddings import last_tokens
from ...layers.feed_forward import FeedForward
from ...layers.heads import FirstTokenClassifier, TiedLMHead, TokenHead, of_config
from ...layers.masks import real_tokens
from ...layers.memory import check_memory, empty_memory, memory_of, next_memory
from ...layers.relative_attention import relative_sinusoids
from ..backbone import Backbone
from .huggingface import QUERIES, huggingface_fields, huggingface_implied, load_causal, load_length
from .two_streams import RelativeQueries, SharedInputs, TwoStreamAttention, check_permutation, stream_views

# === Config ===


@dataclasses.dataclass(frozen=True)
class XLNetConfig(Config):
    vocabulary_size: int = 32_000
    num_layers: int = 24
    num_heads: int = 16
    hidden_dim: int = 1_024
    feed_forward_dim: int = 4_096
    memory_length: int | None = None  # number of tokens in the memory, in the paper 384; None: no memory
    reuse_length: int | None = None  # how many first tokens of a row the memory stores, in the paper 256; None: all
    causal: bool = False  # whether a token attends only to preceding tokens ("uni" in transformers, not "bi")
    same_length: bool = False  # if causal: whether each token attends to as many others as the memory holds
    clamp_length: int | None = None  # larger distances are clipped to this value
    bidirectional_data: bool = False  # whether the second half of a batch's rows is reversed by default (`backward`)
    untied_queries: bool = True  # whether each block has separate query vectors for content, distance and segment
    dropout: float = 0.1  # of the embeddings, distances and outputs, and in and after each sublayer
    attention_dropout: float | None = None  # of the attention probabilities; None: the same rate as `dropout`
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02  # standard deviation of initial weights
    summary_activation: str | None = "tanh"  # activation of the classifier's first dense layer
    summary_dropout: float = 0.1  # after this layer
    pad_id: int = 5
    bos_id: int | None = 1
    eos_id: int | None = 2
    model_type: str = "xlnet"

    def __post_init__(self):
        if self.attention_dropout is None:
            object.__setattr__(self, "attention_dropout", self.dropout)
        if self.hidden_dim % self.num_heads or self.hidden_dim % 2:
            raise ValueError(
                f"`hidden_dim` must be even and a multiple of `num_heads`. Received: hidden_dim={self.hidden_dim}, "
                f"num_heads={self.num_heads}."
            )
        for name in ("memory_length", "reuse_length", "clamp_length"):
            length = getattr(self, name)
            if length is not None and length < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {length}. Use None to turn it off.")

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

SIZES = {
    "xlnet_base": dict(num_layers=12, num_heads=12, hidden_dim=768, feed_forward_dim=3_072),
    "xlnet_large": dict(),
}

# === Block ===


class XLNetBlock(Composite):
    """A post-norm block of attention and feed-forward, which is applied to each of the streams.

    Inputs and outputs are the same as in `TwoStreamAttention`.

    Args:
        config: an `XLNetConfig`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        norm: dict[str, Any] = dict(epsilon=config.layer_norm_epsilon, **common)
        self.attention = TwoStreamAttention(
            config.hidden_dim,
            config.num_heads,
            config.attention_dropout,
            config.kernel_initializer(),
            config.untied_queries,
            name="attention",
            **common,
        )
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.feed_forward = FeedForward(
            config.hidden_dim,
            config.feed_forward_dim,
            config.activation,
            config.kernel_initializer(),
            dropout=config.dropout,
            name="feed_forward",
            **common,
        )
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)
        self.attention_output_dropout = Dropout(config.dropout, name="attention_output_dropout", **common)
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)

    def call(self, streams, shared=None, memory=None, return_weights=False):
        branches, extras = self.attention(streams, shared=shared, memory=memory, return_weights=return_weights)
        outputs = []
        for x, y in zip(streams, branches, strict=True):
            x = self.attention_norm(x + self.attention_output_dropout(y))
            y = self.feed_forward(x)
            outputs.append(self.feed_forward_norm(x + self.feed_forward_dropout(y)))
        return outputs, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class XLNet(Backbone):
    """The content stream and the query stream of XLNet.

    The query stream is computed if a batch holds a permutation and `masked_positions`. A predicted token that cannot
    attend to any other token (the first token of the permutation) is predicted from its position alone.

    Args:
        config: an `XLNetConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `sequence_ids` and `first_positions`, `query_ranks` and `key_ranks` or `permutation_mask`,
            `masked_positions` (b, p), `backward`, `memory` and `memory_mask`; see `kerasbert.core.Batch`. The values of
            `segment_ids` are only compared with each other. `position_ids` are not read.
        hidden_states: whether to return the embeddings and the output of each block in the content stream.
        attention_weights: whether to return the attention probabilities of each block in the content stream.
        cache: the cache of the preceding tokens, from `empty_cache` or from the previous call. With a cache,
            no row is reversed by default, even if the config has `bidirectional_data`.

    Returns: a dict of `sequence_output` (b, s, m), the output of the content stream, `query_output` (b, p, m), the
        output of the query stream if it is computed, `last_output` (b, m), the output at the last token that is not
        padding, and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights`
        (num_layers tensors (b, h, s, memory_length + s)). With a memory, also the next `memory` and `memory_mask`; with
        a cache, the next `cache`. For packed rows, `last_output` is (b, n, m), or missing without `first_positions`.
    """

    learned_positions = False

    def __init__(self, config: XLNetConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, config.kernel_initializer(), name="token_embedding", **common
        )
        self.query_embedding = keras.layers.Embedding(
            1, config.hidden_dim, config.kernel_initializer(), name="query_embedding", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.distance_dropout = Dropout(config.dropout, name="distance_dropout", **common)
        self.relative_queries = None
        if not config.untied_queries:
            self.relative_queries = RelativeQueries(config.kernel_initializer(), name="relative_queries", **common)
        self.blocks = [XLNetBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.output_dropout = Dropout(config.dropout, name="output_dropout", **common)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        inputs = inputs if cache is None else {**inputs, **cache}
        memory, remembered = memory_of(inputs)
        shared = self._shared_inputs(inputs, halves=self.config.bidirectional_data and cache is None)
        streams = [self.embedding_dropout(self.token_embedding(inputs["token_ids"]))]
        if len(shared.views) > 1:
            places = shared.views[1].places
            streams.append(self.embedding_dropout(self.query_embedding(ops.zeros_like(places))))

        states, all_extras = [streams[0]], []
        for i, block in enumerate(self.blocks):
            past = None if memory is None else memory[:, i]
            streams, extras = block(streams, shared=shared, memory=past, return_weights=attention_weights)
            states.append(streams[0])
            all_extras.append(extras)

        x, *queries = (self.output_dropout(x) for x in streams)
        outputs = present(sequence_output=x, last_output=last_tokens(x, inputs))
        if queries:
            outputs["query_output"] = queries[0]
        if memory is not None:
            reuse, real = self.config.reuse_length if cache is None else None, real_tokens(inputs)
            kept = [state[:, :reuse] for state in states[:-1]]
            following = next_memory(memory, remembered, kept, None if real is None else real[:, :reuse])
            outputs |= following if cache is None else {"cache": following}
        return {**outputs, **BlockOutputs(states, all_extras).requested(hidden_states, attention_weights)}

    def _shared_inputs(self, inputs, halves):
        """Returns the `SharedInputs`. If `halves` is True, the second half of the rows is `backward` by default."""
        config, backward = self.config, inputs.get("backward")
        rows, queries = ops.shape(inputs["token_ids"])
        if backward is None and halves:
            backward = ops.arange(rows, dtype="int32") >= rows // 2
        keys = queries if inputs.get("memory") is None else queries + inputs["memory"].shape[2]
        distances = ops.arange(keys - 1, -1 if config.causal else -queries, -1, dtype="int32")
        if config.clamp_length is not None:
            distances = ops.clip(distances, -config.clamp_length, config.clamp_length)
        signs = (distances,) if backward is None else (distances, -distances)
        encodings = ops.stack([relative_sinusoids(signed, config.hidden_dim) for signed in signs])
        encodings = self.distance_dropout(ops.cast(encodings, self.compute_dtype))
        views = stream_views(inputs, config.causal, config.same_length)
        return SharedInputs(views, encodings, backward, self.relative_queries)

    def empty_memory(self, batch_size):
        """Returns the `memory` and `memory_mask` for the first segment of a text, a dict of batch keys."""
        config = self.config
        if not config.memory_length:
            raise ValueError(
                f"A memory needs a length. Received: a config with memory_length={config.memory_length}. Use "
                "memory_length=384, as in the paper."
            )
        sizes = config.num_layers, config.memory_length, config.hidden_dim
        return empty_memory(batch_size, *sizes, self.compute_dtype)

    def empty_cache(self, batch_size, length):
        """Returns a memory that serves as the cache for generating up to `length` tokens."""
        config = self.config
        slots = min(config.memory_length or length, length)
        return empty_memory(batch_size, config.num_layers, slots, config.hidden_dim, self.compute_dtype)

    def example_inputs(self):
        places = super().example_inputs()["token_ids"]
        ranks = {"query_ranks": places, "key_ranks": places - 1}
        return {"token_ids": places, **ranks, "masked_positions": places[:, :1]}

    def check_inputs(self, inputs):
        super().check_inputs(inputs)
        config, rows = self.config, inputs["token_ids"].shape[0]
        if config.bidirectional_data and inputs.get("backward") is None and rows is not None and rows % 2:
            raise ValueError(
                "With bidirectional_data=True, the second half of the rows is reversed, so their number must be even. "
                f"Received: {rows} rows. Use an even number, or pass `backward` (b,)."
            )
        check_memory(inputs, self)
        check_permutation(inputs)


# === Heads ===


class LastTokenClassifier(FirstTokenClassifier):
    """A `FirstTokenClassifier` that reads the last token (`last_output`) instead, as XLNet does."""

    reads = "last_output"


def _causal_head(config, **common):
    if not config.causal:
        raise ValueError("Causal language modeling needs causal=True. Received: a config with causal=False.")
    return TiedLMHead(**common)


def _summary(config, num_labels, **common):
    return LastTokenClassifier(
        num_labels,
        config.hidden_dim,
        config.summary_activation or "linear",
        config.summary_dropout,
        kernel_initializer=config.kernel_initializer(),
        **common,
    )


HEADS = {
    "permutation_lm": lambda config, **common: TiedLMHead(**common),
    "causal_lm": _causal_head,
    "classifier": _summary,
    "tagger": of_config(TokenHead),
    "span": of_config(TokenHead, num_labels=2),
    "choice": lambda config, **common: _summary(config, 1, **common),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "hidden_dim": "d_model",
    "feed_forward_dim": "d_inner",
    "memory_length": Field("mem_len", load_length("mem_len"), lambda config: config.memory_length),
    "reuse_length": Field("reuse_len", load_length("reuse_len"), lambda config: config.reuse_length),
    "causal": Field("attn_type", load_causal, lambda config: "uni" if config.causal else "bi"),
    "same_length": "same_length",
    "clamp_length": Field("clamp_len", load_length("clamp_len"), lambda config: config.clamp_length or -1),
    "bidirectional_data": "bi_data",
    "untied_queries": "untie_r",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",  # kerasbert only
    "activation": "ff_activation",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "summary_activation": "summary_activation",
    "summary_dropout": "summary_last_dropout",
    "pad_id": "pad_token_id",
    "bos_id": "bos_token_id",
    "eos_id": "eos_token_id",
    "model_type": "model_type",
}

HUGGINGFACE_ALIASES = {
    "n_token": "vocab_size",
    "hidden_size": "d_model",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}

HUGGINGFACE_CLASSES = {
    "Backbone": "XLNetModel",
    "CausalLM": "XLNetLMHeadModel",
    "PermutationLM": "XLNetLMHeadModel",  # of two classes with the same name, the last one is the default for loading
    "TextClassifier": "XLNetForSequenceClassification",
    "TokenClassifier": "XLNetForTokenClassification",
    "QuestionAnswerer": "XLNetForQuestionAnsweringSimple",
    "MultipleChoice": "XLNetForMultipleChoice",
}

HUGGINGFACE_NAMES = {
    "token_embedding": "word_embedding",
    "query_embedding/embeddings": Tensor("mask_emb", lambda array: array[0], lambda array: array[None]),
    "block_{i}/attention/query/kernel": Heads("layer.{i}.rel_attn.q"),
    "block_{i}/attention/key/kernel": Heads("layer.{i}.rel_attn.k"),
    "block_{i}/attention/value/kernel": Heads("layer.{i}.rel_attn.v"),
    "block_{i}/attention/distance/kernel": Heads("layer.{i}.rel_attn.r"),
    "block_{i}/attention/project/kernel": Heads("layer.{i}.rel_attn.o", output=True),
    **{
        f"block_{{i}}/attention/relative_queries/{ours}": Tensor(f"layer.{{i}}.rel_attn.{theirs}")
        for ours, theirs in zip(("content", "distance", "segment"), QUERIES, strict=True)
    },
    "block_{i}/attention/segment_embedding/embeddings": Heads("layer.{i}.rel_attn.seg_embed"),
    "block_{i}/attention_norm": "layer.{i}.rel_attn.layer_norm",
    "block_{i}/feed_forward/inner": "layer.{i}.ff.layer_1",
    "block_{i}/feed_forward/outer": "layer.{i}.ff.layer_2",
    "block_{i}/feed_forward_norm": "layer.{i}.ff.layer_norm",
    "permutation_lm/bias": "lm_loss.bias",
    "causal_lm/bias": "lm_loss.bias",
    "classifier/dense": "sequence_summary.summary",
    "classifier/project": "logits_proj",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/dense": "sequence_summary.summary",
    "choice/project": "logits_proj",
}

# {head: (stored name of a tensor, why a file that contains the tensor does not fit the head)}
HUGGINGFACE_REFUSED = {
    "span": (
        "start_logits.dense.weight",
        "this is XLNetForQuestionAnswering, whose end scores depend on the chosen start; kerasbert has only "
        "XLNetForQuestionAnsweringSimple",
    )
}

register_family(
    XLNet,
    Family(
        config=XLNetConfig,
        model_types=("xlnet",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={"summary_type": "last", "summary_use_proj": True, "tie_word_embeddings": True},
            defaults={"mem_len": 512},
            aliases=HUGGINGFACE_ALIASES,
            classes=HUGGINGFACE_CLASSES,
            prefix="transformer",
            names=HUGGINGFACE_NAMES,
            tied={"lm_loss.weight": "transformer.word_embedding.weight"},
            refused=HUGGINGFACE_REFUSED,
            fields=huggingface_fields,
            implied=huggingface_implied,
        ),
    ),
)

"""GPT-2: a causal decoder, trained only to predict the next token of web text.

Radford, Wu, Child, Luan, Amodei, Sutskever 2019, "Language Models are Unsupervised Multitask Learners". New compared
with GPT: a layer norm at the input of each sublayer (pre-norm) and one after the last block; smaller initial weights in
deeper networks for layers that write into the residual stream; byte-level BPE; tasks expressed as text.
"""

import dataclasses
from typing import Any

import keras

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal
from ..core.weight_names import Field
from ..layers.attention import MultiHeadAttention
from ..layers.cache import advanced, caches_of, causal_inputs, empty_cache
from ..layers.composite import Composite
from ..layers.dropout import Dropout
from ..layers.embeddings import last_tokens
from ..layers.feed_forward import FeedForward
from ..layers.heads import LastTokenHead, TokenHead, TokenTableHead, of_config
from . import gpt
from .backbone import Backbone

# === Config ===


@dataclasses.dataclass(frozen=True)
class GPT2Config(Config):
    vocabulary_size: int = 50_257
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int | None = None  # None: 4 * hidden_dim
    max_length: int = 1_024  # number of position embeddings
    dropout: float = 0.1  # after each sublayer
    embedding_dropout: float = 0.1  # of the sum of the embeddings
    attention_dropout: float = 0.1  # of the attention probabilities
    classifier_dropout: float = 0.1  # before the tagger
    choice_dropout: float = 0.1  # before the output layer of the choice head
    activation: str = "gelu_new"
    scale_attention: bool = True  # whether scores are multiplied by head size ** -0.5
    scale_by_layer: bool = False  # whether scores of layer i, counted from 1, are also divided by i
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation of initial weights; position embeddings have half of it
    pad_id: int | None = None
    bos_id: int | None = 50_256
    eos_id: int | None = 50_256
    model_type: str = "gpt2"

    def __post_init__(self):
        if self.feed_forward_dim is None:
            object.__setattr__(self, "feed_forward_dim", 4 * self.hidden_dim)

    def attention_scale(self, layer):
        """Returns the factor by which the scores in a layer are multiplied. `layer` is its index, counted from 0."""
        scale = (self.hidden_dim // self.num_heads) ** -0.5 if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale

    def kernel_initializer(self):
        return normal(self.initializer_range)

    def residual_initializer(self):
        """Initializer of the 2 * num_layers kernels whose outputs are added to the residual stream."""
        return normal(self.initializer_range * (2 * self.num_layers) ** -0.5)


# === Sizes ===

SIZES = {
    "gpt2_small": dict(),
    "gpt2_medium": dict(num_layers=24, num_heads=16, hidden_dim=1_024),
    "gpt2_large": dict(num_layers=36, num_heads=20, hidden_dim=1_280),
    "gpt2_xl": dict(num_layers=48, num_heads=25, hidden_dim=1_600),
}

# === Block ===


class GPT2Block(Composite):
    """Attention and feed-forward sublayers; each normalizes its input and is added to the residual stream (pre-norm).

    Args:
        config: a config with GPT-2's fields.
        layer: index of the block, counted from 0.

    Inputs and outputs are the same as in `BertBlock`.
    """

    def __init__(self, config, layer=0, **kwargs):
        super().__init__(**kwargs)
        initializer, residual = config.kernel_initializer(), config.residual_initializer()
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        norm: dict[str, Any] = dict(epsilon=config.layer_norm_epsilon, **common)
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.attention = MultiHeadAttention(
            config.hidden_dim,
            config.num_heads,
            config.attention_dropout,
            initializer,
            output_initializer=residual,
            scale=config.attention_scale(layer),
            name="attention",
            **common,
        )
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)
        self.feed_forward = FeedForward(
            config.hidden_dim,
            config.feed_forward_dim,
            config.activation,
            initializer,
            output_initializer=residual,
            name="feed_forward",
            **common,
        )
        self.attention_output_dropout = Dropout(config.dropout, name="attention_output_dropout", **common)
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)

    def call(self, x, attention_mask=None, return_weights=False, cache=None):
        y = self.attention_norm(x)
        y, extras = self.attention(y, attention_mask=attention_mask, return_weights=return_weights, cache=cache)
        x = x + self.attention_output_dropout(y)
        y = self.feed_forward(self.feed_forward_norm(x))
        x = x + self.feed_forward_dropout(y)
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class GPT2(Backbone):
    """The decoder of GPT-2.

    Args:
        config: a `GPT2Config`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `position_ids`,
            `sequence_ids`, `first_positions`, and `segment_ids`, which are token ids whose embeddings are added.
        hidden_states: whether to return the embeddings and the output of each block, the last one normalized.
        attention_weights: whether to return the attention probabilities of each block.
        cache: the cache of the preceding tokens, from `empty_cache` or from the previous call. It must not be used
            again.

    Returns: a dict of `sequence_output` (b, s, m), `last_output` (b, m), the output at the last token that is not
        padding, and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights`
        (num_layers tensors (b, h, s, s)). With a cache, also the `cache` for the next call. For packed rows,
        `last_output` is (b, n, m), or missing if the batch has no `first_positions`.
    """

    def __init__(self, config: GPT2Config, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, config.kernel_initializer(), name="token_embedding", **common
        )
        self.position_embedding = keras.layers.Embedding(
            config.max_length,
            config.hidden_dim,
            normal(config.initializer_range / 2),
            name="position_embedding",
            **common,
        )
        self.embedding_dropout = Dropout(config.embedding_dropout, name="embedding_dropout", **common)
        self.blocks = [GPT2Block(config, i, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.final_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="final_norm", **common
        )
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        mask, positions = causal_inputs(inputs, cache)
        x = self.token_embedding(inputs["token_ids"]) + self.position_embedding(positions)
        if inputs.get("segment_ids") is not None:
            x = x + self.token_embedding(inputs["segment_ids"])
        x = self.embedding_dropout(x)

        blocks = run_blocks(
            self.blocks,
            x,
            of_block=caches_of(cache),
            attention_mask=mask,
            return_weights=attention_weights,
        )
        x = blocks.states[-1] = self.final_norm(blocks.states[-1])
        outputs = present(sequence_output=x, last_output=last_tokens(x, inputs))
        if cache is not None:
            outputs["cache"] = advanced(mask, x.shape[1], blocks.caches)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def empty_cache(self, batch_size, length):
        """Returns an empty cache with space for `length` tokens."""
        config = self.config
        head_dim = config.hidden_dim // config.num_heads
        return empty_cache(batch_size, length, config.num_layers, config.num_heads, head_dim, self.compute_dtype)

    def input_limits(self):
        return [*super().input_limits(), ("segment_ids", self.config.vocabulary_size, "vocabulary_size")]


# === Heads ===

HEADS = {
    "causal_lm": lambda config, **common: TokenTableHead(**common),
    "classifier": of_config(LastTokenHead, use_bias=False),
    "tagger": of_config(TokenHead, "classifier_dropout"),
    "span": of_config(TokenHead, num_labels=2),
    "choice": of_config(LastTokenHead, "choice_dropout", num_labels=1),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    **gpt.HUGGINGFACE_CONFIG,
    "feed_forward_dim": "n_inner",
    "classifier_dropout": Field(
        "classifier_dropout",
        load=lambda stored: 0.1 if stored["classifier_dropout"] is None else stored["classifier_dropout"],
        save=lambda config: config.classifier_dropout,
    ),
    "choice_dropout": "summary_first_dropout",
    "activation": "activation_function",
    "scale_attention": "scale_attn_weights",
    "scale_by_layer": "scale_attn_by_inverse_layer_idx",
}

# The field `reorder_and_upcast_attn` is not restricted, because scores are always float32 here.
HUGGINGFACE_ONLY = {**gpt.HUGGINGFACE_ONLY, "add_cross_attention": False}

HUGGINGFACE_CLASSES = {
    "Backbone": "GPT2Model",
    "CausalLM": "GPT2LMHeadModel",
    "TextClassifier": "GPT2ForSequenceClassification",
    "TokenClassifier": "GPT2ForTokenClassification",
    "QuestionAnswerer": "GPT2ForQuestionAnswering",
    "MultipleChoice": "GPT2DoubleHeadsModel",
}

HUGGINGFACE_NAMES = {
    **gpt.BLOCK_NAMES,
    "token_embedding": "wte",
    "position_embedding": "wpe",
    "final_norm": "ln_f",
    "classifier/dense": "score",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/dense": "multiple_choice_head.summary",
}


register_family(
    GPT2,
    Family(
        config=GPT2Config,
        model_types=("gpt2",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            aliases=gpt.HUGGINGFACE_ALIASES,
            classes=HUGGINGFACE_CLASSES,
            prefix="transformer",
            names=HUGGINGFACE_NAMES,
            tied={"lm_head.weight": "transformer.wte.weight"},
        ),
    ),
)

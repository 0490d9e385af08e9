"""GPT: a Transformer decoder that is pretrained to predict the next token, and then fine-tuned on each task.

Radford, Narasimhan, Salimans, Sutskever 2018, "Improving Language Understanding by Generative Pre-Training". New in
this paper: one pretrained network for all tasks, with each input expressed as one sequence. The block is BERT's
(post-norm) with a causal mask. There is no layer norm after the embeddings or after the last block.
"""

import dataclasses
from typing import Any

import keras

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal
from ..core.weight_names import Field, Part
from ..layers.cache import advanced, caches_of, causal_inputs, empty_cache
from ..layers.dropout import Dropout
from ..layers.embeddings import last_tokens
from ..layers.heads import LastTokenHead, TokenTableHead, of_config
from .backbone import Backbone
from .bert import BertBlock

# === Config ===


@dataclasses.dataclass(frozen=True)
class GPTConfig(Config):
    vocabulary_size: int = 40_478
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int | None = None  # None: 4 * hidden_dim, the only width that transformers supports
    max_length: int = 512  # number of position embeddings
    dropout: float = 0.1  # after each sublayer
    embedding_dropout: float = 0.1  # of the sum of the embeddings; the original drops weights of the embeddings
    attention_dropout: float = 0.1  # of the attention probabilities
    classifier_dropout: float = 0.1  # before fine-tuning heads
    activation: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    model_type: str = "openai-gpt"

    def __post_init__(self):
        if self.feed_forward_dim is None:
            object.__setattr__(self, "feed_forward_dim", 4 * self.hidden_dim)

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

SIZES = {"gpt": {}}

# === Backbone (its block is BERT's) ===


@keras.saving.register_keras_serializable("kerasbert")
class GPT(Backbone):
    """The decoder of GPT.

    Args:
        config: a `GPTConfig`.

    Inputs and outputs are the same as in `GPT2`, except that the last of the `hidden_states` is the output of the last
    block without normalization.
    """

    def __init__(self, config: GPTConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        table: dict[str, Any] = dict(embeddings_initializer=config.kernel_initializer(), **common)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, name="token_embedding", **table
        )
        self.position_embedding = keras.layers.Embedding(
            config.max_length, config.hidden_dim, name="position_embedding", **table
        )
        self.embedding_dropout = Dropout(config.embedding_dropout, name="embedding_dropout", **common)
        self.blocks = [BertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
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
        x = blocks.states[-1]
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
    "classifier": of_config(LastTokenHead, "classifier_dropout", use_bias=False),
    "choice": of_config(LastTokenHead, "classifier_dropout", num_labels=1),
}

# === Hugging Face ===

_ACTIVATIONS = {"gelu": "gelu_new"}  # in the GPT of transformers, "gelu" is the tanh approximation

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "hidden_dim": "n_embd",
    "feed_forward_dim": "feed_forward_dim",  # kerasbert only
    "max_length": "n_positions",
    "dropout": "resid_pdrop",
    "embedding_dropout": "embd_pdrop",
    "attention_dropout": "attn_pdrop",
    "classifier_dropout": "summary_first_dropout",
    "activation": Field(
        "afn",
        load=lambda stored: _ACTIVATIONS.get(stored["afn"], stored["afn"]),
        save=lambda config: "gelu" if config.activation == "gelu_new" else config.activation,
    ),
    "layer_norm_epsilon": "layer_norm_epsilon",
    "initializer_range": "initializer_range",
    "pad_id": "pad_token_id",
    "bos_id": "bos_token_id",
    "eos_id": "eos_token_id",
    "model_type": "model_type",
}

HUGGINGFACE_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}

HUGGINGFACE_ONLY = {
    "tie_word_embeddings": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_activation": None,
}

HUGGINGFACE_CLASSES = {
    "Backbone": "OpenAIGPTModel",
    "CausalLM": "OpenAIGPTLMHeadModel",
    "TextClassifier": "OpenAIGPTForSequenceClassification",
    "MultipleChoice": "OpenAIGPTDoubleHeadsModel",
}

# In transformers, dense layers are Conv1D with weights (in, out), and query, key and value are one fused layer.
BLOCK_NAMES = {
    "block_{i}/attention/query": Part("h.{i}.attn.c_attn", 0, 3, transposed=False),
    "block_{i}/attention/key": Part("h.{i}.attn.c_attn", 1, 3, transposed=False),
    "block_{i}/attention/value": Part("h.{i}.attn.c_attn", 2, 3, transposed=False),
    "block_{i}/attention/project": Part("h.{i}.attn.c_proj", 0, 1, transposed=False),
    "block_{i}/attention_norm": "h.{i}.ln_1",
    "block_{i}/feed_forward/inner": Part("h.{i}.mlp.c_fc", 0, 1, transposed=False),
    "block_{i}/feed_forward/outer": Part("h.{i}.mlp.c_proj", 0, 1, transposed=False),
    "block_{i}/feed_forward_norm": "h.{i}.ln_2",
}

HUGGINGFACE_NAMES = {
    **BLOCK_NAMES,
    "token_embedding": "tokens_embed",
    "position_embedding": "positions_embed",
    "classifier/dense": "score",
    "choice/dense": "multiple_choice_head.summary",
}


register_family(
    GPT,
    Family(
        config=GPTConfig,
        model_types=("openai-gpt",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            aliases=HUGGINGFACE_ALIASES,
            classes=HUGGINGFACE_CLASSES,
            prefix="transformer",
            names=HUGGINGFACE_NAMES,
            tied={"lm_head.weight": "transformer.tokens_embed.weight"},
        ),
    ),
)

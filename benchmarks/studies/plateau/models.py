"""BERT with the norm at the start of each sublayer, with rotary positions, or with both, to tell their effects apart.

The models of the papers change several things at once: ModernBERT differs from BERT in both, in its feed-forward layer
and in its biases. Importing this module registers the family.
"""

import dataclasses

import kerasbert  # noqa: F401  # isort: skip  # before keras, for which it picks the backend
import keras

from kerasbert.layers import (
    AttentionMask,
    Composite,
    Dropout,
    FeedForward,
    MultiHeadAttention,
    Rotation,
    gather_positions,
    token_positions,
)
from kerasbert.models import Backbone, Bert, BertConfig, Family, HuggingFaceLayout, register_family, run_blocks


@dataclasses.dataclass(frozen=True)
class SwitchableBertConfig(BertConfig):
    norm_first: bool = False  # norms at the input of the sublayers, and one at the end (pre-norm)
    rotary: bool = False  # rotated queries and keys in place of the position table
    rope_theta: float = 10_000.0
    model_type: str = "switchable_bert"


class SwitchableBlock(Composite):
    """`BertBlock`, whose norms may also be at the input of the two sublayers. Arguments as there, and a `Rotation`."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.norm_first = config.norm_first
        initializer, common = config.kernel_initializer(), dict(dtype=self.dtype_policy)
        norm = dict(epsilon=config.layer_norm_epsilon, **common)
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

    def call(self, x, attention_mask=None, rotation=None, return_weights=False, positions=None):
        y = self.attention_norm(x) if self.norm_first else x
        y, extras = self.attention(y, attention_mask=attention_mask, rotation=rotation, return_weights=return_weights)
        if positions is not None:
            x, y = gather_positions(x, positions), gather_positions(y, positions)
        x = x + self.attention_output_dropout(y)
        if self.norm_first:
            y = self.feed_forward(self.feed_forward_norm(x))
            return x + self.feed_forward_dropout(y), extras
        x = self.attention_norm(x)
        y = self.feed_forward(x)
        return self.feed_forward_norm(x + self.feed_forward_dropout(y)), extras


@keras.saving.register_keras_serializable("benchmarks")
class SwitchableBert(Backbone):
    """The encoder of BERT with `SwitchableBlock`s, without segments and pooler. Outputs as in `Bert`."""

    has_output_positions = True

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        common = dict(dtype=self.dtype_policy)
        norm = dict(epsilon=config.layer_norm_epsilon, **common)
        table = dict(embeddings_initializer=config.kernel_initializer(), **common)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, name="token_embedding", **table
        )
        self.position_embedding = self.final_norm = None
        if not config.rotary:
            self.position_embedding = keras.layers.Embedding(
                config.max_length, config.hidden_dim, name="position_embedding", **table
            )
        self.embedding_norm = keras.layers.LayerNormalization(name="embedding_norm", **norm)
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.blocks = [SwitchableBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        if config.norm_first:
            self.final_norm = keras.layers.LayerNormalization(name="final_norm", **norm)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, output_positions=None):
        config, places, rotation = self.config, token_positions(inputs), None
        x = self.token_embedding(inputs["token_ids"])
        if config.rotary:
            rotation = Rotation.at(places, config.hidden_dim // config.num_heads, config.rope_theta)
        else:
            x = x + self.position_embedding(places)
        blocks = run_blocks(
            self.blocks,
            self.embedding_dropout(self.embedding_norm(x)),
            last={"positions": None if output_positions is None else keras.ops.maximum(output_positions, 0)},
            attention_mask=AttentionMask.from_inputs(inputs),
            rotation=rotation,
            return_weights=attention_weights,
        )
        if self.final_norm is not None:
            blocks.states[-1] = self.final_norm(blocks.states[-1])
        return {"sequence_output": blocks.states[-1], **blocks.requested(hidden_states, attention_weights)}


register_family(
    SwitchableBert,
    Family(
        config=SwitchableBertConfig,
        model_types=("switchable_bert",),
        sizes={"switchable_bert_tiny": Bert.family.sizes["bert_tiny"]},
        heads={"masked_lm": Bert.family.heads["masked_lm"]},
        huggingface=HuggingFaceLayout(config={}, names={}, classes={}),
    ),
)

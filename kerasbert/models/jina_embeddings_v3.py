"""jina-embeddings-v3: XLM-RoBERTa with rotary positions, and an adapter for each kind of task.

Sturua et al. 2024, arXiv 2409.10173. New compared with XLM-RoBERTa: rotations in place of the position embeddings, so
that texts of 8,192 tokens can be embedded; five sets of LoRA matrices on all embeddings and dense layers, of which an
embedder uses one, for queries, passages, clustering, classification or similarity.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal, with_zero_row
from ..core.weight_names import Field, Part
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import first_tokens
from ..layers.masks import AttentionMask
from ..layers.positions import Rotation, token_positions
from .backbone import Backbone
from .bert import BertBlock
from .nomic_bert import ATTENTION_MODULES
from .roberta import HEAD_NAMES, HUGGINGFACE_TIED
from .roberta import HEADS as ROBERTA_HEADS
from .roberta import HUGGINGFACE_CONFIG as ROBERTA_CONFIG

# === Config ===


@dataclasses.dataclass(frozen=True)
class JinaEmbeddingsV3Config(Config):
    vocabulary_size: int = 250_002
    num_layers: int = 24
    num_heads: int = 16
    hidden_dim: int = 1_024
    feed_forward_dim: int = 4_096
    max_length: int = 8_192  # length in training; the model itself has no limit
    num_segments: int = 1
    rope_theta: float = 20_000.0  # base of the rotation periods
    dropout: float = 0.1  # after the embeddings and after each sublayer
    attention_dropout: float = 0.1  # of the attention probabilities
    classifier_dropout: float | None = None  # before fine-tuning heads; None: the same rate as `dropout`
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int = 1
    bos_id: int = 0
    eos_id: int = 2
    model_type: str = "jina_embeddings_v3"

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

SIZES = {"jina_embeddings_v3": {}}

# === Backbone (its block is BERT's) ===


@keras.saving.register_keras_serializable("kerasbert")
class JinaEmbeddingsV3(Backbone):
    """The encoder of jina-embeddings-v3.

    Args:
        config: a `JinaEmbeddingsV3Config`.
        pooler: whether to build the pooler, a dense layer with tanh on the first token, which no head needs.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids`, `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), `pooled_output` (b, m) if there is a
        pooler, and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights`
        (num_layers tensors (b, h, s, s)). For packed rows, `first_output` and `pooled_output` are (b, n, m), or missing
        if the batch has no `first_positions`.
    """

    learned_positions = False

    def __init__(self, config: JinaEmbeddingsV3Config, pooler: bool = True, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer: Any = config.kernel_initializer()
        of_tokens: Any = with_zero_row(initializer, config.pad_id)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, of_tokens, name="token_embedding", **common
        )
        self.segment_embedding = keras.layers.Embedding(
            config.num_segments, config.hidden_dim, initializer, name="segment_embedding", **common
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

    def call(self, inputs, hidden_states=False, attention_weights=False):
        config, token_ids = self.config, inputs["token_ids"]
        segment_ids = inputs.get("segment_ids")
        segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = self.token_embedding(token_ids) + self.segment_embedding(segment_ids)
        x = self.embedding_dropout(self.embedding_norm(x))

        blocks = run_blocks(
            self.blocks,
            x,
            attention_mask=AttentionMask.from_inputs(inputs),
            rotation=Rotation.at(token_positions(inputs), config.hidden_dim // config.num_heads, config.rope_theta),
            return_weights=attention_weights,
        )
        x = blocks.states[-1]
        first = first_tokens(x, inputs)
        pooled = None if first is None or self.pooler is None else self.pooler(first)
        outputs = present(sequence_output=x, first_output=first, pooled_output=pooled)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def get_config(self):
        return {**super().get_config(), "pooler": self.pooler is not None}


# === Heads ===

HEADS = {name: head for name, head in ROBERTA_HEADS.items() if name != "choice"}

# === Hugging Face ===

# The folder of the authors has the model type of XLM-RoBERTa, their code's fields for positions, and all adapters in
# the file of weights (see `checkpoints.named_adapters`). It is saved as transformers saves its own class.


def _rope_theta(stored):
    rope = stored.get("rope_parameters") or {}
    kind = rope.get("rope_type") or "default"
    if kind != "default":
        raise ValueError(f"kerasbert supports only rope_type='default'. Received in config.json: {kind!r}.")
    return rope.get("rope_theta") or stored["rotary_emb_base"]


HUGGINGFACE_CONFIG = {
    **ROBERTA_CONFIG,
    "rope_theta": Field("rotary_emb_base", _rope_theta, lambda config: config.rope_theta),
}

HUGGINGFACE_DEFAULTS = dict(rotary_emb_base=20_000.0, max_position_embeddings=8_194, type_vocab_size=1, pad_token_id=1)

HUGGINGFACE_ONLY = {
    **dict(position_embedding_type="rotary", rope_scaling=None, is_decoder=False, add_cross_attention=False),
    **dict(truncate_dim=None, tie_word_embeddings=True),
}

HUGGINGFACE_WRITTEN = {
    "rope_parameters": lambda config: {"rope_type": "default", "rope_theta": config.rope_theta},
}

HUGGINGFACE_CLASSES = {
    "Backbone": "JinaEmbeddingsV3Model",
    "MaskedLM": "JinaEmbeddingsV3ForMaskedLM",
    "TextClassifier": "JinaEmbeddingsV3ForSequenceClassification",
    "TokenClassifier": "JinaEmbeddingsV3ForTokenClassification",
    "QuestionAnswerer": "JinaEmbeddingsV3ForQuestionAnswering",
}

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "emb_ln",
    "block_{i}/attention/query": Part("encoder.layers.{i}.mixer.Wqkv", 0, 3),
    "block_{i}/attention/key": Part("encoder.layers.{i}.mixer.Wqkv", 1, 3),
    "block_{i}/attention/value": Part("encoder.layers.{i}.mixer.Wqkv", 2, 3),
    "block_{i}/attention/project": "encoder.layers.{i}.mixer.out_proj",
    "block_{i}/attention_norm": "encoder.layers.{i}.norm1",
    "block_{i}/feed_forward/inner": "encoder.layers.{i}.mlp.fc1",
    "block_{i}/feed_forward/outer": "encoder.layers.{i}.mlp.fc2",
    "block_{i}/feed_forward_norm": "encoder.layers.{i}.norm2",
    **{ours: theirs for ours, theirs in HEAD_NAMES.items() if ours != "choice/dense"},
}

HUGGINGFACE_MODULES = {
    **ATTENTION_MODULES,
    "block_{i}/feed_forward/inner": "layers.{i}.mlp.fc1",
    "block_{i}/feed_forward/outer": "layers.{i}.mlp.fc2",
}

register_family(
    JinaEmbeddingsV3,
    Family(
        config=JinaEmbeddingsV3Config,
        model_types=("jina_embeddings_v3",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            defaults=HUGGINGFACE_DEFAULTS,
            written=HUGGINGFACE_WRITTEN,
            classes=HUGGINGFACE_CLASSES,
            prefix="roberta",
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
            modules=HUGGINGFACE_MODULES,
        ),
    ),
)

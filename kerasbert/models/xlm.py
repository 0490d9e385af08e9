"""XLM: one encoder for many languages, pretrained on masked tokens in each language and in pairs of translations.

Lample, Conneau 2019, arXiv 1901.07291. New in this paper: one vocabulary for all languages; language embeddings, which
are added to the token embeddings; translation language modeling on rows that hold a sentence and its translation. The
same network with a causal mask is a language model. The block is BERT's, but padding is set to zero after each block.
The output layer consists of the token embeddings and a bias.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import SinusoidalTable, normal, uniform_by_inputs, with_zero_row
from ..core.weight_names import Field
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import first_tokens
from ..layers.feed_forward import activation_function
from ..layers.heads import TiedLMHead, TokenHead, of_config
from ..layers.masks import AttentionMask, real_tokens
from ..layers.positions import token_positions
from .backbone import Backbone
from .bert import BertBlock

# === Config ===


@dataclasses.dataclass(frozen=True)
class XLMConfig(Config):
    vocabulary_size: int = 30_145
    num_layers: int = 12
    num_heads: int = 16
    hidden_dim: int = 2_048
    feed_forward_dim: int | None = None  # None: 4 * hidden_dim, the only width that transformers supports
    max_length: int = 512  # number of position embeddings
    num_languages: int = 1
    language_embeddings: bool = True  # whether there are language embeddings if `num_languages` is at least 2
    sinusoidal_positions: bool = False  # whether positions are untrained sinusoids instead of learned embeddings
    causal: bool = False  # whether a token attends only to preceding tokens
    dropout: float = 0.1  # after the embeddings and after each sublayer
    attention_dropout: float = 0.1  # of the attention probabilities
    activation: str = "gelu"  # or "relu"
    layer_norm_epsilon: float = 1e-12
    embedding_initializer_range: float = 2_048**-0.5  # standard deviation; hidden_dim ** -0.5 in the paper
    summary_type: str = "first"  # what the classifier reads: the "first" or "last" ("cls_index") column, or the "mean"
    summary_projection: bool = True  # whether the classifier has a dense layer; must be True
    summary_to_labels: bool = True  # whether this dense layer has one output per label; must be True
    summary_activation: str | None = None  # activation after this dense layer
    summary_dropout: float = 0.1  # before this dense layer
    num_summary_labels: int = dataclasses.field(default=2, compare=False)  # width of this layer in multiple choice
    language_names: dict | None = dataclasses.field(default=None, hash=False)  # language -> id, such as {"en": 0}
    pad_id: int = 2
    model_type: str = "xlm"

    def __post_init__(self):
        if self.feed_forward_dim is None:
            object.__setattr__(self, "feed_forward_dim", 4 * self.hidden_dim)
        if self.activation not in ("gelu", "relu"):
            raise ValueError(f"`activation` must be gelu or relu in XLM. Received: {self.activation!r}.")

    def kernel_initializer(self):
        return uniform_by_inputs()


# === Sizes ===

SIZES = {
    "xlm_mlm_en_2048": {},
    "xlm_mlm_xnli15_1024": dict(
        vocabulary_size=95_000,
        num_heads=8,
        hidden_dim=1_024,
        num_languages=15,
        embedding_initializer_range=1_024**-0.5,
    ),
    **{
        f"xlm_mlm_{languages}_1280": dict(
            vocabulary_size=200_000,
            num_layers=16,
            hidden_dim=1_280,
            num_languages=languages,
            language_embeddings=False,
            embedding_initializer_range=1_280**-0.5,
        )
        for languages in (17, 100)
    },
}

# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class XLM(Backbone):
    """The encoder of XLM.

    If `config.causal` is True, `padding_mask` and `lengths` are not part of the attention mask, as in the official
    code. Padding must then be on the right, where no real token attends to it.

    Args:
        config: an `XLMConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `language_ids`, without which no language embeddings are
            added, `padding_mask` or `lengths`, `position_ids`, `sequence_ids`, `first_positions`, and `segment_ids`,
            which are token ids whose embeddings are added.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.

    Returns: a dict of `sequence_output` (b, s, m), zero at padding, `first_output` (b, m), and if requested the lists
        `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers tensors (b, h, s, s)).
        For packed rows, `first_output` is (b, n, m), or missing if the batch has no `first_positions`.
    """

    def __init__(self, config: XLMConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        m, table = config.hidden_dim, normal(config.embedding_initializer_range)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, m, with_zero_row(table, config.pad_id), name="token_embedding", **common
        )
        self.position_embedding = keras.layers.Embedding(
            config.max_length,
            m,
            SinusoidalTable() if config.sinusoidal_positions else table,
            trainable=not config.sinusoidal_positions,
            name="position_embedding",
            **common,
        )
        self.language_embedding = None
        if config.num_languages > 1 and config.language_embeddings:
            self.language_embedding = keras.layers.Embedding(
                config.num_languages, m, table, name="language_embedding", **common
            )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="embedding_norm", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.blocks = [BertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False):
        real = real_tokens(inputs)
        x = self.token_embedding(inputs["token_ids"]) + self.position_embedding(token_positions(inputs))
        if self.language_embedding is not None and inputs.get("language_ids") is not None:
            x = x + self.language_embedding(inputs["language_ids"])
        if inputs.get("segment_ids") is not None:
            x = x + self.token_embedding(inputs["segment_ids"])
        x = _without_padding(self.embedding_dropout(self.embedding_norm(x)), real)

        mask = AttentionMask.from_inputs(inputs)
        if self.config.causal:
            mask = AttentionMask(sequence_ids=inputs.get("sequence_ids"), causal=True)
        blocks = run_blocks(
            self.blocks,
            x,
            after=lambda x: _without_padding(x, real),
            attention_mask=mask,
            return_weights=attention_weights,
        )
        x = blocks.states[-1]
        outputs = present(sequence_output=x, first_output=first_tokens(x, inputs))
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def example_inputs(self):
        ids = super().example_inputs()["token_ids"]
        return {"token_ids": ids, "language_ids": ids}

    def input_limits(self):
        limits = [*super().input_limits(), ("segment_ids", self.config.vocabulary_size, "vocabulary_size")]
        if self.language_embedding is not None:
            limits.append(("language_ids", self.config.num_languages, "num_languages"))
        return limits


def _without_padding(x, real):
    return x if real is None else ops.where(real[:, :, None], x, 0.0)


# === Heads ===


class SequenceSummary(Composite):
    """A classifier: dropout, a dense layer and an activation on one vector per sequence.

    The paper uses the output at the first token. The other values of `summary_type` work as in transformers: "last"
    uses the last column, and "mean" the mean of all columns, including padding, which is zero.

    Args:
        config: an `XLMConfig`.
        num_labels: number of logits.

    Call:
        outputs: dict of the outputs of a backbone, of which `first_output` and `sequence_output` are used.

    Returns: logits, float (b, num_labels), or (b, n, num_labels) for packed rows.
    """

    def __init__(self, config, num_labels, **kwargs):
        super().__init__(**kwargs)
        if config.summary_type not in ("first", "last", "cls_index", "mean"):
            raise ValueError(
                f"`summary_type` must be first, last, cls_index or mean. Received: {config.summary_type!r}."
            )
        if not (config.summary_projection and config.summary_to_labels):
            raise ValueError(
                "A classifier's summary must be projected to the labels. Received: "
                f"summary_projection={config.summary_projection}, summary_to_labels={config.summary_to_labels}, with "
                "which the outputs are hidden states, not logits. Set both to True."
            )
        self.kind = config.summary_type
        self.dropout = Dropout(config.summary_dropout, dtype=self.dtype_policy, name="dropout")
        self.dense = Dense(
            num_labels, kernel_initializer=config.kernel_initializer(), dtype=self.dtype_policy, name="dense"
        )
        self.activation = activation_function(config.summary_activation or "linear")

    def call(self, outputs):
        x, first = outputs["sequence_output"], outputs.get("first_output")
        if first is None or (self.kind != "first" and len(first.shape) == 3):
            raise ValueError(
                'Packed rows can only be summarized by summary_type="first" with `first_positions` (b, n). Received: '
                f"`sequence_ids`, with summary_type={self.kind!r}. Use one sequence per row."
            )
        x = {"first": lambda: first, "mean": lambda: ops.mean(x, axis=1)}.get(self.kind, lambda: x[:, -1])()
        return self.activation(self.dense(self.dropout(x)))


class SummaryChoice(Composite):
    """The multiple-choice head, a `SequenceSummary` and a dense layer. It returns one logit, float (b, 1).

    Args:
        config: an `XLMConfig`.

    Call:
        outputs: dict of the outputs of a backbone.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.summary = SequenceSummary(config, config.num_summary_labels, name="summary", **common)
        self.score = Dense(1, kernel_initializer=config.kernel_initializer(), name="score", **common)

    def call(self, outputs):
        return self.score(self.summary(outputs))


def _causal_head(config, **common):
    if not config.causal:
        raise ValueError("Causal language modeling needs causal=True. Received: a config with causal=False.")
    return TiedLMHead(**common)


HEADS = {
    "masked_lm": lambda config, **common: TiedLMHead(**common),
    "causal_lm": _causal_head,
    "classifier": SequenceSummary,
    "tagger": of_config(TokenHead, "dropout"),
    "span": of_config(TokenHead, num_labels=2),
    "choice": SummaryChoice,
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "hidden_dim": "emb_dim",
    "feed_forward_dim": "feed_forward_dim",  # kerasbert only
    "max_length": "max_position_embeddings",
    "num_languages": "n_langs",
    "language_embeddings": "use_lang_emb",
    "sinusoidal_positions": "sinusoidal_embeddings",
    "causal": "causal",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation": Field(
        "gelu_activation",
        load=lambda stored: "gelu" if stored["gelu_activation"] else "relu",
        save=lambda config: config.activation == "gelu",
    ),
    "layer_norm_epsilon": "layer_norm_eps",
    "embedding_initializer_range": "embed_init_std",
    "summary_type": "summary_type",
    "summary_projection": "summary_use_proj",
    "summary_to_labels": "summary_proj_to_labels",
    "summary_activation": "summary_activation",
    "summary_dropout": "summary_first_dropout",
    "num_summary_labels": Field(
        "id2label",
        load=lambda stored: len(stored["id2label"] or ()) or stored.get("num_labels") or 2,
        save=lambda config: {str(i): f"LABEL_{i}" for i in range(config.num_summary_labels)},
    ),
    "language_names": "lang2id",
    "pad_id": "pad_token_id",
    "model_type": "model_type",
}

# Field names in older files.
HUGGINGFACE_ALIASES = {
    "n_words": "vocab_size",
    "pad_index": "pad_token_id",
    "hidden_size": "emb_dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
}

HUGGINGFACE_CLASSES = {
    "Backbone": "XLMModel",
    "CausalLM": "XLMWithLMHeadModel",
    "MaskedLM": "XLMWithLMHeadModel",  # of two classes with the same name, the last one is the default for loading
    "TextClassifier": "XLMForSequenceClassification",
    "TokenClassifier": "XLMForTokenClassification",
    "QuestionAnswerer": "XLMForQuestionAnsweringSimple",
    "MultipleChoice": "XLMForMultipleChoice",
}

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings",
    "position_embedding": "position_embeddings",
    "language_embedding": "lang_embeddings",
    "embedding_norm": "layer_norm_emb",
    "block_{i}/attention/query": "attentions.{i}.q_lin",
    "block_{i}/attention/key": "attentions.{i}.k_lin",
    "block_{i}/attention/value": "attentions.{i}.v_lin",
    "block_{i}/attention/project": "attentions.{i}.out_lin",
    "block_{i}/attention_norm": "layer_norm1.{i}",
    "block_{i}/feed_forward/inner": "ffns.{i}.lin1",
    "block_{i}/feed_forward/outer": "ffns.{i}.lin2",
    "block_{i}/feed_forward_norm": "layer_norm2.{i}",
    "masked_lm/bias": "pred_layer.proj.bias",
    "causal_lm/bias": "pred_layer.proj.bias",
    "classifier/dense": "sequence_summary.summary",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/summary/dense": "sequence_summary.summary",
    "choice/score": "logits_proj",
}

# {head: (stored name of a tensor, why a file that contains the tensor does not fit the head)}
HUGGINGFACE_REFUSED = {
    "span": (
        "qa_outputs.start_logits.dense.weight",
        "this is XLMForQuestionAnswering, whose end scores depend on the chosen start; kerasbert has only "
        "XLMForQuestionAnsweringSimple",
    )
}

register_family(
    XLM,
    Family(
        config=XLMConfig,
        model_types=("xlm",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={"asm": False, "is_encoder": True, "is_decoder": False},
            aliases=HUGGINGFACE_ALIASES,
            classes=HUGGINGFACE_CLASSES,
            prefix="transformer",
            names=HUGGINGFACE_NAMES,
            tied={"pred_layer.proj.weight": "transformer.embeddings.weight"},
            refused=HUGGINGFACE_REFUSED,
        ),
    ),
)

"""BART: an encoder reads a corrupted text, and a decoder writes the text as it was.

Lewis, Liu, Goyal, Ghazvininejad, Mohamed, Levy, Stoyanov, Zettlemoyer 2019, arXiv 1910.13461. New in this paper: the
whole Transformer is pretrained as a denoising autoencoder, with noise that may change the length of the text; the same
model then classifies, by reading a text on both sides, and generates. Its blocks are those of the Transformer, with
GELU instead of ReLU, learned positions instead of sinusoids, and norms of the embeddings.

mBART (Liu, Gu, Goyal, Li, Edunov, Ghazvininejad, Lewis, Zettlemoyer 2020, arXiv 2001.08210) is trained in the same way
on 25 languages. Its blocks normalize their inputs (pre-norm), the outputs of encoder and decoder are normalized, and
the embeddings are scaled. mBART-50 (Tang et al. 2020, arXiv 2008.00401) has more languages.
"""

import dataclasses
import itertools
from typing import Any

import keras
from keras import ops

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal, with_zero_row
from ..core.weight_names import Tensor
from ..layers.cache import advanced, caches_of, causal_inputs, empty_cache
from ..layers.dropout import Dropout
from ..layers.embeddings import last_tokens
from ..layers.heads import EndTokenClassifier, TiedLMHead, TokenHead, of_config
from ..layers.masks import AttentionMask
from ..layers.positions import token_positions
from .encoder_decoder import (
    EncoderDecoderBackbone,
    cross_cache,
    cross_mask,
    decoder_inputs,
    end_tokens,
    shifted_right,
)
from .transformer import DecoderBlock, EncoderBlock, PreNormDecoderBlock, PreNormEncoderBlock

# The first rows of the tables of positions are not used: fairseq numbers positions from the padding id 1, plus 1.
UNUSED_ROWS = 2

# === Config ===


@dataclasses.dataclass(frozen=True)
class BartConfig(Config):
    vocabulary_size: int = 50_265
    num_layers: int = 6  # in the encoder
    num_decoder_layers: int | None = None  # None: num_layers
    num_heads: int = 12  # in the encoder
    num_decoder_heads: int | None = None  # None: num_heads
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072  # in the encoder
    decoder_feed_forward_dim: int | None = None  # None: feed_forward_dim
    max_length: int = 1_024  # in tokens, of sources and of targets
    scale_embedding: bool = False  # whether token embeddings are multiplied by sqrt(hidden_dim), as in mBART
    dropout: float = 0.1  # after the embeddings and after each sublayer
    attention_dropout: float = 0.0  # of the attention probabilities
    feed_forward_dropout: float = 0.0  # after the activation
    classifier_dropout: float = 0.0
    activation: str = "gelu"
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int = 1
    bos_id: int = 0
    eos_id: int = 2
    decoder_start_id: int | None = 2  # in the first mBART, the code of the target language
    forced_bos_id: int | None = None  # first token of all generated texts; in mBART-50, the code of their language
    forced_eos_id: int | None = None  # last token of generated texts that reach the maximum length
    model_type: str = "bart"  # or "mbart"

    # Fixed in both papers; the blocks of the Transformer read them.
    attention_bias = True
    layer_norm_epsilon = 1e-5

    def __post_init__(self):
        for ours, usual in (
            ("num_decoder_layers", "num_layers"),
            ("num_decoder_heads", "num_heads"),
            ("decoder_feed_forward_dim", "feed_forward_dim"),
        ):
            if getattr(self, ours) is None:
                object.__setattr__(self, ours, getattr(self, usual))
        for name in ("decoder_start_id", "forced_bos_id", "forced_eos_id"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < self.vocabulary_size:
                raise ValueError(
                    f"`{name}` must be None or an id below vocabulary_size={self.vocabulary_size}. Received: {token}."
                )

    @property
    def norm_first(self):
        """Whether blocks are pre-norm rather than post-norm."""
        return self.model_type == "mbart"

    @property
    def first_target_id(self):
        """Id of the token with which targets begin: <s> in BART, the code of the language in mBART-50, or None."""
        return self.bos_id if self.forced_bos_id is None and not self.norm_first else self.forced_bos_id

    @property
    def last_target_id(self):
        """Id of the token after the end of targets: in the first mBART, the code of the language, which also starts
        the decoder. Otherwise None."""
        return self.decoder_start_id if self.norm_first and self.decoder_start_id != self.eos_id else None

    def of_decoder(self):
        """Returns the config in which the sizes of the encoder's blocks are those of the decoder's."""
        sizes = dict(num_heads=self.num_decoder_heads, feed_forward_dim=self.decoder_feed_forward_dim)
        return dataclasses.replace(self, num_layers=self.num_decoder_layers, **sizes)

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

_LARGE = dict(num_layers=12, num_heads=16, hidden_dim=1_024, feed_forward_dim=4_096)
_MBART = dict(**_LARGE, scale_embedding=True, model_type="mbart")

SIZES = {
    "bart_base": dict(),
    "bart_large": _LARGE,
    "mbart_large": dict(**_MBART, vocabulary_size=250_027, decoder_start_id=None),
    "mbart_large_50": dict(**_MBART, vocabulary_size=250_054),
}

# === Backbone (its blocks are the Transformer's) ===


@keras.saving.register_keras_serializable("kerasbert")
class Bart(EncoderDecoderBackbone):
    """The encoder and the decoder of BART and mBART, which share their token embeddings.

    Args:
        config: a `BartConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `decoder_token_ids` (b, t), by default the `token_ids`,
            shifted right. They then begin with `decoder_start_id`; in mBART, with the last token of the row, which
            is the code of its language. Optional keys are `padding_mask` or `lengths`, `position_ids`, `sequence_ids`,
            the same with the prefix `decoder_`, and `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block, the last one after any final norm.
        attention_weights: whether to return the attention probabilities of each block.
        cache: the cache of the preceding tokens, from `start_cache` or from the previous call. It must not be used
            again. With a cache, `inputs` holds only decoder inputs.

    Returns: a dict of `encoder_output` (b, s, m), `sequence_output` (b, t, m), the output of the decoder, and if
        requested `hidden_states`, {"encoder": list, "decoder": list}, and `attention_weights`, {"encoder": list,
        "decoder": list, "cross": list}. Without `decoder_token_ids`, also `end_output`, the decoder's output at the end
        token (see `end_tokens`); with a cache, the next `cache`.
    """

    takes_segments = False
    shifts_inputs = True
    AFTER_BLOCKS = ("encoder_norm", "decoder_norm")

    def __init__(self, config: BartConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        size, initializer = config.hidden_dim, config.kernel_initializer()
        tokens: dict[str, Any] = dict(embeddings_initializer=with_zero_row(initializer, config.pad_id), **common)
        places: dict[str, Any] = dict(embeddings_initializer=initializer, **common)
        rows = config.max_length + UNUSED_ROWS
        self.token_embedding = keras.layers.Embedding(config.vocabulary_size, size, name="token_embedding", **tokens)
        self.encoder_positions = keras.layers.Embedding(rows, size, name="encoder_positions", **places)
        self.decoder_positions = keras.layers.Embedding(rows, size, name="decoder_positions", **places)
        self.encoder_embedding_norm = self._norm("encoder_embedding_norm")
        self.decoder_embedding_norm = self._norm("decoder_embedding_norm")
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)

        encoder, decoder, of_decoder = EncoderBlock, DecoderBlock, config.of_decoder()
        self.encoder_norm = self.decoder_norm = None
        if config.norm_first:
            encoder, decoder = PreNormEncoderBlock, PreNormDecoderBlock
            self.encoder_norm, self.decoder_norm = self._norm("encoder_norm"), self._norm("decoder_norm")
        self.encoder_blocks = [encoder(config, name=f"encoder_block_{i}", **common) for i in range(config.num_layers)]
        self.decoder_blocks = [
            decoder(of_decoder, name=f"decoder_block_{i}", **common) for i in range(of_decoder.num_layers)
        ]
        self.build_now()

    def _norm(self, name):
        epsilon = self.config.layer_norm_epsilon
        return keras.layers.LayerNormalization(epsilon=epsilon, name=name, dtype=self.dtype_policy)

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        options: dict[str, Any] = dict(hidden_states=hidden_states, attention_weights=attention_weights)
        if cache is not None:
            real = AttentionMask(padding_mask=cache["real_context"])
            return self._decode(decoder_inputs(inputs), cache["contexts"], real, cache, **options)
        encoded = self._encode(inputs, **options)
        ends = inputs.get("decoder_token_ids") is None
        inputs = {**inputs, **self._shifted(inputs)} if ends else inputs
        contexts = [encoded["encoder_output"]] * len(self.decoder_blocks)
        decoded = self._decode(decoder_inputs(inputs), contexts, cross_mask(inputs), **options)
        outputs = {**encoded, **decoded, **{k: {**encoded[k], **decoded[k]} for k in encoded if k in decoded}}
        if ends:
            outputs |= present(end_output=end_tokens(outputs["sequence_output"], inputs, self.config.eos_id))
        return outputs

    @property
    def blocks(self):
        """List of (encoder block, decoder block) for each depth. The deeper tuples may have only one of the two."""
        pairs = itertools.zip_longest(self.encoder_blocks, self.decoder_blocks)
        return [tuple(block for block in pair if block is not None) for pair in pairs]

    def _encode(self, inputs, hidden_states=False, attention_weights=False):
        positions: Any = token_positions(inputs)
        x = self._embed(
            inputs["token_ids"], self.encoder_positions(positions + UNUSED_ROWS), self.encoder_embedding_norm
        )
        mask = AttentionMask.from_inputs(inputs)
        blocks = run_blocks(self.encoder_blocks, x, attention_mask=mask, return_weights=attention_weights)
        if self.encoder_norm is not None:
            blocks.states[-1] = self.encoder_norm(blocks.states[-1])
        found = blocks.requested(hidden_states, attention_weights)
        return {"encoder_output": blocks.states[-1], **{key: {"encoder": value} for key, value in found.items()}}

    def _decode(self, inputs, contexts, context_mask, cache=None, hidden_states=False, attention_weights=False):
        mask, positions = causal_inputs(inputs, cache)
        positions = self.decoder_positions(positions + UNUSED_ROWS)
        x = self._embed(inputs["token_ids"], positions, self.decoder_embedding_norm)
        cached = caches_of(cache)
        blocks = run_blocks(
            self.decoder_blocks,
            x,
            of_block=lambda i: {"context": contexts[i], **cached(i)},
            attention_mask=mask,
            context_mask=context_mask,
            return_weights=attention_weights,
        )
        if self.decoder_norm is not None:
            blocks.states[-1] = self.decoder_norm(blocks.states[-1])
        found = blocks.requested(hidden_states, attention_weights)
        outputs = {"sequence_output": blocks.states[-1], **{key: {"decoder": value} for key, value in found.items()}}
        if attention_weights:
            outputs["attention_weights"]["cross"] = [extra.cross_weights for extra in blocks.extras]
        if cache is not None:
            outputs["cache"] = {**cache, **advanced(mask, x.shape[1], blocks.caches)}
        return outputs

    def _embed(self, ids, positions, norm):
        x = self.token_embedding(ids)
        x = x * self.config.hidden_dim**0.5 if self.config.scale_embedding else x
        return self.embedding_dropout(norm(x + positions))

    def _shifted(self, inputs):
        """Returns the decoder inputs of a batch that has none; see `shifted_right`."""
        if not self.config.norm_first:
            return shifted_right(inputs, self.config.decoder_start_id)
        ids: Any = ops.convert_to_tensor(inputs["token_ids"])
        return shifted_right(inputs, last_tokens(ids[:, :, None], inputs))

    def encode(self, inputs):
        """Returns the output of the encoder, float (b, s, m)."""
        return self._encode(inputs)["encoder_output"]

    def start_cache(self, context, batch_size, length):
        """Returns an empty cache for `length` tokens of the decoder, with the keys and values for cross-attention.

        Args:
            context: the inputs of the encoder, a batch.
            batch_size: number of rows.
            length: maximum number of tokens of the decoder.
        """
        config, blocks = self.config, self.decoder_blocks
        heads, head_dim = config.num_decoder_heads, config.hidden_dim // config.num_decoder_heads
        empty = empty_cache(batch_size, length, len(blocks), heads, head_dim, self.compute_dtype)
        return {**empty, **cross_cache(self.encode(context), context, blocks)}

    def check_inputs(self, inputs):
        super().check_inputs(inputs)
        shifts = inputs.get("decoder_token_ids") is None and "token_ids" in inputs
        if shifts and self.config.norm_first and inputs.get("sequence_ids") is not None:
            raise ValueError(
                "In mBART, a decoder that reads the same text as the encoder starts with the last token of the row. "
                "Received: packed rows (`sequence_ids`) without `decoder_token_ids`. Add them, or do not pack."
            )


# === Heads ===


class FixedBiasHead(TiedLMHead):
    """A `TiedLMHead` whose bias is not trained.

    The files of transformers have it. It is zero, unless a model was converted from one that has a bias.
    """

    def build(self, x_shape, table_shape):
        self.bias = self.add_weight(name="bias", shape=table_shape[:1], initializer="zeros", trainable=False)


HEADS = {
    "seq2seq_lm": lambda config, **common: FixedBiasHead(**common),
    "classifier": lambda config, num_labels, **common: EndTokenClassifier(
        num_labels,
        config.hidden_dim,
        "tanh",
        config.classifier_dropout,
        config.classifier_dropout,
        config.kernel_initializer(),
        **common,
    ),
    "span": of_config(TokenHead, num_labels=2),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_heads": "encoder_attention_heads",
    "num_decoder_heads": "decoder_attention_heads",
    "hidden_dim": "d_model",
    "feed_forward_dim": "encoder_ffn_dim",
    "decoder_feed_forward_dim": "decoder_ffn_dim",
    "max_length": "max_position_embeddings",
    "scale_embedding": "scale_embedding",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "feed_forward_dropout": "activation_dropout",
    "classifier_dropout": "classifier_dropout",
    "activation": "activation_function",
    "initializer_range": "init_std",
    "pad_id": "pad_token_id",
    "bos_id": "bos_token_id",
    "eos_id": "eos_token_id",
    "decoder_start_id": "decoder_start_token_id",
    "forced_bos_id": "forced_bos_token_id",
    "forced_eos_id": "forced_eos_token_id",
    "model_type": "model_type",
}

_DEFAULTS = dict(
    encoder_layers=12,
    decoder_layers=12,
    encoder_attention_heads=16,
    decoder_attention_heads=16,
    d_model=1_024,
    encoder_ffn_dim=4_096,
    decoder_ffn_dim=4_096,
    forced_eos_token_id=2,
)


def generation_fields(stored, generation):
    """Returns the fields of a config.json that a generation_config.json replaces, as in transformers.

    Forced tokens that only config.json states are not forced.
    """
    start = generation.get("decoder_start_token_id")
    return {
        "decoder_start_token_id": stored.get("decoder_start_token_id") if start is None else start,
        "forced_bos_token_id": generation.get("forced_bos_token_id"),
        "forced_eos_token_id": generation.get("forced_eos_token_id"),
    }


HUGGINGFACE_ONLY = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "tie_word_embeddings": True,
    "static_position_embeddings": False,
    "normalize_embedding": True,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "project": "out_proj"}
_SUBLAYERS = {
    "encoder": {"attention": "self_attn"},
    "decoder": {"attention": "self_attn", "cross_attention": "encoder_attn"},
}


def _half_names(half):
    """Returns {our weight path: stored name} for one `half`, "encoder" or "decoder"."""
    names = {
        f"{half}_positions": f"{half}.embed_positions",
        f"{half}_embedding_norm": f"{half}.layernorm_embedding",
        f"{half}_norm": f"{half}.layer_norm",
    }
    ours, theirs = f"{half}_block_{{i}}", f"{half}.layers.{{i}}"
    for attention, stored in _SUBLAYERS[half].items():
        names[f"{ours}/{attention}_norm"] = f"{theirs}.{stored}_layer_norm"
        names |= {f"{ours}/{attention}/{name}": f"{theirs}.{stored}.{dense}" for name, dense in _ATTENTION.items()}
    names[f"{ours}/feed_forward/inner"] = f"{theirs}.fc1"
    names[f"{ours}/feed_forward/outer"] = f"{theirs}.fc2"
    return {**names, f"{ours}/feed_forward_norm": f"{theirs}.final_layer_norm"}


HUGGINGFACE_NAMES = {
    "token_embedding": "shared",
    **_half_names("encoder"),
    **_half_names("decoder"),
    "seq2seq_lm/bias": Tensor("final_logits_bias", load=lambda array: array[0], save=lambda array: array[None]),
    "classifier/dense": "classification_head.dense",
    "classifier/project": "classification_head.out_proj",
    "span/dense": "qa_outputs",
}

register_family(
    Bart,
    Family(
        config=BartConfig,
        model_types=("bart", "mbart"),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            defaults={"bart": _DEFAULTS, "mbart": {**_DEFAULTS, "decoder_start_token_id": None}},
            aliases={
                "hidden_size": "d_model",
                "num_attention_heads": "encoder_attention_heads",
                "num_hidden_layers": "encoder_layers",
            },
            written={"is_encoder_decoder": lambda config: True},
            classes={
                model_type: {
                    "Backbone": f"{name}Model",
                    "Seq2SeqLM": f"{name}ForConditionalGeneration",
                    "TextClassifier": f"{name}ForSequenceClassification",
                    "QuestionAnswerer": f"{name}ForQuestionAnswering",
                }
                for model_type, name in (("bart", "Bart"), ("mbart", "MBart"))
            },
            prefix="model",
            names=HUGGINGFACE_NAMES,
            tied={
                "lm_head.weight": "model.shared.weight",
                "encoder.embed_tokens.weight": "shared.weight",
                "decoder.embed_tokens.weight": "shared.weight",
            },
            unused=lambda config, name: name in ("encoder.version", "decoder.version"),
            generation=generation_fields,
        ),
    ),
)

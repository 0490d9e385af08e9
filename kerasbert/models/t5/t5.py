"""T5: one encoder-decoder that treats every language task as text to text.

Raffel et al. 2019, arXiv 1910.10683. New in this paper: in place of positions, a learned bias of the attention scores,
which depends on the distance between query and key; root-mean-square norms; no biases in dense layers; unscaled scores;
a study of architectures, objectives, data and scale. The architectures of section 3.2 are all available:
encoder-decoders with separate or shared weights, decoder-only language models and prefix language models, and encoders.
Version 1.1 (also Flan-T5), mT5 (arXiv 2010.11934) and umT5 (arXiv 2304.09151) have gated feed-forward layers and a
separate output layer. In umT5, each block has a separate bias. In the other versions, all blocks share one bias.
"""

import dataclasses
from typing import Any, NamedTuple

import keras

from ...core.blocks import present
from ...core.family import Config, Family, HuggingFaceLayout, register_family
from ...core.initializers import normal
from ...core.weight_names import Field
from ...layers.cache import advanced, causal_inputs, empty_cache
from ...layers.heads import EndTokenClassifier, TokenHead, of_config
from ...layers.masks import AttentionMask
from ..encoder_decoder import EncoderDecoderBackbone, cross_cache, cross_mask, decoder_inputs, end_tokens, shifted_right
from .blocks import T5LanguageModelHead, T5Stack, side_by_side
from .huggingface import (
    half_names,
    huggingface_fields,
    huggingface_implied,
    huggingface_unused,
    load_activation,
    load_architecture,
    load_gated,
    load_scale_output,
    save_feed_forward,
    save_model_type,
    start_of_generation,
)

# === Config ===


class Architecture(NamedTuple):
    """What a T5 consists of (section 3.2 of the paper).

    Args:
        stacks: its stacks of blocks: "encoder", "decoder" or both.
        heads: the kinds of heads that it can have.
        shared: whether encoder and decoder share their weights.
        prefix: whether the decoder's tokens of a prefix attend to each other in both directions.
    """

    stacks: tuple[str, ...]
    heads: tuple[str, ...]
    shared: bool = False
    prefix: bool = False


_BOTH, _SEQ2SEQ = ("encoder", "decoder"), ("seq2seq_lm", "classifier", "span")
ARCHITECTURES = {
    "encoder_decoder": Architecture(_BOTH, _SEQ2SEQ),
    "shared": Architecture(_BOTH, _SEQ2SEQ, shared=True),
    "encoder": Architecture(("encoder",), ("tagger",)),
    "language_model": Architecture(("decoder",), ("causal_lm",)),
    "prefix_language_model": Architecture(("decoder",), ("causal_lm",), prefix=True),
}


@dataclasses.dataclass(frozen=True)
class T5Config(Config):
    vocabulary_size: int = 32_128
    num_layers: int = 6  # of the encoder, or of the decoder if there is no encoder
    num_decoder_layers: int | None = None  # None: num_layers
    num_heads: int = 8
    hidden_dim: int = 512
    head_dim: int = 64  # num_heads * head_dim need not be hidden_dim
    feed_forward_dim: int = 2_048
    gated: bool = False  # whether feed-forward layers are gated
    num_buckets: int = 32  # number of distance buckets
    max_distance: int = 128  # larger distances share the last bucket
    tied_output: bool = True  # whether the output layer shares the token embeddings
    scale_output: bool = True  # whether the input of the output layer is multiplied by hidden_dim ** -0.5
    architecture: str = "encoder_decoder"  # one of ARCHITECTURES
    dropout: float = 0.1
    classifier_dropout: float = 0.0
    activation: str = "relu"
    layer_norm_epsilon: float = 1e-6
    initializer_factor: float = 1.0
    pad_id: int = 0
    eos_id: int = 1
    decoder_start_id: int = 0
    model_type: str = "t5"  # or "mt5" or "umt5"

    def __post_init__(self):
        if self.num_decoder_layers is None:
            object.__setattr__(self, "num_decoder_layers", self.num_layers)
        if self.architecture not in ARCHITECTURES:
            raise ValueError(
                f"`architecture` must be one of {', '.join(ARCHITECTURES)}. Received: {self.architecture!r}."
            )
        if self.parts.shared and self.num_decoder_layers != self.num_layers:
            raise ValueError(
                "An encoder and a decoder that share their weights must have the same number of layers. Received: "
                f"num_layers={self.num_layers}, num_decoder_layers={self.num_decoder_layers}."
            )
        if self.num_buckets < 4 or self.max_distance <= self.num_buckets // 2:
            raise ValueError(
                "`num_buckets` must be at least 4, and `max_distance` above `num_buckets` / 2. Received: num_buckets="
                f"{self.num_buckets}, max_distance={self.max_distance}."
            )
        if self.gated and self.activation == "gelu":
            raise ValueError('The gated layers of T5 use the tanh form of gelu. Received: "gelu". Use "gelu_new".')
        never_scales = self.model_type == "mt5"
        if never_scales and self.scale_output:
            raise ValueError("mT5 does not scale its outputs. Received: scale_output=True. Use scale_output=False.")

    @property
    def parts(self):
        """The `Architecture`."""
        return ARCHITECTURES[self.architecture]

    @property
    def bias_every_block(self):
        """Whether every block has a separate distance bias, rather than all blocks sharing one."""
        return self.model_type == "umt5"

    def kernel_initializer(self):
        return normal(self.initializer_factor * self.hidden_dim**-0.5)


# === Sizes ===

_V1_1 = dict(gated=True, activation="gelu_new", tied_output=False, scale_output=False)
_LARGE = dict(num_layers=24, num_heads=16, hidden_dim=1_024)
_SHAPES_V1_1 = {
    "small": dict(num_layers=8, num_heads=6, feed_forward_dim=1_024),
    "base": dict(num_layers=12, num_heads=12, hidden_dim=768, feed_forward_dim=2_048),
    "large": dict(**_LARGE, feed_forward_dim=2_816),
    "xl": dict(num_layers=24, num_heads=32, hidden_dim=2_048, feed_forward_dim=5_120),
    "xxl": dict(num_layers=24, num_heads=64, hidden_dim=4_096, feed_forward_dim=10_240),
}
_MT5 = dict(**_V1_1, vocabulary_size=250_112, model_type="mt5")
_UMT5 = dict(**_V1_1, vocabulary_size=256_384, model_type="umt5")

SIZES = {
    "t5_small": dict(),
    "t5_base": dict(num_layers=12, num_heads=12, hidden_dim=768, feed_forward_dim=3_072),
    "t5_large": dict(**_LARGE, feed_forward_dim=4_096),
    "t5_3b": dict(**{**_LARGE, "num_heads": 32}, head_dim=128, feed_forward_dim=16_384),
    "t5_11b": dict(**{**_LARGE, "num_heads": 128}, head_dim=128, feed_forward_dim=65_536),
    **{f"t5_v1_1_{name}": dict(**_V1_1, **shape) for name, shape in _SHAPES_V1_1.items()},
    **{f"mt5_{name}": dict(**_MT5, **shape) for name, shape in _SHAPES_V1_1.items()},
    **{f"umt5_{name}": dict(**_UMT5, **shape) for name, shape in _SHAPES_V1_1.items() if name != "large"},
}

# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class T5(EncoderDecoderBackbone):
    """The encoder and the decoder of T5, or one of them, depending on `config.architecture`.

    Padding on the left has no effect, because only distances matter. `position_ids` are not read.

    Args:
        config: a `T5Config`.

    Call:
        inputs: a batch with `token_ids` (b, s). Encoder-decoders also read `decoder_token_ids` (b, t), by default the
            `token_ids`, shifted right. Optional keys are `padding_mask` or `lengths`, `sequence_ids`, the same with the
            prefix `decoder_`, `first_positions`, and for prefix language models `prefix_mask`.
        hidden_states: whether to return the embeddings and the output of each block, the last one normalized.
        attention_weights: whether to return the attention probabilities of each block.
        cache: the cache of the preceding tokens, from `start_cache`, from `empty_cache` if there is no encoder, or from
            the previous call. It must not be used again. With a cache, `inputs` holds only decoder inputs.

    Returns: a dict of `encoder_output` (b, s, m) if there is an encoder, `sequence_output` (b, t, m), the output of the
        decoder, or else of the encoder, and if requested `hidden_states`, {"encoder": list, "decoder": list}, and
        `attention_weights`, {"encoder": list, "decoder": list, "cross": list}. Without `decoder_token_ids`, also
        `end_output`, the decoder's output at the end token (see `end_tokens`); with a cache, the next `cache`.
    """

    takes_segments = False
    learned_positions = False
    shifts_inputs = True

    def __init__(self, config: T5Config, **kwargs: Any):
        super().__init__(config, **kwargs)
        common, parts = dict(dtype=self.dtype_policy), config.parts
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size,
            config.hidden_dim,
            normal(config.initializer_factor),
            name="token_embedding",
            **common,
        )
        self.encoder = self.decoder = None
        has_both = len(parts.stacks) == 2
        if "encoder" in parts.stacks and not parts.shared:
            self.encoder = T5Stack(config, config.num_layers, name="encoder", **common)
        if "decoder" in parts.stacks:
            num_layers = config.num_decoder_layers if has_both else config.num_layers
            self.decoder = T5Stack(config, num_layers, has_both, name="decoder", **common)
        if parts.shared:
            self.encoder = self.decoder
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        options = dict(hidden_states=hidden_states, attention_weights=attention_weights)
        if self.encoder is None:
            return self._decode(inputs, cache=cache, **options)
        if cache is not None:
            real = AttentionMask(padding_mask=cache["real_context"])
            return self._decode(decoder_inputs(inputs), cache["contexts"], real, cache, **options)
        encoded = self._encode(inputs, **options)
        if self.decoder is None:
            return {**encoded, "sequence_output": encoded["encoder_output"]}
        ends = inputs.get("decoder_token_ids") is None
        inputs = {**inputs, **shifted_right(inputs, self.config.decoder_start_id)} if ends else inputs
        decoded = self._decode(decoder_inputs(inputs), encoded["encoder_output"], cross_mask(inputs), **options)
        outputs = {**encoded, **decoded, **{k: {**encoded[k], **decoded[k]} for k in encoded if k in decoded}}
        if ends:
            outputs |= present(end_output=end_tokens(outputs["sequence_output"], inputs, self.config.eos_id))
        return outputs

    blocks = property(lambda self: side_by_side(self.encoder, self.decoder))

    def layers_after_blocks(self):
        return [half.final_norm for half in (self.encoder, self.decoder) if half is not None]

    def _encode(self, inputs, hidden_states=False, attention_weights=False):
        x = self.token_embedding(inputs["token_ids"])
        mask = AttentionMask.from_inputs(inputs)
        blocks = self.encoder(x, attention_mask=mask, return_weights=attention_weights)
        found = blocks.requested(hidden_states, attention_weights)
        return {"encoder_output": blocks.states[-1], **{key: {"encoder": value} for key, value in found.items()}}

    def _decode(self, inputs, contexts=None, context_mask=None, cache=None, *, hidden_states, attention_weights):
        mask, _ = causal_inputs(inputs, cache)
        prefix = self.config.parts.prefix
        if prefix and cache is not None:
            mask = mask.replace(prefix_mask=mask.padding_mask)  # all tokens of one call attend to each other
        blocks = self.decoder(
            self.token_embedding(inputs["token_ids"]),
            attention_mask=mask,
            bidirectional=prefix,
            contexts=contexts,
            context_mask=context_mask,
            return_weights=attention_weights,
            caches=None if cache is None else cache["blocks"],
        )
        found = blocks.requested(hidden_states, attention_weights)
        outputs = {"sequence_output": blocks.states[-1], **{key: {"decoder": value} for key, value in found.items()}}
        if attention_weights and contexts is not None:
            outputs["attention_weights"]["cross"] = [extra.cross_weights for extra in blocks.extras]
        if cache is not None:
            outputs["cache"] = {**cache, **advanced(mask, blocks.states[-1].shape[1], blocks.caches)}
        return outputs

    def encode(self, inputs):
        """Returns the output of the encoder, float (b, s, m)."""
        return self._encode(inputs)["encoder_output"]

    def empty_cache(self, batch_size, length):
        """Returns an empty cache with space for `length` tokens of the decoder."""
        config, blocks = self.config, len(self.decoder.blocks)
        return empty_cache(batch_size, length, blocks, config.num_heads, config.head_dim, self.compute_dtype)

    def start_cache(self, context, batch_size, length):
        """Returns an empty cache for `length` tokens of the decoder, with the keys and values for cross-attention.

        Args:
            context: the inputs of the encoder, a batch.
        """
        read = cross_cache(self.encode(context), context, self.decoder.blocks)
        return {**self.empty_cache(batch_size, length), **read}

    # === Methods that depend on the architecture ===

    def make_head(self, kind: str, dropout: float | None = None, **arguments: Any) -> keras.Layer:
        fitting = [name for name, parts in ARCHITECTURES.items() if kind in parts.heads]
        if fitting and self.config.architecture not in fitting:
            raise ValueError(
                f"T5 has the head {kind!r} only as {' or '.join(fitting)}. Received: {self.config.architecture!r}."
            )
        return super().make_head(kind, dropout, **arguments)

    def variant(self):
        return "Backbone with encoder" if self.decoder is None else super().variant()


# === Heads ===

HEADS = {
    "seq2seq_lm": T5LanguageModelHead,
    "causal_lm": T5LanguageModelHead,
    "classifier": lambda config, num_labels, **common: EndTokenClassifier(
        num_labels,
        config.hidden_dim,
        "tanh",
        config.classifier_dropout,
        config.classifier_dropout,
        config.kernel_initializer(),
        **common,
    ),
    "tagger": of_config(TokenHead, "classifier_dropout"),
    "span": of_config(TokenHead, num_labels=2),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_layers",
    "num_decoder_layers": "num_decoder_layers",
    "num_heads": "num_heads",
    "hidden_dim": "d_model",
    "head_dim": "d_kv",
    "feed_forward_dim": "d_ff",
    "gated": Field("feed_forward_proj", load_gated, save_feed_forward),
    "activation": Field("feed_forward_proj", load_activation, save_feed_forward),
    "num_buckets": "relative_attention_num_buckets",
    "max_distance": "relative_attention_max_distance",
    "tied_output": "tie_word_embeddings",
    "scale_output": Field("tie_word_embeddings", load_scale_output, lambda config: config.tied_output),
    "architecture": Field(
        "is_encoder_decoder", load_architecture, lambda config: config.architecture in ("encoder_decoder", "shared")
    ),
    "dropout": "dropout_rate",
    "classifier_dropout": "classifier_dropout",
    "layer_norm_epsilon": "layer_norm_epsilon",
    "initializer_factor": "initializer_factor",
    "pad_id": "pad_token_id",
    "eos_id": "eos_token_id",
    "decoder_start_id": "decoder_start_token_id",
    "model_type": Field("model_type", lambda stored: stored["model_type"].removesuffix("-lm"), save_model_type),
}

_DEFAULTS = {"tie_word_embeddings": True, "is_encoder_decoder": True}
_DEFAULTS_V1_1 = dict(
    _DEFAULTS, feed_forward_proj="gated-gelu", vocab_size=250_112, d_ff=1_024, num_layers=8, num_heads=6
)

HUGGINGFACE_NAMES = {
    "token_embedding": "shared",
    **half_names("encoder"),
    **half_names("decoder"),
    "seq2seq_lm/dense": "lm_head",
    "causal_lm/dense": "lm_head",
    "classifier/dense": "classification_head.dense",
    "classifier/project": "classification_head.out_proj",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
}

register_family(
    T5,
    Family(
        config=T5Config,
        model_types=("t5", "t5-lm", "mt5", "mt5-lm", "umt5", "umt5-lm"),
        sizes=SIZES,
        heads=HEADS,
        needed_fields={name: {"architecture": "encoder"} for name in ("TokenClassifier", "TextEmbedder")},
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={"is_decoder": False},
            defaults={
                "t5": _DEFAULTS,
                "mt5": _DEFAULTS_V1_1,
                "umt5": _DEFAULTS_V1_1,
            },
            aliases={
                "hidden_size": "d_model",
                "head_dim": "d_kv",
                "num_attention_heads": "num_heads",
                "num_hidden_layers": "num_layers",
            },
            written={
                "scale_decoder_outputs": lambda config: config.scale_output,
                "architecture": lambda config: config.architecture,
            },
            classes={
                model_type + suffix: {
                    "Backbone": f"{name}Model",
                    "Backbone with encoder": f"{name}EncoderModel",
                    "CausalLM": f"{name}ForCausalLM",  # decoder-only: transformers has no such class
                    "Seq2SeqLM": f"{name}ForConditionalGeneration",
                    "TextClassifier": f"{name}ForSequenceClassification",
                    "TokenClassifier": f"{name}ForTokenClassification",
                    "QuestionAnswerer": f"{name}ForQuestionAnswering",
                    "TextEmbedder": f"{name}EncoderModel",
                }
                for model_type, name in (("t5", "T5"), ("mt5", "MT5"), ("umt5", "UMT5"))
                for suffix in ("", "-lm")
            },
            prefix="transformer",
            bare=("CausalLM", "Seq2SeqLM", "QuestionAnswerer", "TextEmbedder"),  # classes without the prefix
            names=HUGGINGFACE_NAMES,
            tied={
                "decoder.embed_tokens.weight": "shared.weight",
                "encoder.embed_tokens.weight": "shared.weight",
            },
            fields=huggingface_fields,
            generation=start_of_generation,
            implied=huggingface_implied,
            unused=huggingface_unused,
        ),
    ),
)

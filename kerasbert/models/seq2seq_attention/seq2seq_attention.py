"""The recurrent encoder-decoder that introduced attention.

Bahdanau, Cho, Bengio 2014, arXiv 1409.0473. New in this paper: the decoder attends to all hidden states of the encoder,
whereas earlier models represented a sentence of any length by a single vector. This attention is additive. The config
also offers the multiplicative variants of Luong, Pham, Manning 2015 (arXiv 1508.04025), whose queries are the current
instead of the previous state of the decoder, and the model without attention (Cho et al. 2014, arXiv 1406.1078),
optionally with the source reversed (Sutskever, Vinyals, Le 2014, arXiv 1409.3215).
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from ...core.family import Config, Family, HuggingFaceLayout, register_family
from ...core.initializers import normal
from ...core.weight_names import Tensor
from ...layers.composite import Composite
from ...layers.dropout import Dropout
from ...layers.masks import real_tokens
from ..encoder_decoder import EncoderDecoderBackbone
from .recurrent_decoders import DECODERS, LUONG, Reader, dense

# === Config ===


@dataclasses.dataclass(frozen=True)
class Seq2SeqAttentionConfig(Config):
    vocabulary_size: int = 30_000  # of the source and of the target, which have separate embeddings
    embedding_dim: int = 620
    hidden_dim: int = 1_000  # of the decoder, and of each direction of the encoder
    attention: str = "additive"  # or "multiplicative", "dot", "concat", "location" (the variants of Luong), or "none"
    alignment_dim: int = 1_000  # width of the layer inside additive and concat attention
    output_dim: int = 500  # width of the additive model's output, the number of maxout units
    bidirectional: bool = True  # whether the encoder reads in both directions
    reverse_source: bool = False  # whether the source is read backwards
    input_feeding: bool = True  # Luong: whether the output of a step is part of the input of the next step
    window: int | None = None  # Luong: maximum distance from the center of local attention; None: global attention
    window_center: str = "predictive"  # center: "monotonic" is the position of the target, "predictive" is learned
    max_length: int | None = None  # longest source for location attention, which has one weight per position
    dropout: float = 0.0  # of the embeddings and of the output
    initializer_range: float = 0.01  # standard deviation of initial weights; recurrent matrices are orthogonal
    alignment_range: float = 0.001  # standard deviation of initial weights in additive and concat attention
    pad_id: int = 0
    eos_id: int = 1
    decoder_start_id: int = 0
    model_type: str = "seq2seq_attention"

    def __post_init__(self):
        rules = [
            (self.attention in DECODERS, f"`attention` must be one of {', '.join(DECODERS)}."),
            (self.window_center in ("monotonic", "predictive"), '`window_center` must be "monotonic" or "predictive".'),
            (self.attention != "location" or self.max_length, "Location attention needs `max_length`."),
            (
                self.attention != "dot" or not self.bidirectional,
                '"dot" needs bidirectional=False, so that states have equal width.',
            ),
            (self.window is None or self.attention in LUONG, f"`window` needs attention to be {', '.join(LUONG)}."),
        ]
        for right, rule in rules:
            if not right:
                raise ValueError(f"{rule} Received: {self}.")

    @property
    def context_dim(self):
        """Width of the encoder's hidden states."""
        return self.hidden_dim * (1 + self.bidirectional)

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

SIZES = {"rnnsearch": dict(), "rnnencdec": dict(attention="none", bidirectional=False)}

# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class Seq2SeqAttention(EncoderDecoderBackbone):
    """A recurrent encoder, bidirectional by default, and a recurrent decoder.

    Args:
        config: a `Seq2SeqAttentionConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s) and `decoder_token_ids` (b, t), and optionally `padding_mask` or
            `lengths`, `decoder_padding_mask` or `decoder_lengths`. Padding may be anywhere in a row.
        hidden_states: whether to return the embeddings and hidden states of encoder and decoder.
        attention_weights: whether to return the attention probabilities.
        cache: the cache of the preceding tokens, from `start_cache` or from the previous call. With a cache, `inputs`
            holds only decoder inputs.

    Returns: a dict of `encoder_output` (b, s, encoder width), `sequence_output` (b, t, output width of the decoder),
        and if requested `hidden_states`, {"encoder": [embeddings, states], "decoder": [embeddings, states]}, and
        `attention_weights`, {"cross": [float32 (b, 1, t, s)]}. With a cache, there are no outputs of the encoder, but
        the `cache` for the next call.
    """

    takes_segments = False
    learned_positions = False

    def __init__(self, config: Seq2SeqAttentionConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        table: dict[str, Any] = dict(embeddings_initializer=config.kernel_initializer(), **common)
        sizes = config.vocabulary_size, config.embedding_dim
        self.token_embedding = keras.layers.Embedding(*sizes, name="token_embedding", **table)
        self.decoder_embedding = keras.layers.Embedding(*sizes, name="decoder_embedding", **table)
        self.dropout = Dropout(config.dropout, name="dropout", **common)
        self.readers = [Reader(config, name="forward_reader", **common)]
        if config.bidirectional:
            self.readers.append(Reader(config, reverse=True, name="backward_reader", **common))
        self.decoder = DECODERS[config.attention](config, name="decoder", **common)
        with keras.name_scope(self.name):
            self.decoder.build()  # built now, because its initial state is computed before its first call
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        if cache is None:
            embedded, states, lasts = self._encode(inputs)
            state, context = self._started(inputs, states, lasts)
        else:
            state, context = cache["state"], cache["context"]
        x = self.dropout(self.decoder_embedding(inputs["decoder_token_ids"]))
        y, decoded, state = self.decoder(x, state, context, real_tokens(inputs, "decoder_"))

        outputs = {"sequence_output": self.dropout(y)}
        if cache is None:
            outputs["encoder_output"] = states
        if hidden_states:
            outputs["hidden_states"] = {"decoder": [x, decoded["state"]]}
            if cache is None:
                outputs["hidden_states"]["encoder"] = [embedded, states]
        if attention_weights:
            if "weights" not in decoded:
                raise ValueError('Alignments need attention. Received: attention="none" in the config.')
            outputs["attention_weights"] = {"cross": [decoded["weights"][:, None]]}
        if cache is not None:
            outputs["cache"] = {"state": state, "context": context}
        return outputs

    @property
    def blocks(self):
        """A tuple of the encoder layers (one for each direction), which have the same depth, then the decoder."""
        return [tuple(self.readers), self.decoder]

    def _encode(self, inputs):
        """Returns (embeddings, hidden states, list of the final state of each direction) of the source.

        Embeddings and hidden states are in the order of the source, even if it is read backwards.
        """
        x, real = self.dropout(self.token_embedding(inputs["token_ids"])), real_tokens(inputs)
        if self.config.reverse_source:
            x, real = ops.flip(x, axis=1), None if real is None else ops.flip(real, axis=1)
        states, lasts = zip(*(reader(x, real) for reader in self.readers), strict=True)
        states = ops.concatenate(states, axis=-1)
        if self.config.reverse_source:
            x, states = ops.flip(x, axis=1), ops.flip(states, axis=1)
        return x, states, list(lasts)

    def _started(self, inputs, states, lasts):
        """Returns (initial state of the decoder, dict of the arrays that its attention reads from the source)."""
        real = real_tokens(inputs)
        real = ops.ones_like(inputs["token_ids"], dtype="bool") if real is None else real
        context = self.decoder.context(states, real)
        return self.decoder.start_state(lasts, context), context

    def encode(self, inputs):
        """Returns the hidden states of the encoder, float (b, s, encoder width)."""
        return self._encode(inputs)[1]

    def start_cache(self, context, batch_size, length):
        """Returns a cache for generation: the decoder's initial state, and the arrays that its attention reads.

        Args:
            context: the inputs of the encoder, a batch.
            batch_size, length: not used, because the size of a recurrent state does not depend on them.
        """
        _, states, lasts = self._encode(context)
        state, context = self._started(context, states, lasts)
        return {"state": state, "context": context}

    def check_inputs(self, inputs):
        super().check_inputs(inputs)
        if inputs.get("sequence_ids") is not None:
            raise ValueError("Recurrent models take one sequence per row. Received: packed rows (`sequence_ids`).")
        longest, length = self.config.max_length, inputs["token_ids"].shape[-1]
        if longest is not None and length > longest:
            raise ValueError(
                f"Sources of location attention must be no longer than max_length={longest}. Received: {length}."
            )


# === Heads ===


class VocabularyHead(Composite):
    """Logits over the vocabulary, computed by a dense layer.

    The head is called like `TokenTableHead`, but ignores the token embeddings in `table`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.dense = dense(config, config.vocabulary_size, "dense", self.dtype_policy)

    def call(self, x, table):
        return self.dense(x)


HEADS = {"seq2seq_lm": lambda config, **common: VocabularyHead(config, **common)}

# === Files: kerasbert's layout, similar to those of Hugging Face ===

HUGGINGFACE_CONFIG = {field.name: field.name for field in dataclasses.fields(Seq2SeqAttentionConfig)}

_READER = ("inputs", "unit/update", "unit/reset", "unit/candidate")
_DECODER = (
    *_READER,
    "start",
    "from_context",
    "feed",
    "center",
    "center_scale",
    "score/query",
    "score/key",
    "score/place",
    "score/scale",
    "output_layer",
)


def _stored(ours):
    """Returns the entry of `HUGGINGFACE_NAMES` for a weight path.

    Recurrent matrices and scales are not dense layers, and so are stored unchanged, as a `Tensor`.
    """
    name = ours.replace("/", ".")
    return Tensor(name) if ours.rpartition("/")[2] in ("update", "reset", "candidate", "scale") else name


HUGGINGFACE_NAMES = {
    path: _stored(path)
    for path in (
        "token_embedding",
        "decoder_embedding",
        *(f"{reader}/{name}" for reader in ("forward_reader", "backward_reader") for name in _READER),
        *(f"decoder/{name}" for name in _DECODER),
        "seq2seq_lm/dense",
    )
}

register_family(
    Seq2SeqAttention,
    Family(
        config=Seq2SeqAttentionConfig,
        model_types=("seq2seq_attention",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            classes={"Backbone": "Seq2SeqAttention", "Seq2SeqLM": "Seq2SeqLM"},
            prefix="",
            names=HUGGINGFACE_NAMES,
        ),
    ),
)

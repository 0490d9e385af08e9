"""The recurrent encoder-decoder that introduced attention.

Bahdanau, Cho, Bengio 2014, arXiv 1409.0473. New in it: the decoder attends to every state of the encoder with learned
weights, where earlier models had one vector for a sentence of any length. Besides this additive attention, there are
the multiplicative variants of Luong, Pham, Manning 2015 (arXiv 1508.04025), which use the decoder's current state
instead of the previous one, and the model without attention (Cho et al. 2014, arXiv 1406.1078), optionally with the
source reversed (Sutskever, Vinyals, Le 2014, arXiv 1409.3215).
"""

import dataclasses

import keras
from keras import ops

from ...core.encoder_decoder import EncoderDecoderBackbone
from ...core.family import Config, Family, HuggingFaceLayout, register_family
from ...core.initializers import normal
from ...core.weight_names import Tensor
from ...layers.composite import Composite
from ...layers.dropout import Dropout
from ...layers.masks import real_tokens
from .recurrent_decoders import DECODERS, LUONG, Reader, dense

# === Config ===


@dataclasses.dataclass(frozen=True)
class Seq2SeqAttentionConfig(Config):
    vocabulary_size: int = 30_000  # of the source and of the target, which have separate tables
    embedding_dim: int = 620
    hidden_dim: int = 1_000  # of the decoder, and of each direction of the encoder
    attention: str = "additive"  # or "multiplicative" (W between the states), "dot", "concat", "location", "none"
    alignment_dim: int = 1_000  # of the layer inside additive and concat attention
    output_dim: int = 500  # maxout units of the additive model; its sequence_output
    bidirectional: bool = True  # False: the encoder has one direction only
    reverse_source: bool = False  # read the source backwards
    input_feeding: bool = True  # Luong: the attentional state is part of the next input
    window: int | None = None  # Luong: attend only this far around one position (local attention, D = 10)
    window_center: str = "predictive"  # that position: "monotonic" is the decoder's, "predictive" is learned
    max_length: int | None = None  # longest source for location attention, which has one weight per position
    dropout: float = 0.0  # on the embeddings and on the output
    initializer_range: float = 0.01  # standard deviation; recurrent matrices are orthogonal
    alignment_range: float = 0.001  # standard deviation inside additive and concat attention
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
        """Width of the encoder's states."""
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
        inputs: a batch; `token_ids` (b, s), `decoder_token_ids` (b, t), and optionally `padding_mask` or `lengths`, and
            the same with the prefix `decoder_`. Padding may be anywhere.
        hidden_states: also return embeddings and states.
        attention_weights: also return the alignments.
        cache: from `start_cache` or from the call on the preceding tokens. `inputs` are then the decoder's only.

    Returns: a dict of `encoder_output` (b, s, n or 2 n) and `sequence_output` (b, t, o), the decoder's; on request
        `hidden_states`, a dict of `encoder` and `decoder`, and `attention_weights`, {"cross": [float32 (b, 1, t, s)]};
        with a cache, the next `cache`, and no encoder outputs.
    """

    learned_positions = False

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        common = dict(dtype=self.dtype_policy)
        table = dict(embeddings_initializer=config.kernel_initializer(), **common)
        sizes = config.vocabulary_size, config.embedding_dim
        self.token_embedding = keras.layers.Embedding(*sizes, name="token_embedding", **table)
        self.decoder_embedding = keras.layers.Embedding(*sizes, name="decoder_embedding", **table)
        self.dropout = Dropout(config.dropout, name="dropout", **common)
        self.readers = [Reader(config, name="forward_reader", **common)]
        if config.bidirectional:
            self.readers.append(Reader(config, reverse=True, name="backward_reader", **common))
        self.decoder = DECODERS[config.attention](config, name="decoder", **common)
        with keras.name_scope(self.name):
            self.decoder.build()  # its first state is needed before it is called
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
        """The encoder's readers side by side, then the decoder."""
        return [tuple(self.readers), self.decoder]

    def _encode(self, inputs):
        """(embeddings, states, the last state of every direction); all in the order of the source."""
        x, real = self.dropout(self.token_embedding(inputs["token_ids"])), real_tokens(inputs)
        if self.config.reverse_source:
            x, real = ops.flip(x, axis=1), None if real is None else ops.flip(real, axis=1)
        states, lasts = zip(*(reader(x, real) for reader in self.readers), strict=True)
        states = ops.concatenate(states, axis=-1)
        if self.config.reverse_source:
            x, states = ops.flip(x, axis=1), ops.flip(states, axis=1)
        return x, states, list(lasts)

    def _started(self, inputs, states, lasts):
        """The decoder's first state, and what it reads from the source."""
        real = real_tokens(inputs)
        real = ops.ones_like(inputs["token_ids"], dtype="bool") if real is None else real
        context = self.decoder.context(states, real)
        return self.decoder.start_state(lasts, context), context

    def encode(self, inputs):
        """The encoder's states, float (b, s, n or 2 n)."""
        return self._encode(inputs)[1]

    def start_cache(self, context, batch_size, length):
        """The decoder's first state, and what it reads from the source; `length` is not used.

        Args:
            context: the encoder's inputs.
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
    """Scores over the vocabulary from a separate layer. It is called like a tied head, but ignores the token table."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.dense = dense(config, config.vocabulary_size, "dense", self.dtype_policy)

    def call(self, x, table):
        return self.dense(x)


HEADS = {"seq2seq_lm": lambda config, **common: VocabularyHead(config, **common)}

# === Files: kerasbert's layout, in the scheme of Hugging Face ===

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
    """Recurrent matrices and scales are not layers: they are stored unchanged, as plain tensors."""
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

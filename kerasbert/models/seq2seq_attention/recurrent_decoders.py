"""Layers of the recurrent encoder-decoder: gated recurrent units, attention scores, and the decoders."""

from typing import Any

from keras import ops

from ...core.initializers import normal, orthogonal
from ...layers.attention import HIDDEN_SCORE
from ...layers.composite import Layer
from ...layers.dense import Dense
from ...layers.recurrence import scan_tokens


def dense(config, units, name, dtype, **options):
    """Returns a dense layer with the kernel initializer of the config."""
    return Dense(units, kernel_initializer=config.kernel_initializer(), name=name, dtype=dtype, **options)


# === Recurrence ===


class GatedRecurrentUnit(Layer):
    """A gated recurrent unit (GRU), as in the paper.

    For the state h, the equations are z = sigmoid(x_z + U_z h), r = sigmoid(x_r + U_r h), c = tanh(x_c + U (r h)) and
    h_new = (1 - z) h + z c. In most libraries, z and 1 - z are swapped, and r is applied after the matrix product.

    Args:
        hidden_dim: width n of the state.

    Call:
        x: float (b, 3 n), the concatenation of x_z, x_r and x_c: the projected inputs of one token.
        state: float (b, n), the state h.

    Returns: the next state, float (b, n).
    """

    def __init__(self, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim

    def build(self, x_shape, state_shape=None):
        for name in ("update", "reset", "candidate"):
            weight = self.add_weight(name=name, shape=(self.hidden_dim, self.hidden_dim), initializer=orthogonal())
            setattr(self, name, weight)

    def call(self, x, state):
        update, reset, candidate = ops.split(x, 3, axis=-1)
        update = ops.sigmoid(update + ops.matmul(state, self.update))
        reset = ops.sigmoid(reset + ops.matmul(state, self.reset))
        candidate = ops.tanh(candidate + ops.matmul(reset * state, self.candidate))
        return (1 - update) * state + update * candidate


class Reader(Layer):
    """An encoder that reads a sequence in one direction with a gated recurrent unit.

    Args:
        config: a `Seq2SeqAttentionConfig`.
        reverse: whether to read from the last token to the first.

    Call:
        x: float (b, s, e), embeddings.
        real: bool (b, s), False at padding. None: there is no padding.

    Returns: (hidden states after each token, float (b, s, n), final state, float (b, n)).
    """

    def __init__(self, config, reverse=False, **kwargs):
        super().__init__(**kwargs)
        self.reverse = reverse
        self.hidden_dim = config.hidden_dim
        self.inputs = dense(config, 3 * config.hidden_dim, "inputs", self.dtype_policy)
        self.unit = GatedRecurrentUnit(config.hidden_dim, name="unit", dtype=self.dtype_policy)

    def build(self, x_shape, real_shape=None):
        self.inputs.build(x_shape)
        self.unit.build((None, 3 * self.hidden_dim))

    def call(self, x, real=None):
        def step(state, x):
            return self.unit(x, state)

        x = self.inputs(x)
        return scan_tokens(step, ops.zeros_like(x[:, 0, : self.hidden_dim]), x, real, self.reverse)


# === Attention ===


class AdditiveScore(Layer):
    """Additive attention: the score is v tanh(W s + U h), for the decoder's state s and each encoder state h.

    Args:
        config: a `Seq2SeqAttentionConfig`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        common: dict[str, Any] = dict(
            kernel_initializer=normal(config.alignment_range), use_bias=False, dtype=self.dtype_policy
        )
        self.query = Dense(config.alignment_dim, name="query", **common)
        self.key = Dense(config.alignment_dim, name="key", **common)

    def build(self, shape=None):
        self.query.build((None, self.config.hidden_dim))
        self.key.build((None, self.config.context_dim))
        self.scale = self.add_weight(name="scale", shape=(self.config.alignment_dim,), initializer="zeros")

    def keys(self, states, positions):
        """Returns U h, the term that does not depend on the decoder, float (b, s, alignment_dim).

        Args:
            states: float (b, s, encoder width), the hidden states of the encoder.
            positions: int32 (b, s), the positions of the source tokens, which only `LocationScore` uses.
        """
        return self.key(states)

    def scores(self, state, keys):
        """Returns the attention scores of the source tokens, float (b, s).

        Args:
            state: float (b, n), the state of the decoder.
            keys: the result of `keys`.
        """
        return ops.matmul(ops.tanh(self.query(state)[:, None] + keys), ops.cast(self.scale, keys.dtype))


class MultiplicativeScore(Layer):
    """Multiplicative attention ("general" in Luong et al.): the score is s W h for the states s and h."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.key = dense(config, config.hidden_dim, "key", self.dtype_policy, use_bias=False)

    def build(self, shape=None):
        self.key.build((None, self.config.context_dim))

    def keys(self, states, positions):
        return self.key(states)

    def scores(self, state, keys):
        return ops.einsum("bn,bsn->bs", state, keys)


class DotScore(Layer):
    """Dot-product attention: the score is s h, for the decoder's state s and each encoder state h."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)

    def build(self, shape=None):
        """Does nothing, because this layer has no weights."""

    def keys(self, states, positions):
        return states

    def scores(self, state, keys):
        return ops.einsum("bn,bsn->bs", state, keys)


class LocationScore(Layer):
    """Location-based attention: the scores of all source positions are W s, for the decoder's state s."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.place = dense(config, config.max_length, "place", self.dtype_policy, use_bias=False)

    def build(self, shape=None):
        self.place.build((None, self.config.hidden_dim))

    def keys(self, states, positions):
        return positions

    def scores(self, state, keys):
        return ops.take_along_axis(self.place(state), keys, axis=1)


# === Decoders ===


class PlainDecoder(Layer):
    """A decoder without attention. Only its initial state, tanh(W [final encoder states]), depends on the source.

    Args:
        config: a `Seq2SeqAttentionConfig`.

    Call:
        x: float (b, t, e), the embeddings of the decoder's inputs.
        state: the state before these tokens, from `start_state` or from the previous call.
        context: the result of the method `context`.
        real: bool (b, t), False at padding. None: there is no padding.

    Returns: a tuple of the output, float (b, t, output width); the states after each token, a dict of `state`,
        float (b, t, n), and with attention of `weights`, the attention probabilities, float32 (b, t, s); and the state
        after the last token, with which the next call continues.
    """

    def __init__(self, config, **kwargs):
        super().__init__(autocast=False, **kwargs)  # attention weights and positions are float32
        self.config = config
        self.start = dense(config, config.hidden_dim, "start", self.dtype_policy, activation="tanh")
        self.inputs = dense(config, 3 * config.hidden_dim, "inputs", self.dtype_policy)
        self.unit = GatedRecurrentUnit(config.hidden_dim, name="unit", dtype=self.dtype_policy)

    def build(self, shape=None):
        config = self.config
        self.start.build((None, self.start_dim))
        self.inputs.build((None, config.embedding_dim))
        self.unit.build((None, 3 * config.hidden_dim))

    @property
    def start_dim(self):
        """Width of the encoder states from which the initial state is computed."""
        return self.config.context_dim

    def context(self, states, real):
        """Returns a dict of the arrays that each decoding step reads from the source, with the batch as first axis.

        Args:
            states: float (b, s, encoder width), the hidden states of the encoder.
            real: bool (b, s), False at padding.
        """
        return {}

    def start_state(self, lasts, context):
        """Returns the state before the first token, a dict.

        Args:
            lasts: list of the final state of each direction of the encoder, float (b, n).
            context: the result of the method `context`.
        """
        return {"state": self.start(ops.concatenate(lasts, axis=-1))}

    def call(self, x, state, context, real=None):
        def step(state, x):
            return {"state": self.unit(x, state["state"])}

        states, last = scan_tokens(step, state, self.inputs(x), real)
        return states["state"], states, last


class AdditiveDecoder(PlainDecoder):
    """The decoder of Bahdanau et al. with additive attention.

    In each step, the previous state is the query of attention. The next state is computed from the attended context and
    the input. The output is a maxout layer over the next state, the input and the context.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.from_context = dense(config, 3 * config.hidden_dim, "from_context", self.dtype_policy, use_bias=False)
        self.score = AdditiveScore(config, name="score", dtype=self.dtype_policy)
        self.output_layer = dense(config, 2 * config.output_dim, "output_layer", self.dtype_policy)

    def build(self, shape=None):
        super().build(shape)
        config = self.config
        self.from_context.build((None, config.context_dim))
        self.score.build(None)
        self.output_layer.build((None, config.hidden_dim + config.embedding_dim + config.context_dim))

    @property
    def start_dim(self):
        return self.config.hidden_dim

    def context(self, states, real):
        return attention_context(self.score, states, real)

    def start_state(self, lasts, context):
        first = super().start_state(lasts[-1:], context)  # the final state of the backward direction
        nothing = ops.zeros_like(context["values"][:, 0])
        return {**first, "found": nothing, "weights": ops.zeros_like(context["real"], dtype="float32")}

    def call(self, x, state, context, real=None):
        def step(state, x):
            weights = attention_weights(self.score.scores(state["state"], context["keys"]), context["real"])
            found = attended(weights, context["values"])
            following = self.unit(x + self.from_context(found), state["state"])
            return {"state": following, "found": found, "weights": weights}

        states, last = scan_tokens(step, state, self.inputs(x), real)
        y = self.output_layer(ops.concatenate([states["state"], x, states["found"]], axis=-1))
        y = ops.max(ops.reshape(y, (-1, ops.shape(y)[1], self.config.output_dim, 2)), axis=-1)
        return y, states, last


class MultiplicativeDecoder(PlainDecoder):
    """The decoder of Luong et al. with multiplicative attention or one of its variants.

    In each step, the next state s is computed from the input, and is the query of attention. The output is tanh(W [c,
    s]) for the attended context c. With `input_feeding`, this output is also an input of the next step.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        common = self.dtype_policy
        if config.input_feeding:
            self.feed = dense(config, 3 * config.hidden_dim, "feed", common, use_bias=False)
        if config.window is not None and config.window_center == "predictive":
            self.center = dense(config, config.hidden_dim, "center", common, use_bias=False, activation="tanh")
            self.center_scale = dense(config, 1, "center_scale", common, use_bias=False, activation="sigmoid")
        self.score = LUONG[config.attention](config, name="score", dtype=common)
        self.output_layer = dense(config, config.hidden_dim, "output_layer", common, use_bias=False, activation="tanh")

    def build(self, shape=None):
        super().build(shape)
        config = self.config
        for name in ("feed", "center", "center_scale"):
            if hasattr(self, name):
                getattr(self, name).build((None, config.hidden_dim))
        self.score.build(None)
        self.output_layer.build((None, config.context_dim + config.hidden_dim))

    def context(self, states, real):
        return attention_context(self.score, states, real)

    def start_state(self, lasts, context):
        first = super().start_state(lasts, context)
        nothing = ops.zeros_like(context["real"], dtype="float32")
        return {**first, "fed": ops.zeros_like(first["state"]), "weights": nothing, "place": nothing[:, :1]}

    def call(self, x, state, context, real=None):
        def step(state, x):
            x = x + self.feed(state["fed"]) if self.config.input_feeding else x
            following = self.unit(x, state["state"])
            weights = self._weights(following, state["place"], context)
            found = attended(weights, context["values"])
            y = self.output_layer(ops.concatenate([found, following], axis=-1))
            return {"state": following, "fed": y, "weights": weights, "place": state["place"] + 1}

        states, last = scan_tokens(step, state, self.inputs(x), real)
        return states["fed"], states, last

    def _weights(self, state, place, context):
        """Returns the attention probabilities, float32 (b, s).

        Attention is global, or local around the position `place`, float (b, 1), or local around a position that is
        predicted from the state.
        """
        scores, real, window = self.score.scores(state, context["keys"]), context["real"], self.config.window
        if window is None:
            return attention_weights(scores, real)
        positions = ops.cast(context["positions"], "float32")
        if self.config.window_center == "predictive":
            lengths = ops.sum(ops.cast(real, "float32"), axis=1, keepdims=True)
            place = lengths * ops.cast(self.center_scale(self.center(state)), "float32")
        weights = attention_weights(scores, real & (ops.abs(positions - place) <= window))
        if self.config.window_center == "predictive":
            weights = weights * ops.exp(-ops.square(positions - place) / (2 * (window / 2) ** 2))
        return weights


LUONG = {
    "multiplicative": MultiplicativeScore,
    "dot": DotScore,
    "concat": AdditiveScore,
    "location": LocationScore,
}

DECODERS = {"additive": AdditiveDecoder, **dict.fromkeys(LUONG, MultiplicativeDecoder), "none": PlainDecoder}


def attention_context(score, states, real):
    """Returns a dict of the arrays that attention reads from the source.

    Args:
        score: the layer that computes attention scores.
        states: float (b, s, encoder width), the hidden states of the encoder.
        real: bool (b, s), False at padding.

    Returns: a dict of the keys of the score, the states as `values`, the mask `real` and the token positions.
    """
    positions = ops.maximum(ops.cumsum(ops.cast(real, "int32"), axis=-1) - 1, 0)
    return {"keys": score.keys(states, positions), "values": states, "real": real, "positions": positions}


def attention_weights(scores, allowed):
    """Returns the softmax of the scores over the allowed positions, float32 (b, s).

    Positions that are not allowed have probability 0. In rows without any allowed position, all probabilities are 0.

    Args:
        scores: float (b, s).
        allowed: bool (b, s).
    """
    scores = ops.where(allowed, ops.cast(scores, "float32"), HIDDEN_SCORE)
    return ops.where(allowed, ops.softmax(scores, axis=-1), 0.0)


def attended(weights, values):
    """Computes the sum of `values` (b, s, m), weighted by `weights` (b, s): float (b, m)."""
    return ops.einsum("bs,bsm->bm", ops.cast(weights, values.dtype), values)

"""Recurrent encoders and decoders: gated recurrent units, attention scores, and the decoders that combine them."""

from keras import ops

from ...core.initializers import normal, orthogonal
from ...layers.attention import HIDDEN_SCORE
from ...layers.composite import Layer
from ...layers.dense import Dense
from ...layers.recurrence import scan_tokens


def dense(config, units, name, dtype, **options):
    return Dense(units, kernel_initializer=config.kernel_initializer(), name=name, dtype=dtype, **options)


# === Recurrence ===


class GatedRecurrentUnit(Layer):
    """z = s(xz + Uz h), r = s(xr + Ur h), c = tanh(xc + U (r h)), new h = (1 - z) h + z c, as in the paper.

    z weights the new state, and r is applied before the matrix product; most libraries do both the other way round.

    Args:
        hidden_dim: width n of the state.

    Call:
        x: float (b, 3 n), the contributions of the inputs to update gate, reset gate and candidate.
        state: float (b, n).

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
    """A gated recurrent unit over a sequence.

    Args:
        config: a `Seq2SeqAttentionConfig`.
        reverse: read from the last token to the first.

    Call:
        x: float (b, s, e).
        real: bool (b, s), False at padding, or None.

    Returns: the states, float (b, s, n), and the last one, float (b, n).
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
    """v tanh(W s + U h) for the state s of the decoder and each state h of the encoder.

    Args:
        config: a `Seq2SeqAttentionConfig`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        common = dict(kernel_initializer=normal(config.alignment_range), use_bias=False, dtype=self.dtype_policy)
        self.query = Dense(config.alignment_dim, name="query", **common)
        self.key = Dense(config.alignment_dim, name="key", **common)

    def build(self, shape=None):
        self.query.build((None, self.config.hidden_dim))
        self.key.build((None, self.config.context_dim))
        self.scale = self.add_weight(name="scale", shape=(self.config.alignment_dim,), initializer="zeros")

    def keys(self, states, positions):
        """U h, the part of the score that does not depend on the decoder."""
        return self.key(states)

    def scores(self, state, keys):
        """float (b, s) for `state` (b, n)."""
        return ops.matmul(ops.tanh(self.query(state)[:, None] + keys), ops.cast(self.scale, keys.dtype))


class MultiplicativeScore(Layer):
    """s W h ("general" in Luong et al.)."""

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
    """s h."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)

    def build(self, shape=None):
        """There are no weights."""

    def keys(self, states, positions):
        return states

    def scores(self, state, keys):
        return ops.einsum("bn,bsn->bs", state, keys)


class LocationScore(Layer):
    """W s: one score per position, independent of the token there."""

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
    """A decoder without attention: it sees the source only through its initial state, tanh(W [last states]).

    Args:
        config: a `Seq2SeqAttentionConfig`.

    Call:
        x: float (b, t, e), the embedded targets so far.
        state: from `start_state` or from the call on the preceding tokens.
        context: the result of `context`.
        real: bool (b, t), False at padding, or None.

    Returns: the output, float (b, t, o); the state after each token, a dict of `state` (b, t, n) and, with attention,
        `weights`, float32 (b, t, s); the state after the last token, from which the next call continues.
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
        return self.config.context_dim

    def context(self, states, real):
        """What each decoding step reads from the source: a dict of arrays, batch first."""
        return {}

    def start_state(self, lasts, context):
        """The state before the first token, from the last states of the encoder's directions."""
        return {"state": self.start(ops.concatenate(lasts, axis=-1))}

    def call(self, x, state, context, real=None):
        def step(state, x):
            return {"state": self.unit(x, state["state"])}

        states, last = scan_tokens(step, state, self.inputs(x), real)
        return states["state"], states, last


class AdditiveDecoder(PlainDecoder):
    """Bahdanau et al.: attention by the previous state, the next state, then maxout of state, input and context."""

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
        first = super().start_state(lasts[-1:], context)  # the backward state at the first word
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
    """Luong et al.: the next state, which is the query of attention, then tanh(W [context; state]).

    With `input_feeding`, that output is also an input of the next step.
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
        """Global attention, or local attention around `place` (b, 1) or around a position predicted by the state."""
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
    """What attention reads from the source: the score's keys, the states, their mask and the token positions."""
    positions = ops.maximum(ops.cumsum(ops.cast(real, "int32"), axis=-1) - 1, 0)
    return {"keys": score.keys(states, positions), "values": states, "real": real, "positions": positions}


def attention_weights(scores, allowed):
    """float32 softmax of `scores` (b, s) over positions in bool `allowed`; 0 at all others, and in rows without any."""
    scores = ops.where(allowed, ops.cast(scores, "float32"), HIDDEN_SCORE)
    return ops.where(allowed, ops.softmax(scores, axis=-1), 0.0)


def attended(weights, values):
    return ops.einsum("bs,bsm->bm", ops.cast(weights, values.dtype), values)

"""The recurrent encoder-decoder against its formulas in numpy, its cache, its layout, and its invariances."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Backbone, Seq2SeqAttention, Seq2SeqAttentionConfig
from kerasbert.models.seq2seq_attention.recurrent_decoders import attention_weights
from kerasbert.objectives import Seq2SeqLM
from tests.models.reference import to_numpy

TINY = dict(
    vocabulary_size=31,
    embedding_dim=6,
    hidden_dim=10,
    alignment_dim=7,
    output_dim=5,
    initializer_range=0.5,
    alignment_range=0.5,
)
KINDS = {
    "additive": {},
    "multiplicative": {},
    "concat": dict(input_feeding=False),
    "dot": dict(bidirectional=False, reverse_source=True),
    "location": dict(max_length=16, window=2, window_center="monotonic"),
    "multiplicative, local": dict(attention="multiplicative", window=2),
    "none": {},
}


def shaken(backbone, seed=0):
    """Initial weights and noise: scales of scores and biases start at zero."""
    rng = np.random.default_rng(seed)
    for variable in backbone.trainable_variables:
        variable.assign(to_numpy(variable) + rng.normal(0, 0.3, variable.shape).astype("float32"))
    return backbone


@pytest.fixture(scope="module")
def backbones():
    made = {}

    def make(kind):
        if kind not in made:
            config = Seq2SeqAttentionConfig(**{**TINY, "attention": kind, **KINDS[kind]})
            made[kind] = shaken(Seq2SeqAttention(config))
        return made[kind]

    return make


def batch():
    """Two rows, the second shorter on both sides, with any ids as padding."""
    rng = np.random.default_rng(1)
    return {
        "token_ids": rng.integers(0, 31, (2, 8)).astype("int32"),
        "padding_mask": np.arange(8) < np.array([[8], [5]]),
        "decoder_token_ids": rng.integers(0, 31, (2, 6)).astype("int32"),
        "decoder_padding_mask": np.arange(6) < np.array([[6], [4]]),
    }


# === The formulas, one sentence at a time ===


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max())
    return x / x.sum()


class Numbers:
    """The weights of a backbone by their paths."""

    def __init__(self, backbone):
        self.config = backbone.config
        self.weights = {v.path.split("/", 1)[1]: to_numpy(v).astype("float64") for v in backbone.weights}

    def dense(self, name, x):
        y = x @ self.weights[f"{name}/kernel"]
        return y + self.weights.get(f"{name}/bias", 0)

    def unit(self, name, x, state):
        """The paper's equations, with the sum of the inputs of update gate, reset gate and candidate as x."""
        z, r, c = np.split(x, 3)
        z = sigmoid(z + state @ self.weights[f"{name}/unit/update"])
        r = sigmoid(r + state @ self.weights[f"{name}/unit/reset"])
        c = np.tanh(c + (r * state) @ self.weights[f"{name}/unit/candidate"])
        return (1 - z) * state + z * c

    def encode(self, ids):
        """States (s, n or 2 n) in the order of the source, and the last state of every direction."""
        ids = ids[::-1] if self.config.reverse_source else ids
        x = self.weights["token_embedding/embeddings"][ids]
        directions, lasts = [], []
        for name, order in (("forward_reader", 1), ("backward_reader", -1))[: 1 + self.config.bidirectional]:
            state, states = np.zeros(self.config.hidden_dim), []
            for token in x[::order]:
                state = self.unit(name, self.dense(f"{name}/inputs", token), state)
                states.append(state)
            directions.append(np.array(states)[::order])
            lasts.append(state)
        states = np.concatenate(directions, axis=1)
        return states[::-1] if self.config.reverse_source else states, lasts

    def scores(self, state, states):
        kind = self.config.attention
        if kind in ("additive", "concat"):
            inner = np.tanh(self.dense("decoder/score/query", state) + self.dense("decoder/score/key", states))
            return inner @ self.weights["decoder/score/scale"]
        if kind == "location":
            return self.dense("decoder/score/place", state)[: len(states)]
        return (self.dense("decoder/score/key", states) if kind == "multiplicative" else states) @ state

    def windowed(self, scores, state, place):
        config, places = self.config, np.arange(len(scores))
        if config.window is None:
            return softmax(scores)
        if config.window_center == "predictive":
            inner = np.tanh(state @ self.weights["decoder/center/kernel"])
            place = len(scores) * sigmoid(inner @ self.weights["decoder/center_scale/kernel"])[0]
        near = np.abs(places - place) <= config.window
        weights = np.zeros(len(scores))
        if near.any():
            weights[near] = softmax(scores[near])
        if config.window_center == "predictive":
            weights *= np.exp(-((places - place) ** 2) / (2 * (config.window / 2) ** 2))
        return weights

    def decode(self, ids, states, lasts):
        """Outputs (t, o) and weights (t, s)."""
        kind = self.config.attention
        state = np.tanh(self.dense("decoder/start", lasts[-1] if kind == "additive" else np.concatenate(lasts)))
        fed, outputs, alignments = np.zeros(self.config.hidden_dim), [], []
        for place, token in enumerate(self.weights["decoder_embedding/embeddings"][ids]):
            x = self.dense("decoder/inputs", token)
            if kind == "none":
                state = y = self.unit("decoder", x, state)
                weights = np.zeros(len(states))
            elif kind == "additive":
                weights = softmax(self.scores(state, states))  # by the state before
                context = weights @ states
                state = self.unit("decoder", x + self.dense("decoder/from_context", context), state)
                y = self.dense("decoder/output_layer", np.concatenate([state, token, context]))
                y = y.reshape(-1, 2).max(axis=1)
            else:
                x = x + self.dense("decoder/feed", fed) if self.config.input_feeding else x
                state = self.unit("decoder", x, state)
                weights = self.windowed(self.scores(state, states), state, place)  # by the present state
                y = fed = np.tanh(self.dense("decoder/output_layer", np.concatenate([weights @ states, state])))
            outputs.append(y)
            alignments.append(weights)
        return np.array(outputs), np.array(alignments)


@pytest.mark.one_backend
@pytest.mark.parametrize("kind", KINDS)
def test_the_formulas(kind, backbones):
    backbone, inputs = backbones(kind), batch()
    numbers = Numbers(backbone)
    outputs = backbone(inputs, attention_weights=kind != "none")
    for row in range(2):
        source = inputs["token_ids"][row][inputs["padding_mask"][row]]
        target = inputs["decoder_token_ids"][row][inputs["decoder_padding_mask"][row]]
        states, lasts = numbers.encode(source)
        expected, alignments = numbers.decode(target, states, lasts)
        np.testing.assert_allclose(to_numpy(outputs["encoder_output"])[row, : len(source)], states, atol=1e-5)
        np.testing.assert_allclose(to_numpy(outputs["sequence_output"])[row, : len(target)], expected, atol=1e-5)
        if kind != "none":
            found = to_numpy(outputs["attention_weights"]["cross"][0])[row, 0, : len(target)]
            np.testing.assert_allclose(found[:, : len(source)], alignments, atol=1e-5)
            assert not found[:, len(source) :].any()


@pytest.mark.one_backend
def test_the_worked_example():
    scores = np.array([[1, 2, 3]], "float32")
    values = np.array([[1, 0], [0, 1], [1, 1]])
    for allowed, weights, context in (
        ([True, True, True], [0.0900, 0.2447, 0.6652], [0.7553, 0.9100]),
        ([True, True, False], [0.2689, 0.7311, 0], [0.2689, 0.7311]),
        ([False, False, False], [0, 0, 0], [0, 0]),
    ):
        found = to_numpy(attention_weights(scores, np.array([allowed])))[0]
        np.testing.assert_allclose(found, weights, atol=5e-5)
        np.testing.assert_allclose(found @ values, context, atol=5e-5)


# === Invariances ===


@pytest.mark.one_backend
@pytest.mark.parametrize("kind", ["additive", "location", "none"])
def test_padding_on_the_left_changes_nothing(kind, backbones):
    backbone, inputs = backbones(kind), batch()
    alone = {key: value[:1] for key, value in inputs.items() if key.endswith("token_ids")}
    expected = to_numpy(backbone(alone)["sequence_output"])
    padded = {key: np.pad(value, ((0, 0), (3, 0)), constant_values=9) for key, value in alone.items()}
    padded |= {"padding_mask": np.arange(11)[None] >= 3, "decoder_padding_mask": np.arange(9)[None] >= 3}
    np.testing.assert_allclose(to_numpy(backbone(padded)["sequence_output"])[:, 3:], expected, atol=1e-5)


@pytest.mark.one_backend
def test_lengths_are_as_good_as_masks(backbones):
    backbone, inputs = backbones("additive"), batch()
    ids = {key: value for key, value in inputs.items() if key.endswith("token_ids")}
    by_lengths = {**ids, "lengths": np.array([8, 5], "int32"), "decoder_lengths": np.array([6, 4], "int32")}
    found, expected = (to_numpy(backbone(x)["sequence_output"]) for x in (by_lengths, inputs))
    np.testing.assert_allclose(found[1, :4], expected[1, :4], atol=1e-6)


@pytest.mark.one_backend
@pytest.mark.parametrize("kind", ["additive", "multiplicative, local", "none"])
def test_the_cache_gives_what_the_whole_text_gives(kind, backbones):
    """In pieces of 3, 1 and 2 tokens, behind padding on the left in one row."""
    backbone, inputs = backbones(kind), batch()
    real = np.arange(6) >= np.array([[0], [2]])
    inputs["decoder_padding_mask"] = real
    whole = to_numpy(backbone(inputs)["sequence_output"])
    context = {key: inputs.pop(key) for key in ("token_ids", "padding_mask")}
    cache, parts = backbone.start_cache(context, 2, 6), []
    for start, stop in ((0, 3), (3, 4), (4, 6)):
        outputs = backbone({key: value[:, start:stop] for key, value in inputs.items()}, cache=cache)
        cache = outputs["cache"]
        parts.append(to_numpy(outputs["sequence_output"]))
    np.testing.assert_allclose(np.concatenate(parts, axis=1)[real], whole[real], atol=1e-5)


@pytest.mark.one_backend
def test_a_source_in_reverse(backbones):
    """One direction over a reversed source is the backward direction over the source."""
    backbone, inputs = backbones("dot"), batch()
    ids = inputs["token_ids"][:1]
    plain = Seq2SeqAttention(Seq2SeqAttentionConfig(**{**TINY, "attention": "dot", "bidirectional": False}))
    for variable, other in zip(plain.weights, backbone.weights, strict=True):
        variable.assign(other)
    found, other = (to_numpy(m.encode({"token_ids": x})) for m, x in ((backbone, ids), (plain, ids[:, ::-1].copy())))
    np.testing.assert_allclose(found, other[:, ::-1], atol=1e-6)


# === Training, generation, files ===


@pytest.mark.parametrize(
    "kind",
    [
        "multiplicative, local",
        *(pytest.param(kind, marks=pytest.mark.one_backend) for kind in ("additive", "location")),
    ],
)
def test_every_weight_gets_a_gradient(kind):
    config = Seq2SeqAttentionConfig(**{**TINY, "attention": kind, **KINDS[kind], "vocabulary_size": 12})
    model = Seq2SeqLM(shaken(Seq2SeqAttention(config)))
    rng = np.random.default_rng(0)
    x = {key: rng.integers(0, 12, (4, 16)).astype("int32") for key in ("token_ids", "decoder_token_ids")}
    before = {v.path: to_numpy(v).copy() for v in model.trainable_variables}
    model.compile(keras.optimizers.SGD(1.0))
    model.train_on_batch(x, rng.integers(0, 12, (4, 16)).astype("int32"))
    still = [v.path for v in model.trainable_variables if np.array_equal(before[v.path], to_numpy(v))]
    assert not still


@pytest.mark.one_backend
def test_beams_and_greedy_answers_agree_with_the_whole_model(backbones):
    model = Seq2SeqLM(backbones("additive"))
    prompts = [np.array([3, 4, 5], "int32"), np.array([7, 8, 9, 10, 11, 2], "int32")]
    answers = model.generate(prompts, max_new_tokens=5, stop_ids=())
    for prompt, answer in zip(prompts, answers, strict=True):
        read = np.concatenate([[0], answer[:-1]]).astype("int32")
        logits = to_numpy(model({"token_ids": prompt[None], "decoder_token_ids": read[None]}))[0]
        np.testing.assert_array_equal(answer, logits.argmax(-1))
    best = model.generate(prompts, max_new_tokens=5, stop_ids=(), num_beams=3, scores=True)
    single = model.generate(prompts, max_new_tokens=5, stop_ids=(), scores=True)
    for one, other in zip(best, single, strict=True):
        assert one["score"] * 5 >= other["score"] - 1e-4


@pytest.mark.one_backend
@pytest.mark.parametrize("kind", ["additive", "multiplicative, local", "location", "none"])
def test_folders_round_trip(kind, backbones, tmp_path):
    model = Seq2SeqLM(backbones(kind))
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is Seq2SeqLM and again.backbone.config == model.backbone.config
    for found, expected in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(found), to_numpy(expected))
    assert type(Backbone.from_preset(tmp_path)) is Seq2SeqAttention


@pytest.mark.one_backend
def test_initial_weights_are_the_papers():
    config = Seq2SeqAttentionConfig(**{**TINY, "hidden_dim": 64, "initializer_range": 0.01, "alignment_range": 0.001})
    decoder = Seq2SeqAttention(config).decoder
    update = to_numpy(decoder.unit.update)
    np.testing.assert_allclose(update.T @ update, np.eye(64), atol=1e-5)
    assert not to_numpy(decoder.score.scale).any()
    assert abs(to_numpy(decoder.score.key.kernel).std() / 0.001 - 1) < 0.1
    assert abs(to_numpy(decoder.inputs.kernel).std() / 0.01 - 1) < 0.1


@pytest.mark.one_backend
def test_half_precision_is_finite():
    inputs = batch()
    inputs["padding_mask"][1] = False
    for dtype in ("float16", "mixed_bfloat16"):
        outputs = Seq2SeqAttention(Seq2SeqAttentionConfig(**TINY), dtype=dtype)(inputs)
        assert np.isfinite(to_numpy(keras.ops.cast(outputs["sequence_output"], "float32"))).all()


@pytest.mark.one_backend
def test_wrong_arguments_and_inputs_are_refused(backbones):
    for wrong, message in (
        (dict(attention="self"), "`attention` must be one of"),
        (dict(attention="dot"), "bidirectional=False"),
        (dict(attention="location"), "needs `max_length`"),
        (dict(window=3), "`window` needs attention to be multiplicative"),
    ):
        with pytest.raises(ValueError, match=message):
            Seq2SeqAttentionConfig(**{**TINY, **wrong})
    with pytest.raises(ValueError, match="Alignments need attention"):
        backbones("none")(batch(), attention_weights=True)
    with pytest.raises(ValueError, match="no longer than max_length=16"):
        backbones("location")({key: np.zeros((1, 17), "int32") for key in ("token_ids", "decoder_token_ids")})
    packed = {"sequence_ids": np.ones(batch()["token_ids"].shape, "int32")}
    packed["decoder_sequence_ids"] = np.ones(batch()["decoder_token_ids"].shape, "int32")
    with pytest.raises(ValueError, match="one sequence per row"):
        backbones("additive")({**batch(), **packed})

"""ELMo: words from bytes, its recurrence in numpy, the mix of layers, both language models, frozen features."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import bidirectional_targets, character_ids
from kerasbert.models import Backbone, Elmo, ElmoConfig
from kerasbert.models.elmo import ScalarMix
from kerasbert.objectives import BidirectionalLM
from kerasbert.tasks import TextClassifier, TokenClassifier
from tests.models.reference import to_numpy

TINY = dict(
    vocabulary_size=23,
    character_dim=4,
    filters=((1, 3), (3, 5)),
    hidden_dim=6,
    cell_dim=9,
    clip=0.4,
    dropout=0.0,
    classifier_dropout=0.0,
)


def shaken(model):
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(to_numpy(variable) + rng.normal(0, 0.3, variable.shape).astype("float32"))
    return model


@pytest.fixture(scope="module")
def backbone():
    """Of tokens, without characters."""
    return shaken(Elmo(ElmoConfig(**TINY, characters=False)))


@pytest.fixture(scope="module")
def speller():
    """Of characters."""
    return shaken(Elmo(ElmoConfig(**TINY)))


def batch(rows=2, length=7):
    ids = np.random.default_rng(1).integers(0, 23, (rows, length)).astype("int32")
    return {"token_ids": ids, "padding_mask": np.arange(length) < np.array([[length], [length - 3]])[:rows]}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.one_backend
def test_words_are_bytes():
    found = character_ids([["cat", "is"], ["ß" * 40]], marks=False)
    ids = found["character_ids"]
    assert ids.shape == (2, 2, 50) and found["lengths"].tolist() == [2, 1]
    assert ids[0, 0, :7].tolist() == [259, 100, 98, 117, 260, 261, 261]
    assert not ids[1, 1].any()
    long = ids[1, 0]
    assert (long[0], long[-1]) == (259, 260) and long[1:5].tolist() == [196, 160, 196, 160]
    marked = character_ids([["a"]], marks=True)["character_ids"][0]
    assert marked[:, :4].tolist() == [[259, 257, 260, 261], [259, 98, 260, 261], [259, 258, 260, 261]]
    cut = character_ids([["a", "b", "c"]], length=2)
    assert cut["character_ids"].shape[1] == 2 and cut["lengths"].tolist() == [2]


@pytest.mark.one_backend
def test_words_from_characters(speller):
    """Convolutions, maxima, highways and the projection, by their formulas."""
    w = {v.path.split("/", 1)[1]: to_numpy(v).astype("float64") for v in speller.weights}
    ids = character_ids([["cat", "sat"]])["character_ids"]
    found = to_numpy(speller({"token_ids": np.zeros((1, 2), "int32"), "character_ids": ids})["hidden_states"][0])
    for place in range(2):
        x, features = w["character_encoder/embedding/embeddings"][ids[0, place]], []
        for width in (1, 3):
            kernel, bias = (w[f"character_encoder/convolution_{width}/{name}"] for name in ("kernel", "bias"))
            windows = [np.einsum("wc,wcf->f", x[i : i + width], kernel) + bias for i in range(50 - width + 1)]
            features.append(np.maximum(np.max(windows, axis=0), 0))
        x = np.concatenate(features)
        for i in range(2):
            gate, transform = (
                x @ w[f"character_encoder/{name}_{i}/kernel"] + w[f"character_encoder/{name}_{i}/bias"]
                for name in ("gate", "transform")
            )
            x = sigmoid(gate) * np.maximum(transform, 0) + (1 - sigmoid(gate)) * x
        x = x @ w["character_encoder/project/kernel"] + w["character_encoder/project/bias"]
        np.testing.assert_allclose(found[0, place], np.concatenate([x, x]), atol=1e-5)
    fresh = Elmo(ElmoConfig(**TINY)).character_encoder
    assert to_numpy(fresh.gates[1].bias).tolist() == [-2.0] * 8


def test_the_recurrence_by_its_formulas(backbone):
    w = {v.path.split("/", 1)[1]: to_numpy(v).astype("float64") for v in backbone.weights}
    inputs = batch()
    outputs = backbone(inputs)
    clipped = 0
    for row, length in ((0, 7), (1, 4)):
        words = w["token_embedding/embeddings"][inputs["token_ids"][row, :length]]
        layers = {"forward": [words], "backward": [words]}
        for name, order in (("forward", 1), ("backward", -1)):
            for i in range(2):
                cell, state, states = np.zeros(9), np.zeros(6), []
                for x in layers[name][-1][::order]:
                    x = x @ w[f"{name}_{i}/inputs/kernel"] + w[f"{name}_{i}/inputs/bias"]
                    write, candidate, keep, show = np.split(x + state @ w[f"{name}_{i}/recurrent"], 4)
                    cell = sigmoid(keep + 1) * cell + sigmoid(write) * np.tanh(candidate)
                    clipped += (np.abs(cell) > 0.4).sum()
                    cell = np.clip(cell, -0.4, 0.4)
                    state = np.clip((sigmoid(show) * np.tanh(cell)) @ w[f"{name}_{i}/project"], -0.4, 0.4)
                    states.append(state)
                y = np.array(states)[::order]
                layers[name].append(y + layers[name][-1] if i else y)
        for found, forward, backward in zip(outputs["hidden_states"], *layers.values(), strict=True):
            expected = np.concatenate([forward, backward], axis=1)
            np.testing.assert_allclose(to_numpy(found)[row, :length], expected, atol=1e-5)
    assert clipped > 10
    np.testing.assert_array_equal(to_numpy(outputs["sequence_output"]), to_numpy(outputs["hidden_states"][-1]))


@pytest.mark.one_backend
def test_padding_on_the_left_changes_nothing(backbone):
    ids = batch()["token_ids"]
    padded = {"token_ids": np.pad(ids, ((0, 0), (3, 0)), constant_values=9), "padding_mask": np.arange(10) >= 3}
    padded["padding_mask"] = np.repeat(padded["padding_mask"][None], 2, axis=0)
    found = to_numpy(backbone(padded)["sequence_output"])[:, 3:]
    np.testing.assert_allclose(found, to_numpy(backbone({"token_ids": ids})["sequence_output"]), atol=1e-5)


@pytest.mark.one_backend
def test_directions_see_one_side_only(backbone):
    model = BidirectionalLM(backbone)
    ids = batch()["token_ids"]
    changed = ids.copy()
    changed[:, 3] = (changed[:, 3] + 5) % 23
    found, other = (model({"token_ids": x}) for x in (ids, changed))
    same = {name: np.isclose(to_numpy(found[name]), to_numpy(other[name])).all((0, 2)) for name in found}
    assert same["forward"].tolist() == [True] * 3 + [False] * 4
    assert same["backward"].tolist() == [False] * 4 + [True] * 3


@pytest.mark.one_backend
def test_the_mix_of_layers():
    values = [np.full((1, 2, 3), value, "float32") for value in (1, 2, 3)]
    real = np.ones((1, 2), bool)
    mix = ScalarMix(3, penalty=0.5)
    np.testing.assert_allclose(to_numpy(mix(values, real)), 2.0, atol=1e-6)
    mix.scale.assign(2.0)
    np.testing.assert_allclose(to_numpy(mix(values, real)), 4.0, atol=1e-6)
    mix.scale.assign(1.0)
    mix.mix.assign([np.log(2), 0, 0])
    np.testing.assert_allclose(to_numpy(mix(values, real)), 1.75, atol=1e-6)
    assert to_numpy(sum(mix.losses)) == pytest.approx(0.5 * np.log(2) ** 2, rel=1e-5)
    x = np.random.default_rng(0).normal(3, 2, (2, 5, 4)).astype("float32")
    real = np.arange(5) < np.array([[5], [2]])
    found = to_numpy(ScalarMix(1, norm=True)([x], real))
    np.testing.assert_allclose(found, (x - x[real].mean()) / x[real].std(), atol=1e-5)


@pytest.mark.one_backend
def test_targets_on_both_sides():
    y, weights = bidirectional_targets(np.array([[5, 6, 7, 0]]), [3])
    assert y["forward"].tolist() == [[6, 7, 0, 0]] and y["backward"].tolist() == [[0, 5, 6, 0]]
    assert weights["forward"].tolist() == [[1, 1, 0, 0]] and weights["backward"].tolist() == [[0, 1, 1, 0]]


@pytest.mark.one_backend
def test_the_language_models_learn():
    """Of rows that count up, both directions become sure; the loss is the mean of the two."""
    model = BidirectionalLM(
        Elmo(ElmoConfig(**{**TINY, "characters": False, "hidden_dim": 16, "cell_dim": 32, "clip": 3.0}))
    )
    starts = np.random.default_rng(0).integers(0, 23, 256)
    ids = ((starts[:, None] + np.arange(6)) % 23).astype("int32")
    y, weights = bidirectional_targets(ids, np.full(256, 6))
    model.compile(keras.optimizers.Adam(0.02))
    first = model.evaluate({"token_ids": ids}, y, sample_weight=weights, verbose=0, return_dict=True)
    logits = {name: to_numpy(value).astype("float64") for name, value in model({"token_ids": ids}).items()}
    expected = 0
    for name, scores in logits.items():
        chosen = np.take_along_axis(scores, y[name][..., None], -1)[..., 0]
        losses = np.log(np.exp(scores).sum(-1)) - chosen
        expected += (losses * weights[name]).sum() / weights[name].sum() / 2
    assert float(first["loss"]) == pytest.approx(expected, rel=1e-3)
    history = model.fit({"token_ids": ids}, y, sample_weight=weights, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.3 < 2 < history["loss"][0]


@pytest.mark.one_backend
@pytest.mark.parametrize("task", [TextClassifier, TokenClassifier])
def test_frozen_features_of_a_task(task, speller, tmp_path):
    """The backbone stays as it is, the mix and the output layer learn."""
    speller.trainable = False
    model = task(speller, labels=2)
    rng = np.random.default_rng(0)
    sentences = [[str(word) for word in rng.choice(["cat", "dog", "the", "sat"], 4)] for _ in range(64)]
    x = {**character_ids(sentences), "token_ids": np.zeros((64, 4), "int32")}
    y = np.array([[word in ("cat", "dog") for word in sentence] for sentence in sentences], "int32")
    y = y[:, 0] if task is TextClassifier else y
    before = [to_numpy(v).copy() for v in speller.weights]
    head = model.classifier if task is TextClassifier else model.tagger
    assert {v.path.split("/", 2)[-1] for v in model.trainable_variables} >= {"mix/mix", "mix/scale"}
    model.compile(keras.optimizers.Adam(0.05))
    history = model.fit(x, y, sample_weight=np.ones(y.shape, "float32"), epochs=6, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert to_numpy(head.mix.mix).any() and to_numpy(head.mix.scale) != 1
    for old, variable in zip(before, speller.weights, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is task and type(Backbone.from_preset(tmp_path)) is Elmo
    np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(model(x)))


@pytest.mark.one_backend
def test_the_size_of_the_paper():
    """93.6 million parameters without the softmax layer, by closed form; a tiny one agrees with it."""

    def count(config):
        m, c = config.hidden_dim, config.cell_dim
        features = sum(n for _, n in config.filters)
        convolutions = sum(w * config.character_dim * n + n for w, n in config.filters)
        words = 262 * config.character_dim + convolutions + 2 * 2 * (features**2 + features) + features * m + m
        return words + 2 * config.num_layers * (2 * m * 4 * c + 4 * c + c * m)

    assert round(count(ElmoConfig()) / 1e6, 1) == 93.6
    assert Elmo(ElmoConfig(**TINY)).count_params() == count(ElmoConfig(**TINY))


@pytest.mark.one_backend
def test_half_precision_is_finite():
    inputs = batch()
    inputs["padding_mask"][1] = False
    for dtype in ("float16", "mixed_bfloat16"):
        model = TextClassifier(Elmo(ElmoConfig(**{**TINY, "characters": False, "mix_norm": True}), dtype=dtype))
        assert np.isfinite(to_numpy(keras.ops.cast(model(inputs), "float32"))).all()


@pytest.mark.one_backend
def test_wrong_inputs_are_refused(speller):
    ids = np.zeros((1, 2), "int32")
    with pytest.raises(ValueError, match="kerasbert.data.character_ids"):
        speller({"token_ids": ids})
    with pytest.raises(ValueError, match="`character_ids` must be between 0 and 261"):
        speller({"token_ids": ids, "character_ids": np.full((1, 2, 50), 262, "int32")})
    with pytest.raises(ValueError, match="one sequence per row"):
        speller({"token_ids": ids, "sequence_ids": ids + 1})

"""The objectives of sentence vectors: the worked examples, and that they teach."""

import keras
import numpy as np
import pytest
from keras import ops

import kerasbert
from kerasbert.tasks import TextEmbedder
from kerasbert.tasks.sentence_objectives import (
    cosine,
    cosine_losses,
    objective_options,
    pair_features,
    ranking_losses,
    triplet_losses,
)
from tests.models.reference import gradient, to_numpy

PLACES = ["Ann lives in Rome .", "Bob lives in Bonn .", "in Rome lives Bob", "where lives Ann ?"]
ANIMALS = ["a cat met a dog", "the cat sat", "a dog met the cat", "the dog sat"]


def numbers(function, *arrays, **options):
    return to_numpy(function(*(ops.convert_to_tensor(np.asarray(a)) for a in arrays), **options))


def test_worked_examples():
    u, v = np.float32([1, 0]), np.float32([0, 1])
    assert numbers(pair_features, [[u, v]]).tolist() == [[1, 0, 0, 1, 1, 1]]
    assert numbers(cosine, [u], [v]).tolist() == [0]
    assert numbers(cosine_losses, [[u, v], [u, u]], np.float32([0.5, 1])).tolist() == [0.25, 0]
    anchor, positive = np.float32([0, 0]), np.float32([0, 1])
    triplets = [[anchor, positive, np.float32(far)] for far in ([3, 0], [0, 1.5])]
    assert numbers(triplet_losses, triplets).tolist() == [0, 0.5]
    ids = np.arange(8, dtype="int32").reshape(2, 2, 2)
    found = numbers(ranking_losses, [[u, u], [v, v]], ids, np.ones(2, "float32"))
    np.testing.assert_allclose(found, np.log1p(np.exp(-20.0)), atol=1e-6)


def test_ranking_leaves_out_padding_and_equal_texts():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(4, 3, 5)).astype("float32")
    ids = np.arange(24, dtype="int32").reshape(4, 3, 2)
    ids[2, 1] = ids[0, 1]  # rows 0 and 2 have the same positive
    weights = np.float32([1, 1, 1, 0])
    found = numbers(ranking_losses, vectors, ids, weights)
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    candidates = np.concatenate([unit[:, 1], unit[:, 2]])
    scores = 20 * unit[:, 0] @ candidates.T
    hidden = np.zeros((4, 8), bool)
    hidden[:, [3, 7]] = True
    hidden[0, 2] = hidden[2, 0] = True
    scores = np.where(hidden, -np.inf, scores)
    expected = np.logaddexp.reduce(scores[:3], axis=-1) - np.diagonal(scores)[:3]
    np.testing.assert_allclose(found[:3], expected, atol=1e-4)


def test_equal_vectors_have_a_gradient():
    found = gradient(lambda x: ops.sum(triplet_losses(x)), np.ones((1, 3, 4), "float32"))
    assert np.isfinite(found).all()


def test_vectors_of_empty_rows_have_a_gradient():
    """A batch that is not full ends in rows without tokens, whose vectors are zeros and whose weight is 0."""
    vectors = np.float32([[[3, 4], [4, 3]], [[0, 0], [0, 0]]])
    scores = weights = np.float32([1, 0])
    found = gradient(lambda x: ops.sum(cosine_losses(x, scores) * ops.convert_to_tensor(weights)), vectors)
    assert np.isfinite(found).all() and np.abs(found[0]).max() > 0 and not found[1].any()


def test_cosines_are_along_the_last_axis():
    one, other = np.random.default_rng(0).normal(size=(2, 2, 3, 4)).astype("float32")
    expected = (one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)
    np.testing.assert_allclose(numbers(cosine, one, other), expected, atol=1e-6)


def separation(model):
    vectors = model.embed(PLACES + ANIMALS)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = vectors @ vectors.T
    within = (similar[:4, :4].sum() - 4 + similar[4:, 4:].sum() - 4) / 24
    return within - similar[:4, 4:].mean()


@pytest.mark.one_backend
@pytest.mark.parametrize("objective", ["cosine", "classes", "triplet", "ranking"])
def test_each_objective_brings_like_texts_together(objective, tiny_backbone, tokenizer, tmp_path):
    options = {"labels": ["other", "same"]} if objective == "classes" else {}
    model = TextEmbedder(tiny_backbone(), objective={"name": objective, **options}, tokenizer=tokenizer)
    groups = [
        (a, b, c) for one, other in ((PLACES, ANIMALS), (ANIMALS, PLACES)) for a in one for b in one for c in other
    ]
    groups = [g for g in groups if g[0] != g[1]][::3]
    if objective in ("cosine", "classes"):
        x = [g[:2] for g in groups] + [(g[0], g[2]) for g in groups]
        y = (
            [1.0] * len(groups) + [0.0] * len(groups)
            if objective == "cosine"
            else ["same"] * len(groups) + ["other"] * len(groups)
        )
    else:
        x, y = (groups if objective == "triplet" else [g[:2] for g in groups]), None
    before = separation(model)
    model.compile(keras.optimizers.Adam(3e-3))
    history = model.fit(
        x,
        y,
        batch_size=16 if objective != "ranking" else 2,
        epochs=12,
        verbose=0,
        validation_data=(x, y) if y else None,
    )
    assert history.history["loss"][-1] < 0.8 * history.history["loss"][0]
    assert separation(model) > before + 0.2

    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is TextEmbedder and again.objective == objective
    assert again.objective_options == model.objective_options
    np.testing.assert_array_equal(again.embed(PLACES), model.embed(PLACES))


@pytest.mark.one_backend
def test_options_of_objectives(tiny_backbone):
    assert objective_options("ranking") == {"name": "ranking", "scale": 20.0}
    assert objective_options({"name": "classes", "labels": 2})["labels"] == ["LABEL_0", "LABEL_1"]
    model = TextEmbedder(tiny_backbone(), objective={"name": "triplet", "margin": 0.5})
    assert model.arguments()["objective"] == {"name": "triplet", "margin": 0.5}
    with pytest.raises(ValueError, match="'triplet' has the option 'margin'. Received: .*scale"):
        TextEmbedder(tiny_backbone(), objective={"name": "triplet", "scale": 2.0})
    with pytest.raises(ValueError, match="'cosine' has no options"):
        TextEmbedder(tiny_backbone(), objective={"name": "cosine", "scale": 2.0})


@pytest.mark.one_backend
def test_bad_input(tiny_backbone, tokenizer):
    model = TextEmbedder(tiny_backbone(), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="needs an objective: cosine, classes"):
        model.fit([("a", "b")], [1.0], verbose=0)
    with pytest.raises(ValueError, match="`objective` must be one of.*Received: 'x'"):
        TextEmbedder(tiny_backbone(), objective="x")
    ranking = TextEmbedder(tiny_backbone(), objective="ranking", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="2 or more texts per example. Received: 1"):
        ranking.fit(["a", "b"], verbose=0)
    with pytest.raises(ValueError, match="Received: 2 texts in example 0, but 3 in example 1"):
        ranking.fit([("a", "b"), ("a", "b", "c")], verbose=0)
    with pytest.raises(ValueError, match="no targets besides the texts. Received: y"):
        ranking.fit([("a", "b")], [1], verbose=0)
    cosines = TextEmbedder(tiny_backbone(), objective="cosine", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="between -1 and 1. Received: 5.0"):
        cosines.fit([("a", "b")], [5.0], verbose=0)
    with pytest.raises(ValueError, match="needs targets"):
        cosines.fit([("a", "b")], verbose=0)

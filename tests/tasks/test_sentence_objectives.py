"""The objectives of sentence vectors: the worked examples, and that they teach."""

import dataclasses

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import Roberta, RobertaConfig
from kerasbert.retrieval import (
    AdaptiveLayer,
    AnglE,
    CoSENT,
    Matryoshka,
    MultipleNegatives,
    PairClasses,
    Triplet,
    loss_of,
)
from kerasbert.tasks import TextEmbedder

PLACES = ["Ann lives in Rome .", "Bob lives in Bonn .", "in Rome lives Bob", "where lives Ann ?"]
ANIMALS = ["a cat met a dog", "the cat sat", "a dog met the cat", "the dog sat"]


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
    assert type(again) is TextEmbedder and again.objective == model.objective == loss_of({"name": objective, **options})
    np.testing.assert_array_equal(again.embed(PLACES), model.embed(PLACES))


@pytest.mark.one_backend
def test_options_of_objectives(tiny_backbone):
    assert loss_of("ranking") == MultipleNegatives(scale=20.0) == loss_of({"name": "ranking", "scale": 20.0})
    assert loss_of({"name": "classes", "labels": 2}).labels == ("LABEL_0", "LABEL_1")
    model = TextEmbedder(tiny_backbone(), objective={"name": "triplet", "margin": 0.5})
    assert model.objective == Triplet(0.5)
    assert model.arguments()["objective"] == {"name": "Triplet", "margin": 0.5, "distance": "euclidean"}
    with pytest.raises(ValueError, match="Triplet has the options chunk, margin, distance. Received: .*scale"):
        TextEmbedder(tiny_backbone(), objective={"name": "triplet", "scale": 2.0})
    with pytest.raises(ValueError, match="CosineSimilarity has the options chunk. Received"):
        TextEmbedder(tiny_backbone(), objective={"name": "cosine", "scale": 2.0})
    for wrong in ("Splade", {"name": "Matryoshka", "dims": [64]}):
        with pytest.raises(ValueError, match=r"(Splade|Matryoshka) needs loss. Received: .*Matryoshka\(CoSENT, dims="):
            loss_of(wrong)
    with pytest.raises(ValueError, match=r"`similarity` of MultipleNegatives must be one of .*Received: \[1\]"):
        loss_of({"name": "ranking", "similarity": [1]})


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "objective",
    [
        CoSENT(scale=10),
        Matryoshka(MultipleNegatives(scale=10, chunk=2), [32, 8], weights=[1.0, 0.5], dims_per_step=1),
        AdaptiveLayer(Matryoshka("ranking", [32, 16]), weighting="log"),
        PairClasses(["no", "yes"]),
        AnglE(),
    ],
    ids=lambda loss: loss.name,
)
def test_objectives_are_saved_and_loaded(objective, tiny_backbone, tokenizer, tmp_path):
    model = TextEmbedder(tiny_backbone(), objective=objective, tokenizer=tokenizer)
    y = [1.0, 0.5, 0.0, 0.2] if objective.targets == "numbers" else ["no", "yes", "no", "yes"]
    y = None if objective.targets is None else y
    pairs = list(zip(PLACES, ANIMALS, strict=True))
    before = [keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables]
    history = model.fit(pairs, y, batch_size=2, epochs=2, verbose=0, validation_data=(pairs, y))
    assert np.isfinite(history.history["loss"]).all() and np.isfinite(history.history["val_loss"]).all()
    changes = [np.abs(a - v).max() for a, v in zip(before, model.trainable_variables, strict=True)]
    assert min(changes) >= 0 and max(changes) > 0
    model.save_to_preset(tmp_path / "folder")
    model.save(tmp_path / "model.keras")
    for again in (kerasbert.load(tmp_path / "folder"), keras.saving.load_model(tmp_path / "model.keras")):
        assert again.objective == objective
        np.testing.assert_allclose(again.embed(PLACES), model.embed(PLACES), atol=1e-6)


@pytest.mark.one_backend
def test_bad_input(tiny_backbone, tokenizer):
    def embedder(objective):
        return TextEmbedder(tiny_backbone(), objective=objective, tokenizer=tokenizer)

    with pytest.raises(ValueError, match="needs an objective: ranking, cosine"):
        embedder(None).fit([("a", "b")], [1.0], verbose=0)
    with pytest.raises(ValueError, match="`objective` must be a loss.*Received: 'x'"):
        embedder("x")
    ranking = embedder("ranking")
    with pytest.raises(ValueError, match="MultipleNegatives needs 2 or more texts per example. Received: 1"):
        ranking.fit(["a", "b"], verbose=0)
    with pytest.raises(ValueError, match="Received: 2 texts in example 0, but 3 in example 1"):
        ranking.fit([("a", "b"), ("a", "b", "c")], verbose=0)
    with pytest.raises(ValueError, match="Columns of texts must have the same length. Received: .*1, 2"):
        ranking.fit((["a"], ["b", "c"]), verbose=0)
    with pytest.raises(ValueError, match="no labels besides the texts. Received: y"):
        ranking.fit([("a", "b"), ("c", "d")], [1, 0], verbose=0)
    with pytest.raises(ValueError, match="compares the examples of a batch. Received: a batch of one example"):
        ranking.fit([("a", "b"), ("c", "d")], batch_size=1, verbose=0)
    with pytest.raises(ValueError, match="compares the examples of a batch. Received: 3 equal examples"):
        ranking.fit([("a", "b")] * 3, verbose=0)
    with pytest.raises(ValueError, match="Triplet has no labels besides the texts. Received: y"):
        embedder("triplet").fit([("a", "b", "c")], [0.5], verbose=0)
    with pytest.raises(ValueError, match="Triplet needs 3 texts per example. Received: 2"):
        embedder("triplet").fit([("a", "b")], verbose=0)
    with pytest.raises(ValueError, match="between -1 and 1. Received: 5.0"):
        embedder("cosine").fit([("a", "b")], [5.0], verbose=0)
    with pytest.raises(ValueError, match="CosineSimilarity needs labels: one score from -1 to 1 per example"):
        embedder("cosine").fit([("a", "b")], verbose=0)
    with pytest.raises(ValueError, match="learns from examples with different labels. Received: 1.0 for all"):
        embedder(CoSENT()).fit([("a", "b"), ("c", "d")], [1, 1], verbose=0)
    with pytest.raises(ValueError, match=r"shape \(2,\). Received: \(3,\)"):
        embedder(CoSENT()).fit([("a", "b"), ("c", "d")], [1, 1, 0], verbose=0)
    with pytest.raises(ValueError, match="must be 0 or 1. Received: 0.5"):
        embedder("Contrastive").fit([("a", "b")], [0.5], verbose=0)
    with pytest.raises(ValueError, match="two classes or more, and two texts or more of a class. Received: 1 classes"):
        embedder("BatchHard").fit(["a", "b"], [1, 1], verbose=0)
    with pytest.raises(ValueError, match=r"shape \(1, 1\) or \(1, 2\). Received: \(1, 3\)|\(1,\) or \(1, 2\)"):
        embedder("MarginMSE").fit([("a", "b", "c")], [[1.0, 2.0, 3.0]], verbose=0)
    with pytest.raises(ValueError, match=r"teacher's|vectors, \(1, width\) or \(1, 2, width\). Received: \(1,\)"):
        embedder("EmbeddingMSE").fit([("a", "b")], [1.0], verbose=0)
    with pytest.raises(ValueError, match="`weights` must be at least 0, and one above 0. Received: .-1.0,."):
        Matryoshka("ranking", dims=(8,), weights=(-1.0,))
    with pytest.raises(ValueError, match="`dims` must be at most the width of the vectors, 32. Received: .*64"):
        embedder(Matryoshka("ranking", [64, 32])).fit([("a", "b"), ("c", "d")], verbose=0)


QUERIES = ["Ann", "a cat", "Bob lives", "the dog", "in Rome", "who met Bob ?"]
LONG_TEXTS = [" ".join((PLACES + ANIMALS)[i : i + 3]) for i in range(6)]


@pytest.mark.parametrize(
    "side, objective",
    [
        ("right", MultipleNegatives()),
        ("right", MultipleNegatives(chunk=2)),
        pytest.param(
            "left",
            AdaptiveLayer(MultipleNegatives(), layers_per_step=None),
            marks=pytest.mark.one_backend,
        ),
    ],
)
def test_short_queries_are_computed_in_narrow_batches(side, objective, tiny_backbone, tokenizer, monkeypatch):
    tokenizer = Tokenizer.from_json(tokenizer.to_json())
    tokenizer.padding_side = side
    sizes = dataclasses.asdict(tiny_backbone().config)
    names = {field.name for field in dataclasses.fields(RobertaConfig)}
    config = RobertaConfig(
        **{**{name: sizes[name] for name in names & {*sizes}}, "pad_id": tokenizer.pad_id, "attention_dropout": 0.0}
    )

    def trained(narrows):
        monkeypatch.setattr(TextEmbedder, "narrows_texts", narrows)
        keras.utils.set_random_seed(0)
        model = TextEmbedder(Roberta(config), objective=objective, tokenizer=tokenizer)
        widths, compute = [], model.vectors_of_rows

        def vectors_of_rows(rows, training=False):
            widths.extend([rows["token_ids"].shape[1]] * training)
            return compute(rows, training)

        model.vectors_of_rows = vectors_of_rows
        model.compile(keras.optimizers.SGD(0.1))
        model.fit((QUERIES, LONG_TEXTS), batch_size=3, epochs=2, verbose=0)
        monkeypatch.undo()
        return model.embed(PLACES), {width for width in widths if width}

    narrow, widths = trained(True)
    wide, one_width = trained(False)
    np.testing.assert_allclose(narrow, wide, atol=2e-5)
    if keras.backend.backend() != "tensorflow":  # its programs do not know the widths
        assert len(widths) == 2 and max(widths) <= min(one_width)

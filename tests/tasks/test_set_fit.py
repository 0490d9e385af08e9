"""SetFit: the classifier against scikit-learn, the training of the embedder, and folders."""

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier

import kerasbert
from kerasbert.retrieval import PairRules
from kerasbert.tasks import SetFit, TextClassifier, TextEmbedder
from kerasbert.tasks.linear_head import STRATEGIES, LinearHead, fit_dense, fit_logistic
from tests.models.reference import randomize

TEXTS = ["Ann lives in Rome .", "Bob lives in Bonn", "who lives in Rome ?", "a cat met a dog", "the cat sat", "a dog"]
PEOPLE = ["people", "people", "people", "animals", "animals", "animals"]
SETS = [["people", "place"], ["people", "place"], ["place"], ["animals"], ["animals"], []]
WRAPPERS = dict(zip(STRATEGIES, (OneVsRestClassifier, MultiOutputClassifier, ClassifierChain), strict=True))


@pytest.fixture
def set_fit(tokenizer, tiny_backbone):
    """A function that makes a small model."""

    def make(labels=("people", "animals"), **options):
        embedder = TextEmbedder(tiny_backbone(), objective="cosine", tokenizer=tokenizer)
        return SetFit(randomize(embedder, 0.3), labels, **options)

    return make


def data(classes, seed=0, rows=60):
    random = np.random.default_rng(seed)
    targets = random.integers(0, classes, rows)
    return (random.normal(size=(rows, 5)) + random.normal(size=(classes, 5))[targets]).astype("float32"), targets


@pytest.mark.one_backend
@pytest.mark.parametrize("classes", [2, 4])
def test_classes_equal_scikit_learn(classes):
    vectors, targets = data(classes)
    expected = LogisticRegression(C=0.5).fit(vectors, targets).predict_proba(vectors)
    head = fit_logistic(vectors, targets, None, C=0.5)
    np.testing.assert_allclose(head.probabilities(vectors), expected, atol=1e-7)
    np.testing.assert_allclose(head.to_sklearn().predict_proba(vectors), expected, atol=1e-7)
    assert head.num_labels == classes and head.width == 5


@pytest.mark.one_backend
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_label_sets_equal_scikit_learn(strategy):
    vectors, targets = data(4)
    sets = np.stack([targets > 1, targets % 2, targets == 0], axis=1).astype(int)
    head = fit_logistic(vectors, sets, strategy)
    for model in (WRAPPERS[strategy](LogisticRegression()).fit(vectors, sets), head.to_sklearn()):
        expected = model.predict_proba(vectors)
        if isinstance(expected, list):
            expected = np.stack([columns[:, 1] for columns in expected], axis=1)
        np.testing.assert_allclose(head.probabilities(vectors), expected, atol=1e-7)
    assert head.width == 5


@pytest.mark.one_backend
def test_large_logits_do_not_overflow():
    for strategy, rows in ((None, 1), (None, 3), ("one-vs-rest", 3)):
        head = LinearHead(np.full((rows, 1), 900.0) * np.arange(1, rows + 1)[:, None], np.zeros(rows), strategy)
        for sign in (-1, 1):
            with np.errstate(all="raise", under="ignore"):
                assert np.isfinite(head.probabilities([[float(sign)]])).all()


def test_a_layer_learns_the_classes():
    vectors, targets = data(3)
    head = fit_dense(vectors, targets, None)
    assert (head.probabilities(vectors).argmax(axis=1) == targets).mean() > 0.75  # chance: a third
    again = fit_dense(vectors, targets, None)
    np.testing.assert_allclose(again.kernel, head.kernel, atol=1e-6)
    pairs = fit_dense(vectors, targets > 0, None, epochs=4)
    assert pairs.kernel.shape == (1, 5) and pairs.num_labels == 2
    sets = np.stack([targets > 0, targets < 2], axis=1).astype("float32")
    found = fit_dense(vectors, sets, "multi-output", epochs=4).probabilities(vectors) > 0.5
    assert (found == sets).mean() > 0.75


def test_training_and_folder(set_fit, tmp_path):
    model = set_fit(normalize=True)
    before = model.embedder.embed(TEXTS)
    model.fit(TEXTS, PEOPLE, PairRules(iterations=8), learning_rate=1e-2, verbose=0)

    def margin(vectors):  # between the mean similarities of the same class and of others
        scores = model.embedder.similarity(vectors, vectors)
        same = np.equal.outer(PEOPLE, PEOPLE)
        return scores[same].mean() - scores[~same].mean()

    assert margin(model.embedder.embed(TEXTS)) > margin(before) + 0.3
    answers = model.classify(TEXTS)
    assert [answer["label"] for answer in answers] == PEOPLE
    assert answers[0]["scores"].keys() == {"people", "animals"}
    assert answers[0]["score"] == answers[0]["scores"]["people"] > 0.5
    assert model.classify(TEXTS[0])["score"] == pytest.approx(answers[0]["score"], abs=1e-5)

    model.save_to_preset(tmp_path)
    again = SetFit.from_preset(tmp_path)
    assert again.labels == model.labels and again.normalize
    np.testing.assert_allclose(again.probabilities(TEXTS), model.probabilities(TEXTS), atol=1e-6)
    vectors = TextEmbedder.from_preset(tmp_path).embed(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pickled = joblib.load(tmp_path / "model_head.pkl").predict_proba(vectors)
    np.testing.assert_allclose(pickled, model.probabilities(TEXTS), atol=1e-6)


@pytest.mark.one_backend
def test_label_sets(set_fit, tmp_path):
    names = ["people", "animals", "place"]
    for strategy in STRATEGIES:
        model = set_fit(names, problem="labels", strategy=strategy)
        model.fit(TEXTS, SETS, epochs=0, head_options={"C": 1e3})
        assert [answer["labels"] for answer in model.classify(TEXTS)] == SETS
        model.save_to_preset(tmp_path)  # the classifier before is replaced
        again = SetFit.from_preset(tmp_path)
        assert again.strategy == strategy
        np.testing.assert_allclose(again.probabilities(TEXTS), model.probabilities(TEXTS), atol=1e-6)
    rows = [[int(name in names_of_text) for name in names] for names_of_text in SETS]
    model.fit(TEXTS, np.array(rows), epochs=0, head_options={"C": 1e3})
    np.testing.assert_allclose(again.probabilities(TEXTS), model.probabilities(TEXTS), atol=1e-6)
    model.fit(TEXTS, SETS, PairRules("unique"), batch_size=8, verbose=0)


@pytest.mark.one_backend
def test_pickles_are_not_read(set_fit, tmp_path):
    model = set_fit()
    model.fit(TEXTS, PEOPLE, epochs=0)
    model.save_to_preset(tmp_path)
    (tmp_path / "model_head.safetensors").unlink()
    (tmp_path / "model_head.pkl").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(ValueError, match="must have the file model_head.safetensors.*in model_head.pkl, a pickle"):
        SetFit.from_preset(tmp_path)
    assert SetFit.from_preset(tmp_path, labels=["people", "animals"]).head is None


@pytest.mark.one_backend
def test_bad_input(set_fit, tokenizer, tiny_backbone, tmp_path):
    model = set_fit()
    with pytest.raises(ValueError, match="must be trained first"):
        model.classify(TEXTS)
    with pytest.raises(ValueError, match="must be trained first"):
        model.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="one target per text. Received: 6 and 5"):
        model.fit(TEXTS, PEOPLE[:5])
    with pytest.raises(ValueError, match="one without it. Received: 'people' in 6 of 6"):
        model.fit(TEXTS, ["people"] * 6)
    with pytest.raises(ValueError, match="`head` must be one of logistic, dense. Received: 'forest'"):
        model.fit(TEXTS, PEOPLE, head="forest")
    with pytest.raises(ValueError, match="Received: rows of probabilities"):
        model.fit(TEXTS, np.full((6, 2), 0.5))
    with pytest.raises(ValueError, match="two or more different names"):
        set_fit(["people"])
    with pytest.raises(ValueError, match="`strategy` must be one of one-vs-rest.*Received: 'all'"):
        set_fit(strategy="all")
    with pytest.raises(ValueError, match="must have a strategy other"):
        fit_dense(np.zeros((2, 3)), np.eye(2), "classifier-chain")
    with pytest.raises(ValueError, match="needs a TextEmbedder. Received: TextClassifier"):
        SetFit(TextClassifier(tiny_backbone(), tokenizer=tokenizer), 2)
    silent = SetFit(TextEmbedder(tiny_backbone(), objective="ranking", tokenizer=tokenizer), ["people", "animals"])
    with pytest.raises(ValueError, match="pairs with scores.*Received: MultipleNegatives"):
        silent.fit(TEXTS, PEOPLE)
    silent.embedder.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="needs `labels`"):
        SetFit.from_preset(tmp_path)
    model.fit(TEXTS, PEOPLE, epochs=0)
    model.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="its own labels, problem, .* Received: labels and normalize, for"):
        SetFit.from_preset(tmp_path, labels=2, normalize=True)
    with pytest.raises(ValueError, match="`load` does not load SetFit classifiers.*Use kerasbert.tasks.SetFit"):
        kerasbert.load(tmp_path)
    with pytest.raises(ValueError, match="`texts` must be a list of str. Received: 'a cat', one str"):
        model.probabilities("a cat")
    for message, options in (
        ("`batch_size` must be an integer of at least 1. Received: 0", dict(batch_size=0)),
        ("`epochs` must be an integer of at least 0. Received: -1", dict(epochs=-1)),
        ("of the logistic head must be among C, .*Received: 'c'. Did you mean C?", dict(head_options={"c": 1})),
        ("of the dense head must be among batch_size, .*'rate'", dict(head="dense", head_options={"rate": 1})),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(TEXTS, PEOPLE, **options)
    with pytest.raises(ValueError, match="or be their indices. Received: -3"):
        model.fit(TEXTS, [-3, 0, 1, 0, 1, 0])
    (tmp_path / "config_setfit.json").write_text('{"labels": ["a", "b"], "span_context": 3}')
    with pytest.raises(ValueError, match="config_setfit.json must have.*span_context"):
        SetFit.from_preset(tmp_path)
    (tmp_path / "config_setfit.json").write_text('{"labels": ["a", "b", "c"]}')
    with pytest.raises(ValueError, match=r"shapes \(3, 32\) and \(3,\). Received: \(1, 32\) and \(1,\)"):
        SetFit.from_preset(tmp_path)


@pytest.mark.one_backend
def test_a_saved_embedder_has_no_classifier_of_another(set_fit, tmp_path):
    model = set_fit()
    model.fit(TEXTS, PEOPLE, epochs=0)
    model.save_to_preset(tmp_path)
    model.embedder.save_to_preset(tmp_path)
    assert not list(tmp_path.glob("*head*")) and not (tmp_path / "config_setfit.json").exists()
    model.save_to_preset(tmp_path)
    assert {path.name for path in tmp_path.glob("model_head*")} == {
        "model_head.json", "model_head.pkl", "model_head.safetensors",
    }  # fmt: skip

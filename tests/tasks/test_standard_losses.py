"""Standard Keras losses and metrics on tasks: on logits, with labels as numbers, names and one-hot rows."""

import keras
import numpy as np
import pytest

from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
from kerasbert.tasks.standard_losses import _as_object, loss_on_logits

NAMES = ["a", "b", "c"]
IDS = np.random.default_rng(0).integers(3, 60, (6, 5)).astype("int32")
X = {"token_ids": IDS}
LABELS = np.array([0, 1, 2, 2, 1, 0], "int32")
ROWS = np.eye(3, dtype="float32")[LABELS]


def softmax(x):
    return np.exp(x - np.logaddexp.reduce(x, axis=-1, keepdims=True))


@pytest.fixture
def classifier(tiny_backbone):
    return TextClassifier(tiny_backbone(initializer_range=0.5), labels=NAMES)


def smoothed(p):
    return -((0.9 * ROWS + 0.1 / 3) * np.log(p)).sum(-1).mean()


def focal(p):
    return (0.25 * (ROWS * (1 - p) ** 2 * -np.log(p)).sum(-1)).mean()


LOSSES = {
    "one-hot": (lambda: keras.losses.CategoricalCrossentropy(), lambda p: -np.log((p * ROWS).sum(-1)).mean()),
    "smoothed": (lambda: keras.losses.CategoricalCrossentropy(label_smoothing=0.1), smoothed),
    "smoothed, told": (lambda: keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), smoothed),
    "focal": (lambda: keras.losses.CategoricalFocalCrossentropy(), focal),
    "by name": (lambda: "categorical_crossentropy", lambda p: -np.log((p * ROWS).sum(-1)).mean()),
    "sparse": (lambda: keras.losses.SparseCategoricalCrossentropy(), lambda p: -np.log((p * ROWS).sum(-1)).mean()),
    "sparse by name": (lambda: "sparse_categorical_crossentropy", lambda p: -np.log((p * ROWS).sum(-1)).mean()),
    "divergence": (lambda: keras.losses.KLDivergence(), lambda p: -np.log((p * ROWS).sum(-1)).mean()),
}


@pytest.mark.parametrize("labels", [LABELS, ROWS], ids=["numbers", "rows"])
@pytest.mark.parametrize(
    "name", [name if name == "smoothed" else pytest.param(name, marks=pytest.mark.one_backend) for name in LOSSES]
)
def test_losses_of_keras(name, labels, classifier):
    make, expected = LOSSES[name]
    classifier.compile("sgd", loss=make())
    found = classifier.evaluate(X, labels, batch_size=6, verbose=0, return_dict=True)
    probabilities = softmax(classifier.predict(X, verbose=0).astype("float64"))
    assert found["loss"] == pytest.approx(expected(probabilities), rel=1e-3)
    assert found["accuracy"] == pytest.approx((probabilities.argmax(-1) == LABELS).mean(), abs=1e-6)
    classifier.fit(X, labels, verbose=0)


@pytest.mark.one_backend
def test_a_loss_is_not_changed_by_its_use(classifier):
    loss = keras.losses.CategoricalCrossentropy()
    before = loss.get_config()
    classifier.compile("sgd", loss=loss)
    assert loss.get_config() == before and loss.reduction == "sum_over_batch_size"


def test_metrics_of_keras(classifier):
    metrics = [
        keras.metrics.F1Score(average="macro"),
        keras.metrics.CategoricalAccuracy(name="of_rows"),
        keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top"),
        keras.metrics.CategoricalCrossentropy(name="nats"),
        keras.metrics.AUC(name="auc", multi_label=True, num_labels=3),
        "accuracy",
    ]
    probabilities = softmax(classifier.predict(X, verbose=0).astype("float64"))
    best = probabilities.argmax(-1)
    for labels in (LABELS, ROWS):
        classifier.compile("sgd", metrics=metrics)
        classifier.compile("sgd", metrics=metrics)  # again with the same objects
        found = classifier.evaluate(X, labels, batch_size=4, verbose=0, return_dict=True)
        assert found["of_rows"] == found["accuracy"] == pytest.approx((best == LABELS).mean(), abs=1e-6)
        assert found["nats"] == pytest.approx(-np.log((probabilities * ROWS).sum(-1)).mean(), rel=1e-4)
        hits = [((best == i) & (LABELS == i)).sum() for i in range(3)]
        scores = [2 * hit / max(1, (best == i).sum() + (LABELS == i).sum()) for i, hit in enumerate(hits)]
        assert found["f1_score"] == pytest.approx(np.mean(scores), abs=1e-5)
        assert 0 <= found["auc"] <= 1 and found["top"] >= found["accuracy"]


@pytest.mark.one_backend
def test_several_labels(tiny_backbone):
    model = TextClassifier(tiny_backbone(initializer_range=0.5), labels=NAMES, problem="labels")
    y = (np.random.default_rng(1).random((6, 3)) > 0.5).astype("float32")
    metrics = [
        keras.metrics.F1Score(average="micro", threshold=0.5),
        keras.metrics.BinaryAccuracy(name="at_half"),
        keras.metrics.Precision(name="precision"),
        keras.metrics.Precision(name="of_logits", thresholds=0.0),
    ]
    model.compile("sgd", loss=keras.losses.BinaryFocalCrossentropy(), metrics=metrics)
    found = model.evaluate(X, y, verbose=0, return_dict=True)
    said = model.predict(X, verbose=0) > 0
    right = (said & (y > 0)).sum()
    assert found["at_half"] == pytest.approx((said == (y > 0)).mean(), abs=1e-6)
    assert found["precision"] == found["of_logits"] == pytest.approx(right / max(1, said.sum()), abs=1e-6)
    assert found["f1_score"] == pytest.approx(2 * right / (said.sum() + y.sum()), abs=1e-5)


@pytest.mark.one_backend
def test_one_hot_rows_of_texts(classifier, tokenizer):
    model = TextClassifier(classifier.backbone, labels=NAMES, tokenizer=tokenizer)
    texts = ["a cat", "a dog", "Ann met Bob", "who met Bob ?", "a dog", "a cat"]
    model.compile("sgd", loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1))
    for labels in (ROWS, ROWS.tolist(), [NAMES[i] for i in LABELS], LABELS):
        model.fit(texts, labels, verbose=0)
    with pytest.raises(ValueError, match="one value for each of the 3 labels. Received: 2"):
        model.fit(texts, ROWS[:, :2], verbose=0)
    with pytest.raises(ValueError, match="between 0 and 1. Received: values from"):
        model.fit(texts, 2 * ROWS, verbose=0)


@pytest.mark.one_backend
def test_tags(tiny_backbone):
    model = TokenClassifier(tiny_backbone(initializer_range=0.5), labels=NAMES)
    y = (IDS % 3).astype("int32")
    f1 = keras.metrics.F1Score(average="macro")
    model.compile("sgd", loss=keras.losses.CategoricalFocalCrossentropy(), metrics=[f1, "accuracy"])
    found = [model.evaluate(X, labels, verbose=0, return_dict=True) for labels in (y, np.eye(3, dtype="float32")[y])]
    assert found[0] == pytest.approx(found[1]) and 0 <= found[0]["f1_score"] <= 1
    best = model.predict(X, verbose=0).argmax(-1)
    assert found[0]["accuracy"] == pytest.approx((best == y).mean(), abs=1e-6)
    with pytest.raises(
        ValueError, match=r"`y` must have the shape of `token_ids`, \(32, 5\). Received: shape \(32, 1\)"
    ):
        model.evaluate(X, y[:, :1], sample_weight=np.ones((6, 1)), verbose=0)


def smoothed_loss(logits, labels):
    logits = np.asarray(logits, "float64")
    rows = np.eye(logits.shape[-1])[labels]
    return -((0.9 * rows + 0.1 / logits.shape[-1]) * np.log(softmax(logits))).sum(-1).mean()


@pytest.mark.one_backend
def test_choices_and_spans(tiny_backbone):
    smoothing = keras.losses.CategoricalCrossentropy(label_smoothing=0.1)
    choices = MultipleChoice(tiny_backbone(initializer_range=0.5))
    choices.compile("sgd", loss=smoothing)
    pairs = {"token_ids": np.stack([IDS, IDS[::-1]], axis=1)}
    expected = smoothed_loss(choices.predict(pairs, verbose=0), LABELS % 2)
    assert choices.evaluate(pairs, LABELS % 2, verbose=0, return_dict=True)["loss"] == pytest.approx(expected, rel=1e-3)
    choices.fit(pairs, LABELS % 2, verbose=0)
    spans = QuestionAnswerer(tiny_backbone(initializer_range=0.5))
    spans.compile("sgd", loss={"start": smoothing, "end": "sparse_categorical_crossentropy"})
    targets, logits = {"start": LABELS, "end": LABELS}, spans.predict(X, verbose=0)
    likely = softmax(np.asarray(logits["end"], "float64"))[np.arange(6), LABELS]
    both = smoothed_loss(logits["start"], LABELS), -np.log(likely).mean()
    found = spans.evaluate(X, targets, verbose=0, return_dict=True)["loss"]
    assert found == pytest.approx(sum(both), rel=1e-3)
    spans.fit(X, targets, verbose=0)


@pytest.mark.one_backend
def test_keras_files_bring_their_losses(classifier, tmp_path):
    f1 = keras.metrics.F1Score(average="macro")
    classifier.compile("sgd", loss=keras.losses.CategoricalFocalCrossentropy(gamma=3.0), metrics=[f1])
    expected = classifier.evaluate(X, LABELS, verbose=0, return_dict=True)
    classifier.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.evaluate(X, LABELS, verbose=0, return_dict=True) == pytest.approx(expected)


@pytest.mark.one_backend
def test_losses_of_others_get_what_is_given():
    class Mine(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return keras.ops.mean(y_pred, axis=-1) + y_true

    given = Mine()
    loss = loss_on_logits(given)
    assert type(loss) is Mine and loss is not given and given.reduction == "sum_over_batch_size"
    assert loss.reduction == "mean_with_sample_weight"
    assert float(loss(np.array([1.0, 2.0]), np.zeros((2, 3)))) == pytest.approx(1.5)
    assert loss_on_logits(None) is None


EVERY_LOSS = [
    cls
    for cls in vars(keras.losses).values()
    if isinstance(cls, type) and issubclass(cls, keras.losses.Loss) and cls is not keras.losses.Loss
]


@pytest.mark.one_backend
@pytest.mark.parametrize("problem", ["classes", "labels", "score"])
def test_losses_for_other_outputs_are_refused(problem, tiny_backbone):
    model = TextClassifier(tiny_backbone(), labels=NAMES, problem=problem)
    fits = {
        "classes": {"SparseCategoricalCrossentropy", "CategoricalCrossentropy", "CategoricalHinge", "KLDivergence"},
        "labels": {"BinaryCrossentropy", "BinaryFocalCrossentropy", "Hinge", "SquaredHinge"},
        "score": {"MeanSquaredError", "MeanAbsoluteError", "Huber", "LogCosh"},
    }[problem]
    targets = {"classes": LABELS, "labels": ROWS, "score": (LABELS > 0).astype("float32")}[problem]
    accepted = set()
    for cls in EVERY_LOSS:
        try:
            model.compile("sgd", loss=cls())
        except ValueError as error:
            assert f"Received: {cls.__name__}. Use " in str(error) and "must fit the outputs of the model" in str(error)
        else:
            accepted.add(cls.__name__)
            assert np.isfinite(model.evaluate(X, targets, verbose=0, return_dict=True)["loss"])
    assert fits <= accepted and len(accepted) < len(EVERY_LOSS) - 8
    for other in ("sparse_categorical_crossentropy", keras.losses.mean_squared_error, "binary_crossentropy", "mse"):
        if type(_as_object(other)).__name__ not in accepted:
            with pytest.raises(ValueError, match="The loss must fit the outputs"):
                model.compile("sgd", loss=other)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "given", ["mse", "MSE", "mean_squared_error", "MeanSquaredError", keras.losses.mean_squared_error]
)
def test_short_names_and_functions_are_losses(given):
    assert type(loss_on_logits(given, "score")) is keras.losses.MeanSquaredError


@pytest.mark.one_backend
def test_other_tasks_refuse_losses_for_other_outputs(tiny_backbone):
    for task in (TokenClassifier(tiny_backbone(), labels=NAMES), MultipleChoice(tiny_backbone())):
        with pytest.raises(ValueError, match="one logit for each class.* Received: BinaryCrossentropy. Use Sparse"):
            task.compile("sgd", loss="binary_crossentropy")
    with pytest.raises(ValueError, match="Received: MeanSquaredError. Use Sparse"):
        QuestionAnswerer(tiny_backbone()).compile("sgd", loss={"start": "mse", "end": "mse"})

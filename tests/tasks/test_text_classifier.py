"""Text in, labels out: the classifier trains on str, answers on str, and says what is wrong with bad input."""

import contextlib

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Tokenizer, encode_texts
from kerasbert.models import GPT2, Bert, BertConfig, GPT2Config
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import to_numpy

GOOD = ["a fine film", "fine and warm", "a warm fine play", "warm film and a fine play"]
BAD = ["a dull film", "dull and cold", "a cold dull play", "cold film and a dull play"]
TEXTS, LABELS = GOOD + BAD, ["good"] * 4 + ["bad"] * 4


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", TEXTS * 20, vocabulary_size=50)


def backbone(tokenizer, **changes):
    keras.utils.set_random_seed(0)
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=16, initializer_range=0.2)
    return Bert(BertConfig(**{"vocabulary_size": tokenizer.vocabulary_size, **sizes, **changes}))


@pytest.mark.one_backend
def test_learns_from_str_and_answers_with_labels(tokenizer, tmp_path):
    model = TextClassifier(backbone(tokenizer), labels=["bad", "good"], tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(TEXTS, LABELS, batch_size=3, epochs=15, verbose=0, validation_data=(TEXTS[3:5], LABELS[3:5]))
    assert history.history["loss"][-1] < 0.1 and history.history["val_accuracy"][-1] == 1.0
    answers = model.classify(["a fine warm play", "a cold dull film"])
    assert [answer["label"] for answer in answers] == ["good", "bad"]
    assert sum(answers[0]["scores"].values()) == pytest.approx(1.0)
    assert answers[0]["score"] == max(answers[0]["scores"].values())
    assert model.classify("a cold dull film")["label"] == "bad"

    model.save_to_preset(tmp_path / "preset")
    again = kerasbert.load(tmp_path / "preset")
    assert again.labels == ["bad", "good"] and again.max_length == model.max_length
    np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0))
    assert again.evaluate(TEXTS, LABELS, verbose=0) == model.evaluate(TEXTS, LABELS, verbose=0)
    for one, other in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


@pytest.mark.one_backend
def test_pairs_and_the_default_optimizer(tokenizer):
    model = TextClassifier(backbone(tokenizer), labels=2, tokenizer=tokenizer)
    pairs = [(one, other) for one, other in zip(GOOD, BAD, strict=True)]
    model.fit(pairs, [0, 1, 0, 1], batch_size=4, epochs=2, verbose=0)
    assert int(to_numpy(model.optimizer.iterations)) == 2
    assert float(to_numpy(model.optimizer.learning_rate)) == pytest.approx(0.0, abs=1e-9)
    assert model.predict(pairs, verbose=0).shape == (4, 2)


@pytest.mark.one_backend
def test_predictions_keep_the_order_and_do_not_depend_on_the_batch(tokenizer):
    model = TextClassifier(backbone(tokenizer), tokenizer=tokenizer)
    together = model.predict(TEXTS, batch_size=8, verbose=0)
    assert together.shape == (8, 2)
    np.testing.assert_allclose(model.predict(TEXTS, batch_size=3, verbose=0), together, atol=1e-6)
    alone = np.concatenate([model.predict([text], verbose=0) for text in TEXTS[:2]])
    np.testing.assert_allclose(alone, together[:2], atol=1e-5)


def test_evaluation_counts_every_example_once(tokenizer):
    """8 examples in batches of 3: the row that fills the last batch weighs nothing, in loss and metrics."""
    model = TextClassifier(backbone(tokenizer), labels=["bad", "good"], tokenizer=tokenizer)
    model.compile(keras.optimizers.SGD(0.0), metrics=["accuracy"])
    found = model.evaluate(TEXTS, LABELS, batch_size=3, verbose=0, return_dict=True)
    right = model.predict(TEXTS, verbose=0).argmax(-1) == model.encode_labels(LABELS)
    assert found["accuracy"] == pytest.approx(right.mean())


@pytest.mark.one_backend
def test_several_labels_and_scores(tokenizer):
    model = TextClassifier(backbone(tokenizer), labels=["film", "play"], problem="labels", tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    targets = [[word for word in ("film", "play") if word in text] for text in TEXTS]
    model.fit(TEXTS, targets, batch_size=8, epochs=40, verbose=0)
    assert [answer["labels"] for answer in model.classify(TEXTS)] == targets
    model = TextClassifier(backbone(tokenizer), problem="score", tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    scores = [float("warm" in text) for text in TEXTS]
    model.fit(TEXTS, scores, batch_size=8, epochs=60, verbose=0)
    assert [round(answer["score"]) for answer in model.classify(TEXTS)] == scores


@pytest.mark.one_backend
def test_labels_in_every_form(tokenizer):
    """Names, numbers, or rows of 0 and 1; what is none of these is an error, not the nearest number."""
    model = TextClassifier(backbone(tokenizer), labels=["x", "yes", "z"], tokenizer=tokenizer)
    assert model.encode_labels(["yes", 2, 0.0, np.int64(1), True]).tolist() == [1, 2, 0, 1, 1]
    for wrong in (1.7, float("nan"), None, "no", [1]):
        with pytest.raises(ValueError, match="in .*, or be their indices. Received: .*, as label 1"):
            model.encode_labels(["x", wrong])
    unnamed = TextClassifier(backbone(tokenizer), labels=2, tokenizer=tokenizer)
    for labels in (["no", "yes"], [0, 1, 2]):
        with pytest.raises(ValueError, match=r"Name the labels, .* from_preset\(path, labels="):
            unnamed.fit(["a"] * len(labels), labels, verbose=0)
    several = TextClassifier(backbone(tokenizer), labels=["x", "yes"], problem="labels", tokenizer=tokenizer)
    assert several.encode_labels([["yes"], [], ["x", 1], "yes"]).tolist() == [[0, 1], [0, 0], [1, 1], [0, 1]]
    assert several.encode_labels([[1, 0], [0, 0], (1, 1)]).tolist() == [[1, 0], [0, 0], [1, 1]]
    assert several.encode_labels([[1], [0]]).tolist() == [[0, 1], [1, 0]]
    several.compile("sgd")
    with pytest.raises(ValueError, match="for each of the 2 labels. Received: 3"):
        several.encode_labels(np.ones((4, 3)))
    with pytest.raises(ValueError, match="Targets must lie between 0 and 1. Received: 2.0"):
        several.fit(TEXTS[:2], np.array([[2, 0], [0, 1]]), verbose=0)
    score = TextClassifier(backbone(tokenizer), problem="score", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="finite numbers. Received: nan, as score 1"):
        score.encode_labels([1.0, None])


@pytest.mark.one_backend
def test_what_cannot_be_trained_on(tokenizer):
    model = TextClassifier(backbone(tokenizer), labels=["bad", "good"], tokenizer=tokenizer)
    model.compile("sgd")
    model_input = {"token_ids": np.ones((2, 4), "int32")}
    for call, message in (
        (lambda: model.fit(TEXTS, verbose=0), "TextClassifier needs targets. Received: y=None"),
        (lambda: model.evaluate(TEXTS, verbose=0), "TextClassifier needs targets"),
        (
            lambda: model.fit(iter([TEXTS]), verbose=0),
            "TextClassifier needs targets. Received: a dataset of batches with",
        ),
        (
            lambda: model.evaluate(iter([TEXTS]), verbose=0),
            "needs targets. Received: a dataset of batches without them",
        ),
        (lambda: model.fit(iter([model_input]), verbose=0), "Make its batches \\(x, y\\), or predict"),
        (
            lambda: model.fit(TEXTS, LABELS, validation_data=iter([TEXTS]), verbose=0),
            "needs targets. Received: a dataset",
        ),
        (lambda: model.fit(TEXTS, LABELS, epochs=0), "`epochs` must be an integer of at least 1. Received: 0"),
        (lambda: model.classify([None]), "Received: a list that begins with None"),
        (lambda: model.fit(TEXTS, LABELS, class_weight={"fine": 2.0}), "`class_weight` must have labels.*'fine'"),
        (lambda: model.fit(TEXTS, LABELS, class_weight={2: 2.0}), "`class_weight` must have labels.*Received: 2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert model.classify([]) == []
    by_name, by_number = (model._batches(TEXTS, LABELS, None, 8, 1, 0, False, weights)[0][2] for weights in (
        {"good": 3.0}, {1: 3.0}
    ))  # fmt: skip
    assert by_name.tolist() == by_number.tolist() == [3.0] * 4 + [1.0] * 4


@pytest.mark.one_backend
def test_dropout_of_a_head(tokenizer, tmp_path):
    """MT-DNN's, task by task, while the encoder keeps its own."""
    model = TextClassifier(backbone(tokenizer), classifier_dropout=0.3, tokenizer=tokenizer)
    assert model.classifier.dropout.rate == 0.3 and model.backbone.config.dropout == 0.1
    assert TextClassifier(backbone(tokenizer)).classifier.dropout.rate == 0.1
    pairs = TextClassifier(backbone(tokenizer), answer_steps=2, classifier_dropout=0.3)
    assert pairs.answer_network.dropout.rate == 0.3
    assert TextClassifier(backbone(tokenizer), features="mix", classifier_dropout=0.3).feature_head.dropout.rate == 0.3
    model.save_to_preset(tmp_path)
    assert kerasbert.load(tmp_path).classifier.dropout.rate == 0.3
    for options in ({}, dict(classifier_dropout=0.3)):
        other = TextClassifier.from_preset(tmp_path, **options, dropout=0.2)
        assert other.backbone.config.dropout == 0.2 and other.classifier.dropout.rate == 0.3


@pytest.mark.one_backend
def test_class_weights_weigh(tokenizer):
    """With all the weight on one class the other is never learned."""
    model = TextClassifier(backbone(tokenizer), labels=["bad", "good"], tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(TEXTS, LABELS, batch_size=8, epochs=10, class_weight={0: 0.0, 1: 1.0}, verbose=0)
    assert {answer["label"] for answer in model.classify(TEXTS)} == {"good"}


@pytest.mark.one_backend
def test_a_pretrained_folder_gives_its_encoder_and_a_new_head(tokenizer, tmp_path):
    pretrained = MaskedLM(backbone(tokenizer), tokenizer=tokenizer)
    pretrained.save_to_preset(tmp_path)
    with pytest.warns(UserWarning, match="no weights for classifier/dense, pooler: new head"):
        model = TextClassifier.from_preset(tmp_path, labels=["bad", "good"])
    for one, other in zip(pretrained.backbone.weights, model.backbone.weights, strict=True):
        assert np.array_equal(to_numpy(one), to_numpy(other)) != ("pooler/kernel" in one.path)
    assert model.tokenizer.hash == tokenizer.hash
    assert to_numpy(model.classifier.dense.kernel).std() > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit(TEXTS, ["good", "ugly"] * 4, verbose=0), "Labels must be in.*'ugly', as label 1"),
        (lambda m: m.fit(TEXTS, [0.0, np.nan] * 4, verbose=0), "Labels must be in.*nan, as label 1"),
        (lambda m: m.fit(TEXTS, [None] * 8, verbose=0), "Labels must be in.*None, as label 0"),
        (lambda m: m.fit(TEXTS, [0, 2] * 4, verbose=0), "Targets must be indices from 0 to 1.*Received: 2"),
        (lambda m: m.fit(TEXTS, LABELS[:-1], verbose=0), "same number of examples"),
        (lambda m: m.predict([], verbose=0), "at least one example"),
        (lambda m: m.predict({"token_ids": np.full((1, 4), 10_000)}, verbose=0), "`token_ids` must be between"),
    ],
)
@pytest.mark.one_backend
def test_bad_input_is_a_clear_error(tokenizer, call, message):
    model = TextClassifier(backbone(tokenizer), labels=["bad", "good"], tokenizer=tokenizer)
    with pytest.raises(ValueError, match=message):
        call(model)


@pytest.mark.one_backend
def test_text_without_a_tokenizer_says_so(tokenizer):
    with pytest.raises(ValueError, match="Text needs a tokenizer"):
        TextClassifier(backbone(tokenizer)).predict(TEXTS)
    with pytest.raises(ValueError, match="a tokenizer with .* tokens"):
        TextClassifier(backbone(tokenizer, vocabulary_size=tokenizer.vocabulary_size - 1), tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("arguments", "is_kept"),
    [
        (dict(labels=["bad", "good"]), True),
        (dict(labels=2), True),
        (dict(labels=["good", "bad"]), False),
        (dict(labels=["no", "yes"]), False),
        (dict(labels=["a", "b", "c"]), False),
        (dict(problem="score"), False),
    ],
)
@pytest.mark.one_backend
def test_a_head_for_other_labels_is_made_new(tokenizer, tmp_path, arguments, is_kept):
    model = TextClassifier(backbone(tokenizer), labels=["bad", "good"], tokenizer=tokenizer)
    model.save_to_preset(tmp_path)
    with (
        contextlib.nullcontext()
        if is_kept
        else pytest.warns(UserWarning, match="a classifier for other labels: new head")
    ):
        again = TextClassifier.from_preset(tmp_path, **arguments)
    kernels = [to_numpy(m.classifier.dense.kernel) for m in (model, again)]
    assert (kernels[0].shape == kernels[1].shape and np.array_equal(*kernels)) == is_kept
    np.testing.assert_array_equal(*(to_numpy(m.backbone.pooler.kernel) for m in (model, again)))


@pytest.mark.one_backend
def test_labels_without_names_take_any(tokenizer, tmp_path):
    model = TextClassifier(backbone(tokenizer), labels=2, tokenizer=tokenizer)
    model.save_to_preset(tmp_path)
    again = TextClassifier.from_preset(tmp_path, labels=["bad", "good"])
    np.testing.assert_array_equal(*(to_numpy(m.classifier.dense.kernel) for m in (model, again)))


@pytest.mark.one_backend
def test_an_empty_text_does_not_depend_on_others():
    """A tokenizer without special tokens: the end token stands for a text of no tokens."""
    tokenizer = Tokenizer.train("byte_bpe", TEXTS * 30, vocabulary_size=270, family="gpt2")
    assert encode_texts(tokenizer, ["", "a fine film"])["lengths"][0] == 1
    assert encode_texts(tokenizer, [("", "")])["token_ids"].tolist() == [[tokenizer.eos_id]]
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=32, initializer_range=0.2)
    keras.utils.set_random_seed(0)
    model = TextClassifier(GPT2(GPT2Config(vocabulary_size=tokenizer.vocabulary_size, **sizes)), tokenizer=tokenizer)
    alone = model.classify("")["score"]
    assert [a["score"] for a in model.classify(["", " ".join(TEXTS)[:90]])][0] == pytest.approx(alone, abs=1e-6)

"""Contexts and choices in, the number of the best choice out."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.tasks import MultipleChoice, TextClassifier, TokenClassifier

EXAMPLES = [
    ("Ann lives in", ["Rome", "cat", "met"]), ("Bob lives in", ["a", "Bonn"]), ("the cat", ["met a dog", "Rome"]),
    ("a cat met", "who ?", ["Bonn", "lives", "a dog"]),
]  # fmt: skip
RIGHT = [0, 1, 0, 2]


@pytest.fixture
def model(tiny_backbone, tokenizer):
    return MultipleChoice(tiny_backbone(), tokenizer=tokenizer)


@pytest.mark.one_backend
def test_learns_and_chooses(model, tmp_path):
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(EXAMPLES, RIGHT, batch_size=2, epochs=30, verbose=0)
    assert history.history["loss"][-1] < 0.1
    answers = model.choose(EXAMPLES)
    assert [answer["choice"] for answer in answers] == RIGHT
    for example, answer in zip(EXAMPLES, answers, strict=True):
        assert answer["text"] == example[-1][answer["choice"]] and len(answer["scores"]) == len(example[-1])
        assert sum(answer["scores"]) == pytest.approx(1)
    assert model.choose(EXAMPLES[1])["scores"] == pytest.approx(answers[1]["scores"], abs=1e-4)
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    np.testing.assert_array_equal(again.predict(EXAMPLES, verbose=0), model.predict(EXAMPLES, verbose=0))


@pytest.mark.one_backend
def test_choices_that_are_not_there_change_nothing(model):
    alone = model.predict([EXAMPLES[1]], verbose=0)
    together = model.predict(EXAMPLES, batch_size=1, verbose=0)
    np.testing.assert_allclose(together[1, :2], alone[0], atol=1e-5)
    assert together[1, 2] < -1e4


@pytest.mark.filterwarnings("ignore:.*new head")
@pytest.mark.one_backend
def test_folders_of_labels_and_of_choices(tiny_backbone, tokenizer, tmp_path):
    """A body goes from one task to another, and its head, whose tensors may have the same names, is made new."""
    labels = ["x", "y", "z"]
    TextClassifier(tiny_backbone(), labels=labels, tokenizer=tokenizer).save_to_preset(tmp_path / "labels")
    model = MultipleChoice.from_preset(tmp_path / "labels")
    assert len(model.choose(EXAMPLES)) == len(EXAMPLES)
    model.save_to_preset(tmp_path / "choices")
    for cls in (TextClassifier, TokenClassifier):
        assert cls.from_preset(tmp_path / "choices", labels=labels).labels == labels
    again = MultipleChoice.from_preset(tmp_path / "choices")
    np.testing.assert_array_equal(again.predict(EXAMPLES, verbose=0), model.predict(EXAMPLES, verbose=0))
    score = TextClassifier.from_preset(tmp_path / "choices", problem="score")
    np.testing.assert_array_equal(score.classifier.dense.kernel, model.choice.dense.kernel)


def test_targets_are_choices_whatever_side_is_padded(model):
    """A choice of padding alone is none, told by lengths or by a mask."""
    there = np.array([[3, 2, 0], [3, 2, 1]])
    mask = np.arange(3) < there[:, :, None]
    ids = np.ones((2, 3, 3), "int32")
    for padding in ({"lengths": there}, {"padding_mask": mask[..., ::-1]}):
        model.check_batch({"token_ids": ids, **padding}, np.array([1, 2]))
        with pytest.raises(ValueError, match="index of a choice, from 0 to 1. Received: 2"):
            model.check_batch({"token_ids": ids, **padding}, np.array([2, 2]))


@pytest.mark.one_backend
def test_bad_input(model):
    with pytest.raises(ValueError, match="index of a choice, from 0 to 1. Received: 2"):
        model.fit(EXAMPLES, [0, 2, 0, 2], verbose=0)
    with pytest.raises(ValueError, match="integers, one per example. Received: .*nan.*, for example 1"):
        model.fit(EXAMPLES, [0, np.nan, 0, 2], verbose=0)
    with pytest.raises(ValueError, match="two or more choices"):
        model.choose(("Ann", ["Bob"]))
    assert model.choose([]) == []

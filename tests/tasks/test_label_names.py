"""Names of labels that are no str, through training, evaluation, answers and saving, in all tasks."""

import json

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data.tasks.text_to_text import classification_text
from kerasbert.models import GPT2, GPT2Config
from kerasbert.objectives import CausalLM
from kerasbert.tasks import FewShot, MultiTask, TextClassifier, TextEmbedder, TokenClassifier

pytestmark = pytest.mark.one_backend

TEXTS = ["a cat", "a dog"] * 8
WORDS = [["Ann", "lives", "in", "Rome"], ["Bob", "lives", "in", "Bonn"]]


@pytest.mark.parametrize(
    "labels, y, names",
    [
        ([1, 0], [1, 0] * 8, [1, 0]),
        ([1, 2, 3], np.array([1, 3] * 8), [1, 3]),
        ([True, False], [True, False] * 8, [True, False]),
        ({0: "neg", 1: "pos"}, [1, 0] * 8, ["pos", "neg"]),
        ({"neg": 0, "pos": 1}, ["pos", "neg"] * 8, ["pos", "neg"]),
        ([1.0, 2.5], [2.5, 1] * 8, [2.5, 1.0]),
    ],
)
def test_a_classifier_answers_with_the_names_it_was_given(labels, y, names, tiny_backbone, tokenizer, tmp_path):
    model = TextClassifier(tiny_backbone(), labels=labels, tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(TEXTS, y, epochs=8, verbose=0, validation_data=(TEXTS, y))
    model.save_to_preset(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert list(config["id2label"].values()) == [str(name) for name in model.labels]
    for one in (model, kerasbert.load(tmp_path), TextClassifier.from_preset(tmp_path, labels=labels)):
        found = [answer["label"] for answer in one.classify(TEXTS[:2])]
        assert found == names and [type(name) for name in found] == [type(name) for name in names]
    arrays = model.text_batches(TEXTS, None, None, 16, 1, 0, False)[0][0]
    for x in (TEXTS, arrays):
        assert model.evaluate(x, y, verbose=0, return_dict=True)["accuracy"] == 1.0
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").labels == model.labels


def test_class_weights_are_by_name(tiny_backbone, tokenizer):
    model = TextClassifier(tiny_backbone(), labels=[1, 0], tokenizer=tokenizer)
    (batch,) = model._batches(TEXTS[:4], [1, 0, 1, 0], None, 4, 1, 0, False, {1: 3.0})
    assert batch[1].tolist() == [0, 1, 0, 1] and batch[2].tolist() == [3.0, 1.0, 3.0, 1.0]
    with pytest.raises(ValueError, match=r"must have labels, \[1, 0\], or their numbers as keys. Received: 2"):
        model.fit(TEXTS, [1, 0] * 8, class_weight={2: 1.0}, verbose=0)
    with pytest.raises(ValueError, match="must be a dict, {label: weight}. Received: 'balanced'"):
        model.fit(TEXTS, [1, 0] * 8, class_weight="balanced", verbose=0)


@pytest.mark.parametrize("labels, tag, other", [([1, 0], 1, 0), ([5, -1], 5, -1), ({"O": 0, "NAME": 1}, "NAME", "O")])
def test_a_tagger_answers_with_the_names_it_was_given(labels, tag, other, tiny_backbone, tokenizer, tmp_path):
    model = TokenClassifier(tiny_backbone(), labels=labels, tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    tags = [[tag, other, other, tag]] * 2
    model.fit(WORDS, tags, epochs=20, verbose=0)
    model.save_to_preset(tmp_path)
    for one in (model, kerasbert.load(tmp_path)):
        assert one.tag(WORDS[:1])[0]["labels"] == tags[0]
    x, y, weights = model.text_batches(WORDS, tags, None, 2, 1, 0, False)[0]
    names = np.where(weights > 0, np.array(model.labels)[y], -100 if tag == 1 else model.labels[0])
    found = model.evaluate(x, names, sample_weight=weights, verbose=0, return_dict=True)
    assert found["accuracy"] == 1.0
    assert model.evaluate(WORDS, tags, verbose=0, return_dict=True) == pytest.approx(found, abs=1e-6)
    for flat in (["O", "NAME"], [[other] * 4, "O"]):
        with pytest.raises(ValueError, match="Every sentence needs a list of labels, one for each word. Received: 'O'"):
            model.fit(WORDS, flat, verbose=0)


def test_tasks_that_share_an_encoder(tiny_backbone, tokenizer, tmp_path):
    specs = {"a": {"labels": [1, 0]}, "b": {"task": "TokenClassifier", "labels": {0: "O", 1: "NAME"}}}
    model = MultiTask(tiny_backbone(), specs, tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit({"a": (TEXTS, [1, 0] * 8), "b": (WORDS, [["NAME", "O", "O", "O"]] * 2)}, epochs=10, verbose=0)
    assert [answer["label"] for answer in model.tasks["a"].classify(TEXTS[:2])] == [1, 0]
    model.save_to_preset(tmp_path)
    assert [task.labels for task in kerasbert.load(tmp_path).tasks.values()] == [[1, 0], ["O", "NAME"]]


def test_an_embedder_of_classes(tiny_backbone, tokenizer, tmp_path):
    model = TextEmbedder(tiny_backbone(), objective={"name": "classes", "labels": [1, 0]}, tokenizer=tokenizer)
    (batch,) = model._batches([("a cat", "a dog")] * 2, [1, 0], None, 2, 1, 0, False)
    assert batch[1].tolist() == [0, 1]
    model.save_to_preset(tmp_path)
    assert kerasbert.load(tmp_path).objective.labels == (1, 0)
    with pytest.raises(ValueError, match="must be in an order"):
        TextEmbedder(tiny_backbone(), objective={"name": "classes", "labels": {"a", "b"}})


def test_prompts_and_texts_for_generation(tokenizer):
    config = GPT2Config(vocabulary_size=tokenizer.vocabulary_size, num_layers=1, num_heads=1, hidden_dim=4)
    model = CausalLM(GPT2(config), tokenizer=tokenizer)
    task = FewShot(model, [("a cat", 1), ("a dog", 0)], template="{} : {answer}")
    assert task.labels == [1, 0] and task.prompt("a cat").startswith("a cat : 1\n\na dog : 0\n\n")
    assert set(task.classify("a cat")["scores"]) == {1, 0}
    assert FewShot(model, (["a cat", "a dog"], ["x", "y"])).prompt("z").startswith("a cat\nx\n\na dog\ny")
    for wrong, message in (
        (dict(labels={"a", "b"}), "must be in an order"),
        (dict(labels="ab"), "must be a list of names"),
        (dict(labels=2), "must be the answers to choose from. Received: 2"),
        (dict(examples={"ab": 1}), r"An example must be \(input, answer\).*Received: 'ab'"),
    ):
        with pytest.raises(ValueError, match=message):
            FewShot(model, **wrong)
    assert classification_text("t", {"text": "a", "label": 1}, [1, 0]) == ("t text: a", "1")
    assert classification_text("t", {"text": "a", "label": "no"}, {0: "yes", 1: "no"}) == ("t text: a", "no")
    assert classification_text("t", {"text": "a", "label": -1}, ["yes", "no"]) == ("t text: a", "<unk>")
    with pytest.raises(ValueError, match="must be in an order"):
        classification_text("t", {"text": "a", "label": 1}, {"yes", "no"})


@pytest.mark.parametrize("change", [{"num_labels": 3}, {"num_labels": 3, "id2label": None}])
def test_a_number_of_labels_without_names(change, tiny_backbone, tokenizer, tmp_path):
    for cls in (TextClassifier, TokenClassifier):
        cls(tiny_backbone(), labels=3, tokenizer=tokenizer).save_to_preset(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        for name in ("id2label", "label2id"):
            del config[name]
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        saved = json.loads((tmp_path / "kerasbert.json").read_text())
        del saved["arguments"]
        (tmp_path / "kerasbert.json").write_text(json.dumps(saved))
        assert kerasbert.load(tmp_path).labels == ["LABEL_0", "LABEL_1", "LABEL_2"]
        (tmp_path / "config.json").write_text(json.dumps({**config, "num_labels": 10**9}))
        with pytest.raises(ValueError, match="`num_labels` in .* must be from 0 to 1,000,000. Received: 1000000000"):
            kerasbert.load(tmp_path)


def test_a_regression_has_one_output(tiny_backbone, tmp_path):
    TextClassifier(tiny_backbone(), labels=["a", "b"]).save_to_preset(tmp_path)
    (tmp_path / "kerasbert.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "problem_type": "regression"}))
    with pytest.raises(ValueError, match="A regression must have one output.*problem_type='regression' and 2 labels"):
        kerasbert.load(tmp_path)
    assert TextClassifier.from_preset(tmp_path, problem="labels").labels == ["a", "b"]
    with pytest.warns(UserWarning, match="new head"):
        model = TextClassifier.from_preset(tmp_path, labels=["x", "y", "z"])
    assert (model.problem, model.labels) == ("classes", ["x", "y", "z"])


def test_the_warning_about_a_new_head_says_why_it_is_new(tiny_backbone, tokenizer, tmp_path):
    """The folder has a head of the same size, but for other labels; or it has none at all."""
    TextClassifier(tiny_backbone(), labels=["bad", "good"], tokenizer=tokenizer).save_to_preset(tmp_path / "mood")
    with pytest.warns(UserWarning, match="mood has a classifier for other labels: new head; expected when fine-tuning"):
        TextClassifier.from_preset(tmp_path / "mood", labels=["cat", "dog"])
    tiny_backbone().save_to_preset(tmp_path / "bare")
    with pytest.warns(UserWarning, match="bare has no weights for classifier.*: new head; expected when fine-tuning"):
        TextClassifier.from_preset(tmp_path / "bare", labels=["cat", "dog"])

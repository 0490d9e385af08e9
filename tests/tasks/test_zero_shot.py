"""Zero-shot classification against the pipeline of transformers."""

import numpy as np
import pytest

from kerasbert.models import Roberta, RobertaConfig
from kerasbert.retrieval.few_labels import entailment_scores
from kerasbert.tasks import TextClassifier, ZeroShotClassifier
from tests.models.reference import randomize

NAMES = {
    "first": ["entailment", "neutral", "contradiction"],
    "last": ["contradiction", "neutral", "ENTAILMENT"],
    "two": ["entailment", "not_entailment"],
}
TEXTS = ["Ann lives in Rome .", "who met Bob ?", "a cat met a dog " * 12]
CANDIDATES = ["Ann", "cat", "Bonn"]


@pytest.fixture
def classifier(tokenizer, tiny_backbone):
    """A function that makes a small model for natural language inference."""

    def make(names="last", **options):
        model = TextClassifier(tiny_backbone(max_length=48), NAMES[names], tokenizer=tokenizer, **options)
        return randomize(model, 0.3)

    return make


@pytest.mark.one_backend
@pytest.mark.parametrize("names", NAMES)
def test_probabilities_equal_transformers(names, classifier, tmp_path):
    from transformers import pipeline

    classifier(names).save_to_preset(tmp_path)
    model = ZeroShotClassifier.from_preset(tmp_path)
    theirs = pipeline("zero-shot-classification", model=str(tmp_path), device="cpu")
    for options in ({}, {"multi_label": True}, {"template": "In {} ."}):
        renamed = {"hypothesis_template" if name == "template" else name: value for name, value in options.items()}
        for candidates in (CANDIDATES, CANDIDATES[:1]):
            found = model.classify(TEXTS, candidates, **options)
            for ours, expected in zip(found, theirs(TEXTS, candidates, **renamed), strict=True):
                scores = dict(zip(expected["labels"], expected["scores"], strict=True))
                np.testing.assert_allclose(
                    [ours["scores"][name] for name in candidates], [scores[name] for name in candidates], atol=1e-5
                )
                if options.get("multi_label"):
                    assert {*ours["labels"]} == {name for name, score in scores.items() if score > 0.5}
                else:
                    assert ours["label"] == expected["labels"][0]
                    assert ours["score"] == ours["scores"][ours["label"]]


def test_one_text_and_no_texts(classifier):
    model = ZeroShotClassifier(classifier())
    (expected,) = model.classify(TEXTS[:1], CANDIDATES)
    assert model.classify(TEXTS[0], CANDIDATES)["label"] == expected["label"]
    assert model.classify([], CANDIDATES) == []
    pairs = [(TEXTS[0], f"This example is {name}.") for name in CANDIDATES]
    entailed = model.model.predict(pairs, verbose=0)[:, 2]
    scores = np.exp(entailed) / np.exp(entailed).sum()
    np.testing.assert_allclose([expected["scores"][name] for name in CANDIDATES], scores, rtol=1e-4)


@pytest.mark.one_backend
def test_contradiction_is_found_by_its_name():
    logits = np.array([[5.0, 0.0, 2.0]])
    found = entailment_scores(logits, ["neutral", "contradiction", "entailment"], multi_label=True)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-2.0)))
    np.testing.assert_allclose(entailment_scores(logits, ["a", "b", "c"], multi_label=True), 1 / (1 + np.exp(3.0)))


@pytest.mark.one_backend
def test_bad_input(classifier, tokenizer, tiny_backbone, caplog):
    model = ZeroShotClassifier(classifier())
    with pytest.raises(ValueError, match="`labels` must be a list of one or more.*Received: 'Ann, Bob'"):
        model.classify(TEXTS, "Ann, Bob")
    with pytest.raises(ValueError, match=r"`labels` must be a list of one or more.*Received: \['Ann', ' '\]"):
        model.classify(TEXTS, ["Ann", " "])
    with pytest.raises(ValueError, match="`labels` must be different"):
        model.classify(TEXTS, ["Ann", "Ann"])
    with pytest.raises(ValueError, match="`template` must contain {}.*Received: 'This is it.'"):
        model.classify(TEXTS, CANDIDATES, template="This is it.")
    with pytest.raises(ValueError, match="Each text must be a str. Received: 3, as text 1"):
        model.classify(["a", 3], CANDIDATES)
    scored = TextClassifier(tiny_backbone(), problem="score", tokenizer=tokenizer)
    with pytest.raises(ValueError, match='with classes. Received: problem="score"'):
        ZeroShotClassifier(scored)
    with pytest.raises(ValueError, match="Received: Roberta"):
        ZeroShotClassifier(Roberta(RobertaConfig(vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=4)))
    ZeroShotClassifier(TextClassifier(tiny_backbone(), ["no", "yes"], tokenizer=tokenizer))
    assert "The last one, 'yes', is taken for entailment" in caplog.text

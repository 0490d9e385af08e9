"""Words in, labels and entities out."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.tasks import TokenClassifier
from kerasbert.tasks.token_classifier import TokenAccuracy
from tests.data.mixed_text import MARKS, SCRIPTS

LABELS = ["O", "B-PER", "B-LOC", "I-LOC"]
WORDS = [
    ["Ann", "lives", "in", "Rome", "Bonn", "."],
    ["in", "Bonn", "lives", "Bob"],
    ["a", "cat", "met", "Ann"],
    ["Bob"],
]
TAGS = [
    ["B-PER", "O", "O", "B-LOC", "I-LOC", "O"], ["O", "B-LOC", "O", "B-PER"], ["O", "O", "O", "B-PER"], ["B-PER"]
]  # fmt: skip


@pytest.fixture
def model(tiny_backbone, tokenizer):
    return TokenClassifier(tiny_backbone(), labels=LABELS, max_length=16, tokenizer=tokenizer)


@pytest.mark.one_backend
def test_learns_from_words_and_tags_text(model, tmp_path):
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(WORDS, TAGS, batch_size=2, epochs=30, verbose=0, validation_data=(WORDS, TAGS))
    assert history.history["val_loss"][-1] < 0.1 and history.history["val_accuracy"][-1] == 1.0
    for words, tags, answer in zip(WORDS, TAGS, model.tag(WORDS), strict=True):
        assert answer["words"] == words and answer["labels"] == tags
    first = model.tag(WORDS)[0]["entities"][1]
    assert (first["type"], first["text"], first["start"], first["stop"]) == ("LOC", "Rome Bonn", 3, 5)
    text = "Ann  lives in\tRome  Bonn."
    (person, place) = model.tag(text)["entities"]
    assert (person["type"], person["text"], person["start"]) == ("PER", "Ann", 0)
    assert place["text"] == text[place["start"] : place["stop"]] == "Rome  Bonn" and 0.5 < place["score"] <= 1

    # More than a row holds: windows, in which every word is read once, in its order.
    long = [word for words in WORDS for word in words] * 5
    answer = model.tag([long])[0]
    assert answer["words"] == long and len(answer["labels"]) == len(long)
    assert np.mean([a == b for a, b in zip(answer["labels"], sum(TAGS, []) * 5, strict=True)]) > 0.75

    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is TokenClassifier and again.labels == LABELS and again.max_length == 16
    assert again.tag(WORDS) == model.tag(WORDS)


@pytest.mark.one_backend
def test_every_entity_is_what_was_written(model):
    """Untrained, so that anything may be an entity."""
    rng = np.random.default_rng(0)
    alphabet = [*"abcAnoRme", " ", "  ", "\t", "\n", "é", "e\u0301", "人", "👍🏽", "\x01", "\u200d", ",", "ß", "İ", "½"]
    texts = [*SCRIPTS, *MARKS, ""] + ["".join(rng.choice(alphabet, rng.integers(1, 60))) for _ in range(300)]
    entities = 0
    for text, answer in zip(texts, model.tag(texts), strict=True):
        assert len(answer["words"]) == len(answer["labels"]) == len(answer["scores"])
        for entity in answer["entities"]:
            assert entity["text"] == text[entity["start"] : entity["stop"]] == entity["text"].strip() != ""
            entities += 1
    assert entities > 100


@pytest.mark.one_backend
def test_an_entity_goes_on_in_its_piece(tiny_backbone):
    """Two ideographs of one piece are one place, not the first alone."""
    tokenizer = Tokenizer.train("unigram", ["日本 日本 ten", "日 人", "本 ten", "日本人", "人日"] * 40, 13)
    model = TokenClassifier(tiny_backbone(vocabulary_size=13), labels=LABELS, max_length=16, tokenizer=tokenizer)
    model.tagger.dense.bias.assign([0.0, 0.0, 50.0, 0.0])
    answer = model.tag("日本 日")
    assert answer["labels"] == ["B-LOC", "I-LOC", "B-LOC"]
    assert [entity["text"] for entity in answer["entities"]] == ["日本", "日"]


@pytest.mark.one_backend
def test_outputs_come_in_the_order_of_the_sentences(model):
    sentences = [["Ann"] * n for n in (9, 1, 12, 3)] + [["Bob", "cat"]]
    together = model.predict(sentences, batch_size=2, verbose=0)
    for sentence, row in zip(sentences, together, strict=True):
        alone = model.predict([sentence], verbose=0)[0]
        width = len(sentence) + 2
        np.testing.assert_allclose(row[:width], alone[:width], atol=1e-5)


@pytest.mark.one_backend
def test_arrays_without_weights_count_real_tokens(model):
    rows = {"token_ids": np.full((2, 5), 7, "int32"), "lengths": np.int32([5, 2])}
    y = np.int32([[0, 1, 2, 3, 0], [1, 2, -5, -5, -5]])  # what stands under padding is not looked at
    weights = np.float32([[1] * 5, [1, 1, 0, 0, 0]])
    assert model.compile("sgd") is None
    plain = model.evaluate(rows, y, verbose=0, return_dict=True)
    weighted = model.evaluate(rows, y, sample_weight=weights, verbose=0, return_dict=True)
    assert plain == pytest.approx(weighted) and plain["loss"] > 0
    masked = {"token_ids": rows["token_ids"], "padding_mask": weights > 0}
    assert model.evaluate(masked, y, verbose=0, return_dict=True) == pytest.approx(plain, abs=1e-5)
    by_row = model.evaluate(rows, y, sample_weight=np.float32([1, 0]), verbose=0, return_dict=True)
    alone = model.evaluate({"token_ids": rows["token_ids"][:1]}, y[:1], verbose=0, return_dict=True)
    assert by_row["loss"] == pytest.approx(alone["loss"], abs=1e-5)


@pytest.mark.one_backend
def test_bad_input(model):
    with pytest.raises(ValueError, match="Labels must be in .*Received: 'B-ORG'"):
        model.fit(WORDS, [["B-ORG"] * len(words) for words in WORDS], verbose=0)
    with pytest.raises(ValueError, match="sentence 1 of 4 words with 3 labels"):
        model.fit(WORDS, [TAGS[0], TAGS[1][:3], *TAGS[2:]], verbose=0)
    with pytest.raises(ValueError, match="`sample_weight` is not supported for sentences"):
        model.fit(WORDS, TAGS, sample_weight=np.ones(4), verbose=0)
    assert model.tag([]) == [] and model.tag([[]])[0]["entities"] == []
    model.tokenizer = None
    with pytest.raises(ValueError, match="Text needs a tokenizer"):
        model.tag("Ann")


@pytest.mark.one_backend
def test_sentences_may_be_empty(model):
    model.compile("sgd")
    history = model.fit([[], ["Ann", "lives"]], [[], ["B-PER", "O"]], verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert [answer["labels"] for answer in model.tag([[], "", ["Ann"]])][:2] == [[], []]
    assert model.fit([[]], [[]], verbose=0).history["loss"] == [0.0]


@pytest.mark.one_backend
def test_class_weights_weigh_words(model):
    """With all the weight on O no entity is learned; targets of several parts have no classes to weigh."""
    (batch,) = model._batches(WORDS, TAGS, None, 8, 1, 0, False, class_weight={"B-PER": 3.0, 2: 0.0})
    _, y, weights = batch
    read = weights > 0
    assert weights[read & (y == 0)].tolist() == [1.0] * 8 and set(weights[read & (y == 1)]) == {3.0}
    assert not weights[y == 2].any()
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(WORDS, TAGS, batch_size=4, epochs=20, verbose=0, class_weight={1: 0.0, 2: 0.0, 3: 0.0})
    assert all(label == "O" for answer in model.tag(WORDS) for label in answer["labels"])


@pytest.mark.one_backend
def test_accuracy_counts_tokens_of_all_widths_alike():
    """One of two right in a narrow batch, six of six in a wide one: 7 / 8."""
    metric = TokenAccuracy()
    scores = np.eye(2, dtype="float32")
    metric.update_state(np.array([[0, 1]]), scores[[[0, 0]]], np.ones((1, 2), "float32"))
    metric.update_state(np.array([[0, 1, 0, 1, 0, 1]]), scores[[[0, 1, 0, 1, 0, 1]]], np.ones((1, 6), "float32"))
    assert float(metric.result()) == pytest.approx(7 / 8)

"""Questions and contexts in, answers out as spans of the context."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert import metrics
from kerasbert.tasks import QuestionAnswerer

QUESTIONS = [
    ("where lives Ann ?", "Ann lives in Rome ."), ("who lives in Bonn ?", "in Bonn lives Bob"),
    ("who met Bob ?", "Ann met Bob in Bonn"), ("who met Bob ?", "the cat sat in Rome"),
]  # fmt: skip
ANSWERS = [("Rome", 13), ("Bob", 14), ("Ann", 0), None]


@pytest.fixture
def model(tiny_backbone, tokenizer):
    return QuestionAnswerer(tiny_backbone(), max_length=24, stride=4, tokenizer=tokenizer)


@pytest.mark.one_backend
def test_learns_and_answers(model, tmp_path):
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(QUESTIONS, ANSWERS, batch_size=4, epochs=60, verbose=0)
    assert history.history["loss"][-1] < 0.1
    answers = model.answer(QUESTIONS, null_threshold=0.0)
    assert [answer["text"] for answer in answers] == ["Rome", "Bob", "Ann", ""]
    for (_, context), answer in zip(QUESTIONS, answers, strict=True):
        assert context[answer["start"] : answer["stop"]] == answer["text"]
    assert answers[3]["null_odds"] > 0 > answers[0]["null_odds"]
    assert model.answer(QUESTIONS[3])["text"] != ""
    best = model.answer(QUESTIONS[0], n_best=3)
    assert [a["text"] for a in best][0] == "Rome" and best[0]["score"] > best[1]["score"] and len(best) == 3

    data = [
        {"id": str(i), "answers": [{"text": answer[0]}] if answer else [], "is_impossible": answer is None}
        for i, answer in enumerate(ANSWERS)
    ]
    found = {str(i): answer["text"] for i, answer in enumerate(answers)}
    assert metrics.squad([{"paragraphs": [{"qas": data}]}], found)["exact"] == 100

    # A context of many windows: the answer is where only one of them sees it.
    context = "the cat sat in Rome " * 6 + "Ann met Bob in Bonn " + "a cat met a dog " * 5
    answer = model.answer(("who met Bob ?", context))
    assert context[answer["start"] : answer["stop"]] == answer["text"] != ""

    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is QuestionAnswerer and (again.max_length, again.stride) == (24, 4)
    assert again.answer(QUESTIONS) == model.answer(QUESTIONS)


def test_weights_and_arrays_go_to_all_windows_of_a_question(model):
    long = (QUESTIONS[0][0], "Ann lives in Rome . " * 10)
    rows = model.question_rows([long, QUESTIONS[1]])
    assert (rows.question == 0).sum() > 2 and (rows.question == 1).sum() == 1
    batches = model.text_batches([long, QUESTIONS[1]], ANSWERS[:2], [0.5, 2.0], 2, 1, 0, False)
    weights = np.concatenate([weight["start"] for _, _, weight in batches])
    assert sorted(set(weights.tolist())) in ([0.5, 2.0], [0.0, 0.5, 2.0])


@pytest.mark.one_backend
def test_bad_input(model):
    with pytest.raises(ValueError, match="part of its context. Received: 'Paris' for question 0"):
        model.fit(QUESTIONS, [("Paris", 0), *ANSWERS[1:]], verbose=0)
    with pytest.raises(ValueError, match="question 0, 'who .', without one"):
        model.answer(("who ?", ""))
    with pytest.raises(ValueError, match="must be a pair"):
        model.answer(["who ?"])
    with pytest.raises(ValueError, match="`n_best` must be an integer of at least 1. Received: 0"):
        model.answer(("who ?", "Ann"), n_best=0)
    assert model.answer([]) == []
    assert {type(value) for value in model.answer(("who ?", "Ann lives")).values()} <= {str, int, float}


@pytest.mark.one_backend
def test_every_answer_is_what_was_written(model):
    """Untrained, so that anything may be an answer: 2,000 texts with accents, emoji, ideographs, blanks and tabs."""
    rng = np.random.default_rng(0)
    alphabet = [*"abcAnoRme", " ", "  ", "\t", "\n", "é", "e\u0301", "人", "👍🏽", "\x01", "\u200d", ",", "ß", "İ", "½"]
    contexts = ["a" + "".join(rng.choice(alphabet, rng.integers(1, 60))) for _ in range(2_000)]
    answers = model.answer([("who lives in Bonn ?", context) for context in contexts], batch_size=64)
    for context, answer in zip(contexts, answers, strict=True):
        assert answer["text"] == context[answer["start"] : answer["stop"]] == answer["text"].strip()
    assert len({answer["text"] for answer in answers}) > 500


@pytest.mark.one_backend
def test_the_score_of_no_answer_is_its_probability(model):
    """Among the spans and the empty answer; without a threshold, spans are compared with each other only."""
    spans = model.answer(QUESTIONS[0], n_best=20)
    logits = np.array([span["logit"] for span in spans])
    odds = spans[0]["null_odds"]
    assert sum(span["score"] for span in spans) == pytest.approx(1.0)
    everything = np.exp([*(logits - logits[0]), odds])
    expected = everything / everything.sum()
    none = model.answer(QUESTIONS[0], null_threshold=odds - 1.0)
    assert none["text"] == "" and none["score"] == pytest.approx(expected[-1], abs=1e-6) and 0 < none["score"] < 1
    best = model.answer(QUESTIONS[0], null_threshold=odds + 1.0)
    assert best["text"] == spans[0]["text"] and best["score"] == pytest.approx(expected[0], abs=1e-6)
    several = model.answer(QUESTIONS[0], n_best=20, null_threshold=odds - 1.0)
    assert [answer["score"] for answer in several] == pytest.approx([expected[-1], *expected[:-1]][:20], abs=1e-6)

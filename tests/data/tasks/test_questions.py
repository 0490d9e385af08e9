import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.data.tasks.questions import QuestionRows
from kerasbert.data.tasks.windows import most_context, window_starts
from tests.data.mixed_text import MARKS, SCRIPTS

pytestmark = pytest.mark.one_backend


def test_windows_of_the_official_code():
    assert window_starts(300, 100, 50) == [0, 50, 100, 150, 200]
    assert window_starts(600, 364, 128) == [0, 128, 256]
    assert window_starts(100, 100, 50) == window_starts(0, 100, 50) == [0]
    assert window_starts(250, 100, 128) == [0, 100, 200]
    with pytest.raises(ValueError, match="at least 1. Received: 0"):
        window_starts(300, 100, 0)


def test_the_window_with_most_context():
    # Windows of 5 tokens from 3 and from 6: token 6 has 1.05 against 0.05, token 7 has 0.05 against 1.05.
    assert most_context([3, 6], 5, 11)[[6, 7]].tolist() == [0, 1]
    assert most_context([0, 2], 4, 6).tolist() == [0, 0, 0, 1, 1, 1]


def test_rows_and_targets(wordpiece):
    question, context = "ten?", "a net, ten notes"
    rows = QuestionRows(wordpiece, [(question, context)], max_length=32)
    q = wordpiece.encode([question], add_special_tokens=False)[0]
    c = wordpiece.encode([context], add_special_tokens=False)[0]
    cls, sep = wordpiece.cls_id, wordpiece.sep_id
    assert rows.x["token_ids"].tolist() == [[cls, *q, sep, *c, sep]]
    assert rows.x["segment_ids"].tolist() == [[0] * (2 + len(q)) + [1] * (1 + len(c))]
    targets = rows.targets([("ten notes", 7)])
    first, last = int(targets["start"][0]), int(targets["end"][0])
    assert wordpiece.decode(rows.x["token_ids"][0, first : last + 1]) == "ten notes"
    assert rows.targets([None]) == {"start": np.array([0]), "end": np.array([0])}
    # Nearest to where it is said to be, and a part of a word.
    rows = QuestionRows(wordpiece, [("a", "net note (net1)")], max_length=32)
    late = rows.targets([(" net ", 9)])
    assert late["start"][0] > rows.targets([("net", 1)])["start"][0]
    with pytest.raises(ValueError, match="part of its context. Received: 'tone' for question 0"):
        rows.targets([("tone", 0)])
    for position in (15, -1):
        with pytest.raises(ValueError, match="a character of the context. Received .* for a context of 15 characters"):
            rows.targets([("net", position)])


@pytest.mark.parametrize(
    "kind, left", [("wordpiece", False), ("byte_bpe", False), ("unigram", False), ("unigram", True)]
)
def test_every_span_of_characters_is_found_again(kind, left, request):
    tokenizer = request.getfixturevalue(kind)
    tokenizer = type(tokenizer).from_json(tokenizer.to_json())
    tokenizer.padding_side = "left" if left else "right"
    rng = np.random.default_rng(0)
    known = "".join(sorted({*"aeinotdsgfbc "}))
    contexts = [*SCRIPTS, *MARKS] + [
        "".join(rng.choice([*known, "  ", "\t", "é", "人", "👍🏽", ", "], 80)) + "end" for _ in range(100)
    ]
    pairs, answers = [], []
    for context in contexts:
        words = [*context.split()]
        if not words:
            continue
        word = str(rng.choice(words))
        pairs.append(("ten?", context))
        answers.append((word, context.index(word)))
    rows = QuestionRows(tokenizer, pairs, max_length=48, stride=16)
    assert rows.x["token_ids"].shape[1] <= 48
    assert (rows.x["token_ids"][np.arange(len(rows.null)), rows.null] == tokenizer.cls_id).all()
    targets = rows.targets(answers)
    # Logits that are sure of the targets, and a little surer in the window whose start has most context.
    start, end = (np.full(rows.x["token_ids"].shape, -9.0) for _ in range(2))
    there = np.arange(len(start))
    start[there, targets["start"]] = end[there, targets["end"]] = 9.0
    held = np.zeros(len(pairs), bool)
    held[rows.question[targets["start"] != rows.null]] = True
    assert held.mean() > 0.95  # windows are 16 apart: longer words are in none
    found = rows.answers(start, end, max_answer_length=48)
    right = 0
    for (_, context), (text, _), (spans, _), is_held in zip(pairs, answers, found, held, strict=True):
        for span in spans:
            assert span.text == context[span.start : span.stop] == span.text.strip()
        if is_held:
            # The pieces may be wider than the answer: a letter of an accent, or a word that is unknown.
            right += text in spans[0].text
    assert right >= 0.95 * held.sum()


@pytest.mark.parametrize(
    "context, answer",
    [("Zoe\u0301 met Ann", "Zoe\u0301"), ("Rome में Ann", "में"), ("\u200bAnn\ufeff ran", "\u200bAnn\ufeff")],
)
def test_answers_whose_last_sign_is_in_no_piece(context, answer):
    """An accent that is stripped, or a character without width, is a part of the answer all the same."""
    tokenizer = Tokenizer.train("wordpiece", ["zoe met ann ran rome म"] * 20, vocabulary_size=25, lowercase=True)
    rows = QuestionRows(tokenizer, [("Ann", context)], max_length=32)
    targets = rows.targets([(answer, context.index(answer))])
    start, end = (np.full(rows.x["token_ids"].shape, -9.0) for _ in range(2))
    start[0, targets["start"]] = end[0, targets["end"]] = 9.0
    ((spans, _),) = rows.answers(start, end)
    assert targets["start"] != rows.null and spans[0].text == answer.strip("\u200b\ufeff")


def test_ranking_and_no_answer(wordpiece):
    rows = QuestionRows(wordpiece, [("e", "a b a c"), ("e", "d")], max_length=32)
    start, end = np.zeros((2, 2, rows.x["token_ids"].shape[1]))
    cls, a = 0, 3  # [CLS] e [SEP] a b a c [SEP]
    start[0, a], end[0, a], start[0, a + 2], end[0, a + 2] = 4.0, 1.0, 3.0, 1.5
    start[0, cls], end[0, cls], start[1, cls] = 2.0, 1.0, 1.0
    (spans, odds), (_, other) = rows.answers(start, end, n_best=4)
    texts = [span.text for span in spans]
    assert texts[:2] == ["a b a", "a"] and len(set(texts)) == len(texts)
    assert spans[0].logit == 5.5 and spans[1].logit == 5.0
    assert sum(span.score for span in spans) == pytest.approx(1)
    assert odds == pytest.approx(3.0 - 5.5) and other == pytest.approx(1.0)
    short = rows.answers(start, end, max_answer_length=1)[0][0]
    assert [span.text for span in short[:1]] == ["a"] and all(len(span.text.split()) == 1 for span in short)


def test_bad_answers(wordpiece):
    """As many answers as questions: one too many would shift the others in silence."""
    rows = QuestionRows(wordpiece, [("ten", "net"), ("ten", "a net")])
    for answers in ([("net", 0)], [("net", 0), None, None]):
        with pytest.raises(ValueError, match=f"must have an answer.* 2 questions, {len(answers)} answers"):
            rows.targets(answers)
    with pytest.raises(ValueError, match="first character.* for question 1: 'net'"):
        rows.targets([None, "net"])


def test_bad_questions(wordpiece):
    with pytest.raises(ValueError, match="pair .question, context.*'text' as question 0"):
        QuestionRows(wordpiece, ["text"])
    with pytest.raises(ValueError, match="question 1, 'ten', without one"):
        QuestionRows(wordpiece, [("ten", "net"), ("ten", " ")])
    with pytest.raises(ValueError, match="space for the context"):
        QuestionRows(wordpiece, [("ten net " * 40, "net")], max_length=64)
    # One question token and three special ones leave one token of context in a row of five, and none in one of four.
    assert QuestionRows(wordpiece, [("a", "a b")], max_length=5, stride=1).x["token_ids"].shape == (2, 5)
    with pytest.raises(ValueError, match="space for the context"):
        QuestionRows(wordpiece, [("a", "a b")], max_length=4, stride=1)

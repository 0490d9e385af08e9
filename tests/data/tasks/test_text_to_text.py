"""T5's text formats, by the sheet's examples."""

import pytest

from kerasbert.data.tasks.text_to_text import (
    LABELS,
    classification_text,
    label_of,
    pronoun_text,
    question_text,
    same_noun,
    score_of,
    similarity_text,
    summary_text,
    translation_text,
)

pytestmark = pytest.mark.one_backend


@pytest.mark.parametrize(
    ("task", "example", "text", "target"),
    [
        ("mnli", {"premise": "P.", "hypothesis": "H.", "label": 2}, "mnli hypothesis: H. premise: P.", "contradiction"),
        ("cola", {"sentence": "S.", "label": 1, "idx": 7}, "cola sentence: S.", "acceptable"),
        ("sst2", {"sentence": "S", "label": 0}, "sst2 sentence: S", "negative"),
        ("mrpc", {"sentence2": "b", "sentence1": "a", "label": 0}, "mrpc sentence1: a sentence2: b", "not_equivalent"),
        ("qqp", {"question1": "a", "question2": "b", "label": 1}, "qqp question1: a question2: b", "duplicate"),
        ("qnli", {"question": "q", "sentence": "s", "label": 1}, "qnli question: q sentence: s", "not_entailment"),
        ("rte", {"sentence1": "A.", "sentence2": "B.", "label": -1}, "rte sentence1: A. sentence2: B.", "<unk>"),
        (
            "copa",
            {"premise": "p", "question": "cause", "choice1": "a", "choice2": "b", "label": 1},
            "copa choice1: a choice2: b premise: p question: cause",
            "choice2",
        ),
        ("boolq", {"question": "q", "passage": "p", "label": 1}, "boolq passage: p question: q", "True"),
        (
            "multirc",
            {"paragraph": "p", "question": "q", "answer": "a", "label": 0},
            "multirc question: q answer: a paragraph: p",
            "False",
        ),
        (
            "wic",
            {"word": "w", "sentence1": "a", "sentence2": "b", "label": 1},
            "wic sentence1: a sentence2: b word: w",
            "True",
        ),
    ],
)
def test_classification(task, example, text, target):
    assert classification_text(task, example) == (text, target)
    assert label_of(target, LABELS[task]) == example["label"]


def test_other_tasks_name_their_labels():
    example = {"text": "t", "label": 1}
    assert classification_text("mood", example, ["sad", "glad"]) == ("mood text: t", "glad")
    with pytest.raises(ValueError, match="Received: 'mood'. Pass `labels`"):
        classification_text("mood", example)
    assert label_of("Glad", ["sad", "glad"]) == -1


def test_similarity():
    scores = {2.57: "2.6", 2.5: "2.4", 0: "0.0", 5: "5.0", 3.1: "3.2"}
    for score, text in scores.items():
        example = {"sentence1": "a", "sentence2": "b", "label": score}
        assert similarity_text(example) == ("stsb sentence1: a sentence2: b", text)
    assert score_of("2.6") == 2.6 and score_of("two") == -1
    assert score_of("nan") == score_of("inf") == -1, "what a model writes may be any word"
    assert score_of("0.4") == 0.4 and score_of("0.4", (1, 5)) == score_of("5.2", (1, 5)) == -1


def test_questions_translations_summaries():
    example = {"question": "What's up?", "context": "It is  (fine).", "answers": ["fine", "it"]}
    assert question_text(example) == ("question: What ' s up ?  context: It is ( fine ) . ", "fine")
    assert translation_text("That is good.", "English", "German") == "translate English to German: That is good."
    assert summary_text("A long text.") == "summarize: A long text."


def test_pronouns():
    assert pronoun_text("The dog saw it .", "it", 3) == "wsc: The dog saw *it* ."
    assert pronoun_text("It was late, he said.", "he", 3, "dpr") == "dpr: It was late, *he* said."
    with pytest.raises(ValueError, match="must be the pronoun 'it'"):
        pronoun_text("The dog saw it", "it", 2)
    with pytest.raises(ValueError, match="must be the pronoun 'it'"):
        pronoun_text("The dog", "it", 5)
    assert same_noun("the dog", "Dog") and same_noun("the big dog", "dog") and same_noun("dog", "my big dog.")
    assert not same_noun("the cat", "the dog") and not same_noun("", "dog") and not same_noun("the", "dog")

"""Cloze sentences: which words are masked, and that the model's answers are those of `fill_mask`."""

import numpy as np
import pytest

from benchmarks.studies.suite.cloze import Cloze, draw_clozes, frequent_words, masked_ids, predict_words, top_accuracies
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM

pytestmark = pytest.mark.one_backend

NOUNS, VERBS = ("cat dog hen cow pig fox owl elk".split(), "saw met hid led bit fed".split())


@pytest.fixture(scope="module")
def text():
    """Forty different sentences of nine words, eight in a paragraph, with names that the tokenizers do not know."""
    draw = np.random.default_rng(0)
    rows = [[draw.choice(words) for words in (NOUNS, VERBS, NOUNS)] for _ in range(40)]
    sentences = [
        f"The {a} {b} the old {c}-hole in the hay of Q{'x' * (i + 1)}q to-night." for i, (a, b, c) in enumerate(rows)
    ]
    return ["\n".join(" ".join(sentences[i : i + 8]) for i in range(0, 40, 8))]


@pytest.fixture(scope="module")
def tokenizer(text):
    return Tokenizer.train("wordpiece", text * 5, vocabulary_size=90, lowercase=True)


def test_words_are_single_tokens(text, tokenizer):
    clozes = draw_clozes(text, tokenizer, 30, seed=1)
    assert len({cloze.text for cloze in clozes}) == 30
    assert {cloze.word.lower() for cloze in clozes} <= {
        "the",
        "old",
        "in",
        "hay",
        "of",
        *NOUNS,
        *VERBS,
    }  # not "to" of "to-night"
    for cloze, number in zip(clozes, masked_ids(tokenizer, clozes), strict=True):
        assert tokenizer.token(number) == cloze.word.lower()
        assert cloze.gap.count("____") == 1 and cloze.gap.replace("____", cloze.word) == cloze.text


def test_the_draw_depends_on_the_seed_and_little_on_the_tokenizer(text, tokenizer):
    clozes = draw_clozes(text, tokenizer, 20)
    assert draw_clozes(text, tokenizer, 20) == clozes != draw_clozes(text, tokenizer, 20, seed=1)
    assert draw_clozes(text, tokenizer, 5) == clozes[:5]
    small = Tokenizer.train("wordpiece", text * 5, vocabulary_size=65, lowercase=True)
    others = draw_clozes(text, small, 20)
    assert [cloze.text for cloze in others] == [cloze.text for cloze in clozes]
    known = [one for one in clozes if one.word.lower() in small.tokens]
    assert 3 < len(known) < 20  # where the small vocabulary has the word, too, it is the one that is masked
    assert all((one.start, one.stop) in [(other.start, other.stop) for other in others] for one in known)


def test_too_short_a_text(text, tokenizer):
    with pytest.raises(ValueError, match="must have 41 sentences of 8 to 40 words.*Received: 40 sentences, 40 of"):
        draw_clozes(text, tokenizer, 41)
    with pytest.raises(ValueError, match="0 of which qualify"):
        draw_clozes(text, tokenizer, 1, max_length=8)


def test_answers_are_those_of_fill_mask(text, tokenizer):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=64, initializer_range=0.5)
    model = MaskedLM(Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **sizes)), tokenizer=tokenizer)
    clozes = draw_clozes(text, tokenizer, 6)
    filled = model.fill_mask([cloze.gap.replace("____", "[MASK]") for cloze in clozes])
    expected = [[candidate["id"] for candidate in candidates] for (candidates,) in filled]
    assert predict_words(model, clozes) == expected


def test_accuracies():
    assert top_accuracies([3, 5, 9, 1], [[3, 5], [3, 5], [3, 5], [1, 2]], 2) == {"top_1": 0.5, "top_2": 0.75}
    counts = {",": 9, "the": 7, "of": 3, "and": 3, "cat": 1, "": 0}
    assert frequent_words(counts, 3) == ["the", "and", "of"]
    assert Cloze("A cat sat.", 2, 5, 1).word == "cat"

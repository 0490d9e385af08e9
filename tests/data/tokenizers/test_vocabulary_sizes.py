"""Vocabulary sizes that a text or a family cannot have."""

import pytest

from kerasbert.data import Tokenizer

pytestmark = pytest.mark.one_backend

DOCUMENTS = [f"the cat sat on the mat and ran to the big red house {number}" for number in range(100)]


@pytest.mark.parametrize("size", [40, 103, -5, 2**40, 150.0, "150", True])
def test_sizes_that_no_text_supports(size):
    """The sentinels of T5 count: 40 was an OverflowError."""
    with pytest.raises(ValueError, match=f"the number of special tokens, 103, and at most .* Received: {size!r}."):
        Tokenizer.train("unigram", DOCUMENTS, vocabulary_size=size, family="t5")


@pytest.mark.parametrize(
    ("kind", "family"), [("unigram", "t5"), ("unigram", "xlnet"), ("wordpiece", None), ("bpe", None)]
)
def test_the_hint_is_right(kind, family):
    """What is said to be possible is possible, the special tokens of the family included."""
    with pytest.raises(ValueError, match="Use at most") as found:
        Tokenizer.train(kind, DOCUMENTS, 170 if family == "t5" else 95, family=family)
    size = int(str(found.value).partition("Use at most ")[2].partition(",")[0])
    assert Tokenizer.train(kind, DOCUMENTS, size, family=family).vocabulary_size == size


def test_the_alphabet_must_fit():
    with pytest.raises(ValueError, match="alphabet.* the 103 special tokens. Received: 110, which is too small"):
        Tokenizer.train("unigram", DOCUMENTS, 110, family="t5")

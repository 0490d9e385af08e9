import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers.offsets import aligned, trimmed
from tests.data.mixed_text import MARKS, SCRIPTS

pytestmark = pytest.mark.one_backend


def test_trimming():
    text = "  a b  c "
    offsets = np.array([[0, 3], [3, 5], [5, 8], [5, 7], [8, 9], [0, 9]])
    assert trimmed(text, offsets).tolist() == [[2, 3], [4, 5], [7, 8], [7, 7], [9, 9], [2, 8]]
    assert trimmed("", np.zeros((0, 2), int)).shape == (0, 2)


def test_alignment_of_rewritten_text():
    assert aligned("a ! é", "A! É").tolist() == [0, 1, 1, 2, 3, 4]
    assert aligned("abc", "abc").tolist() == [0, 1, 2, 3]
    assert aligned("x", "").tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram", "bpe"])
def test_a_piece_is_what_was_written(kind, request, documents):
    if kind == "bpe":
        tokenizer = Tokenizer.train("bpe", [*documents, *SCRIPTS], 700)
    else:
        tokenizer = request.getfixturevalue(kind)
    texts = [*SCRIPTS, *MARKS, "a  net\t\tten", "", "Ten notes, a tone's net!"]
    ids = tokenizer.encode(texts, add_special_tokens=False, plain_text=True)
    for text, expected, (found, offsets) in zip(texts, ids, tokenizer.encode_with_offsets(texts), strict=True):
        assert found.tolist() == expected.tolist() and offsets.shape == (len(found), 2)
        assert (offsets[:, 0] <= offsets[:, 1]).all() and (offsets <= len(text)).all() and (offsets >= 0).all()
        assert (np.diff(offsets[:, 0]) >= 0).all()
        pieces = [text[a:b] for a, b in offsets]
        assert all(piece == piece.strip() for piece in pieces)
    plain = texts[-1]
    _, offsets = tokenizer.encode_with_offsets([plain])[0]
    assert {i for a, b in offsets for i in range(a, b)} == {i for i, c in enumerate(plain) if not c.isspace()}

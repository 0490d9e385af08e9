"""Byte-pair encoding: the toy corpus of lectures under every rule, and subword-nmt's own files."""

import pytest

from kerasbert.data.bpe import Codes, learn_bpe, symbols_of

pytestmark = pytest.mark.one_backend

TOY = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
# End marks, ties -> the symbols that ten merges make.
CONVENTIONS = {
    (None, "first"): "es est lo low ne new newest wi wid widest",
    (None, "largest"): "st est ow low west ne newest wi wid widest",
    ("glued", "largest"): "st</w> est</w> lo west</w> ne newest</w> low</w> wi wid widest</w>",
    ("glued", "first"): "es est</w> lo ne new newest</w> low</w> wi wid widest</w>",
    ("own", "first"): "es est est</w> lo low ne new newest</w> low</w> wi",  # the listing of the paper
    ("own", "largest"): "t</w> st</w> est</w> ow low west</w> ne newest</w> low</w> wi",
}  # fmt: skip


@pytest.mark.parametrize(("end", "ties"), CONVENTIONS)
def test_the_toy_corpus(end, ties):
    merges = learn_bpe(TOY, 10, end, ties)
    assert " ".join(map("".join, merges)) == CONVENTIONS[end, ties]


def test_unseen_words():
    codes = Codes(learn_bpe(TOY, 10))
    assert [codes.split(word) for word in ("lower", "lowest", "newer", "wide", "slow", "new", "a")] == [
        ["lo", "w", "e", "r"], ["lo", "west"], ["ne", "w", "e", "r"], ["wid", "e"], ["s", "low"], ["ne", "w"], ["a"],
    ]  # fmt: skip
    assert codes.segment("lowest newer  slow\n") == "lo@@ west ne@@ w@@ e@@ r s@@ low"
    assert symbols_of("low", "own") == ["l", "o", "w", "</w>"] and symbols_of("") == []


def test_repeated_letters_merge_from_the_left():
    assert learn_bpe({"xxx": 2}, 5, None) == [("x", "x"), ("xx", "x")]
    assert learn_bpe({"ab": 1}, 5, None) == []  # rarer than `least`
    assert learn_bpe({"ab": 1}, 5, None, least=1) == [("a", "b")]


def test_files_of_codes(tmp_path):
    path = tmp_path / "codes"
    path.write_text("e s\nes t\nest </w>\n")
    codes = Codes.read(path)
    assert codes.end == "own" and codes.split("best") == ["b", "est"]
    path.write_text("#version: 0.2\ne s\nthree in line\n")
    with pytest.raises(ValueError, match="codes line 3: 'three in line'"):
        Codes.read(path)

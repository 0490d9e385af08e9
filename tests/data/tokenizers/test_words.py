"""Encoding by a table of words gives the ids of whole lines, for text of every kind."""

import json

import numpy as np
import pytest
import tokenizers as hf

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers import words
from kerasbert.data.tokenizers.sentencepiece import NORMAL, read_model
from kerasbert.data.tokenizers.words import WordEncoder, word_rules
from tests.data.mixed_text import SCRIPTS, own_lines, random_lines
from tests.data.tokenizers.tokenizer_references import PUBLISHED, write_family

pytestmark = pytest.mark.one_backend

# Characters that normalizers remove, change to spaces, or combine with those beside them, and marks for spaces.
DIFFICULT = [
    *"  ab'.,▁Σ", *"\t\r\x00\x1f\x85\xa0\xad\u200b\u200d\u2028\u3000\ufe0f", *"\u0600\u06dd\u0d4e\u0308\u0345",
    *"\u1100\u1161\u11a8", *"İ½ﬁﷺᾳ´¨ͺ中", "😀", "🏽", "[MASK]", "<s>", "<mask>",
]  # fmt: skip


def difficult_lines(count, seed=0):
    random = np.random.default_rng(seed)
    return ["".join(random.choice(DIFFICULT, random.integers(0, 20))) for _ in range(count)]


@pytest.fixture(scope="module")
def lines(documents):
    found = own_lines() + random_lines(300, seed=3) + difficult_lines(1_500)
    return [*documents[0].split("\n"), *(line.replace("\n", " ") for line in found)]


@pytest.fixture(scope="module")
def published(documents, tmp_path_factory):
    """Pieces and rules for normalization from the library SentencePiece."""
    import sentencepiece

    prefix = tmp_path_factory.mktemp("library") / "x"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*" ".join(documents).split(". "), *SCRIPTS]),
        **dict(model_prefix=str(prefix), vocab_size=700, hard_vocab_limit=False),
        **dict(minloglevel=2, num_threads=1),
    )
    return read_model(prefix.with_suffix(".model"))


def assert_equal(encoder, lines):
    found, wanted = encoder(lines), encoder.tokenizer.encode_joined(lines)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype == np.int32
        np.testing.assert_array_equal(one, other)


def check(tokenizer, lines, rules):
    """A new table, a table that knows all words, and lines in another order."""
    assert word_rules(tokenizer) == rules
    encoder = WordEncoder(tokenizer)
    for some in (lines, lines, lines[::-1], lines[:1], []):
        assert_equal(encoder, some)
    for line in lines[:100]:
        assert_equal(encoder, [line])


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_trained_tokenizers(kind, lowercase, documents, lines):
    tokenizer = Tokenizer.train(kind, documents, {"byte_bpe": 400}.get(kind, 150), lowercase)
    check(tokenizer, lines, (True, kind == "wordpiece"))


@pytest.mark.parametrize("family", PUBLISHED)
def test_published_tokenizers(family, published, lines, tmp_path):
    pieces = [piece for piece in published.pieces if piece[2] == NORMAL]
    tokenizer = Tokenizer.load(write_family(tmp_path, family, pieces, published.charsmap))
    assert published.charsmap
    check(tokenizer, lines, (True, family != "deberta-v2"))


def test_moses_sees_whole_lines(documents, lines):
    tokenizer = Tokenizer.train("bpe", documents, 150)
    check(tokenizer, lines, (False, True))


def changed(tokenizer, change):
    content = json.loads(tokenizer.backend.to_str())
    change(content)
    return Tokenizer(hf.Tokenizer.from_str(json.dumps(content)), tokenizer.roles)


def metaspace(**settings):
    def change(content):
        content["pre_tokenizer"]["pretokenizers"][0].update(settings)

    return change


STRIP = {"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""}
DEPENDENT = {
    "spaces in a token": ("wordpiece", lambda content: content["added_tokens"].append(
        {"id": 200, "content": "a b", "special": False, "normalized": True, "single_word": False, "lstrip": False,
         "rstrip": False})),
    "no pre-tokenizer": ("byte_bpe", lambda content: content.update(pre_tokenizer=None)),
    "no regular expression": ("byte_bpe", lambda content: content["pre_tokenizer"].update(use_regex=False)),
    "stripped spaces": ("byte_bpe", lambda content: content.update(normalizer=STRIP)),
    "a rule across words": ("byte_bpe", lambda content: content.update(
        normalizer={"type": "Replace", "pattern": {"String": "a b"}, "content": "c"})),
    "a prefix": ("byte_bpe", lambda content: content.update(normalizer={"type": "Prepend", "prepend": "a"})),
    "the first word differs": ("unigram", metaspace(prepend_scheme="first")),
    "words are not split": ("unigram", metaspace(split=False)),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPENDENT)
def test_tokenizers_whose_words_depend_on_each_other(name, lines, request):
    kind, change = DEPENDENT[name]
    check(changed(request.getfixturevalue(kind), change), [*lines, "a b a b", "ab ba"], (False, kind == "wordpiece"))


def test_random_merges_stay_random(byte_bpe):
    def drop(content):
        content["model"]["dropout"] = 0.5

    assert word_rules(changed(byte_bpe, drop)) == (False, False)


class Counting:
    """Notes what a tokenizer encodes."""

    def __init__(self, tokenizer, monkeypatch):
        self.seen, encode = [], tokenizer.encode_joined

        def encode_joined(texts):
            self.seen.append(list(texts))
            return encode(texts)

        monkeypatch.setattr(tokenizer, "encode_joined", encode_joined)

    def take(self):
        seen, self.seen[:] = list(self.seen), []
        return seen


def test_every_word_is_encoded_once(wordpiece, monkeypatch):
    encoder, counting = WordEncoder(wordpiece), Counting(wordpiece, monkeypatch)
    encoder(["ten nets ten", "nets ten"])
    assert counting.take() == [["ten", " nets", " ten", "nets"]]
    encoder(["ten ten", "nets nets nets"])
    assert counting.take() == []


def test_only_lines_with_difficult_spaces_are_encoded_whole(byte_bpe, monkeypatch):
    encoder, counting = WordEncoder(byte_bpe), Counting(byte_bpe, monkeypatch)
    lines = ["ten nets", "ten  nets", "ten\xa0 nets", "ten \xa0nets"]
    encoder(lines)
    _, whole = counting.take()
    assert whole == lines[1:3]


def test_the_table_is_bounded(wordpiece, lines, monkeypatch):
    monkeypatch.setattr(words, "_TABLE_CHARACTERS", 50)
    encoder = WordEncoder(wordpiece)
    for _ in range(2):
        for start in range(0, 60, 2):
            assert_equal(encoder, lines[start : start + 2])
            assert len(encoder._numbers) < 100


def test_the_table_survives_an_error(wordpiece):
    encoder = WordEncoder(wordpiece)
    encoder(["ten nets"])
    with pytest.raises(ValueError, match="unpaired surrogate"):
        encoder(["ten tens \ud800 nests"])
    assert_equal(encoder, ["ten tens nests nets", "nests"])

"""Words in scripts with and without spaces, by the tokens of every kind of vocabulary."""

import numpy as np
import pytest
import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers

from kerasbert.data import Tokenizer

pytestmark = pytest.mark.one_backend


def words_of(tokenizer, text):
    """The text of each word."""
    ids = tokenizer.encode([text], add_special_tokens=False, plain_text=True)[0]
    starts = np.flatnonzero(tokenizer.word_boundaries(ids[None], np.arange(len(ids))[None] == 0)[0])
    ends = [*starts[1:], len(ids)]
    return [tokenizer.decode(ids[start:end]) for start, end in zip(starts, ends, strict=True)]


def bytes_alone():
    """Byte-level BPE without merges: every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = hf.Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, {})


TEXTS = {
    "The cat's 3,000 wörter": ["The", " cat's", " 3,000", " wörter"],
    "我爱GPT模型，真的。": ["我", "爱", "GPT", "模", "型", "，", "真", "的", "。"],
    "コンピューターとﾊﾝｶｸは東京": ["コンピューター", "と", "ﾊﾝｶｸ", "は", "東", "京"],
    "한국어는 띄어 쓴다": ["한국어는", " 띄어", " 쓴다"],
    "ที่นี่ดี ok": ["ที่", "นี่", "ดี", " ok"],
    "a 中文 b": ["a", " 中", "文", " b"],
    "𠀀𠀁é が": ["𠀀", "𠀁", "é", " が"],
}


@pytest.mark.parametrize("text", TEXTS)
def test_bytes(text):
    """A character may be in several tokens, and a mark in the next one."""
    assert words_of(bytes_alone(), text) == TEXTS[text]


def test_pieces_are_words():
    """A piece of several letters is one word, and a space belongs to the word behind it."""
    pieces = ["<unk>", "▁", "東京", "に", "カタ", "カナ", "語", "▁a", "bc", "ている", "す", "。"]
    backend = hf.Tokenizer(models.Unigram([(piece, -1.0 - i / 100) for i, piece in enumerate(pieces)], 0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="never")
    tokenizer = Tokenizer(backend, {"unk": "<unk>"})
    assert words_of(tokenizer, "東京に abcカタカナ語す。") == [" 東京", "に", " abc", "カタカナ", "語", "す", "。"]


@pytest.mark.parametrize(
    ("chinese", "words"), [(True, ["東", "京", "にいます"]), (False, ["東", "京", "に", "い", "ま", "す"])]
)
def test_marks_of_wordpiece_are_kept_where_its_normalizer_finds_words(chinese, words):
    letters = [*"東京にいますกข"]
    tokens = ["[UNK]", *letters, *(f"##{letter}" for letter in letters)]
    backend = hf.Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(handle_chinese_chars=chinese, lowercase=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    tokenizer = Tokenizer(backend, {"unk": "[UNK]"})
    assert [word.replace("##", "") for word in words_of(tokenizer, "東京にいます")] == words
    assert len(words_of(tokenizer, "กขก")) == 3


def test_ends_of_words(documents):
    tokenizer = Tokenizer.train("bpe", documents, 200)
    text = documents[0].split("\n")[0]
    assert words_of(tokenizer, text) == [*text[:-1].split(), "."]
    with pytest.raises(ValueError, match="Word starts are only known"):
        tokenizer.word_starts  # noqa: B018


def test_vocabularies_without_marks():
    backend = hf.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(ValueError, match="Word starts are only known for vocabularies that mark"):
        Tokenizer(backend, {}).word_boundaries  # noqa: B018

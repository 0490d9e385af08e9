import numpy as np
import pytest

from kerasbert.data import Tokenizer, encode_texts

pytestmark = pytest.mark.one_backend


def test_single_texts(wordpiece):
    x = encode_texts(wordpiece, ["ten nets", "a"])
    ten = wordpiece.encode(["ten nets"])[0]
    a = wordpiece.encode(["a"])[0]
    assert {name: array.dtype for name, array in x.items()} == dict.fromkeys(
        ["token_ids", "lengths", "segment_ids"], np.int32
    )
    assert x["token_ids"].tolist() == [ten.tolist(), a.tolist() + [0] * (len(ten) - len(a))]
    assert x["lengths"].tolist() == [len(ten), len(a)]
    assert not x["segment_ids"].any()


def test_pairs_are_cut_at_the_end_of_the_longer(wordpiece):
    a, b = "a b c d e f", "g h i"
    ids = {letter: wordpiece.id(letter) for letter in "abcdefghi"}
    cls, sep = wordpiece.cls_id, wordpiece.sep_id

    def row(first, second):
        return [cls, *(ids[i] for i in first), sep, *(ids[i] for i in second), sep]

    for max_length, first, second in ((12, "abcdef", "ghi"), (11, "abcde", "ghi"), (9, "abc", "ghi"), (8, "abc", "gh")):
        x = encode_texts(wordpiece, [(a, b)], max_length=max_length)
        assert x["token_ids"].tolist() == [row(first, second)]
        assert x["segment_ids"].tolist() == [[0] * (len(first) + 2) + [1] * (len(second) + 1)]
    assert encode_texts(wordpiece, [a], max_length=5)["token_ids"].tolist() == [[cls, *(ids[i] for i in "abc"), sep]]


def test_the_template_is_the_tokenizers(byte_bpe, unigram):
    x = encode_texts(byte_bpe, [("a", "b"), "a"], pad_to=9)
    a, b = byte_bpe.id("a"), byte_bpe.id("b")
    assert x["token_ids"].tolist() == [[0, a, 2, 2, b, 2, 1, 1, 1], [0, a, 2, 1, 1, 1, 1, 1, 1]]
    assert "segment_ids" not in x
    # Four special tokens leave five for the texts.
    x = encode_texts(byte_bpe, [("aaa bbb ccc", "ddd eee fff")], pad_to=9)
    assert x["lengths"].tolist() == [9]
    assert encode_texts(unigram, [("a", "b")])["segment_ids"].max() == 1


def test_left_padding(wordpiece):
    tokenizer = Tokenizer.from_json(wordpiece.to_json())
    tokenizer.padding_side = "left"
    x = encode_texts(tokenizer, ["a b", ("a", "b c")])
    right = encode_texts(wordpiece, ["a b", ("a", "b c")])
    assert "lengths" not in x and x["padding_mask"].dtype == bool
    assert x["padding_mask"].tolist() == [[False] * 2 + [True] * 4, [True] * 6]
    for name in ("token_ids", "segment_ids"):
        assert x[name][0].tolist() == right[name][0, 4:].tolist() + right[name][0, :4].tolist()
        assert x[name][1].tolist() == right[name][1].tolist()


def test_equal_to_transformers(wordpiece, byte_bpe, unigram, documents, tmp_path):
    import transformers

    texts = [document.split("\n")[0] for document in documents]
    pairs = list(zip(texts, reversed(texts), strict=True))
    for number, tokenizer in enumerate((wordpiece, byte_bpe, unigram)):
        tokenizer.save(tmp_path / str(number))
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / str(number))
        for batch in (texts, pairs):
            # An even budget: on ties they keep the second text where BERT keeps the first.
            length = 20 + len(tokenizer.template(pair=True)) - 2
            expected = theirs(batch, padding="max_length", truncation="longest_first", max_length=length)
            x = encode_texts(tokenizer, batch, pad_to=length)
            assert x["token_ids"].tolist() == expected["input_ids"]
            mask = np.arange(length) < x["lengths"][:, None]
            assert mask.astype(int).tolist() == expected["attention_mask"]
            if "segment_ids" in x:
                assert x["segment_ids"].tolist() == expected["token_type_ids"]


def test_bad_texts(wordpiece):
    with pytest.raises(ValueError, match="Received: one str"):
        encode_texts(wordpiece, "text")
    with pytest.raises(ValueError, match="Received: 3 as text 1"):
        encode_texts(wordpiece, ["a", 3])
    with pytest.raises(ValueError, match="as text 0"):
        encode_texts(wordpiece, [("a", "b", "c")])
    with pytest.raises(ValueError, match="space for text.*Use at least 5"):
        encode_texts(wordpiece, [("a", "b")], max_length=4)

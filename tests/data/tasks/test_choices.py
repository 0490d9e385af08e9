import numpy as np
import pytest

from kerasbert.data.tasks.choices import encode_choices

pytestmark = pytest.mark.one_backend


def decoded(tokenizer, x, row, choice):
    ids = x["token_ids"][row, choice, : x["lengths"][row, choice]]
    return tokenizer.decode(ids, skip_special_tokens=False)


def test_the_forms_of_swag_and_race(wordpiece):
    x = encode_choices(wordpiece, [("a net", ["ten", "note"]), ("ten", "a _ net", ["note", "tone", "tens"])], 64)
    assert x["token_ids"].shape[:2] == x["lengths"].shape == (2, 3)
    assert decoded(wordpiece, x, 0, 1) == "[CLS] a net [SEP] note [SEP]"
    assert x["lengths"][0, 2] == 0 and not x["token_ids"][0, 2].any()
    assert decoded(wordpiece, x, 1, 1) == "[CLS] ten [SEP] a tone net [SEP]"
    x = encode_choices(wordpiece, [("ten", "a net", ["note", "tone"])], 64)
    assert decoded(wordpiece, x, 0, 0) == "[CLS] ten [SEP] a net note [SEP]"
    first = 2 + len(wordpiece.encode(["ten"], add_special_tokens=False)[0])
    assert x["segment_ids"][0, 0, : x["lengths"][0, 0]].tolist() == [0] * first + [1] * (x["lengths"][0, 0] - first)


def test_of_question_and_choice_the_end_is_kept(wordpiece):
    passage, question = "a b c d e f g h", "i i i i"
    x = encode_choices(wordpiece, [(passage, question, ["a", "b"])], max_length=12, max_choice_length=3)
    assert decoded(wordpiece, x, 0, 0) == "[CLS] a b c d e f [SEP] i i a [SEP]"
    x = encode_choices(wordpiece, [(passage, ["i i i i", "a"])], max_length=9)
    assert decoded(wordpiece, x, 0, 0) == "[CLS] a b c [SEP] i i i [SEP]"
    assert np.all(x["lengths"] <= 9)


def test_bad_examples(wordpiece):
    for example in (("a", ["b"]), ("a",), "text", ("a", "b"), ("a", 3, ["b", "c"])):
        with pytest.raises(ValueError, match="two or more choices. Received as example 1"):
            encode_choices(wordpiece, [("a", ["b", "c"]), example], 16)

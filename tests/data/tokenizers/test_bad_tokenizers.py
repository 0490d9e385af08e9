"""Tokenizer files that are damaged or made to fill the memory: each is refused, and the file is named."""

import json

import pytest

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers.checks import rust_errors
from kerasbert.data.tokenizers.sentencepiece import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    SentencePieceModel,
    model_bytes,
    read_model,
)

pytestmark = pytest.mark.one_backend

DOCUMENTS = ["the cat sat on the mat .", "a dog ran home , and it was hungry ."] * 10
PIECES = [("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN), ("▁a", -1.0, NORMAL)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", DOCUMENTS, 60, lowercase=True)


@pytest.fixture
def folder(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    return tmp_path


def change(path, update):
    content = json.loads(path.read_text())
    update(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("index", [10**6, 2**31, 2**32 - 1])
def test_ids_that_would_fill_the_memory(index, folder):
    """The library writes down every id below the largest, and so would tables by id."""
    change(folder / "tokenizer.json", lambda content: content["model"]["vocab"].update(cat=index))
    with pytest.raises(ValueError, match=f"tokenizer.json: The ids of 60 tokens must be below .* Received: {index:,}"):
        Tokenizer.load(folder)


def test_ids_of_vocab_json(tmp_path):
    Tokenizer.train("byte_bpe", DOCUMENTS, 270).save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    vocabulary = tmp_path / "vocab.json"
    right = vocabulary.read_text()
    for wrong, message in (
        (2**31, "must map tokens to non-negative integer ids"),
        (2**31 - 1, "must be below"),
        (-1, "must map tokens to non-negative integer ids"),
        ("1", "must map tokens to non-negative integer ids"),
        (1, "must give each token a unique id"),
    ):
        vocabulary.write_text(right)
        change(vocabulary, lambda content, wrong=wrong: content.update({"!": wrong}))
        with pytest.raises(ValueError, match=f"vocab.json.*{message}"):
            Tokenizer.load(tmp_path)


def test_rows_laid_out_with_ids_beyond_the_vocabulary(folder):
    def update(content):
        content["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [2**31]

    change(folder / "tokenizer.json", update)
    with pytest.raises(ValueError, match="The special tokens in rows must have ids below 60. Received: 2147483648"):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer_class": 3}, "`tokenizer_class` in .*tokenizer_config.json must be str or null"),
        ({"model_max_length": "long"}, "`model_max_length` in .* must be float or null"),
        ({"model_max_length": -5}, "`model_max_length` in .* must be at least 1"),
        ({"padding_side": "middle"}, "`padding_side` in .* must be 'left' or 'right'"),
        ({"do_lower_case": "yes"}, "`do_lower_case` in .* must be bool or null"),
        ({"mask_token": ["[MASK]"]}, "`mask_token` in .* must be str or dict or null"),
        ({"mask_token": {"lstrip": True}}, "`content` in .* must be str"),
        ({"added_tokens_decoder": {"x": {"content": "y"}}}, "keys of `added_tokens_decoder` in .* must be ids"),
        ({"extra_ids": 10**9}, "`extra_ids` in .* must be between 0 and"),
    ],
)
def test_settings(changes, message, folder):
    change(folder / "tokenizer_config.json", lambda content: content.update(changes))
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"[" * 100_000, "nested too deeply"),
        ("tokenizer.json", b"{}", "tokenizer.json is not a tokenizer file"),
        ("tokenizer.json", b'{"class_name": ["BertTokenizer"]}', "`class_name` in .* must be 'BertTokenizer' or"),
        ("tokenizer.json", b'{"class_name": "BertTokenizer", "config": 3}', "`config` in .* must be dict"),
        ("vocab.txt", b"[UNK]\nth\xe9\n", "vocab.txt must be UTF-8. Received: .* in line 2"),
        ("spiece.model", b"junk", "spiece.model is not a valid SentencePiece model"),
        ("spiece.model", b"\x08" + b"\xff" * 1_000_000, "a number of more than 64 bits"),
    ],
)
def test_files_of_junk(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (("", 0.0, NORMAL), "a piece of 0 characters"),
        (("a" * 2_000, 0.0, NORMAL), "a piece of 2000 characters"),
        (("b", float("nan"), NORMAL), "score nan"),
        (("b", 0.0, 77), "type 77"),
        (("▁a", 0.0, NORMAL), "it has a duplicate piece"),
    ],
)
def test_pieces_of_a_sentencepiece_model(piece, message, tmp_path):
    path = tmp_path / "spiece.model"
    path.write_bytes(model_bytes(SentencePieceModel([*PIECES, piece])))
    with pytest.raises(ValueError, match=message):
        read_model(path)


def test_normalizers_that_the_library_cannot_read(tmp_path):
    (tmp_path / "spiece.model").write_bytes(model_bytes(SentencePieceModel(PIECES, charsmap=b"\x05\0\0\0abc")))
    with pytest.raises(ValueError, match="spiece.model is not a tokenizer file: .*precompiled_charsmap"):
        Tokenizer.load(tmp_path)


def test_panics_of_the_library_are_errors():
    """They are no `Exception`, so that no reader would catch them."""
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ValueError, match="^a rule: it broke.$"), rust_errors("a rule"):
        raise panic("it broke")
    with pytest.raises(KeyboardInterrupt), rust_errors("a rule"):
        raise KeyboardInterrupt


def test_texts_without_ids_are_errors(folder):
    """A vocabulary without its unknown token reads only what it knows."""

    def update(content):
        content["model"]["unk_token"] = "[GONE]"

    change(folder / "tokenizer.json", update)
    tokenizer = Tokenizer.load(folder)
    assert len(tokenizer.encode(["the cat"])[0]) == 4
    with pytest.raises(ValueError, match="The tokenizer cannot encode the text: .*UNK"):
        tokenizer.encode(["Ж"])


@pytest.mark.parametrize("text", ["{}", "[]", '{"tokenizer": {}}', '{"tokenizer": {}, "roles": 3}'])
def test_texts_of_keras_files(text, tokenizer):
    with pytest.raises(ValueError, match="text"):
        Tokenizer.from_json(text)
    whole = json.loads(tokenizer.to_json())
    for wrong in ({"roles": 3}, {"preparation": "x"}, {"extra": 1}, {"padding_side": "up"}):
        with pytest.raises(ValueError, match="the text of a tokenizer|`Tokenizer.to_json` wrote"):
            Tokenizer.from_json(json.dumps({**whole, **wrong}))
    assert Tokenizer.from_json(tokenizer.to_json()).hash == tokenizer.hash

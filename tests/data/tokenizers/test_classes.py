"""The class of transformers that a saved folder names: that of the family where it builds the same tokenizer."""

import json

import pytest
from tokenizers import pre_tokenizers

from kerasbert.data import Tokenizer
from tests.data.tokenizers.tokenizer_references import assert_same_ids, their_class

pytestmark = pytest.mark.one_backend

WORDS = ["the", "cat", "sat"]
TEXTS = ["the cat sat", "a<mask> b [MASK]", "  He  said: café\n\tx", "", "ＡB ① 人", "</s> [SEP] <|endoftext|>"]
DOCUMENTS = ["the cat sat on the mat, and 9, dogs ran."] * 5 + ["He said: hello world café"] * 5


def train(kind, family=None, **options):
    size = {"wordpiece": 60, "byte_bpe": 290, "unigram": 33}[kind] + (98 if family == "t5" else 0)
    return Tokenizer.train(kind, DOCUMENTS, size, family=family, **options)


def read_by_transformers(tokenizer, folder, model_type=None):
    """The tokenizer of transformers, after a check that it gives the same ids as ours."""
    tokenizer.save(folder, max_length=9)
    if model_type:
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs = their_class("AutoTokenizer").from_pretrained(folder)
    assert_same_ids(tokenizer, theirs, TEXTS, pairs=3)
    assert len(theirs) == tokenizer.vocabulary_size and theirs.model_max_length == 9
    return theirs


@pytest.mark.parametrize(
    ("kind", "family", "name"),
    [
        ("wordpiece", None, "BertTokenizer"),
        ("wordpiece", "bert", "BertTokenizer"),
        ("wordpiece", "electra", "ElectraTokenizer"),
        ("wordpiece", "mobilebert", "MobileBertTokenizer"),
        ("wordpiece", "distilbert", "DistilBertTokenizer"),
        ("wordpiece", "mpnet", "MPNetTokenizer"),
        ("byte_bpe", None, "RobertaTokenizer"),
        ("byte_bpe", "roberta", "RobertaTokenizer"),
        ("byte_bpe", "gpt2", "GPT2Tokenizer"),
        ("byte_bpe", "deberta", "GPT2Tokenizer"),
        ("unigram", "albert", "PreTrainedTokenizerFast"),
        ("unigram", "t5", "PreTrainedTokenizerFast"),
        ("unigram", "deberta-v2", "PreTrainedTokenizerFast"),
    ],
)
def test_the_class_of_the_family_gives_the_same_ids_and_takes_words(kind, family, name, tmp_path):
    tokenizer = train(kind, family)
    theirs = read_by_transformers(tokenizer, tmp_path, family)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"] == name
    assert type(theirs) is their_class(name)
    spaced = their_class("AutoTokenizer").from_pretrained(tmp_path, add_prefix_space=True)
    found = spaced(WORDS, is_split_into_words=True, add_special_tokens=False)
    wanted = tokenizer.encode([" the cat sat" if kind == "byte_bpe" else "the cat sat"], add_special_tokens=False)[0]
    assert found["input_ids"] == wanted.tolist() and found.word_ids()[-1] == 2


@pytest.mark.parametrize("model_type", ["bert", "roberta", "deberta", "electra", "modernbert"])
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_the_model_may_be_of_another_family(kind, model_type, tmp_path):
    read_by_transformers(train(kind), tmp_path, model_type)


def test_what_the_class_would_change_is_read_unchanged(tmp_path):
    lowercase = train("byte_bpe", lowercase=True)
    read_by_transformers(lowercase, tmp_path / "lowercase")
    plain = train("byte_bpe", special_tokens={"pad": "<nothing>", "eos": "<end>"})
    theirs = read_by_transformers(plain, tmp_path / "plain")
    assert (theirs.bos_token, theirs.unk_token, theirs.eos_token) == (None, None, "<end>")
    maskless = train("wordpiece", special_tokens={"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"})
    read_by_transformers(maskless, tmp_path / "maskless")
    names = [json.loads((tmp_path / name / "tokenizer_config.json").read_text())["tokenizer_class"]
             for name in ("lowercase", "plain", "maskless")]  # fmt: skip
    assert names == ["PreTrainedTokenizerFast", "GPT2Tokenizer", "PreTrainedTokenizerFast"]


def test_a_space_before_the_text_is_kept(tmp_path):
    tokenizer = train("byte_bpe", "roberta")
    backend = tokenizer.backend
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer = Tokenizer(backend, tokenizer.roles, family="roberta")
    theirs = read_by_transformers(tokenizer, tmp_path)
    assert type(theirs) is their_class("RobertaTokenizer") and theirs.tokenize("the") == ["Ġthe"]
    assert Tokenizer.load(tmp_path).encode(["the"])[0].tolist() == tokenizer.encode(["the"])[0].tolist()

"""The tokenizers of mBART and mBART-50 give the ids of transformers, with the codes of languages in the same places."""

import json

import pytest

from kerasbert.data import Tokenizer
from tests.data.tokenizers.slow_folders import TEXTS, Vocabularies, assert_equal

pytestmark = pytest.mark.one_backend

CLASSES = {"mbart": "MBartTokenizer", "mbart50": "MBart50Tokenizer"}


@pytest.fixture(scope="module")
def vocabularies(documents):
    return Vocabularies(documents)


def write(vocabularies, folder, family, **settings):
    """A folder as it was published: a SentencePiece model with the pieces of XLM-RoBERTa's, and a config."""
    vocabularies.write(folder, "xlm-roberta", {"tokenizer_class": CLASSES[family], **settings})
    (folder / "config.json").write_text(json.dumps({"model_type": "mbart"}))
    return folder


def codes(tokenizer, text):
    return [tokenizer.token(i) for i in tokenizer.encode([text])[0] if tokenizer.token(i)[2:3] == "_"]


@pytest.mark.parametrize("family", CLASSES)
def test_both_classes_equal_transformers(family, vocabularies, tmp_path):
    import transformers

    ours = assert_equal(write(vocabularies, tmp_path / "german", family, src_lang="de_DE"), family)
    assert codes(ours, "the cat") == ["de_DE"] and ours.family == family
    plain = assert_equal(write(vocabularies, tmp_path / "plain", family), family)
    french, theirs = plain.with_language("fr_XX"), transformers.AutoTokenizer.from_pretrained(tmp_path / "plain")
    assert codes(plain, "the cat") == ["en_XX"]  # the original has not changed
    theirs.src_lang = "fr_XX"
    assert french.encode([("the cat", "a mat")])[0].tolist() == theirs("the cat", "a mat")["input_ids"]
    assert codes(french, "the cat") == ["fr_XX"]

    french.save(tmp_path / "ours")
    again, fast = Tokenizer.load(tmp_path / "ours"), transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    wanted = [row.tolist() for row in french.encode(TEXTS)]
    assert again.hash == french.hash and fast(TEXTS)["input_ids"] == wanted
    (tmp_path / "ours" / "tokenizer.json").unlink()
    assert Tokenizer.load(tmp_path / "ours").tokens == french.tokens


@pytest.mark.parametrize("family", CLASSES)
def test_the_stated_language_replaces_that_of_tokenizer_json(family, vocabularies, tmp_path):
    import transformers

    write(vocabularies, tmp_path / "slow", family)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "slow", src_lang="de_DE", tgt_lang="ro_RO")
    theirs.save_pretrained(tmp_path / "fast")
    assert codes(assert_equal(tmp_path / "fast", family), "the cat") == ["de_DE"]
    settings = json.loads((tmp_path / "fast" / "tokenizer_config.json").read_text())
    (tmp_path / "fast" / "tokenizer_config.json").write_text(json.dumps({**settings, "src_lang": "ro_RO"}))
    assert codes(assert_equal(tmp_path / "fast", family), "the cat") == ["ro_RO"]


def test_unknown_languages_are_refused_by_name(vocabularies, tmp_path):
    with pytest.raises(ValueError, match="code in the vocabulary.*'af_ZA'"):
        Tokenizer.load(write(vocabularies, tmp_path / "other", "mbart", src_lang="af_ZA"))
    ours = Tokenizer.load(write(vocabularies, tmp_path / "plain", "mbart"))
    with pytest.raises(ValueError, match="code in the vocabulary.*'German'"):
        ours.with_language("German")
    with pytest.raises(ValueError, match="Only tokenizers of mBART"):
        Tokenizer.load(vocabularies.write(tmp_path / "roberta", "roberta")).with_language("de_DE")

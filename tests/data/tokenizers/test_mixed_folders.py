"""Folders of many kinds on odd texts give the ids of transformers: classes and vocabularies of different families,
further special tokens in every place, options that are not stated, and marks of SentencePiece in texts."""

import json
import shutil

import pytest

from kerasbert.data import Tokenizer, encode_texts
from tests.data.tokenizers.slow_folders import MARKS, Vocabularies
from tests.data.tokenizers.tokenizer_references import their_class

pytestmark = pytest.mark.one_backend

SENTENCEPIECE = ("albert", "xlnet", "t5", "xlm-roberta", "camembert", "deberta-v2")
TEXTS = [
    *(
        "Hello world, the Cat",
        "Café naïve",
        "a <mask> b[MASK]",
        "the <s>x</s> [CLS]y[SEP]",
        "人生 abc",
        " lead  double ",
    ),
    *("<|endoftext|>the", "HELLO", "", "<unk>a[UNK]", "<pad>[PAD]"),
]


@pytest.fixture(scope="module")
def vocabularies(documents):
    return Vocabularies(documents)


def assert_equal(folder, texts, pairs=True):
    """Texts and pairs have the ids of transformers. Returns our tokenizer."""
    ours, theirs = Tokenizer.load(folder), their_class("AutoTokenizer").from_pretrained(folder)
    found = {text: row.tolist() for text, row in zip(texts, ours.encode(texts), strict=True)}
    assert found == {text: theirs(text)["input_ids"] for text in texts}
    assert ours.vocabulary_size == len(theirs)
    if pairs:
        assert ours.encode([("the cat", "a mat")])[0].tolist() == theirs("the cat", "a mat")["input_ids"]
    return ours


def fast(folder, target, **settings):
    """The folder as transformers saves it, with `tokenizer.json`. None removes a setting."""
    their_class("AutoTokenizer").from_pretrained(folder).save_pretrained(target)
    shutil.copy(folder / "config.json", target)
    stated = json.loads((target / "tokenizer_config.json").read_text()) | settings
    stated = {name: value for name, value in stated.items() if value is not None}
    (target / "tokenizer_config.json").write_text(json.dumps(stated))
    return target


# === Marks of SentencePiece in texts ===


@pytest.mark.parametrize("family", SENTENCEPIECE)
def test_marks_in_texts(family, vocabularies, tmp_path):
    slow = vocabularies.write(tmp_path / "slow", family)
    ours = assert_equal(slow, MARKS)
    assert_equal(fast(slow, tmp_path / "fast"), MARKS)
    ours.save(tmp_path / "ours")
    assert_equal(tmp_path / "ours", MARKS)
    (tmp_path / "ours" / "tokenizer.json").unlink()
    again = Tokenizer.load(tmp_path / "ours")
    assert [row.tolist() for row in again.encode(MARKS)] == [row.tolist() for row in ours.encode(MARKS)]


@pytest.mark.parametrize("name", ["MBartTokenizer", "MBart50Tokenizer"])
def test_marks_in_texts_of_many_languages(name, vocabularies, tmp_path):
    slow = vocabularies.write(tmp_path / "slow", "xlm-roberta", {"tokenizer_class": name})
    (slow / "config.json").write_text(json.dumps({"model_type": "mbart"}))
    assert_equal(slow, MARKS)
    assert_equal(fast(slow, tmp_path / "fast"), MARKS)


# === Classes, model types and vocabularies that disagree ===

WORDPIECE = ("bert", "electra", "distilbert", "mpnet", "roberta", "nomic_bert")
BYTES = ("roberta", "gpt2", "deberta", "bart")


@pytest.mark.parametrize(
    "family, classes, model_types",
    [
        ("bert", (None, "BertTokenizer", "ElectraTokenizer", "DistilBertTokenizer", "MPNetTokenizer"), WORDPIECE),
        ("mpnet", (None, "BertTokenizerFast", "DistilBertTokenizer", "MPNetTokenizer"), WORDPIECE),
        ("roberta", (None, "RobertaTokenizer", "GPT2Tokenizer", "BartTokenizer", "DebertaTokenizer"), BYTES),
        ("gpt2", (None, "RobertaTokenizer", "GPT2TokenizerFast", "LongformerTokenizer", "DebertaTokenizer"), BYTES),
        ("deberta", (None, "RobertaTokenizer", "GPT2Tokenizer", "DebertaTokenizer"), BYTES),
        ("xlm-roberta", (None, "XLMRobertaTokenizer"), ("xlm-roberta", "gte", "jina_embeddings_v3")),
        ("xlm-roberta", ("XLMRobertaTokenizer",), ("bert", "xlnet", "t5")),
        ("t5", (None, "T5Tokenizer"), ("t5", "mt5")),
        ("t5", ("T5Tokenizer",), ("bert", "albert")),
    ],
)
def test_classes_and_vocabularies_of_different_families(family, classes, model_types, vocabularies, tmp_path):
    """The class counts, and else the model type. Special tokens of the class are added if the vocabulary lacks them."""
    for name in classes:
        for model_type in model_types:
            if name is None and (family, model_type) in (("bert", "roberta"), ("mpnet", "roberta")):
                continue  # refused, see below
            folder = vocabularies.write(tmp_path, family, {"tokenizer_class": name} if name else {})
            (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
            # transformers 5.24 gives DeBERTa's pairs a second [SEP], which the model never saw.
            is_deberta = name == "DebertaTokenizer" or (name is None and model_type == "deberta")
            assert_equal(folder, TEXTS, pairs=not is_deberta)


@pytest.mark.parametrize(
    "family, stated",
    [("bert", {"tokenizer_class": "RobertaTokenizer"}), ("roberta", {"tokenizer_class": "BertTokenizer"}), ("t5", {})],
)
def test_files_that_the_class_does_not_read(family, stated, vocabularies, tmp_path):
    vocabularies.write(tmp_path, family, stated, config={"model_type": "bert"})
    with pytest.raises(ValueError, match="must be in a file that the tokenizer class reads, here vocab"):
        Tokenizer.load(tmp_path)


OPTIONS = {
    **dict.fromkeys(("bert", "electra", "mpnet"), ("do_lower_case", "strip_accents", "tokenize_chinese_chars")),
    **dict.fromkeys(("roberta", "gpt2", "deberta", "xlm-roberta", "camembert"), ("add_prefix_space",)),
    "albert": ("do_lower_case", "keep_accents", "add_prefix_space"),
    "xlnet": ("do_lower_case",),
    "deberta-v2": ("do_lower_case", "split_by_punct"),
}


@pytest.mark.parametrize("family", OPTIONS)
def test_options_that_are_not_stated_have_the_default_of_the_class(family, vocabularies, tmp_path):
    """Also where `tokenizer.json` says something else."""
    for option in OPTIONS[family]:
        for value in (True, False):
            slow = vocabularies.write(tmp_path / "slow", family, {option: value})
            assert_equal(fast(slow, tmp_path / "fast"), TEXTS)
            assert_equal(fast(slow, tmp_path / "fast", **{option: None}), TEXTS)


def test_a_cased_tokenizer_of_another_kind_stays_cased(vocabularies, tmp_path):
    """The options of BERT's class are those of its normalizer, which a SentencePiece vocabulary does not have."""
    Tokenizer.load(vocabularies.write(tmp_path / "slow", "xlm-roberta")).save(tmp_path / "fast")
    (tmp_path / "fast" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "fast" / "tokenizer_config.json").write_text("{}")
    ours = Tokenizer.load(tmp_path / "fast")
    assert ours.encode(["Hello"])[0].tolist() == Tokenizer.load(tmp_path / "slow").encode(["Hello"])[0].tolist()


# === Further special tokens ===

NEW, ENTITY = "<new>", "ent1"
FLAGS = {"__type": "AddedToken", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
FURTHER = [
    {"extra_special_tokens": {"image_token": NEW, "other": ENTITY}},
    {"extra_special_tokens": {"image_token": NEW}, "additional_special_tokens": [ENTITY, "<x>"]},
    {"extra_special_tokens": {"image_token": NEW}, "additional_special_tokens": [NEW, ENTITY]},
    {"extra_special_tokens": [NEW], "additional_special_tokens": [ENTITY]},
    {"extra_special_tokens": [], "additional_special_tokens": [ENTITY]},
    {"extra_special_tokens": {}, "additional_special_tokens": [ENTITY]},
    {"extra_special_tokens": None, "additional_special_tokens": [ENTITY]},
    {"image_token": NEW, "additional_special_tokens": [ENTITY]},
    {"additional_special_tokens": [{"content": ENTITY, **FLAGS}]},
    {"extra_special_tokens": {"image_token": {"content": NEW, **FLAGS}}},
]


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "t5", "deberta-v2"])
def test_further_special_tokens(family, vocabularies, tmp_path):
    """In tokenizer_config.json, in special_tokens_map.json, and in both, with and without tokenizer.json."""
    texts = ["a <new> b", "a<new>b ent1 c", "aent1b <x>", "image_token other", "a <NEW> ENT1"]
    plain = fast(vocabularies.write(tmp_path / "plain", family), tmp_path / "fast")
    stated = json.loads((plain / "tokenizer_config.json").read_text())
    for entries in FURTHER:
        first, *others = ({name: value} for name, value in entries.items())
        for config, mapped in ((entries, {}), ({}, entries), (first, others[0] if others else {})):
            if "__type" in str(mapped):
                continue  # transformers prints a warning
            assert_equal(vocabularies.write(tmp_path / "slow", family, config, special_tokens_map=mapped), texts)
            (plain / "tokenizer_config.json").write_text(json.dumps({**stated, **config}))
            (plain / "special_tokens_map.json").write_text(json.dumps(mapped))
            assert_equal(plain, texts)


# === Segments ===


@pytest.mark.parametrize(
    "family, name, expected",
    [
        *[("bert", name, True) for name in ("BertTokenizer", "ElectraTokenizer", "MobileBertTokenizer")],
        *[("bert", "DistilBertTokenizer", False), ("roberta", "GPT2Tokenizer", False), ("deberta-v2", None, True)],
        *[("albert", None, False), ("xlnet", None, False)],
    ],
)
def test_segments_of_folders_that_transformers_5_saved(family, name, expected, vocabularies, tmp_path):
    slow = vocabularies.write(tmp_path / "slow", family, {"tokenizer_class": name} if name else {})
    for number, names in enumerate([None, ["input_ids"], ["input_ids", "token_type_ids"]]):
        folder = fast(slow, tmp_path / f"fast{number}", model_input_names=names)
        theirs = their_class("AutoTokenizer").from_pretrained(folder)("the cat", "a mat")
        found = encode_texts(Tokenizer.load(folder), [("the cat", "a mat")]).get("segment_ids")
        assert ("token_type_ids" in theirs) == (expected if names is None else number == 2)
        if found is not None or any(theirs.get("token_type_ids", ())):
            assert found[0].tolist() == theirs["token_type_ids"]


@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_published_models_were_trained_with_segments(family, vocabularies, tmp_path):
    """The classes of older versions returned them, without a setting."""
    assert Tokenizer.load(vocabularies.write(tmp_path, family)).has_segments

"""Folders without tokenizer.json give the ids that transformers gives: every class, and every field of the table."""

import json

import pytest

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers.sentencepiece import BPE
from kerasbert.data.tokenizers.settings import FIELDS
from tests.data.tokenizers.slow_folders import CLASSES, TEXTS, Vocabularies, assert_equal

pytestmark = pytest.mark.one_backend

EVERY = (
    "bert",
    "roberta",
    "gpt2",
    "openai-gpt",
    "xlm",
    "albert",
    "xlnet",
    "t5",
    "xlm-roberta",
    "camembert",
    "deberta-v2",
)
NEW, ENTITY = "<new>", "ent1"
UNUSED = ("<pad>", "<extra_id")
FLAGS = dict(lstrip=True, rstrip=False, normalized=False, single_word=False)


@pytest.fixture(scope="module")
def vocabularies(documents):
    return Vocabularies(documents)


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name, vocabularies, tmp_path):
    assert len(TEXTS) == 40 and len(CLASSES) >= 25
    family = CLASSES[name]
    ours = assert_equal(vocabularies.write(tmp_path, family, {"tokenizer_class": name}), family)
    assert ours.family == family
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "tokenizer_class": name}))
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path).hash == ours.hash


@pytest.mark.parametrize(
    "name", ["BertJapaneseTokenizer", "BertweetTokenizer", "FlaubertTokenizer", "SplinterTokenizer", "MyOwnTokenizer"]
)
@pytest.mark.parametrize("file", ["tokenizer_config", "config"])
def test_classes_that_are_not_built(name, file, vocabularies, tmp_path):
    vocabularies.write(tmp_path, "bert", **{file: {"model_type": "bert", "tokenizer_class": name}})
    with pytest.raises(ValueError, match=f"Received: '{name}', which is not built"):
        Tokenizer.load(tmp_path)


def test_a_class_with_its_own_tokenizer_json(vocabularies, wordpiece, tmp_path):
    wordpiece.save(tmp_path)
    for name in ("MyOwnTokenizer", "BertJapaneseTokenizer"):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        if name == "MyOwnTokenizer":
            assert Tokenizer.load(tmp_path).hash == wordpiece.hash
        else:
            with pytest.raises(ValueError, match="which is not built"):
                Tokenizer.load(tmp_path)


# Values that differ from the default, and what else the folder contains.
VALUES = {
    "do_lower_case": (False, True),
    "strip_accents": (False, True),
    "tokenize_chinese_chars": (False,),
    "keep_accents": (True,),
    "add_prefix_space": (True, False),
    "split_by_punct": (True,),
    "extra_ids": (3,),
    "do_lowercase_and_remove_accent": (False,),
    "add_bos_token": (True,),
    "add_eos_token": (True,),
    "extra_special_tokens": ([NEW], [NEW, "<extra>"], {"new_token": NEW}),
    "additional_special_tokens": ([NEW, "<extra>"],),
    "model_max_length": (77,),
    "max_len": (77,),
    "padding_side": ("left",),
    "clean_up_tokenization_spaces": (True,),
    "do_basic_tokenize": (False,),
    "never_split": (["don't"],),
    "remove_space": (False,),
    "trim_offsets": (False,),
    "errors": ("strict",),
    "legacy": (False,),
    "unk_id": (3,),
    "sp_model_kwargs": ({"enable_sampling": True},),
}
# `transformers` does not find the sentinels of T5 with a list that lacks them, and cleans what XLM decodes.
DIFFERENT = {
    ("extra_special_tokens", "t5"),
    ("additional_special_tokens", "t5"),
    ("clean_up_tokenization_spaces", "xlm"),
}
# A control piece before the text, and albert's row without a separator.
DIFFERENT |= {("add_prefix_space", "deberta-v2"), ("split_by_punct", "deberta-v2")}
DIFFERENT |= {("add_bos_token", "albert"), ("add_eos_token", "albert")}
DIFFERENT |= {("unk_id", family) for family in ("albert", "xlnet", "t5", "xlm-roberta", "camembert", "deberta-v2")}


def test_the_table_is_complete():
    """Each field is compared with transformers, refused, tested below, or says nothing about ids."""
    elsewhere = {"added_tokens_decoder", "tokenizer_class", "tokenizer_family", "lang2id", "id2lang"}
    elsewhere |= {"model_input_names", "name_or_path", "processor_class", "src_lang", "tgt_lang"}
    elsewhere |= {"tokenizer_segments", "backend"}
    refused = {name for name, field in FIELDS.items() if field.what == "refused"}
    assert {*VALUES, *refused, *elsewhere} == set(FIELDS)


@pytest.mark.parametrize("name", VALUES)
def test_fields(name, vocabularies, tmp_path):
    for number, value in enumerate(VALUES[name]):
        for family in EVERY:
            if (name, family) in DIFFERENT:
                continue
            folder = tmp_path / f"{family}_{number}"
            ours = assert_equal(vocabularies.write(folder, family, {name: value}), family)
            if not FIELDS[name].is_read_by(family) or FIELDS[name].what == "ignored":
                assert ours.hash == Tokenizer.load(vocabularies.write(folder, family)).hash


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.what == "refused"])
def test_refused_fields(name, vocabularies, tmp_path):
    neutral = FIELDS[name].neutral[-1]
    Tokenizer.load(vocabularies.write(tmp_path, "bert", {name: neutral}))
    value = {"truncation_side": "left", "split_special_tokens": True}[name]
    with pytest.raises(ValueError, match=f"`{name}` in the tokenizer settings .* must be {neutral!r}"):
        Tokenizer.load(vocabularies.write(tmp_path, "bert", {name: value}))


@pytest.mark.parametrize("family", EVERY)
def test_added_tokens(family, vocabularies, tmp_path):
    first = Tokenizer.load(vocabularies.write(tmp_path / "plain", family)).vocabulary_size
    if family == "deberta-v2":
        first -= 1  # transformers puts [MASK] behind the added tokens
    listed = {NEW: first, ENTITY: first + 1}
    decoder = {
        str(first): {"content": NEW, "special": False, **FLAGS},
        str(first + 1): {"content": ENTITY, "special": False, "normalized": True, "single_word": True},
    }
    ours = assert_equal(vocabularies.write(tmp_path / "file", family, added_tokens=listed), family)
    assert ours.id(NEW) == first and ours.id(NEW) not in ours.special_ids
    text = f"a {NEW} b"
    plain, read = (ours.encode([text], plain_text=plain)[0].tolist() for plain in (True, False))
    assert plain == read and NEW in ours.decode(plain)
    extra = {"additional_special_tokens": [NEW]}
    ours = assert_equal(
        vocabularies.write(tmp_path / "both", family, extra, added_tokens=listed), family, ["<extra_id"]
    )
    assert ours.id(NEW) in ours.special_ids and ours.id(ENTITY) not in ours.special_ids
    if family not in ("xlm", "deberta-v2"):  # strips white space by other rules; puts [MASK] elsewhere
        assert_equal(vocabularies.write(tmp_path / "decoder", family, {"added_tokens_decoder": decoder}), family)


@pytest.mark.parametrize("family", EVERY)
def test_special_tokens_map(family, vocabularies, tmp_path):
    """It wins over tokenizer_config.json, and is not read if that lists all added tokens."""
    stated = {"extra_special_tokens": [NEW], "pad_token": "<extra>"}
    ours = assert_equal(vocabularies.write(tmp_path / "map", family, special_tokens_map=stated), family, UNUSED)
    assert ours.id(NEW) in ours.special_ids and ours.pad_id == ours.id("<extra>")
    both = vocabularies.write(tmp_path / "both", family, {"pad_token": ENTITY}, special_tokens_map=stated)
    ours = assert_equal(both, family, UNUSED)
    assert ours.token(ours.pad_id) == "<extra>"
    size = Tokenizer.load(vocabularies.write(tmp_path / "plain", family)).vocabulary_size
    settings = {"added_tokens_decoder": {str(size - (family == "deberta-v2")): {"content": ENTITY}}}
    folder = vocabularies.write(tmp_path / "decoder", family, settings, special_tokens_map=stated)
    assert NEW not in Tokenizer.load(folder).tokens
    flags = {"mask_token": {"content": "<extra>", **FLAGS}, "image_token": NEW}
    ours = assert_equal(vocabularies.write(tmp_path / "flags", family, special_tokens_map=flags), family, ["<extra_id"])
    assert ours.mask_id == ours.id("<extra>") and ours.id(NEW) in ours.special_ids


@pytest.mark.parametrize("family", ["albert", "xlnet", "t5", "xlm-roberta", "camembert", "deberta-v2"])
def test_user_defined_symbols(family, vocabularies, tmp_path):
    ours = assert_equal(vocabularies.write(tmp_path, family, symbols=["<sym>", "abc"]), family)
    ids = ours.encode(["x <sym> abcd"], plain_text=True, add_special_tokens=False)[0]
    assert [ours.token(i) for i in ids].count("<sym>") == 1 and "abc" in [ours.token(i) for i in ids]
    assert ours.id("<sym>") not in ours.special_ids


def test_user_defined_symbols_of_bpe(vocabularies, tmp_path):
    ours = Tokenizer.load(vocabularies.write(tmp_path, "t5", symbols=["<sym>", "abc"], kind=BPE))
    for text in ("x<sym>", "<sym> abc", "x abc <sym>"):
        ids = ours.encode([text], add_special_tokens=False)[0].tolist()
        assert ids.count(ours.id("<sym>")) == text.count("<sym>") and ids.count(ours.id("abc")) == text.count("abc")


@pytest.mark.parametrize(
    "family", ["bert", "distilbert", "roberta", "gpt2", "deberta", "albert", "xlm-roberta", "camembert", "deberta-v2"]
)
def test_options_that_contradict_tokenizer_json(family, vocabularies, tmp_path):
    import transformers

    folder = vocabularies.write(tmp_path / "slow", family)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "fast")
    (tmp_path / "fast" / "config.json").write_text((folder / "config.json").read_text())
    path = tmp_path / "fast" / "tokenizer_config.json"
    stated = json.loads(path.read_text())
    as_it_is = Tokenizer.load(tmp_path / "fast").hash
    names = [name for name, field in FIELDS.items() if field.is_read_by(family) and field.type == bool | None]
    names = [name for name in names if isinstance(VALUES.get(name, ("",))[0], bool) and not name.endswith("_spaces")]
    changes = [{name: value} for name in names for value in VALUES[name]]
    changes += [{"strip_accents": True, "do_lower_case": False}, {"extra_special_tokens": [NEW]}]
    for change in changes:
        path.write_text(json.dumps({**stated, **change}))
        assert_equal(tmp_path / "fast", family)
    path.write_text(json.dumps({**stated, **changes[0], "tokenizer_class": "PreTrainedTokenizerFast"}))
    assert_equal(tmp_path / "fast", family)
    assert Tokenizer.load(tmp_path / "fast").hash == as_it_is

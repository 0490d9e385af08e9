"""Tokenizers give the reference's ids on ten thousand lines in many languages."""

import json

import pytest
from tokenizers import normalizers

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers.sentencepiece import build_backend, model_bytes, read_model
from tests.data.mixed_text import shared_lines
from tests.data.tokenizers.slow_folders import MARKS
from tests.data.tokenizers.tokenizer_references import (
    PUBLISHED,
    TRAINED,
    assert_same_ids,
    assert_written_folder_is_the_same,
    check_moses,
    their_class,
    write_family,
)


@pytest.mark.parametrize("name", ["test_model.model", "test_ja_model.model"])
def test_ids_are_those_of_the_library(name, shared_data):
    """But for texts in which two paths score the same to the last digit: the library adds in single precision."""
    import sentencepiece

    path = shared_data / "metric_oracles" / "sentencepiece" / name
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    backend = build_backend(read_model(path))
    # It also removes its mark for blanks where a text ends in one, and cuts marks upon marks otherwise.
    odd = {"▁", *map(chr, range(0x20)), *map(chr, range(0x300, 0x370))}
    lines = [line for line in shared_lines(shared_data) if odd.isdisjoint(line) and "<s>" not in line]
    found = [encoding.ids for encoding in backend.encode_batch(lines)]
    different = [line for line, one, other in zip(lines, found, library.encode(lines), strict=True) if one != other]
    assert len(lines) > 8_000
    assert not [line for line in different if "..." not in line] and len(different) < 5
    rewritten = sentencepiece.SentencePieceProcessor(model_proto=model_bytes(read_model(path)))
    assert rewritten.encode(lines) == library.encode(lines)
    assert (rewritten.unk_id(), rewritten.bos_id(), rewritten.eos_id()) == (0, 1, 2)


@pytest.mark.parametrize("family", PUBLISHED)
def test_families_on_ten_thousand_lines(family, shared_data, tmp_path):
    import sentencepiece

    model = read_model(shared_data / "metric_oracles" / "sentencepiece" / "test_model.model")
    folder = write_family(tmp_path / "published", family, model.pieces[3:], model.charsmap)
    ours, lines = Tokenizer.load(folder), shared_lines(shared_data)
    if family == "deberta-v2":
        library = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
        lines = [line for line in lines if line and " " <= min(line) and max(line) < "\u2500" and "[" not in line]
        assert len(lines) > 5_000
        found = [row.tolist()[1:-1] for row in ours.encode(lines)]
        wanted = library.encode(lines)
        assert not [line for line, one, other in zip(lines, found, wanted, strict=True) if one != other]
    else:
        assert_same_ids(ours, their_class(PUBLISHED[family][1]).from_pretrained(folder), lines)
    assert_written_folder_is_the_same(ours, lines[:500], tmp_path / "written")


def test_marks_in_the_files_of_deberta(shared_data, tmp_path):
    """transformers 5 leaves out the rules of the model, which texts of letters do not need: they are kept. It does not
    remove a space before the text, as version 4 did, which also wrote the rules to `tokenizer.json`."""
    model = read_model(shared_data / "metric_oracles" / "sentencepiece" / "test_model.model")
    folder = write_family(
        tmp_path, "deberta-v2", model.pieces[3:], model.charsmap, tokenizer_class="DebertaV2Tokenizer"
    )
    ours, theirs = Tokenizer.load(folder), their_class("AutoTokenizer").from_pretrained(folder)
    assert_same_ids(ours, theirs, MARKS, pairs=0)
    steps = [normalizers.Strip(), normalizers.Precompiled(model.charsmap), normalizers.Replace("  ", " ")]
    ours.backend.normalizer = normalizers.Sequence(steps)
    ours.backend.save(str(tmp_path / "tokenizer.json"))
    again, theirs = Tokenizer.load(folder), their_class("AutoTokenizer").from_pretrained(folder)
    assert_same_ids(again, theirs, MARKS, pairs=0)
    assert again.backend.normalizer.normalize_str("Ａ½") == "A1⁄2"


@pytest.mark.parametrize("family", TRAINED)
def test_trained_families_on_ten_thousand_lines(family, shared_data, tmp_path):
    """Vocabularies learned from novels in three languages, as files of the kind alone and with `tokenizer.json`."""
    kind, lowercase, name = TRAINED[family]
    lines = shared_lines(shared_data)
    tokenizer = Tokenizer.train(kind, lines[2_000:6_000], 3_000, family=family, lowercase=lowercase)
    tokenizer.save(tmp_path)
    settings = {"do_lower_case": lowercase} if kind == "wordpiece" else {}
    (tmp_path / "tokenizer.json").unlink(missing_ok=True)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "special_tokens_map.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    ours = Tokenizer.load(tmp_path)
    assert ours.tokens == tokenizer.tokens
    assert_same_ids(ours, their_class(name).from_pretrained(tmp_path), lines, pairs=0 if family == "deberta" else 60)
    assert_written_folder_is_the_same(ours, lines[: 500 if family == "xlm" else None], tmp_path / "written")


def test_moses_on_ten_thousand_lines(shared_data):
    check_moses(shared_lines(shared_data))

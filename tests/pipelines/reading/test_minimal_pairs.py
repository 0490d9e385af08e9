"""Minimal pairs in the files of BLiMP and Zorro, and in tables."""

import gzip
import json

import pytest

from pipelines.reading.labeled import Columns
from pipelines.reading.minimal_pairs import MinimalPair, read_minimal_pairs
from pipelines.reading.tables import Reading

pytestmark = pytest.mark.one_backend

ISLAND = {
    "sentence_good": "Who should Ann hug after shocking Bob?",
    "sentence_bad": "Who should Ann hug Bob after shocking?",
    "field": "syntax",
    "linguistics_term": "island_effects",
    "UID": "adjunct_island",
    "simple_LM_method": True,
    "pairID": "0",
}


def test_blimp(tmp_path):
    (tmp_path / "adjunct_island.jsonl").write_text(json.dumps(ISLAND) + "\n")
    (tmp_path / "drop_argument.jsonl").write_text(json.dumps({"sentence_good": "Go.", "sentence_bad": "Take."}) + "\n")
    (tmp_path / "README.md").write_text("no pairs")
    island = MinimalPair("adjunct_island", ISLAND["sentence_good"], ISLAND["sentence_bad"], "island_effects", "syntax")
    assert read_minimal_pairs(tmp_path) == [island, MinimalPair("drop_argument", "Go.", "Take.")]
    assert read_minimal_pairs(tmp_path / "adjunct_island.jsonl") == [island]
    assert read_minimal_pairs(tmp_path / "drop_argument.jsonl") == [MinimalPair("", "Go.", "Take.")]


def test_zorro(tmp_path):
    """The first line of a pair is unacceptable. The name of the file is that of the paradigm."""
    file = tmp_path / "filler-gap-wh_question.txt"
    file.write_text("this colors must be white .\nthis color must be white .\n\nthose foot .\nthose feet .\n")
    pairs = [("this color must be white .", "this colors must be white ."), ("those feet .", "those foot .")]
    expected = [MinimalPair("filler-gap-wh_question", good, bad, "filler-gap") for good, bad in pairs]
    assert read_minimal_pairs(file) == read_minimal_pairs(tmp_path) == expected
    swapped = read_minimal_pairs(file, columns=Columns("0", "1"))
    assert [(pair.good, pair.bad) for pair in swapped] == [(bad, good) for good, bad in pairs]
    file.write_bytes("caf\xe9 .\ncaf\xe9s .\n".encode("latin-1"))
    assert read_minimal_pairs(file, Reading("latin-1"))[0].good == "caf\xe9s ."


def test_paradigms_of_the_same_case_are_apart(tmp_path):
    """Two of the 23 paradigms of Zorro end in "in_question_with_aux"."""
    for name in ("agreement_subject_verb", "local_attractor"):
        (tmp_path / f"{name}-in_question_with_aux.txt").write_text("a b .\nb a .\n")
    found = {(pair.paradigm, pair.phenomenon) for pair in read_minimal_pairs(tmp_path)}
    assert found == {(f"{name}-in_question_with_aux", name) for name in ("agreement_subject_verb", "local_attractor")}


def test_compressed_files_and_numbers_as_names(tmp_path):
    (tmp_path / "wh-that.txt.gz").write_bytes(gzip.compress(b"a b .\nb a .\n"))
    assert read_minimal_pairs(tmp_path)[0] == MinimalPair("wh-that", "b a .", "a b .", "wh")
    (tmp_path / "numbered.jsonl").write_text(json.dumps({**ISLAND, "UID": 0}))
    assert read_minimal_pairs(tmp_path / "numbered.jsonl")[0].paradigm == "0"


def test_tables_with_other_columns(tmp_path):
    (tmp_path / "pairs.csv").write_text("right,wrong,paradigm,phenomenon\nHe is.,He are.,simple,agreement\n")
    found = read_minimal_pairs(tmp_path / "pairs.csv", columns=Columns("right", "wrong"))
    assert found == [MinimalPair("simple", "He is.", "He are.", "agreement")]
    (tmp_path / "bare.tsv").write_text("He are.\tHe is.\n")
    found = read_minimal_pairs(tmp_path / "bare.tsv", columns=Columns("1", "0"))
    assert found == [MinimalPair("", "He is.", "He are.")]


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.txt", "one\ntwo\nthree\n", "must have two lines a pair. Received: .*a.txt: 3"),
        ("a.jsonl", '{"sentence_good": "a"}', "a.jsonl row 1 without 'sentence_bad'. It has: sentence_good"),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": ""}', "row 1 without 'sentence_bad'"),
        ("a.txt", "", "Minimal pairs are read from .csv, .*.txt. Received: .* without any"),
        ("a.md", "one\ntwo\n", "Received: .* without any"),
    ],
)
def test_mistakes(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_minimal_pairs(tmp_path)

"""Tables of tagged words: names of columns, lists in cells, a sentence a row, and layouts that are refused."""

import numpy as np
import pandas as pd
import pytest

from pipelines.reading.examples import read_examples
from pipelines.reading.inputs import read_inputs
from pipelines.reading.labeled import Columns

pytestmark = pytest.mark.one_backend

WORDS = [["Ann", "ran"], ["Bob", "'s", "1.0"]]
TAGS = [["B-PER", "O"], ["B-PER", "O", "O"]]


def written(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.csv", "word,ner\nAnn,B-PER\nran,O\n"),
        ("a.csv", "Token,POS,NER\nAnn,NNP,B-PER\nran,VBD,O\n"),
        ("a.csv", ",words,entity\n0,Ann,B-PER\n1,ran,O\n"),
        ("a.csv", "Ann,B-PER\nran,O\n"),
        ("a.tsv", "word\tner\nAnn\tB-PER\nran\tO\n"),
        ("a.tsv", "Ann\tNNP\tB-PER\nran\tVBD\tO\n"),
        ("a.conll", "word ner\nAnn B-PER\nran O\n"),
    ],
)
def test_a_word_a_row(tmp_path, name, text):
    path = written(tmp_path, name, text)
    found = read_examples("tags", path)
    assert (found.x, found.y) == ([["Ann", "ran"]], [["B-PER", "O"]])
    assert [item.x for item in read_inputs(path, "words", Columns())] == found.x


def test_columns_of_other_names_are_named(tmp_path):
    path, columns = written(tmp_path, "a.csv", "form,xx\nAnn,B-PER\nran,O\n"), Columns(text="form", label="xx")
    found = read_examples("tags", path, columns)
    assert (found.x, found.y) == ([["Ann", "ran"]], [["B-PER", "O"]])
    assert [item.x for item in read_inputs(path, "words", columns)] == found.x
    path = written(tmp_path, "b.csv", "text,labels\n\"['a', 'b']\",\"['O', 'O']\"\n")
    assert read_examples("tags", path, Columns(text="text", label="labels")).x == [["a", "b"]]


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("form", ["Python", "JSON", "numpy"])
def test_lists_in_cells(tmp_path, separator, form):
    """As pandas writes columns of lists, of JSON and of arrays. Python would join the texts that numpy prints."""
    import json

    convert = {"Python": list, "JSON": json.dumps, "numpy": np.array}[form]
    table = pd.DataFrame({"tokens": map(convert, WORDS), "ner_tags": map(convert, TAGS)})
    path = tmp_path / ("a.csv" if separator == "," else "a.tsv")
    table.to_csv(path, sep=separator, index=False)
    found = read_examples("tags", path)
    assert (found.x, found.y) == (WORDS, TAGS)
    assert [item.x for item in read_inputs(path, "words", Columns())] == WORDS
    table.ner_tags = [convert([1.0, 0.0]), convert([1.0, 0.0, 0.0])]
    table.to_csv(path, sep=separator)
    assert read_examples("tags", path).y == [["1", "0"], ["1", "0", "0"]]


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.csv", "sentence,tags\nAnn ran,B-PER O\nBob,B-PER\n"),
        ("a.tsv", "sentence\ttags\nAnn ran\tB-PER O\nBob\tB-PER\n"),
        ("a.csv", "tokens,tags\nAnn ran,B-PER O\nBob,B-PER\n"),
        (
            "a.jsonl",
            """{"tokens": "['Ann', 'ran']", "tags": ["B-PER", "O"]}\n{"tokens": ["Bob"], "tags": "['B-PER']"}""",
        ),
        (
            "a.csv",
            "Sentence #,Sentence,POS,Tag\nSentence: 1,Ann ran,\"['NNP', 'VBD']\",\"['B-PER', 'O']\"\n"
            "Sentence: 2,Bob,['NNP'],['B-PER']\n",
        ),
    ],
)
def test_a_sentence_a_row(tmp_path, name, text):
    found = read_examples("tags", written(tmp_path, name, text))
    assert (found.x, found.y) == ([["Ann", "ran"], ["Bob"]], [["B-PER", "O"], ["B-PER"]])


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.csv", "form,xx\nAnn,B-PER\nran,O\n", "must have known names of columns.* with the row 'form, xx'"),
        ("a.csv", "form,xx\nAnn,NN\nran,VB\n", "with the row 'form, xx'"),
        ("a.tsv", "form\txx\nAnn\tB-PER\nran\tO\n", "with the row 'form, xx'"),
        ("a.conll", "form xx\nAnn B-PER\nran O\n", "with the row 'form, xx'"),
        ("a.csv", "text,label\na fine film,good\na dull one,bad\n", "with the row 'text, label'"),
        ("a.csv", "text,labels\n\"['a', 'b']\",\"['O', 'O']\"\n", "with the row 'text, labels'"),
        ("a.csv", "sentence,label\na fine film,good\n", "row 1 of 3 words with 1 tags"),
        ("a.csv", "tokens,tags\nAnn ran,B-PER O\nBob,B-PER O\n", "row 2 of 1 words with 2 tags"),
        ("a.csv", "tokens,tags\n['a' ... 'b'],['O' ... 'O']\n", r"needs words, a list.*row 1 with .\['a' \.\.\. 'b'\]"),
        ("a.jsonl", '{"text": "Ann ran", "entities": [[0, 3, "PER"]]}', "holds the words cannot be guessed"),
        ("a.jsonl", '{"tokens": ["Ann"], "tags": [[0, 1]]}', r"needs tags, a list.*row 1 with \[\[0, 1\]\]"),
        ("a.jsonl", '{"tokens": ["Ann", "ran"], "tags": ["O", NaN]}', "needs tags, a list"),
        ("a.jsonl", '{"tokens": ["Ann", "ran"], "tags": ["", "O"]}', "row 1 with an empty tag"),
        ("a.csv", "tokens,tags\n\"['Ann', 'ran']\",\"['O', ' ']\"\n", "row 1 with an empty tag"),
    ],
)
def test_other_layouts_are_refused(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        read_examples("tags", written(tmp_path, name, text))


def test_numbers_of_columns_say_that_there_is_no_header(tmp_path):
    path = written(tmp_path, "a.csv", "Ann,NN\nran,VB\n")
    assert read_examples("tags", path, Columns(text="0", label="1")).y == [["NN", "VB"]]
    with pytest.raises(ValueError, match="with the row 'Ann, NN'"):
        read_examples("tags", path)

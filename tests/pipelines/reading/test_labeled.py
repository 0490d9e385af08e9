"""Labeled texts from every format, with columns guessed or named."""

import gzip
import json
import sys
from types import SimpleNamespace

import pytest

from pipelines.reading.labeled import Columns, UsualColumns, read_labeled
from pipelines.reading.tables import Reading

pytestmark = pytest.mark.one_backend


def write(folder, name, text, encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def test_lines_of_label_and_text(tmp_path):
    data = read_labeled(write(tmp_path, "a.txt", "1 good film\n0 bad film\n\n1 caf\u00e9\n"))
    assert data.texts == ["good film", "bad film", "caf\u00e9"]
    assert data.labels == ["1", "0", "1"]
    with pytest.raises(ValueError, match="`label text`. Received: .* line 2: 'alone'"):
        read_labeled(write(tmp_path, "b.txt", "1 fine\nalone\n"))


def test_encodings(tmp_path):
    path = write(tmp_path, "a.txt", "1 caf\u00e9\n", "latin-1")
    with pytest.raises(ValueError, match="byte 5 .0xe9.. Give the encoding of the file"):
        read_labeled(path)
    assert read_labeled(path, reading=Reading("latin-1")).texts == ["caf\u00e9"]


def test_labels_as_they_are_written(tmp_path):
    """White space is no part of labels or names of columns, and a whole number is one."""
    csv = write(tmp_path, "a.csv", "text, Label\r\n a , good\r\n\r\nb,good \r\n")
    assert (read_labeled(csv).texts, read_labeled(csv).labels) == ([" a ", "b"], ["good", "good"])
    lines = write(tmp_path, "a.jsonl", '{"text": "a", "label": 1.0}\n{"text": "b", "label": 1}\n')
    assert read_labeled(lines).labels == ["1", "1"]


def test_json_over_several_lines(tmp_path):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    for content, count in ((rows, 2), ({"version": 1, "data": rows}, 2), (rows[0], 1)):
        path = write(tmp_path, "a.json", json.dumps(content, indent=2))
        assert read_labeled(path).labels == ["x", "y"][:count]


def test_usual_columns_give_way(tmp_path):
    """What a data set calls its columns is taken where a file has it, and guessed where it has not."""
    usual = UsualColumns("premise", "hypothesis", "label")
    theirs = write(tmp_path, "a.tsv", "sentence1\tsentence2\tgold_label\na\tb\tneutral\n")
    assert read_labeled(theirs, usual).texts == [("a", "b")] and read_labeled(theirs, usual).labels == ["neutral"]
    arguments = write(tmp_path, "b.tsv", "text\thypothesis\tpremise\tlabel\nx\tb\ta\tneutral\n")
    assert read_labeled(arguments, usual).texts == [("a", "b")]
    with pytest.raises(ValueError, match="has no column 'premise'"):
        read_labeled(theirs, Columns("premise", "hypothesis", "label"))


def test_tables_with_guessed_columns(tmp_path):
    csv = write(tmp_path, "a.csv", 'text,label\n"one, two",yes\nthree,no\n')
    assert read_labeled(csv).texts == ["one, two", "three"]
    assert read_labeled(csv).labels == ["yes", "no"]
    tsv = write(tmp_path, "a.tsv", 'index\tquestion\tsentence\tlabel\n0\twho "x?\tit was x\tentailment\n')
    assert read_labeled(tsv).texts == [('who "x?', "it was x")]
    unknown = write(tmp_path, "b.csv", "remark,label\nfine,1\n")
    assert read_labeled(unknown).texts == ["fine"], "of two columns, the other one"


def test_json_and_compressed_files(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": 3}, {"sentence1": "c", "sentence2": "d", "label": 4}]
    lines = "\n".join(map(json.dumps, rows))
    expected = [("a", "b"), ("c", "d")]
    assert read_labeled(write(tmp_path, "a.jsonl", lines)).texts == expected
    assert read_labeled(write(tmp_path, "a.json", json.dumps(rows))).labels == ["3", "4"]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert read_labeled(tmp_path / "a.jsonl.gz").texts == expected


def test_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({"text": ["x", "y"], "label": [0, 1]}), tmp_path / "a.parquet")
    assert read_labeled(tmp_path / "a.parquet").texts == ["x", "y"]


def test_data_sets_of_the_hub(monkeypatch):
    """The package `datasets` is replaced: the hub is not asked."""
    asked = []

    class Names:
        names = ["bad", "good"]

    class Found(list):
        features = {"text": object(), "label": Names()}

    def load_dataset(name, split, streaming):
        asked.append((name, split, streaming))
        return Found([{"text": "fine", "label": 1}, {"text": "dull", "label": 0}])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    data = read_labeled("hf://org/films#test")
    assert (data.texts, data.labels) == (["fine", "dull"], ["good", "bad"])
    assert read_labeled("hf://org/films").labels == ["good", "bad"]
    assert asked == [("org/films", "test", True), ("org/films", "train", True)]


def test_rows_without_an_agreed_label(tmp_path, monkeypatch):
    """SNLI's "-", and -1 on the hub, are no class of their own."""
    table = "gold_label\tsentence1\tsentence2\nneutral\ta\tb\n-\tc\td\n"
    with pytest.warns(UserWarning, match="1 of 2 rows of .*a.tsv have no label"):
        assert read_labeled(write(tmp_path, "a.tsv", table)).labels == ["neutral"]
    assert read_labeled(write(tmp_path, "b.csv", "text,label\na,-\nb,+\n")).labels == ["-", "+"]

    class Names:
        names = ["bad", "good"]

    class Found(list):
        features = {"text": object(), "label": Names()}

    rows = [{"text": "a", "label": 1}, {"text": "b", "label": -1}]
    monkeypatch.setitem(
        sys.modules,
        "datasets",
        SimpleNamespace(load_dataset=lambda *a, split, streaming: Found(rows[-1:] if split == "test" else rows)),
    )
    with pytest.warns(UserWarning, match="1 of 2 rows"):
        assert read_labeled("hf://films").labels == ["good"]
    with pytest.raises(ValueError, match="need labels. Received: hf://films#test without a label"):
        read_labeled("hf://films#test")


def test_named_and_numbered_columns(tmp_path):
    path = write(tmp_path, "a.csv", "A plane,An air plane,5.0\nA man,A flute,3.8\n")
    data = read_labeled(path, Columns(text="0", pair="1", label="2"))
    assert data.texts == [("A plane", "An air plane"), ("A man", "A flute")]
    assert data.labels == ["5", "3.8"]
    table = write(tmp_path, "b.csv", "headline,body,kind\nx,y,z\n")
    data = read_labeled(table, Columns(text="body", label="kind"))
    assert (data.texts, data.labels) == (["y"], ["z"])


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.csv", "headline,body,kind\nx,y,z\n", "holds the label .*headline, body, kind. Pass --columns.label"),
        ("a.csv", "text,label\n", "has no rows"),
        ("a.csv", "", "has no rows"),
        ("a.csv", "text,label\nonly one\n", "row 1 has 1 cells. The table has 2"),
        ("a.csv", "text,label\nx,\n", "row 1 without 'label'"),
        ("a.txt", "\n\n", "has no rows"),
        ("a.doc", "x", "one of the extensions .csv.*--format"),
        ("a.xls", "x", "Excel files are not read. Received: .*a.xls. Save the sheet as CSV"),
        ("a.xlsx", "x", "Excel files are not read. Received: .*a.xlsx. Save the sheet as CSV"),
        ("a.csv", "text,label\nx,\n,1\ny,1\n", "row 1 without 'label', row 2 without 'text'. Complete or drop these"),
        (
            "a.csv",
            "text,label\nx,1\n" + "x,\n" * 4,
            "row 2 without 'label', .*, row 4 without 'label', ...: 4 of 5 rows. Complete or drop these rows",
        ),
        ("a.jsonl", "{oops", "not valid JSON"),
        ("a.jsonl", "[1, 2]", "must hold one JSON object per example"),
    ],
)
def test_bad_files(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        read_labeled(write(tmp_path, name, text))


def test_rows_that_a_data_set_has_without_a_cell(tmp_path):
    """QQP's training file: rows that end early, and questions without a letter."""
    text = "id\tquestion1\tquestion2\tis_duplicate\n1\ta\tb\t0\n2\tc\n3\td\t\t0\n4\te\tf\t1\n"
    path = write(tmp_path, "train.tsv", text)
    with pytest.warns(
        UserWarning, match="2 of 4 rows of .*train.tsv lack a text or a label and are skipped. The first is row 2"
    ):
        data = read_labeled(path, UsualColumns("question1", "question2", "label"))
    assert data.texts == [("a", "b"), ("e", "f")] and data.labels == ["0", "1"]
    with pytest.raises(ValueError, match="row 2 has 2 cells. The table has 4"):
        read_labeled(path)
    longer = write(tmp_path, "a.tsv", text + "5\ta\tb\t0\t1\n")
    with pytest.raises(ValueError, match="row 5 has 5 cells. The table has 4"):
        read_labeled(longer, UsualColumns("question1", "question2", "label"))


def test_missing_files_and_columns(tmp_path):
    with pytest.raises(IsADirectoryError, match=f"must be in a file. Received: {tmp_path}, which is a folder"):
        read_labeled(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_labeled(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="no column 'kind'. It has: text, label"):
        read_labeled(write(tmp_path, "a.csv", "text,label\nx,y\n"), Columns(label="kind"))


# === Several labels ===


@pytest.mark.parametrize(
    "name, text, labels",
    [
        ("a.csv", "text,labels\na,\"['x', 'y']\"\nb,['y']\nc,[]\n", [["x", "y"], ["y"], []]),
        ("a.csv", 'text,labels\na,"[""x"", ""y""]"\nb,x|y\n', [["x", "y"], ["x", "y"]]),
        ("a.csv", "text,labels\na,['x' 'y']\nb,['y']\n", [["x", "y"], ["y"]]),
        ("a.tsv", 'text\tlabels\na\t[\'x\', \'y\']\nb\t"[""y""]"\n', [["x", "y"], ["y"]]),
        ("a.csv", 'text,labels\na,"[0, 1, 1]"\nb,[1. 0. 0.]\n', [["LABEL_1", "LABEL_2"], ["LABEL_0"]]),
        ("a.csv", "text,labels\na,0|1\nb,1|0\n", [["0", "1"], ["1", "0"]]),
        ("a.csv", "text,labels\na,1.0|x\nb,2.0\n", [["1", "x"], ["2"]]),
        (
            "a.jsonl",
            '{"text": "a", "labels": [0, 1, 1]}\n{"text": "b", "labels": [1, 0, 0]}',
            [["LABEL_1", "LABEL_2"], ["LABEL_0"]],
        ),
        (
            "a.jsonl",
            '{"text": "a", "labels": [true, false]}\n{"text": "b", "labels": [false, false]}',
            [["LABEL_0"], []],
        ),
        ("a.jsonl", '{"text": "a", "labels": [3, 17.0]}\n{"text": "b", "labels": [3]}', [["3", "17"], ["3"]]),
    ],
)
def test_lists_of_labels_in_cells(tmp_path, name, text, labels):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_labeled(tmp_path / name, several=True).labels == labels


@pytest.mark.parametrize("cell", ["\"['x', 'y']\"", '"[""x"", ""y""]"', "['x' 'y']", "[0 1]"])
def test_a_list_is_no_name_of_a_class(tmp_path, cell):
    (tmp_path / "a.csv").write_text(f"text,label\na,{cell}\nb,x\n", encoding="utf-8")
    with pytest.raises(ValueError, match="A label must be one name.*row 1, column 'label'.*use --task labels"):
        read_labeled(tmp_path / "a.csv")


def test_names_with_commas_may_be_several(tmp_path):
    (tmp_path / "a.csv").write_text('text,labels\na,"pos, short"\nb,pos\nc,"x;y"\n', encoding="utf-8")
    message = r"separated by \|. Received: .*a.csv, where 'pos, short' is one label beside 'pos'.* write 'pos\|short'"
    with pytest.warns(UserWarning, match=message):
        assert read_labeled(tmp_path / "a.csv", several=True).labels == [["pos, short"], ["pos"], ["x;y"]]


def test_lists_in_lists_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text('text,labels\na,"[[0], [1]]"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"row 1, column 'labels': \[\[0\], \[1\]\]"):
        read_labeled(tmp_path / "a.csv", several=True)


def test_whole_numbers_in_cells_are_integers(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,1.0\nb, 2.00 \nc,1.5\nd,v1.0\ne,-0.0\n", encoding="utf-8")
    assert read_labeled(tmp_path / "a.csv").labels == ["1", "2", "1.5", "v1.0", "0"]

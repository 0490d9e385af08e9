import gzip
import json

import pytest

from kerasbert.data import read_documents
from kerasbert.data.text import documents as module

pytestmark = pytest.mark.one_backend


def test_blank_lines_end_documents(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n two \n\n\n three\x0bthree \n \n".encode())
    assert list(read_documents(path)) == ["one\ntwo", "three\x0bthree"]


@pytest.mark.parametrize("block", [8, 1 << 16])
def test_files_whose_lines_end_in_carriage_returns(tmp_path, block, monkeypatch):
    monkeypatch.setattr("kerasbert.data.text.tables.BLOCK", block)
    path, table = tmp_path / "a.txt", tmp_path / "a.csv"
    path.write_bytes(b"one\rtwo\r\rthree\rfour")
    assert list(read_documents(path)) == ["one\ntwo", "three\nfour"]
    path.write_bytes(b"one\rtwo\n\nthree")  # a carriage return inside a line
    assert list(read_documents(path)) == ["one\rtwo", "three"]
    table.write_bytes(b"text,label\rfirst,1\rsecond,2\r")
    assert list(read_documents(table, column="text")) == ["first", "second"]


NOVEL = "Chapter One.\n\nIt was a dark night. The wind blew.\n\nNobody was there. Then she came.\n\n"
WRAPPED = (
    "It was a dark night and the\nwind blew over the hills and\nthe sea.\n\nNobody was there when she came\nin.\n\n"
)
LINES = "It was dark.\nThe wind blew.\nShe came.\n\nAnother text begins.\nIt has two lines.\n\n"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([NOVEL * 9], "blank-line"),  # one file: as ever
        ([NOVEL * 9, NOVEL], "file"),
        ([WRAPPED, WRAPPED * 3], "file"),
        ([LINES, LINES * 3], "blank-line"),
        ([LINES * 3, NOVEL], "blank-line"),
    ],
)
def test_what_ends_a_document(tmp_path, texts, expected):
    """Blank lines between paragraphs of novels are none between documents."""
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    (tmp_path / "table.jsonl").write_text('{"text": "a"}\n')
    found, reason = module.document_boundary(tmp_path)
    assert found == expected and "text file" in reason
    counts = {kind: len(list(read_documents(tmp_path, documents=kind))) for kind in module.BOUNDARIES}
    assert counts["file"] == len(texts) + 1 < counts["blank-line"] and counts["auto"] == counts[expected]


def test_a_file_as_a_document_has_all_its_lines(tmp_path):
    (tmp_path / "a.txt").write_text("\n one\n\n\ntwo\n")
    assert list(read_documents(tmp_path / "a.txt", documents="file")) == ["one\ntwo"]
    assert module.document_boundary([tmp_path / "a.txt", "hf://name"])[0] == "blank-line"


def test_folders_are_read_in_order_without_hidden_files(tmp_path):
    for name, text in {"b.txt": "b", "a/c.md": "c", ".git/x.txt": "x", "a/.y.txt": "y", "z.bin": "z"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with gzip.open(tmp_path / "d.txt.gz", "wt") as file:
        file.write("d")
    assert list(read_documents(tmp_path)) == ["c", "b", "d"]
    assert list(read_documents([tmp_path / "d.txt.gz", tmp_path / "b.txt"])) == ["d", "b"]


def test_tables(tmp_path):
    import pyarrow
    import pyarrow.parquet as parquet

    rows = [{"id": 1, "text": 'with "quotes", and\nlines'}, {"id": 2, "text": ""}, {"id": 3, "text": "naïve"}]
    (tmp_path / "a.csv").write_text('id,text\n1,"with ""quotes"", and\nlines"\n\n2,\n3,naïve\n')
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "b.json").write_text(json.dumps({"version": 1, "data": rows}))
    (tmp_path / "c.json").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.csv", "a.json", "b.json", "c.json", "a.jsonl", "a.parquet"):
        assert list(read_documents(tmp_path / name)) == ['with "quotes", and\nlines', "naïve"], name
    (tmp_path / "a.tsv").write_text('sentence\tlabel\n"an open quote\t1\nplain\t0\n')
    assert list(read_documents(tmp_path / "a.tsv", column="sentence")) == ['"an open quote', "plain"]


def test_lists_of_sentences_are_lines_and_broken_surrogates_are_replaced(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": ["one", "two"]}\n"plain"\n{"text": "half \\ud83d"}\n')
    assert list(read_documents(path)) == ["one\ntwo", "plain", "half ?"]


def test_columns_are_named_when_missing(tmp_path):
    (tmp_path / "a.csv").write_text("title,body\nx,y\n")
    (tmp_path / "a.jsonl").write_text('{"title": "x", "body": "y"}\n')
    for name in ("a.csv", "a.jsonl"):
        assert list(read_documents(tmp_path / name, column="body")) == ["y"]
        with pytest.raises(ValueError, match="no column 'text'. It has: title, body"):
            list(read_documents(tmp_path / name, column="text"))
        with pytest.raises(ValueError, match="several columns.*title, body"):
            list(read_documents(tmp_path / name))


def test_a_column_that_is_not_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(ValueError, match="line 1, column 'text', must be text. Received: int"):
        list(read_documents(tmp_path / "a.jsonl"))


def test_invalid_utf8_is_located(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("naïve\nline two\nca".encode() + b"f\xe9 x\n")
    with pytest.raises(ValueError, match=r"line 3, byte 19 \(0xe9\).*errors='replace'"):
        list(read_documents(path))
    assert list(read_documents(path, errors="replace")) == ["naïve\nline two\ncaf\ufffd x"]
    assert list(read_documents(path, encoding="latin-1")) == ["naÃ¯ve\nline two\ncafé x"]
    path.write_bytes("text".encode("utf-16"))
    with pytest.raises(ValueError, match="such as --encoding utf-16[.] "):
        list(read_documents(path))
    assert list(read_documents(path, encoding="utf-16")) == ["text"]
    for name in ("a.csv", "a.jsonl"):
        (tmp_path / name).write_bytes(b'"text"\n"caf\xe9"\n')
        with pytest.raises(ValueError, match=r"line 2, byte 11 \(0xe9\)"):
            list(read_documents(tmp_path / name))


def test_long_lines_are_cut_at_blanks_and_between_characters(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_PIECE", 16)
    path = tmp_path / "a.txt"
    path.write_text("one two three four five six\n" + "é" * 20 + "\nend")
    (document,) = read_documents(path)
    lines = document.split("\n")
    assert all(len(line) <= 16 for line in lines)
    assert " ".join(lines[:2]) == "one two three four five six"
    assert "".join(lines[2:-1]) == "é" * 20
    assert lines[-1] == "end"
    path.write_bytes(b"one two three four\n" + b"x" * 20 + b"\xff\n")
    with pytest.raises(ValueError, match=r"line 2, byte 39 \(0xff\)"):
        list(read_documents(path))


def test_endless_documents_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_DOCUMENT", 10)
    (tmp_path / "a.txt").write_text("seven 7\n" * 5)
    assert list(read_documents(tmp_path / "a.txt")) == ["seven 7\nseven 7"] * 2 + ["seven 7"]


def test_lines_of():
    assert list(module.lines_of("a b\n\n  c ")) == ["a b", "c"]
    assert list(module.lines_of("aa bb cc dd", longest=6)) == ["aa bb", "cc dd"]
    assert list(module.lines_of("x" * 10, longest=4)) == ["xxxx", "xxxx", "xx"]
    assert "".join(module.lines_of("word " * 50_000)).count("word") == 50_000


def test_a_hub_data_set(monkeypatch):
    import datasets

    calls = []

    def load_dataset(*arguments, **options):
        calls.append((arguments, options))
        return [{"label": 1, "text": "one\ntwo"}, {"label": 0, "text": " "}]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert list(read_documents("hf://org/name", subset="raw", split="test")) == ["one\ntwo"]
    assert calls == [(("org/name", "raw"), {"split": "test", "streaming": True})]


def test_mistakes_are_told_before_anything_is_read(tmp_path):
    (tmp_path / "empty.txt").touch()
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        read_documents(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="empty.txt is empty"):
        read_documents(tmp_path)
    (tmp_path / "empty.txt").rename(tmp_path / "empty.bin")
    with pytest.raises(ValueError, match=r"must have files of a known type.*Received: files of the types \['.bin'\]"):
        read_documents(tmp_path)
    with pytest.raises(ValueError, match="`errors` must be"):
        read_documents(tmp_path, errors="maybe")
    with pytest.raises(ValueError, match="`documents` must be one of"):
        read_documents(tmp_path, documents="page")
    with pytest.raises(ValueError, match="at least one file"):
        read_documents([])


def test_files_without_text(tmp_path):
    (tmp_path / "a.txt").write_text(" \n\n")
    (tmp_path / "a.csv").write_text("text\n\n")
    (tmp_path / "bad.json").write_text('{"text": ')
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"\n')
    for name in ("a.txt", "a.csv"):
        with pytest.raises(ValueError, match="has no text"):
            list(read_documents(tmp_path / name))
    with pytest.raises(ValueError, match="not valid JSON"):
        list(read_documents(tmp_path / "bad.json"))
    with pytest.raises(ValueError, match="line 2 is not valid JSON"):
        list(read_documents(tmp_path / "bad.jsonl"))
    (tmp_path / "short.csv").write_text("id,text\n1,a\n2\n")
    with pytest.raises(ValueError, match="short.csv row 2 has 1 cells. The table has 2 columns: .* ends at line 3"):
        list(read_documents(tmp_path / "short.csv"))

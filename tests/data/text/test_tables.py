"""Lines and rows out of files: what is refused, and that errors say where."""

import gzip
import io

import pytest

from kerasbert.data import read_documents
from kerasbert.data.text import tables

pytestmark = pytest.mark.one_backend


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252"])
def test_lines_in_every_encoding(tmp_path, monkeypatch, encoding):
    """Whatever block of bytes a character begins in."""
    monkeypatch.setattr(tables, "BLOCK", 3)
    path = write(tmp_path, "a.txt", "café\r\nnaïve\n\nend".encode(encoding))
    assert list(tables.text_lines(path, encoding)) == ["café\r\n", "naïve\n", "\n", "end"]
    packed = write(tmp_path, "a.txt.gz", gzip.compress(path.read_bytes(), mtime=0))
    assert "".join(tables.text_lines(packed, encoding)) == "café\r\nnaïve\n\nend"


@pytest.mark.parametrize("block", [1, 4, 1 << 20])
@pytest.mark.parametrize(
    ("content", "encoding", "place"),
    [
        (b"x\n" * 240 + b"ab\xe9c\n", "utf-8", "line 241, byte 482 .0xe9.*--encoding latin-1"),
        (b"\xef\xbb\xbfx\ncaf\xc3", "utf-8", "line 2, byte 8 .0xc3.*--encoding latin-1"),
        ("a\nb".encode("utf-16"), "utf-8", "line 1, byte 0 .0xff.*--encoding utf-16[.] "),
        ("a\nb".encode("utf-32"), "utf-8", "line 1, byte 0 .0xff.*--encoding utf-32[.] "),
        ("a\nb".encode("utf-16") + b"\x00\xd8a\x00", "utf-16", "line 2, byte 8 "),
    ],
)
def test_bytes_that_are_not_text(tmp_path, monkeypatch, content, encoding, place, block):
    monkeypatch.setattr(tables, "BLOCK", block)
    for path in (write(tmp_path, "a.txt", content), write(tmp_path, "a.txt.gz", gzip.compress(content, mtime=0))):
        with pytest.raises(ValueError, match=f"{path.name} is not valid {encoding}: {place}"):
            list(tables.text_lines(path, encoding))
        assert not tables.decodes(path, encoding)


def test_utf_16_without_a_mark_is_not_read_as_utf_8(tmp_path):
    with pytest.raises(ValueError, match="a.txt is not text in utf-8: .*NUL.* --encoding utf-16-le"):
        list(tables.text_lines(write(tmp_path, "a.txt", "some text\n".encode("utf-16-le"))))


def test_damaged_files_are_named(tmp_path):
    packed = gzip.compress(b"text\n" * 1_000, mtime=0)
    for content in (packed[:-20], b"text\n", packed[:20] + b"xxxx" + packed[24:]):
        with pytest.raises(ValueError, match="b.csv.gz is not a complete gzip file"):
            list(read_documents(write(tmp_path, "b.csv.gz", content)))
    for content in (b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1", b"text"):
        with pytest.raises(ValueError, match="c.parquet is not a complete Parquet file"):
            list(read_documents(write(tmp_path, "c.parquet", content)))
    with pytest.raises(ValueError, match="d.jsonl line 3 is not valid JSON"):
        list(read_documents(write(tmp_path, "d.jsonl", '{"text": "a"}\n\n{"text"\n')))
    with pytest.raises(ValueError, match="e.json is not valid JSON"):
        list(tables.json_values(["[" * 100_000], "e.json"))
    with pytest.raises(ValueError, match="`encoding` must be one that Python knows"):
        list(tables.text_lines(write(tmp_path, "f.txt", "a"), "utf-99"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text\n"a\nb\nc\n', "unexpected end of data, at line 4, in the row that begins at line 2"),
        ('text\n"a" b\n', "not valid CSV: .* must be doubled"),
        (
            "text,label\na,b,c\n",
            "a.csv row 1 has 3 cells. The table has 2 columns: .* at line 2; .* must be quoted",
        ),
        ("text,label\na,b\n\nc\n", "a.csv row 2 has 1 cells. The table has 2 columns: .* ends at line 4"),
        ("text,text\na,b\n", "a.csv must have different names. Received: 'text' twice"),
    ],
)
def test_corpora_refuse_the_tables_that_fine_tuning_refuses(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        list(read_documents(write(tmp_path, "a.csv", content), column="text"))


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize(
    "content, cells",
    [
        ("text|label\nbad, really|0\n", ["bad, really", "0"]),
        ('text|label\n"one\ntwo| three"|0\n', ["one\ntwo| three", "0"]),
        ("\ntext|label\n\nbad|0\n", ["bad", "0"]),
    ],
)
def test_tables_whose_cells_are_separated_by_another_mark(mark, content, cells):
    lines = content.replace("|", mark).splitlines(keepends=True)
    (row,) = tables.table_rows(lines, "a.csv")
    assert row == dict(zip(("text", "label"), (cell.replace("|", mark) for cell in cells), strict=True))


@pytest.mark.parametrize(
    "content, row",
    [
        ("text,label;fine\na;b,0\n", {"text": "a;b", "label;fine": "0"}),
        ("a;b\ta\nx;y\tz\n", {"a;b\ta": "x;y\tz"}),
        ("first; second\nthird\n", {"first; second": "third"}),
        ("text\na;b\n", {"text": "a;b"}),
        ("text\t\na\n", {"text\t": "a"}),
    ],
)
def test_a_mark_that_may_be_part_of_a_cell_separates_nothing(content, row):
    assert list(tables.table_rows(content.splitlines(keepends=True), "a.csv")) == [row]


@pytest.mark.parametrize(
    "content, tried, likely",
    [(b"caf\xe9", "utf-8", "latin-1"), (b"caf\xe9 \x80", "utf-8", "cp1252"), (b"\x81", "cp1252", "latin-1")],
)
def test_the_encoding_that_is_suggested(content, tried, likely, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"such as --encoding {likely}"):
        list(tables.text_lines(path, tried))


def test_half_of_a_surrogate_pair_is_no_text():
    assert tables.parsed_json('{"\\ud83d": ["a\\ud83d", 1]}', "a") == {"?": ["a?", 1]}
    assert tables.json_values(['[{"text": "\\ud83d\\ude00"}]'], "a") == [{"text": "\U0001f600"}]


def test_the_hub_is_streamed(monkeypatch):
    """One row is asked for, one is read."""
    import datasets

    read = []

    class Found:
        features = {
            "label": datasets.ClassLabel(names=["bad", "good"]),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B"])),
        }

        def __iter__(self):
            for number in range(1_000):
                read.append(number)
                yield {"text": f"text {number}", "label": number % 2 if number else -1, "tags": [0, 1]}

    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **options: asked.append((names, options)) or Found())
    rows = tables.hub_rows("org/name", "small", "test")
    assert next(rows) == {"text": "text 0", "label": None, "tags": ["O", "B"]} and next(rows)["label"] == "good"
    assert read == [0, 1] and asked == [(("org/name", "small"), {"split": "test", "streaming": True})]


def test_a_stream_is_read_as_it_comes():
    """`read1` gives what is there: lines are not held back until a block is full."""

    class Stream(io.RawIOBase):
        parts = [b"one\nt", b"wo\n", b""]

        def read1(self, size):
            return self.parts.pop(0)

    stream = Stream()
    lines = tables.decoded_lines(stream, "the input")
    assert next(lines) == "one\n" and len(stream.parts) == 2
    assert list(lines) == ["two\n"]

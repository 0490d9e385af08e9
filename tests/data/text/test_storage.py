"""Text that is not on this machine: URLs of fsspec, here those of its file system in memory."""

import gzip
import io

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from kerasbert.data import Tokenizer, read_documents
from kerasbert.data.text.storage import find_files
from pipelines.corpora.options import Processes, TextFiles
from pipelines.prepare_corpus import prepare_corpus

pytestmark = pytest.mark.one_backend


@pytest.fixture
def bucket():
    files = fsspec.filesystem("memory")
    parquet = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": ["six", "seven"]}), parquet)
    contents = {
        "b.txt": "three\n\nfour naïve".encode(),
        "a.txt.gz": gzip.compress(b"one\n\ntwo"),
        "deep/c.jsonl": b'{"text": "five"}\n',
        "deep/d.parquet": parquet.getvalue(),
        ".hidden/e.txt": b"never",
        "picture.png": b"x",
    }
    for name, content in contents.items():
        files.pipe(f"/bucket/{name}", content)
    yield "memory://bucket"
    files.rm("/bucket", recursive=True)


def test_documents_of_a_folder_and_of_a_file(bucket):
    expected = ["one", "two", "three", "four naïve", "five", "six", "seven"]
    assert list(read_documents(bucket)) == expected
    assert list(read_documents(f"{bucket}/b.txt")) == expected[2:4]
    assert list(read_documents([f"{bucket}/deep", f"{bucket}/a.txt.gz"])) == [*expected[4:], *expected[:2]]
    assert {str(path): size for path, size in find_files(f"{bucket}/b.txt").items()} == {f"{bucket}/b.txt": 18}


def test_a_corpus_of_an_object_store(bucket, tmp_path):
    Tokenizer.train("wordpiece", ["one two three four five six seven naïve"] * 3, 40).save(tmp_path / "tokenizer")
    corpora = [
        prepare_corpus(
            [bucket], tmp_path / "tokenizer", tmp_path / name, text=TextFiles(documents="blank-line"), processes=options
        )
        for name, options in {"here": Processes(), "datatrove": Processes(executor="local", tasks=3)}.items()
    ]
    assert [corpus.num_documents for corpus in corpora] == [7, 7]
    assert len({corpus.fingerprint for corpus in corpora}) == 1


def test_urls_that_cannot_be_read(bucket):
    fsspec.filesystem("memory").pipe("/bucket/empty/f.txt", b"")
    fsspec.filesystem("memory").pipe("/bucket/pictures/a.png", b"x")
    for url, kind, message in (
        (f"{bucket}/missing", FileNotFoundError, "no file or folder memory://bucket/missing"),
        (f"{bucket}/empty", ValueError, "f.txt is empty"),
        (f"{bucket}/pictures", ValueError, r"files of a known type .*types \['.png'\]"),
        ("unknown://bucket", ValueError, "unknown://bucket is not a URL that fsspec understands: .*unknown"),
    ):
        with pytest.raises(kind, match=message):
            list(read_documents(url))
    fsspec.filesystem("memory").pipe("/bucket/bad.txt", b"bad \xff")
    with pytest.raises(ValueError, match="memory://bucket/bad.txt is not valid utf-8: line 1, byte 4"):
        list(read_documents(f"{bucket}/bad.txt"))

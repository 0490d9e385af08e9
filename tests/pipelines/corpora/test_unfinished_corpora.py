"""Corpora whose preparation was killed, and two preparations at once."""

import json
import shutil
import signal
import subprocess
import sys

import pytest

from kerasbert.data import Corpus, Tokenizer
from kerasbert.data.corpus import parts, writing
from kerasbert.data.text.locks import locked
from pipelines import prepare_corpus as module
from pipelines.corpora import parts as corpus_parts
from pipelines.corpora.options import Processes
from pipelines.prepare_corpus import prepare_corpus
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

LINES = [f"line {number} of the page" for number in range(9)]


@pytest.fixture
def prepare(tmp_path):
    """Prepares a corpus and a held-out one in `tmp_path`; options are added or changed."""
    Tokenizer.train("wordpiece", LINES * 5, 50).save(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("\n\n".join(LINES), encoding="utf-8")

    def run(**options):
        options = {"tokenizer": tmp_path / "tokenizer", **options}
        defaults = dict(output=tmp_path / "train", held_out=tmp_path / "held_out", held_out_every=3)
        return prepare_corpus([str(tmp_path / "text.txt")], **{**defaults, **options})

    return run


KILL = """
import os, signal, sys, types
sys.path.insert(0, {root!r})
# The command line imports Keras, which takes seconds and is not used here.
sys.modules["pipelines.command_line.command"] = types.SimpleNamespace(Command=lambda *arguments, **options: None)
from kerasbert.data.corpus import parts, writing
from pipelines.corpora import parts as corpus_parts
from pipelines import prepare_corpus as module

writing.LIST_CHARACTERS, corpus_parts.BATCHES = 1, 2  # parts of two documents
calls, encode = [], parts.encode_documents
def dies(*arguments):
    calls.append(1)
    return encode(*arguments) if len(calls) <= {documents} else os.kill(os.getpid(), signal.SIGKILL)
parts.encode_documents = dies
folder = module.Path({folder!r})
module.prepare_corpus([str(folder / "text.txt")], folder / "tokenizer", folder / "train",
                      held_out=folder / "held_out", held_out_every=3)
"""


def kill(tmp_path, documents):
    """Prepares a corpus in another process, which is killed after some documents. Returns what it printed."""
    code = KILL.format(root=str(REPOSITORY), folder=str(tmp_path), documents=documents)
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr
    return process.stdout


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(writing, "LIST_CHARACTERS", 1)
    monkeypatch.setattr(corpus_parts, "BATCHES", 2)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".bin", ".idx", ".json")}


def check_complete(tmp_path, tokenizer):
    for name, documents in (("train", 6), ("held_out", 3)):
        corpus = Corpus.open(tmp_path / name, tokenizer)
        corpus.verify()
        assert corpus.num_documents == documents
        assert not [path.name for path in (tmp_path / name).iterdir() if path.name.startswith(".")]


def test_a_preparation_that_was_killed_twice_continues(tmp_path, prepare, small_parts, capsys):
    """And its files are those of one that was not disturbed."""
    kill(tmp_path, 3)
    assert len(list((tmp_path / "train" / ".parts").glob("part-*.json"))) == 1
    assert "train: continuing after 2 documents" in kill(tmp_path, 5)
    assert not (tmp_path / "train" / "corpus.json").exists()
    (tmp_path / "train" / "notes.txt").write_text("kept")
    prepare()
    assert "train: continuing after 6 documents" in capsys.readouterr().out
    check_complete(tmp_path, Tokenizer.load(tmp_path / "tokenizer"))
    assert (tmp_path / "train" / "notes.txt").read_text() == "kept"
    prepare(output=tmp_path / "again", held_out=tmp_path / "again_held_out")
    assert files_of(tmp_path / "train") == files_of(tmp_path / "again")
    assert files_of(tmp_path / "held_out") == files_of(tmp_path / "again_held_out")


def test_the_files_do_not_depend_on_the_number_of_workers(tmp_path, prepare, small_parts, monkeypatch, capsys):
    """At most one worker for each core is started."""
    monkeypatch.setattr(module, "available_cores", lambda: 3)
    options = dict(shards=2, block_documents=2)
    for workers in (1, 3, 4):
        folders = dict(output=tmp_path / f"{workers}", held_out=tmp_path / f"{workers}_held_out")
        prepare(processes=Processes(workers), **folders, **options)
        for name, folder in folders.items():
            assert files_of(folder) == files_of(tmp_path / ("1" if name == "output" else "1_held_out"))
    assert capsys.readouterr().out.count("3 workers, as this process may use 3 cores") == 1


def test_parts_of_other_text_or_another_tokenizer_are_made_again(tmp_path, prepare, small_parts, capsys):
    kill(tmp_path, 3)
    other = Tokenizer.train("wordpiece", LINES * 5, 48)
    other.save(tmp_path / "other")
    prepare(tokenizer=tmp_path / "other")
    assert "continuing" not in capsys.readouterr().out
    check_complete(tmp_path, other)


@pytest.mark.parametrize("place", [(parts, "write_text"), (parts, "write_record"), (shutil, "rmtree")])
def test_wherever_it_ended(tmp_path, prepare, place, monkeypatch):
    """As a killed process: with nothing cleaned up."""

    def die(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*place, die)
        patch.setattr(module, "remove_unfinished", lambda folder: None)
        prepare()
    assert (tmp_path / "train" / ".unfinished").exists()
    prepare()
    check_complete(tmp_path, Tokenizer.load(tmp_path / "tokenizer"))


def test_a_finished_corpus_is_never_replaced(tmp_path, prepare):
    prepare()
    before = (tmp_path / "train" / "corpus.bin").read_bytes()
    with pytest.raises(FileExistsError, match="train contains a corpus. Remove it, or choose another folder"):
        prepare(held_out=tmp_path / "another")
    assert not (tmp_path / "another").exists()
    with pytest.raises(FileExistsError, match="held_out contains a corpus"):
        prepare(output=tmp_path / "another")
    assert not (tmp_path / "another").exists()
    assert (tmp_path / "train" / "corpus.bin").read_bytes() == before


def test_files_of_a_corpus_of_unknown_origin_are_kept(tmp_path, prepare):
    """Megatron's pair of files without our corpus.json may be anyone's."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "corpus.bin").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match="train already (?:holds|contains) a corpus .corpus.bin."):
        prepare()
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["corpus.bin"]


def test_bad_text_leaves_nothing(tmp_path, prepare, small_parts):
    with open(tmp_path / "text.txt", "ab") as file:
        file.write(b"\n\nbad \xff text")
    with pytest.raises(ValueError, match="text.txt is not valid utf-8"):
        prepare()
    assert not (tmp_path / "train").exists() and not (tmp_path / "held_out").exists()


def test_a_full_disk_leaves_the_parts_that_are_complete(tmp_path, prepare, small_parts, monkeypatch, capsys):
    calls, write = [], parts.write_text

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) == 4:  # the settings and two parts are written
            raise OSError("the disk is full")
        write(*arguments)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk is full"):
        patch.setattr(parts, "write_text", fails)
        prepare()
    assert "train: the parts that are complete are kept" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "train").iterdir()] == [".parts"] and not (tmp_path / "held_out").exists()
    prepare()
    assert "continuing after 4 documents" in capsys.readouterr().out
    check_complete(tmp_path, Tokenizer.load(tmp_path / "tokenizer"))


def test_two_preparations_at_once(tmp_path, prepare):
    with locked(tmp_path / "held_out"), pytest.raises(ValueError, match="one process at a time.*held_out"):
        prepare()
    assert not (tmp_path / "train").exists()
    with pytest.raises(ValueError, match="different folders. Received: .*train twice"):
        prepare(held_out=tmp_path / "x" / ".." / "train")


def test_the_share_that_is_held_out_is_printed(tmp_path, prepare, capsys):
    prepare()
    counts = [json.loads((tmp_path / name / "corpus.json").read_text())["num_tokens"] for name in ("train", "held_out")]
    assert f"\n{counts[1] / sum(counts):.2%} of the tokens are held out" in capsys.readouterr().out

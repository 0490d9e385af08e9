"""Corpora whose preparation was killed, and two preparations at once."""

import json
import signal
import subprocess
import sys

import pytest

from kerasbert.data import Corpus, Tokenizer
from kerasbert.data.corpus import writing
from pipelines import prepare_corpus as module
from pipelines.locks import locked
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
import os, signal, sys
sys.path.insert(0, {root!r})
from kerasbert.data.corpus import writing
from pipelines import prepare_corpus as module

calls, encoded = [], writing._encoded_lines
def dies(*arguments):
    calls.append(1)
    return encoded(*arguments) if len(calls) == 1 else os.kill(os.getpid(), signal.SIGKILL)
writing._encoded_lines = dies
module.prepare_corpus([{folder!r} + "/text.txt"], {folder!r} + "/tokenizer", module.Path({folder!r}, "train"),
                      held_out=module.Path({folder!r}, "held_out"), held_out_every=3)
"""


def done_again(tmp_path, prepare):
    """With another tokenizer: that of the killed preparation is not in the way."""
    other = Tokenizer.train("wordpiece", LINES * 5, 48)
    other.save(tmp_path / "other")
    (tmp_path / "train" / "notes.txt").write_text("kept")
    assert prepare(tokenizer=tmp_path / "other").num_documents == 6
    for name, documents in (("train", 6), ("held_out", 3)):
        corpus = Corpus.open(tmp_path / name, other)
        corpus.verify()
        assert corpus.num_documents == documents
        assert not [path.name for path in (tmp_path / name).iterdir() if path.name.startswith(".")]
    assert (tmp_path / "train" / "notes.txt").read_text() == "kept"


def test_a_killed_preparation_is_done_again(tmp_path, prepare, capsys):
    code = KILL.format(root=str(REPOSITORY), folder=str(tmp_path))
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert (tmp_path / "train" / "corpus.json").exists() and list((tmp_path / "held_out").glob(".corpus.*.partial"))
    done_again(tmp_path, prepare)
    assert "train: replacing a corpus that was never finished" in capsys.readouterr().out


@pytest.mark.parametrize("place", [(writing, "_encoded_lines"), (writing, "write_text"), (module, "describe")])
def test_wherever_it_ended(tmp_path, prepare, place, monkeypatch):
    """As a killed process: with nothing cleaned up."""

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*place, die)
        patch.setattr(module, "remove_unfinished", lambda folder: None)
        prepare()
    assert (tmp_path / "train" / ".unfinished").exists()
    done_again(tmp_path, prepare)


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


def test_a_preparation_that_fails_leaves_nothing(tmp_path, prepare, monkeypatch):
    calls = []

    def describe(corpus):
        calls.append(corpus)
        if len(calls) == 2:
            raise OSError("the disk is full")

    monkeypatch.setattr(module, "describe", describe)
    with pytest.raises(OSError, match="disk is full"):
        prepare()
    assert not (tmp_path / "train").exists() and not (tmp_path / "held_out").exists()


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

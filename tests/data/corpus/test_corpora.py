"""The files of a corpus, byte by byte, and what happens when they are damaged."""

import json
import os
import shutil
import struct
import tempfile

import numpy as np
import pytest

from kerasbert.data import Corpus, MaskedLMBatches, Tokenizer
from kerasbert.data.corpus import writing

pytestmark = pytest.mark.one_backend


@pytest.fixture
def copy(corpus, tmp_path):
    # The corpus is shared: plans that other tests made of it stay behind.
    return shutil.copytree(corpus.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("plans"))


def test_files_are_megatrons_to_the_byte(tmp_path, wordpiece):
    corpus = Corpus.write(tmp_path, ["tone\n\n  ten nets \n", " \n", "note"], wordpiece)
    ids = [wordpiece.encode([line], add_special_tokens=False)[0] for line in ("tone", "ten nets", "note")]
    assert (tmp_path / "corpus.bin").read_bytes() == np.concatenate(ids).astype("<u2").tobytes()
    lengths = [len(i) for i in ids]
    pointers = [0, 2 * lengths[0], 2 * (lengths[0] + lengths[1])]
    expected = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ3i3q3q", 1, 8, 3, 3, *lengths, *pointers, 0, 2, 3)
    assert (tmp_path / "corpus.idx").read_bytes() == expected
    assert (corpus.num_documents, corpus.num_sequences, corpus.num_tokens) == (2, 3, sum(lengths))
    assert corpus.lengths.tolist() == lengths and corpus.document_starts.tolist() == [0, 2, 3]
    assert corpus.sequence_starts.tolist() == [0, lengths[0], lengths[0] + lengths[1]]
    np.testing.assert_array_equal(corpus.tokens, np.concatenate(ids))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["corpus.bin", "corpus.idx", "corpus.json", "word_starts.npy", "vocab.txt"]
        + ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
    )


def test_large_vocabularies_take_four_bytes(tmp_path, wordpiece, monkeypatch):
    monkeypatch.setattr(Tokenizer, "vocabulary_size", 65_500, raising=False)
    tokenizer = Tokenizer.from_json(wordpiece.to_json())
    tokenizer.vocabulary_size = 65_500
    corpus = Corpus.write(tmp_path, ["tone"], tokenizer)
    assert corpus.tokens.dtype == np.int32
    assert (tmp_path / "corpus.idx").read_bytes()[17] == 4


def test_reopening(corpus, wordpiece, documents):
    again = Corpus.open(corpus.folder, tokenizer=wordpiece)
    np.testing.assert_array_equal(again.tokens, corpus.tokens)
    assert again.tokenizer_hash == wordpiece.hash == again.tokenizer().hash
    assert again.summary["sources"] == ["made up"]
    assert again.fingerprint == corpus.fingerprint
    np.testing.assert_array_equal(again.word_starts, wordpiece.word_starts)
    assert again.num_documents == len(documents)
    again.verify()
    text = wordpiece.decode(again.tokens[: again.lengths[0]])
    assert text.replace(" ", "") == documents[0].split("\n")[0].replace(" ", "")


def test_any_megatron_files_can_be_opened(corpus, wordpiece, tmp_path):
    for suffix in ("bin", "idx"):
        shutil.copy(corpus.folder / f"corpus.{suffix}", tmp_path / f"other.{suffix}")
    other = Corpus.open(tmp_path / "other.bin", tokenizer=wordpiece)
    np.testing.assert_array_equal(other.tokens, corpus.tokens)
    assert other.unigram_entropy() == pytest.approx(corpus.unigram_entropy())
    assert other.tokenizer() is wordpiece
    with pytest.raises(ValueError, match="must be read with the tokenizer"):
        Corpus.open(corpus.folder).check_tokenizer(Tokenizer.train("wordpiece", ["some text " * 9], 20))


def test_unigram_entropy(tmp_path, wordpiece):
    corpus = Corpus.write(tmp_path, ["t t t t\nn n e e"], wordpiece)
    assert corpus.unigram_entropy() == pytest.approx(0.5 * np.log(2) + 2 * 0.25 * np.log(4))
    assert corpus.summary["unknown_tokens"] == 0
    # 4, 2 and 2 of 8 tokens, each once more, and once all that never occur.
    size = wordpiece.vocabulary_size
    expected = np.log(8 + size) - 0.5 * np.log(5) - 2 * 0.25 * np.log(3)
    assert corpus.unigram_loss(corpus) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_names_of_special_tokens_in_text_stay_text(tmp_path, kind, request):
    tokenizer = request.getfixturevalue(kind)
    corpus = Corpus.write(tmp_path, ["ten [SEP] nets [MASK] <mask> </s> <pad>"], tokenizer)
    special = [tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id]
    assert not np.isin(corpus.tokens, special).any()
    assert tokenizer.mask_id in tokenizer.encode(["ten [MASK] <mask>"])[0]


def test_batches_of_lines_do_not_change_the_corpus(tmp_path, wordpiece, documents, corpus, monkeypatch):
    monkeypatch.setattr(writing, "_BATCH_CHARACTERS", 50)
    small = Corpus.write(tmp_path, iter(documents), wordpiece)
    np.testing.assert_array_equal(small.tokens, corpus.tokens)
    assert (tmp_path / "corpus.idx").read_bytes() == (corpus.folder / "corpus.idx").read_bytes()


def test_nothing_is_overwritten_or_left_half_written(corpus, tmp_path, wordpiece, documents):
    before = (corpus.folder / "corpus.bin").read_bytes()
    with pytest.raises(FileExistsError, match="holds a corpus"):
        Corpus.write(corpus.folder, documents, wordpiece)
    assert (corpus.folder / "corpus.bin").read_bytes() == before

    wordpiece.save(tmp_path / "other")
    with pytest.raises(FileExistsError, match="holds another tokenizer"):
        Corpus.write(tmp_path / "other", documents, Tokenizer.train("wordpiece", documents, 150))

    def broken():
        yield from documents
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        Corpus.write(tmp_path / "new", broken(), wordpiece)
    assert list((tmp_path / "new").iterdir()) == []
    Corpus.write(tmp_path / "new", documents, wordpiece)


def test_a_corpus_needs_text(tmp_path, wordpiece):
    for documents in ([], [" \n \n"], ["\x00\x01"]):
        with pytest.raises(ValueError, match="no document with text"):
            Corpus.write(tmp_path / "empty", documents, wordpiece)
    with pytest.raises(ValueError, match="iterable of str"):
        Corpus.write(tmp_path / "one", "a text", wordpiece)
    with pytest.raises(FileNotFoundError, match="corpus.idx is missing"):
        Corpus.open(tmp_path / "empty")


def damage(path, position, data):
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def test_damaged_files_are_refused(copy):
    def refused(match, kind=ValueError):
        with pytest.raises(kind, match=match):
            Corpus.open(copy)

    original = {name: (copy / name).read_bytes() for name in ("corpus.bin", "corpus.idx", "corpus.json")}

    def restore():
        for name, data in original.items():
            (copy / name).write_bytes(data)

    for name in ("corpus.bin", "corpus.idx"):
        os.truncate(copy / name, len(original[name]) // 2)
        refused("truncated")
        (copy / name).write_bytes(original[name] + b"\0\0")
        refused("truncated")
        (copy / name).write_bytes(b"")
        refused("truncated|not a Megatron index")
        restore()
    damage(copy / "corpus.idx", 0, b"X")
    refused("not a Megatron index")
    restore()
    damage(copy / "corpus.idx", 9, b"\2")
    refused("version 2")
    restore()
    damage(copy / "corpus.idx", 34 + 4, struct.pack("<i", -5))
    refused("a sequence without tokens")
    restore()
    lengths = np.frombuffer(original["corpus.idx"], "<i4", count=3, offset=34)
    damage(copy / "corpus.idx", 34, struct.pack("<ii", lengths[0] + 1, lengths[1] - 1))
    refused("not contiguous")
    restore()
    damage(copy / "corpus.idx", len(original["corpus.idx"]) - 16, struct.pack("<q", 10**6))
    refused("documents out of order")
    restore()
    summary = json.loads(original["corpus.json"])
    (copy / "corpus.json").write_text(json.dumps({**summary, "num_tokens": 3}))
    refused("must agree with corpus.json")
    (copy / "corpus.json").write_text("{")
    refused("corpus.json is damaged")
    (copy / "corpus.json").unlink()
    refused("is incomplete", FileNotFoundError)
    restore()
    Corpus.open(copy).verify()


def test_tokens_are_verified(copy, wordpiece):
    damage(copy / "corpus.bin", 20, struct.pack("<H", 60_000))
    with pytest.raises(ValueError, match="ids below 200. Received: 60000 as token 10"):
        Corpus.open(copy).verify()
    damage(copy / "corpus.bin", 20, struct.pack("<H", 7))
    damage(copy / "corpus.bin", 22, struct.pack("<H", 8))
    with pytest.raises(ValueError, match="digest"):
        Corpus.open(copy).plan("any", {}, lambda: [np.zeros((1, 1), int)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_tokens": "many"}, "'num_tokens' must be an integer of at least 1. Received: 'many'"),
        ({"num_tokens": True}, "'num_tokens' must be an integer"),
        ({"num_documents": None}, "'num_documents' must be an integer"),
        ({"unknown_tokens": 10**9}, "'unknown_tokens' must be an integer of at most"),
        ({"unigram_entropy": float("nan")}, "'unigram_entropy' must be a number"),
        ({"sha256": "x"}, "'sha256' must be 64 hexadecimal digits"),
        ({"sources": [1]}, "'sources' must be a list of names"),
        ({"tokenizer": None}, "must be an object with the properties of the tokenizer"),
        ({"tokenizer.vocabulary_size": 0}, "'vocabulary_size' must be an integer of at least 1"),
        ({"tokenizer.vocabulary_size": 100_000}, "a dtype that holds ids up to 99999. Received: uint16"),
        ({"tokenizer.vocabulary_size": 60}, "must be an id below 60|ids below 60"),
        ({"tokenizer.pad_id": 2.5}, "'pad_id' must be an id below 200, or null. Received: 2.5"),
        ({"tokenizer.mask_id": 200}, "'mask_id' must be an id below 200"),
        ({"tokenizer.hash": 5}, "'hash' must be 64 hexadecimal digits"),
        ({"tokenizer.padding_side": "up"}, "'padding_side' must be 'left' or 'right'"),
        ({"tokenizer.single": [["B", 0]]}, "the template 'single' must consist of A and ids below 200"),
        ({"tokenizer.pair": [["A", 0], [900, 0], ["B", 1]]}, "the template 'pair' must consist of A and B"),
    ],
)
def test_what_corpus_json_says_is_checked_on_opening(copy, changes, message):
    record = json.loads((copy / "corpus.json").read_text())
    for name, value in changes.items():
        group, _, inner = name.rpartition(".")
        (record[group] if group else record)[inner] = value
    (copy / "corpus.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=message):
        Corpus.open(copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unknown_tokens", 1),
        ("unigram_entropy", 1.0),
        ("unigram_entropy", 10**400),  # beyond floats
        ("tokenizer.cls_id", 0),
        ("tokenizer.pair", [["A", 0], ["B", 1]]),
    ],
)
def test_what_corpus_json_says_is_verified(copy, name, value):
    """What opening cannot tell cheaply."""
    record = json.loads((copy / "corpus.json").read_text())
    group, _, inner = name.rpartition(".")
    (record[group] if group else record)[inner] = value
    (copy / "corpus.json").write_text(json.dumps(record))
    corpus = Corpus.open(copy)
    with pytest.raises(ValueError, match=f"corpus.json must match the files. Received: '{name.split('.')[0]}'"):
        corpus.verify()


def test_the_segments_of_the_template_are_verified(documents, tmp_path):
    tokenizer = Tokenizer.train("byte_bpe", documents, 400, family="gpt2")
    Corpus.write(tmp_path / "corpus", documents, tokenizer)
    path = tmp_path / "corpus" / "corpus.json"
    record = json.loads(path.read_text())
    assert record["tokenizer"]["pair"] == [["A", 0], ["B", 0]]

    path.write_text(json.dumps({**record, "tokenizer": {**record["tokenizer"], "pair": [["A", 0], ["B", 1]]}}))
    with pytest.raises(ValueError, match="must match the files. Received: 'tokenizer'"):
        Corpus.open(tmp_path / "corpus").verify()


def test_another_tokenizer_is_refused(corpus, documents, wordpiece):
    other = Tokenizer.train("wordpiece", documents, 150)
    with pytest.raises(ValueError, match="tokenizer that wrote it.*Received: one with hash.*150 tokens"):
        corpus.check_tokenizer(other)
    with pytest.raises(ValueError, match="tokenizer that wrote it"):
        Corpus.open(corpus.folder, tokenizer=other)
    corpus.check_tokenizer(Tokenizer.from_json(wordpiece.to_json()))


def test_plans_are_built_once_and_repaired(copy):
    corpus = Corpus.open(copy)
    calls = []

    def build():
        calls.append(1)
        yield np.arange(6).reshape(3, 2)
        yield np.arange(6, 10).reshape(2, 2)

    for _ in range(2):
        plan = corpus.plan("rows", {"length": 3}, build)
        assert plan.dtype == np.int32 and plan.tolist() == np.arange(10).reshape(5, 2).tolist()
    assert len(calls) == 1
    (path,) = (copy / "plans").iterdir()
    os.truncate(path, path.stat().st_size - 4)
    assert corpus.plan("rows", {"length": 3}, build).shape == (5, 2) and len(calls) == 2
    corpus.plan("rows", {"length": 4}, build)
    assert len(calls) == 3 and len(list((copy / "plans").iterdir())) == 2


def test_a_plan_may_begin_with_blocks_without_lines(copy):
    def build():
        yield np.zeros((0, 2), np.int64)
        yield np.zeros((0, 2), np.int64)
        yield np.arange(6).reshape(3, 2)

    corpus = Corpus.open(copy)
    for _ in range(2):
        assert corpus.plan("rows", {"length": 9}, build).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_corpus_in_memory_is_the_one_on_disk(tmp_path, documents, wordpiece, monkeypatch):
    """And it leaves no file behind, not even one that is deleted while it is still mapped."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    on_disk, in_memory = Corpus.write(tmp_path / "corpus", documents, wordpiece), Corpus.in_memory(documents, wordpiece)
    assert not list((tmp_path / "temporary").iterdir())
    assert in_memory.fingerprint == on_disk.fingerprint and in_memory.counts().tolist() == on_disk.counts().tolist()
    assert not isinstance(in_memory.tokens.base, np.memmap) and in_memory.tokenizer() is wordpiece
    in_memory.verify()
    for rows in ("segment_pairs", "packed"):
        batches = [MaskedLMBatches(corpus, 4, 24, seed=3, rows=rows) for corpus in (on_disk, in_memory)]
        for step in (0, len(batches[0]) - 1):
            for one, other in zip(*(arrays_of(one[step]) for one in batches), strict=True):
                np.testing.assert_array_equal(one, other)
    assert not list((tmp_path / "temporary").iterdir())


def arrays_of(batch):
    """The arrays of a batch, in the order of their keys."""
    for part in batch:
        yield from (part[key] for key in sorted(part)) if isinstance(part, dict) else (part,)

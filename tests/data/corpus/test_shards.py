"""Corpora in shards: the batches do not depend on how many there are, and damaged ones are refused."""

import json
import os
import shutil

import numpy as np
import pytest

import kerasbert.data
from kerasbert.data import Corpus, MaskedLMBatches, Tokenizer
from kerasbert.data.batches.pair_rows import SegmentPairs
from kerasbert.data.corpus.blocks import block_range, num_blocks
from kerasbert.data.corpus.joined import Joined, Shifted
from kerasbert.data.corpus.megatron import PairWriter
from kerasbert.data.corpus.parts import Assembly
from kerasbert.data.corpus.shards import Selection
from kerasbert.data.corpus.writing import encoded_batches, token_dtype
from tests.data.batches.objects import batches_of
from tests.data.batches.test_golden_batches import CASES, arrays, digest, documents

pytestmark = pytest.mark.one_backend

BLOCK = 7


def write_sharded(folder, texts, tokenizer, shards, block_documents=BLOCK, selection=None):
    """Writes a corpus in shards, of two parts that end somewhere."""
    parts = [folder.with_name(f"{folder.name}-part-{number}") for number in range(2)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    for part, some in zip(parts, (texts[:5], texts[5:]), strict=True):
        with PairWriter(part, token_dtype(tokenizer)) as writer:
            for batch in encoded_batches(some, tokenizer):
                writer.append(batch)
    work = Assembly(folder, tuple(parts), tokenizer, selection or Selection(), shards, block_documents)
    work.finish(sum(map(work.write, range(work.num_pieces()))), ["made up"])
    return Corpus.open(folder)


@pytest.fixture(scope="module")
def tokenizers():
    text = documents(0, 40, (2, 12))
    return {
        "wordpiece": Tokenizer.train("wordpiece", text, 300),
        "unigram": Tokenizer.train("unigram", text, 200, family="albert"),
        "t5": Tokenizer.train("unigram", text, 300, family="t5"),
        "roberta": Tokenizer.train("byte_bpe", text, 320, family="roberta"),
        "xlnet": Tokenizer.train("unigram", text, 200, family="xlnet"),
    }


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, tokenizers):
    """{kind: the same corpus in 1 and 3 shards, that of "wordpiece" also in 5}"""
    folder, text, lines = tmp_path_factory.mktemp("shards"), documents(0, 40, (2, 12)), documents(1, 60, (2, 3))
    texts = {**{kind: (text, kind) for kind in tokenizers}, "pairs": (lines, "wordpiece")}
    return {
        kind: [
            write_sharded(folder / kind / str(count), some, tokenizers[name], count)
            for count in ((1, 3, 5) if kind == "wordpiece" else (1, 3))
        ]
        for kind, (some, name) in texts.items()
    }


@pytest.fixture
def sharded(corpora, tmp_path):
    """A copy of a corpus in three shards, which may be damaged."""
    return shutil.copytree(corpora["wordpiece"][1].folder, tmp_path / "copy", ignore=shutil.ignore_patterns("plans"))


def test_shards_are_the_corpus(corpora, tokenizers, tmp_path):
    """The tokens, lengths and documents are those of a corpus in one file, in shards that end at borders of blocks."""
    whole = Corpus.write(tmp_path / "whole", documents(0, 40, (2, 12)), tokenizers["wordpiece"])
    for corpus, shards in zip(corpora["wordpiece"], (1, 3, 5), strict=True):
        corpus.verify()
        for name in ("tokens", "lengths", "sequence_starts", "document_starts"):
            np.testing.assert_array_equal(np.asarray(getattr(corpus, name)), getattr(whole, name))
        assert corpus.counts().tolist() == whole.counts().tolist()
        record = json.loads((corpus.folder / "corpus.json").read_text())
        assert record["unigram_entropy"] == whole.unigram_entropy() and record["block_documents"] == BLOCK
        sizes = [shard["num_documents"] for shard in record["shards"]]
        assert sizes == {1: [40], 3: [7, 14, 19], 5: [7, 7, 7, 7, 12]}[shards]
        assert corpus.fingerprint != whole.fingerprint  # its plans are others
    assert len({corpus.fingerprint for corpus in corpora["wordpiece"]}) == 1


def test_blocks(corpora):
    assert (num_blocks(7, 3), block_range(1, 7, 3)) == (2, (3, 7))
    for corpus in corpora["wordpiece"]:
        found = list(corpus.blocks())
        assert [len(block.documents) - 1 for block in found] == [7, 7, 7, 7, 12]
        sentences = np.concatenate([*(block.sentences[:-1] for block in found), [corpus.num_tokens]])
        np.testing.assert_array_equal(sentences, np.append(corpus.sequence_starts, corpus.num_tokens))
        starts = [block.document_tokens for block in found]
        assert all(left[-1] == right[0] for left, right in zip(starts, starts[1:], strict=False))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_batches_do_not_depend_on_the_number_of_shards(corpora, case):
    name, kind, settings = case
    cls, seed = getattr(kerasbert.data, name), {} if name == "StreamBatches" else {"seed": 3}
    settings = dict(settings)
    micro_batches = settings.pop("accumulation", 1)

    def made(corpus):
        return batches_of(cls, corpus, 6, 40, steps=9, **seed, **settings).accumulated(micro_batches)

    assert len({digest(made(corpus)) for corpus in corpora[kind][:2]}) == 1


def test_a_corpus_of_one_block_has_the_batches_of_a_corpus_in_one_file(corpora, tokenizers, tmp_path):
    """What a block is does not change what happens in it."""
    texts = documents(0, 40, (2, 12))
    whole = Corpus.write(tmp_path / "whole", texts, tokenizers["roberta"])
    sharded = write_sharded(tmp_path / "sharded", texts, tokenizers["roberta"], 4, block_documents=40)
    for rows in ("full_sentences", "packed", "segments", "segment_pairs"):
        made = [
            batches_of(MaskedLMBatches, c, 8, 40, seed=1, steps=5, rows=rows, dupe_factor=1) for c in (whole, sharded)
        ]
        assert digest(made[0]) == digest(made[1]), rows


def test_a_random_segment_comes_from_the_same_block(corpora):
    corpus = corpora["wordpiece"][1]
    plan = SegmentPairs(passes=3)(corpus, 200, seed=1).plan
    ends = [int(block.sentences[-1]) for block in corpus.blocks()]
    blocks = np.searchsorted(ends, plan[:, [0, 2]], side="right")
    assert (blocks[:, 0] == blocks[:, 1]).all() and 0.3 < plan[:, 4].mean() < 0.7
    passes = [plan[plan[:, 5] == number, :5].tolist() for number in range(3)]
    assert passes[0] != passes[1] and (np.diff(plan[:, 5]) >= 0).all()


def test_held_out_documents(tokenizers, tmp_path):
    texts = documents(0, 23, (2, 12))
    held, rest = (
        write_sharded(tmp_path / name, texts, tokenizers["wordpiece"], 2, 3, Selection(4, rest))
        for name, rest in (("held", False), ("rest", True))
    )
    for corpus, expected in ((held, texts[3::4]), (rest, [t for n, t in enumerate(texts, 1) if n % 4])):
        whole = Corpus.in_memory(expected, tokenizers["wordpiece"])
        np.testing.assert_array_equal(np.asarray(corpus.tokens), whole.tokens)
        np.testing.assert_array_equal(np.asarray(corpus.document_starts), whole.document_starts)


@pytest.mark.parametrize(("every", "rest"), [(None, True), (2, True), (5, True), (5, False)])
def test_a_selection_finds_its_documents(every, rest):
    selection = Selection(every, rest)
    for count in range(23):
        chosen = np.flatnonzero(selection.mask(0, count)).tolist()
        assert len(chosen) == selection.count(count)
        assert [selection.place(number) for number in range(len(chosen))] == chosen
        if count > 3:
            np.testing.assert_array_equal(selection.mask(3, count - 3), selection.mask(0, count)[3:])


def test_joined_arrays_are_read_like_one():
    random = np.random.default_rng(0)
    parts = [random.integers(0, 99, size) for size in (4, 1, 7)]
    joined, whole = Joined([parts[0], Shifted(2 * parts[1], 3, 2), parts[2]]), np.concatenate(parts)
    whole[4] += 3
    assert len(joined) == 12 and joined.shape == (12,) and joined.dtype == np.int64
    np.testing.assert_array_equal(np.asarray(joined), whole)
    for start in range(13):
        for stop in range(-2, 14):
            np.testing.assert_array_equal(joined[start:stop], whole[start:stop])
    np.testing.assert_array_equal(joined[1:11:3], whole[1:11:3])
    index = random.integers(-12, 12, (3, 5))
    np.testing.assert_array_equal(joined[index], whole[index])
    np.testing.assert_array_equal(joined[whole > 40], whole[whole > 40])
    assert joined[-1] == whole[-1] and joined[4] == whole[4]
    with pytest.raises(IndexError, match="out of bounds for 12"):
        joined[[3, 12]]


# === Bad input ===


def changed(folder, name, change):
    path = folder / name
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_shards_that_are_missing_or_truncated(sharded):
    (sharded / "shard-00001.bin").rename(sharded / "elsewhere.bin")
    (sharded / "shard-00002.json").rename(sharded / "elsewhere.json")
    with pytest.raises(FileNotFoundError, match="all 3 shards .*Missing: shard-00001.bin, shard-00002.json"):
        Corpus.open(sharded)
    (sharded / "elsewhere.bin").rename(sharded / "shard-00001.bin")
    (sharded / "elsewhere.json").rename(sharded / "shard-00002.json")
    size = (sharded / "shard-00001.bin").stat().st_size
    os.truncate(sharded / "shard-00001.bin", size - 2)
    with pytest.raises(ValueError, match=f"shard-00001.bin must have {size} bytes.*truncated"):
        Corpus.open(sharded)
    (sharded / "corpus.json").unlink()
    with pytest.raises(FileNotFoundError, match="no corpus.json, so the corpus is incomplete"):
        Corpus.open(sharded)


def test_a_shard_of_another_corpus(sharded, corpora, tokenizers, tmp_path):
    other = write_sharded(tmp_path / "other", documents(2, 40, (2, 12)), tokenizers["wordpiece"], 3)
    for suffix in (".bin", ".idx", ".json"):
        shutil.copy(other.folder / f"shard-00001{suffix}", sharded)
    with pytest.raises(ValueError, match="shard-00001 must agree with corpus.json. Received: num_tokens="):
        Corpus.open(sharded)


def test_a_shard_of_another_tokenizer(sharded, tokenizers, tmp_path):
    other = write_sharded(tmp_path / "other", documents(0, 40, (2, 12)), tokenizers["unigram"], 3)
    for suffix in (".bin", ".idx", ".json"):
        shutil.copy(other.folder / f"shard-00001{suffix}", sharded)
    with pytest.raises(ValueError, match=r"tokenizer of the corpus .*Received: shard-00001.json with hash"):
        Corpus.open(sharded)


@pytest.mark.parametrize("name", ["../copy/shard-00000", "/etc/passwd", "a/../../shard-00000"])
def test_a_manifest_that_leads_out_of_the_folder(sharded, name):
    changed(sharded, "corpus.json", lambda record: record["shards"][0].update(name=name))
    with pytest.raises(ValueError, match="must name files inside its folder"):
        Corpus.open(sharded)


def test_a_link_that_leads_out_of_the_folder(sharded, tmp_path):
    (sharded / "shard-00000").symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="must name files inside its folder"):
        Corpus.open(sharded)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(shards=[]), "'shards' must be a list of shards"),
        (lambda r: r.update(shards="all"), "'shards' must be a list of shards"),
        (lambda r: r.pop("shards"), "'shards' must be a list of shards"),
        (lambda r: r.pop("block_documents"), "'block_documents' must be an integer of at least 2. Received: None"),
        (lambda r: r.update(block_documents=1), "'block_documents' must be an integer of at least 2. Received: 1"),
        (lambda r: r.update(block_documents=8), "shards must end at borders of blocks.*shard-00000"),
        (lambda r: r["shards"].reverse(), "shards must end at borders of blocks"),
        (lambda r: r["shards"].pop(), "'num_tokens' must be the sum over the shards"),
        (lambda r: r["shards"][1].update(sha256="0"), "in 'shards', 'sha256' must be 64 hexadecimal digits"),
        (lambda r: r["shards"][1].update(num_tokens="5"), "in 'shards', 'num_tokens' must be an integer"),
        (lambda r: r["shards"][1].pop("name"), "in 'shards', a shard must have a 'name'"),
    ],
)
def test_a_damaged_manifest(sharded, change, message):
    changed(sharded, "corpus.json", change)
    with pytest.raises(ValueError, match=message):
        Corpus.open(sharded)


def test_damage_is_found_before_a_plan_is_built(sharded):
    data = bytearray((sharded / "shard-00001.bin").read_bytes())
    data[0] ^= 1
    (sharded / "shard-00001.bin").write_bytes(data)
    corpus = Corpus.open(sharded)
    with pytest.raises(ValueError, match="shard-00001.bin is damaged: its digest differs"):
        batches_of(MaskedLMBatches, corpus, 4, 24, rows="packed")
    assert not (sharded / "plans").exists()


def test_hosts_can_compare_their_corpora(corpora, tokenizers, tmp_path):
    """The recipe of a run, which hosts compare before they train, names the corpus and the size of its blocks."""
    same = {MaskedLMBatches(c, 4, 24).recipe()["corpus"] for c in corpora["wordpiece"]}
    texts = documents(0, 40, (2, 12))
    other_blocks = write_sharded(tmp_path / "blocks", texts, tokenizers["wordpiece"], 3, block_documents=8)
    other_text = write_sharded(tmp_path / "text", texts[:-1], tokenizers["wordpiece"], 3)
    found = [MaskedLMBatches(c, 4, 24).recipe()["corpus"] for c in (other_blocks, other_text)]
    assert len(same) == 1 and len({*same, *found}) == 3


def test_arrays_of_batches(corpora):
    """The digest that the comparisons use covers every array of a batch."""
    batch = MaskedLMBatches(corpora["wordpiece"][0], 4, 24)[0]
    assert {name for name, _ in arrays(batch)} >= {"0.token_ids", "0.masked_positions", "1", "2"}

"""Rows of whole lines, streams, packed rows and pairs: layouts beside the text, and the sheets' examples."""

import numpy as np
import pytest

from kerasbert.data import Corpus, MaskedLMBatches, Tokenizer
from kerasbert.data.corpus.packing import segment_pairs, sentence_blocks
from tests.data.batches.objects import batches_of

from ..conftest import make_documents
from .test_batches import same, sliced
from .test_masked_lm import original

pytestmark = pytest.mark.one_backend

FORMS = [
    {"rows": "full_sentences", "rule": "roberta"},
    {"rows": "doc_sentences", "rule": "roberta", "whole_words": True},
    {"rows": "sentence_pairs"},
    {"rows": "sentence_order", "ngrams": 3},
    {"rows": "stream", "rule": "xlm", "language": 2},
    {"rows": "stream", "rule": "xlm", "rare_exponent": 0.5},
    {"rows": "packed", "rule": "modernbert", "mask_rate": 0.3},
    {"rows": "packed", "static_masks": True, "ngrams": (0.2, 0.8)},
    {"rows": "chunks", "rule": "deberta", "ngrams": 3},
    {"rows": "segments", "rule": "deberta_anywhere"},
]


@pytest.mark.parametrize(
    ("sizes", "separators", "complete", "within"),
    [
        ([5, 4, 1, 6, 3], [2], [(0, 10), (10, 19)], [(0, 9), (10, 19)]),
        ([5, 5, 1, 6], [2], [(0, 10), (10, 17)], [(0, 10), (11, 17)]),
        ([12, 3, 1, 4, 4], [2], [(0, 12), (12, 20), (20, 24)], [(0, 12), (12, 15), (16, 24)]),
    ],
)
def test_blocks_of_whole_lines(sizes, separators, complete, within):
    ends = np.append(0, np.cumsum(sizes))

    def ranges(blocks):
        return [(int(ends[first]), int(ends[first + count])) for first, count in blocks]

    assert ranges(sentence_blocks(np.array(sizes), 10)) == complete
    marks = np.isin(np.arange(len(sizes)), separators)
    assert ranges(sentence_blocks(np.array(sizes), 10, marks)) == within


@pytest.mark.parametrize("form", FORMS)
def test_replay_resume_shards_and_accumulation(corpus, form):
    batches = batches_of(MaskedLMBatches, corpus, 6, 32, steps=300, seed=4, **form)
    again = batches_of(MaskedLMBatches, Corpus.open(corpus.folder), 6, 32, steps=250, seed=4, **form)
    parts = batches_of(MaskedLMBatches, corpus, 6, 32, steps=250, seed=4, **form).accumulated(2)
    for step in (200, 3):
        same(batches[step], again[step])
        same(batches[step], again.starting_at(step)[0])
        for index in range(3):
            same(again.shard(index, 3)[step], sliced(batches[step], 2 * index, 2 * index + 2))
        micro = parts[2 * step + 1]
        del micro[0]["loss_normalizer"]
        same(micro, sliced(batches[step], 3, 6))
    assert batches.recipe() != MaskedLMBatches(corpus, 6, 32, seed=4).recipe()


@pytest.mark.parametrize("form", FORMS)
def test_the_end_of_a_pass_is_padding_that_weighs_nothing(corpus, form):
    batches = batches_of(MaskedLMBatches, corpus, 1000, 32, **form)
    x, y, weight = batches[len(batches) - 1]
    missing = len(batches) * 1000 - batches.num_rows
    weights = weight["tokens"] if isinstance(weight, dict) else weight
    assert missing > 0 and (weights[-missing:] == 0).all() and weights[:-missing].any()
    assert (x["token_ids"][-missing:] == 0).all() and (x["masked_positions"][-missing:] == -1).all()
    real = x["sequence_ids"] > 0 if "sequence_ids" in x else np.arange(32) < x["lengths"][:, None]
    rows, slots = np.nonzero(weights)
    assert real[rows, x["masked_positions"][rows, slots]].all()


def texts_of(corpus):
    starts = np.append(corpus.sequence_starts, corpus.num_tokens)
    lines = [corpus.tokens[a:b].tolist() for a, b in zip(starts[:-1], starts[1:], strict=True)]
    return [lines[a:b] for a, b in zip(corpus.document_starts[:-1], corpus.document_starts[1:], strict=True)]


@pytest.fixture(scope="module")
def roberta_corpus(tmp_path_factory):
    documents = make_documents(3)
    tokenizer = Tokenizer.train("byte_bpe", documents, 400)
    return Corpus.write(tmp_path_factory.mktemp("lines") / "en", documents, tokenizer)


def test_chunks_that_are_short_or_half_unknown_are_left_out(tmp_path, wordpiece):
    """Of rows of 16: 12 tokens are enough, special ones counted, and so are 8 known ones of 14, but not 7."""
    known, unknown = "e ", "☃ "
    documents = [known * 9, known * 10, known * 6 + unknown * 6, known * 5 + unknown * 7, known * 14 + known * 9]
    corpus = Corpus.write(tmp_path, documents, wordpiece)
    plain, kept = (MaskedLMBatches(corpus, 8, 16, rows=rows) for rows in ("chunks", "known_chunks"))
    assert sorted(plain[0][0]["lengths"].tolist()) == [0, 0, 11, 11, 12, 14, 14, 16]
    assert sorted(kept[0][0]["lengths"].tolist()) == [0, 0, 0, 0, 0, 12, 14, 16]
    x, targets, _ = kept[0]
    row = original(x, targets)[x["lengths"] == 14]
    assert (row == wordpiece.unk_id).sum() == 6
    with pytest.raises(ValueError, match="too short to produce a row of this kind"):
        MaskedLMBatches(Corpus.write(tmp_path / "short", [known * 9], wordpiece), 8, 16, rows="known_chunks")


@pytest.mark.parametrize("kind", ["full_sentences", "doc_sentences"])
def test_rows_of_whole_lines(roberta_corpus, kind):
    info, limit = roberta_corpus.tokenizer_info, 30
    batches = batches_of(MaskedLMBatches, roberta_corpus, 7, limit + 1, rows=kind, rule="roberta")
    rows = [row[:n].tolist() for x, y, _ in batches for row, n in zip(original(x, y), x["lengths"], strict=True) if n]
    expected, block = [], []

    def close():
        if block:
            expected.append([info["cls_id"], *block])
            block.clear()

    for document in texts_of(roberta_corpus):
        pieces = [line[i : i + limit - 1] for line in document for i in range(0, len(line), limit - 1)]
        for line in [*pieces, []]:
            if kind == "doc_sentences" and not line:
                close()
                continue
            if len(block) + len(line) + 1 > limit:
                close()
            block += [*line, info["sep_id"]]
    close()
    assert sorted(rows) == sorted(expected)


def test_a_stream_has_an_end_behind_every_line(corpus, wordpiece):
    batches = batches_of(MaskedLMBatches, corpus, 7, 16, rows="stream", rule="xlm", language=2)
    rows = []
    for x, y, _ in batches:
        assert (x["language_ids"] == 2).all() and (x["masked_positions"] != 0).all()
        rows += [row[:n].tolist() for row, n in zip(original(x, y), x["lengths"], strict=True) if n]
    stream = [token for document in texts_of(corpus) for line in document for token in [*line, wordpiece.sep_id]]
    assert sorted(rows) == sorted(stream[i : i + 16] for i in range(0, len(stream), 16))


def test_packed_rows(corpus, wordpiece):
    batches = batches_of(MaskedLMBatches, corpus, 5, 40, rows="packed", rule="modernbert", mask_rate=0.3)
    found, used = [], 0
    for x, y, _ in batches:
        assert "lengths" not in x and "padding_mask" not in x
        ids = original(x, y)
        for row, sequence, position, first in zip(
            ids, x["sequence_ids"], x["position_ids"], x["first_positions"], strict=True
        ):
            count = sequence.max()
            assert (first[:count] >= 0).all() and (first[count:] == -1).all()
            assert (np.diff(sequence[sequence > 0]) >= 0).all()
            for number in range(1, count + 1):
                here = sequence == number
                assert position[here].tolist() == list(range(here.sum())) and np.argmax(here) == first[number - 1]
                text = row[here].tolist()
                assert text[0] == wordpiece.cls_id and text[-1] == wordpiece.sep_id
                found.append(text[1:-1])
            assert (row[sequence == 0] == wordpiece.pad_id).all()
            used += int((sequence > 0).sum())
    chunks = []
    for document in texts_of(corpus):
        tokens = sum(document, [])
        chunks += [tokens[i : i + 38] for i in range(0, len(tokens), 38)]
    assert sorted(found) == sorted(chunks)
    assert used / (batches.num_rows * 40) > 0.9


def test_sentence_order_swaps_half_of_the_pairs(corpus):
    batches = batches_of(MaskedLMBatches, corpus, 16, 40, steps=40, rows="sentence_order", short_sequence_rate=0.0)
    documents = [sum(document, []) for document in texts_of(corpus)]
    joined = [" ".join(map(str, document)) for document in documents]
    labels = []
    for x, y, _ in batches:
        assert y["sentence_pair"].dtype == np.int32
        for ids, segments, n, label in zip(
            original(x, y), x["segment_ids"], x["lengths"], y["sentence_pair"], strict=True
        ):
            a = ids[1 : np.argmax(segments) - 1].tolist()
            b = ids[np.argmax(segments) : n - 1].tolist()
            first, second = (" ".join(map(str, part)) for part in ((b, a) if label else (a, b)))
            assert any(second in text[text.index(first) :] for text in joined if first in text)
            labels.append(label)
    assert abs(np.mean(labels) - 0.5) < 0.1


def plan_of(sentences, documents, kind, lone="random", max_tokens=12, passes=40):
    starts = np.append(0, np.cumsum(sentences))
    return np.concatenate(list(segment_pairs(starts, np.array(documents), max_tokens, passes, 1, 0.0, kind, lone)))


def test_pairs_in_order_and_exchanged():
    # A document of 6 sentences of 2 tokens fits; the pair is all of it, cut once.
    plan = plan_of([2] * 6, [0, 6], "order")
    assert len(plan) == 40
    swapped = plan[:, 4] == 1
    assert 8 < swapped.sum() < 32
    first, second = np.where(swapped[:, None], plan[:, [2, 3]], plan[:, [0, 1]]), None
    second = np.where(swapped[:, None], plan[:, [0, 1]], plan[:, [2, 3]])
    assert (first[:, 0] == 0).all() and (first[:, 1] == second[:, 0]).all()
    assert (second.sum(axis=1) == 12).all()


def test_lone_sentences_are_skipped_or_get_a_random_partner():
    sentences, documents = [5, 2, 2], [0, 1, 3]
    skipped = plan_of(sentences, documents, "order", "skip")
    assert (skipped[:, [0, 2]].min(axis=1) == 5).all() and len(skipped) == 40
    random = plan_of(sentences, documents, "order", "random")
    lone = random[(random[:, 0] == 0) & (random[:, 1] == 5)]
    assert len(lone) == 40 and (lone[:, 4] == 1).all() and (lone[:, 2] >= 5).all()


def test_pairs_of_natural_sentences():
    sizes, ends = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 4, 6, 8, 10]
    plan = plan_of(sizes, ends, "sentences", max_tokens=50, passes=200)
    starts = np.append(0, np.cumsum(sizes)).tolist()
    for a, size_a, b, size_b, label, _ in plan.tolist():
        i, j = starts.index(a), starts.index(b)
        assert (sizes[i], sizes[j]) == (size_a, size_b)
        same_document = np.searchsorted(ends, i, side="right") == np.searchsorted(ends, j, side="right")
        assert (j == i + 1 and same_document) if label == 0 else not same_document
    # Of n sentences the last is left over when the coin took one before: fewer than half of the pairs are true.
    assert 0.25 < (plan[:, 4] == 0).mean() < 0.45


def test_sentencepiece_words_of_ngrams(tmp_path, documents, unigram):
    corpus = Corpus.write(tmp_path, documents, unigram)
    batches = batches_of(MaskedLMBatches, corpus, 4, 32, ngrams=3)
    starts = batches._vocabulary.albert_word_starts
    assert starts[unigram.id(".")] and starts[[t.startswith("▁") for t in unigram.tokens]].all()
    assert not starts[[t.isalpha() and t.isascii() for t in unigram.tokens]].any()
    for x, _, _ in batches:
        used = (x["masked_positions"] >= 0).sum(axis=1)
        assert (used <= 5).all() and used[x["lengths"] > 20].mean() > 3
    deberta = batches_of(MaskedLMBatches, corpus, 4, 32, ngrams=3, rule="deberta")._vocabulary.word_starts
    np.testing.assert_array_equal(deberta, unigram.word_starts)
    assert not deberta[unigram.id(".")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "pages"}, "`rows` must be one of chunks"),
        ({"rule": "elmo"}, "`rule` must be one of"),
        ({"rows": "stream", "length": 1}, "`length` must be at least 2"),
        ({"rows": "packed", "length": 2}, "`length` must leave space"),
        ({"rows": "sentence_order", "length": 4}, "`length` must leave space"),
        ({"rows": "sentence_order", "lone_sentences": "drop"}, "`lone_sentences` must be"),
        ({"rare_exponent": 0.5, "whole_words": True}, "cannot be combined with `whole_words` or `ngrams`"),
        ({"mask_rate": 0}, "masking rate must be above 0"),
        ({"mask_rate": 1}, "masking rate must be above 0"),
    ],
)
def test_bad_arguments(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        batches_of(MaskedLMBatches, corpus, **{"batch_size": 8, "length": 32, "steps": 2, **options})


def test_documents_too_short_for_pairs(tmp_path, wordpiece):
    lone = Corpus.write(tmp_path / "lone", ["one sentence"] * 5, wordpiece)
    single = Corpus.write(tmp_path / "single", ["one sentence\nanother"], wordpiece)
    for rows in ("segment_pairs", "sentence_pairs", "sentence_order"):
        with pytest.raises(ValueError, match="Pairs need documents of at least two sentences"):
            MaskedLMBatches(lone, 2, 32, rows=rows)
    with pytest.raises(ValueError, match="must come from another document"):
        batches_of(MaskedLMBatches, single, 2, 32, sentence_pairs=True)
    assert len(MaskedLMBatches(single, 2, 32, rows="sentence_order")) == 1
    # Two sentences, but either fills a row: no chunk has two.
    long = Corpus.write(tmp_path / "long", [" ".join(["sentence"] * 30) + "\n" + " ".join(["another"] * 30)], wordpiece)
    with pytest.raises(ValueError, match="The text is too short to produce a row of this kind"):
        batches_of(MaskedLMBatches, long, 2, 16, rows="sentence_order", short_sequence_rate=0.0)

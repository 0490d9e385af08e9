import numpy as np
import pytest

from kerasbert.data import Corpus, DenoisingBatches, Tokenizer
from kerasbert.data.noise.denoising import OBJECTIVES
from tests.data.batches.objects import batches_of

from ..conftest import make_documents
from .test_batches import same, sliced
from .test_rows import texts_of

pytestmark = pytest.mark.one_backend

FORMS = [
    *({"objective": name} for name in OBJECTIVES if name != "lm"),
    {"objective": "random_spans", "layout": "prefix", "rate": 0.5, "mean_span": 2.0},
    {"objective": "prefix_lm", "layout": "prefix", "packed": True},
    {"objective": "random_spans", "packed": True, "group": 1},
    {"objective": "lm", "layout": "causal"},
    {"objective": "replace_spans", "layout": "prefix", "roll": True},
    {"objective": "deshuffling", "layout": "causal", "packed": True, "targets_only": True},
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("unigram", make_documents(0, 40), 300, family="t5")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer):
    return Corpus.write(tmp_path_factory.mktemp("t5") / "en", make_documents(0, 40), tokenizer)


class Fixed:
    """Stands in for the noise: given inputs and targets."""

    def __init__(self, pairs):
        self.inputs, self.targets = (self._rows(side) for side in zip(*pairs, strict=True))

    @staticmethod
    def _rows(side):
        lengths = np.array([len(row) for row in side])
        rows = np.zeros((len(side), lengths.max()), np.int32)
        rows[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate(side)
        return rows, lengths


def laid_out(corpus, pairs, counts, length, **options):
    """A batch out of pairs of inputs and targets, without their end tokens."""
    batches = batches_of(DenoisingBatches, corpus, 1, 16, **options)
    batches.length = length
    batches.target_length = length
    batches._most = 2
    fixed = Fixed(pairs)
    lay_out = batches._two_sided if batches.layout == "encoder_decoder" else batches._joined
    return lay_out(fixed.inputs, fixed.targets, np.array(counts))


def test_a_row_of_a_prefix_language_model(corpus):
    x, y, weight = laid_out(corpus, [([9, 4, 6], [3, 9])], [1], 7, layout="prefix", objective="prefix_lm")
    assert y.tolist() == [[9, 4, 6, 1, 3, 9, 1]]
    assert x["token_ids"].tolist() == [[0, 9, 4, 6, 1, 3, 9]] and x["lengths"].tolist() == [7]
    assert weight.tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    assert x["prefix_mask"].tolist() == [[True] * 5 + [False] * 2]
    # Query i sees key j iff j <= i, or both are of the prefix.
    seen = np.tril(np.ones((7, 7), bool)) | (x["prefix_mask"][0][:, None] & x["prefix_mask"][0])
    assert ["".join("01"[s] for s in row.astype(int)) for row in seen] == ["1111100"] * 5 + ["1111110", "1111111"]


def test_packed_rows_of_a_prefix_language_model(corpus):
    pairs = [([7, 8, 5], [3, 9]), ([8, 4, 9, 3], [4])]
    x, y, weight = laid_out(corpus, pairs, [2], 15, layout="prefix", objective="prefix_lm", packed=True)
    assert y.tolist() == [[7, 8, 5, 1, 3, 9, 1, 8, 4, 9, 3, 1, 4, 1, 0]]
    assert x["token_ids"].tolist() == [[0, 7, 8, 5, 1, 3, 9, 0, 8, 4, 9, 3, 1, 4, 0]]
    assert weight.astype(int).tolist() == [[0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]]
    assert x["position_ids"].tolist() == [[*range(7), *range(7), 0]]
    assert x["sequence_ids"].tolist() == [[1] * 7 + [2] * 7 + [0]]
    assert x["prefix_mask"].astype(int).tolist() == [[1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0]]


def test_packed_decoders_start_anew(corpus):
    pairs = [([5], [3, 8]), ([5, 6], [9]), ([7], [5, 4])]
    x, y, weight = laid_out(corpus, pairs, [2, 1], 10, objective="prefix_lm", packed=True)
    assert y.tolist() == [[3, 8, 1, 9, 1, 0, 0, 0, 0, 0], [5, 4, 1, 0, 0, 0, 0, 0, 0, 0]]
    assert x["decoder_token_ids"].tolist() == [[0, 3, 8, 0, 9, 0, 0, 0, 0, 0], [0, 5, 4, 0, 0, 0, 0, 0, 0, 0]]
    assert x["token_ids"].tolist() == [[5, 1, 5, 6, 1, 0, 0, 0, 0, 0], [7, 1, 0, 0, 0, 0, 0, 0, 0, 0]]
    assert x["sequence_ids"][0].tolist() == [1, 1, 2, 2, 2, 0, 0, 0, 0, 0]
    assert x["decoder_sequence_ids"][0].tolist() == [1, 1, 1, 2, 2, 0, 0, 0, 0, 0]
    assert x["decoder_position_ids"][0].tolist() == [0, 1, 2, 0, 1, 0, 0, 0, 0, 0]
    assert weight.sum(axis=1).tolist() == [5, 3]


@pytest.mark.parametrize("form", FORMS)
def test_replay_resume_shards_and_accumulation(corpus, form):
    batches = batches_of(DenoisingBatches, corpus, 6, 40, steps=300, seed=4, **form)
    again = batches_of(DenoisingBatches, Corpus.open(corpus.folder), 6, 40, steps=250, seed=4, **form)
    parts = batches_of(DenoisingBatches, corpus, 6, 40, steps=250, seed=4, **form).accumulated(2)
    for step in (200, 3):
        same(batches[step], again[step])
        same(batches[step], again.starting_at(step)[0])
        for index in range(3):
            same(again.shard(index, 3)[step], sliced(batches[step], 2 * index, 2 * index + 2))
        micro = parts[2 * step + 1]
        del micro[0]["loss_normalizer"]
        same(micro, sliced(batches[step], 3, 6))
    assert batches.recipe() == again.recipe() != batches_of(DenoisingBatches, corpus, 6, 40, seed=5, **form).recipe()


@pytest.mark.parametrize("form", FORMS)
def test_contract(corpus, tokenizer, form):
    batches = batches_of(DenoisingBatches, corpus, 1000, 40, **form)
    x, y, weight = batches[0]
    real = {}
    for prefix in ("", "decoder_"):
        if prefix + "lengths" in x:
            real[prefix] = np.arange(x[prefix + "token_ids"].shape[1]) < x[prefix + "lengths"][:, None]
        elif prefix + "sequence_ids" in x:
            real[prefix] = x[prefix + "sequence_ids"] > 0
    for prefix, there in real.items():
        assert (x[prefix + "token_ids"][~there] == 0).all()
        assert there.shape == (1000, batches.target_length if prefix else 40)
    side = "decoder_" if "decoder_" in real else ""
    assert ((weight > 0) <= real[side]).all() and (y[~real[side]] == 0).all()
    missing = len(batches) * 1000 - batches.num_rows
    assert missing > 0 and not real[""][-missing:].any() and real[""][:-missing].any(axis=1).all()
    # Moved by one: what a place reads is what the one before it predicts, or the start token.
    moved = np.where(x[side + "token_ids"][:, 1:] == 0, 0, y[:, :-1])
    np.testing.assert_array_equal(x[side + "token_ids"][:, 1:], moved)
    assert x["token_ids"].dtype == y.dtype == np.int32 and weight.dtype == np.float32
    assert (y[weight > 0] == tokenizer.eos_id).sum() >= batches.num_rows


def restored(inputs, targets, first_sentinel):
    """Text out of inputs and targets with sentinels."""
    spans, current = {}, None
    for token in targets:
        if first_sentinel - 100 < token <= first_sentinel:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    return [
        t for token in inputs for t in (spans[token] if first_sentinel - 100 < token <= first_sentinel else [token])
    ]


def test_span_corruption_can_be_undone(corpus, tokenizer):
    batches = DenoisingBatches(corpus, 8, 64)
    assert (batches.max_tokens, batches.target_length) == (70, 14)
    text = [t for document in texts_of(corpus) for line in document for t in line]
    found = []
    for x, y, _ in batches:
        for row, n, target, m in zip(x["token_ids"], x["lengths"], y, x["decoder_lengths"], strict=True):
            if n:
                assert row[n - 1] == target[m - 1] == tokenizer.eos_id
                found.append(restored(row[: n - 1].tolist(), target[: m - 1].tolist(), 299))
    assert sorted(found) == sorted(text[i : i + 70] for i in range(0, len(text), 70))


def test_prefix_and_rest_are_the_documents(corpus):
    batches = DenoisingBatches(corpus, 8, 64, "prefix_lm")
    found = []
    for x, y, _ in batches:
        for row, n, target, m in zip(x["token_ids"], x["lengths"], y, x["decoder_lengths"], strict=True):
            if n:
                found.append(row[: n - 1].tolist() + target[: m - 1].tolist())
    documents = [[t for line in document for t in line] for document in texts_of(corpus)]
    pieces = [document[i : i + 63] for document in documents for i in range(0, len(document), 63)]
    assert sorted(found) == sorted(piece for piece in pieces if len(piece) > 1)


def test_packing_fills_rows(corpus):
    for form in ({"objective": "prefix_lm", "layout": "prefix"}, {"objective": "random_spans", "group": 1}):
        batches = batches_of(DenoisingBatches, corpus, 4, 64, packed=True, **form)
        fill = np.mean([(x["sequence_ids"] > 0).mean() for x, _, _ in batches.starting_at(1)])
        plain = batches_of(DenoisingBatches, corpus, 4, 64, **form)
        assert fill > 0.95 and batches.num_rows < plain.num_rows


def test_noise_is_new_in_every_pass(corpus):
    rows = DenoisingBatches(corpus, 1, 64).num_rows
    batches = DenoisingBatches(corpus, rows, 64, steps=2)
    first, second = (set(map(bytes, batch[0]["token_ids"])) for batch in batches)
    assert len(first & second) < 0.1 * rows


def test_what_is_too_long_keeps_its_end(corpus, tokenizer):
    batches = batches_of(DenoisingBatches, corpus, 8, 64, objective="replace_spans", target_length=9)
    for x, y, _ in batches.starting_at(3):
        ends = x["decoder_lengths"]
        assert ends.max() == 9 and (y[np.arange(8)[ends > 0], ends[ends > 0] - 1] == tokenizer.eos_id).all()
        break


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "spans"}, "`objective` must be one of prefix_lm"),
        ({"layout": "decoder"}, "`layout` must be one of"),
        ({"rate": 0.0}, "`rate` must be above 0 and below 1"),
        ({"rate": 1.0}, "`rate` must be above 0 and below 1"),
        ({"mean_span": 0.5}, "`mean_span` must be at least 1"),
        ({"length": 2}, "`length` must leave space"),
        ({"length": 1, "objective": "bert"}, "`length` must leave space"),
        ({"length": 3, "layout": "prefix", "objective": "bert"}, "`length` must leave space"),
        ({"objective": "lm"}, "has no inputs"),
        ({"objective": "replace_spans", "packed": True}, "requires the lengths"),
        (
            {"sentinels": [299, -1]},
            r"`sentinels` must be at least one id, and ids must not be negative. Received: \[299, -1\]",
        ),
        ({"sentinels": [], "objective": "mass"}, r"at least one id, and ids must not be negative. Received: \[\]"),
        ({"sentinels": [299, 298]}, "Every span needs a sentinel. Received: 2 sentinels for 3 spans"),
        ({"target_length": 1}, "`target_length` must be at least 2"),
        ({"target_length": 0}, "`target_length` must be at least 2"),
        ({"target_length": 9, "layout": "prefix"}, 'requires layout="encoder_decoder". Received: target_length=9'),
        ({"target_length": 9, "packed": True, "group": 1}, "`target_length` must be at least [1-9].*packed=True"),
        ({"group": 0}, "`group` must be at least 1"),
    ],
)
def test_bad_arguments(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        batches_of(DenoisingBatches, corpus, **{"batch_size": 8, "length": 64, **options})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", [dict(length=6), dict(length=9, roll=True), dict(length=24, mean_span=10.0)])
def test_short_rows_keep_their_sentinels(corpus, tokenizer, packed, options):
    batches = batches_of(DenoisingBatches, corpus, 64, packed=packed, group=1, **options)
    x, y, _ = batches[0]
    first, rows = tokenizer.vocabulary_size - 1, x["lengths"] > 0 if "lengths" in x else x["sequence_ids"][:, 0] > 0
    assert (x["token_ids"] == first).any(axis=1)[rows].mean() > 0.9  # but for pieces of one token
    assert ((y == first).sum(axis=1) == (x["token_ids"] == first).sum(axis=1))[rows].mean() > 0.9
    assert batches.max_tokens >= options["length"] - 3


def test_other_vocabularies_name_their_sentinels(tmp_path, wordpiece, documents):
    corpus = Corpus.write(tmp_path, documents, wordpiece)
    with pytest.raises(ValueError, match="needs the sentinels <extra_id_0>"):
        DenoisingBatches(corpus, 4, 32)
    sentinels = list(range(wordpiece.vocabulary_size - 1, wordpiece.vocabulary_size - 9, -1))
    x, y, _ = batches_of(DenoisingBatches, corpus, 4, 32, sentinels=sentinels)[0]
    assert (x["token_ids"] == sentinels[0]).sum(axis=1).tolist() == [1] * 4
    assert (y[:, 0] == sentinels[0]).all()
    assert DenoisingBatches(corpus, 4, 32, "drop_tokens")[0][1].shape == (4, 18)


def test_documents_of_one_token_have_no_prefix(tmp_path, tokenizer):
    piece = next(token for token in tokenizer.tokens if token.startswith("▁") and len(token) > 2).removeprefix("▁")
    corpus = Corpus.write(tmp_path, [piece] * 4, tokenizer)
    with pytest.raises(ValueError, match="need at least two tokens"):
        DenoisingBatches(corpus, 2, 16, "prefix_lm")
    x, y, weight = DenoisingBatches(corpus, 2, 16, group=1)[0]
    assert x["lengths"].tolist() == [2, 2] and weight.sum(axis=1).tolist() == [2, 2]  # nothing is hidden
    assert y[:, 0].tolist() == [300 - 1] * 2 and y[:, 1].tolist() == [tokenizer.eos_id] * 2

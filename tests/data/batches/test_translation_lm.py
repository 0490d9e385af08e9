import numpy as np
import pytest

from kerasbert.data import Corpus, Tokenizer, TranslationLMBatches, parallel_documents
from tests.data.batches.objects import batches_of

from .test_batches import same, sliced
from .test_masked_lm import original

pytestmark = pytest.mark.one_backend

SOURCES = [" ".join(f"{letter}{number}" for letter in "abcdefgh"[: 1 + number % 8]) for number in range(40)]
TARGETS = [" ".join(reversed(line.upper().split())) + " !" for line in SOURCES]
FORMS = [{}, {"packed": True}, {"both_orders": False}]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    documents = list(parallel_documents(SOURCES, TARGETS))
    tokenizer = Tokenizer.train("bpe", documents, 80)
    return Corpus.write(tmp_path_factory.mktemp("tlm") / "pairs", documents, tokenizer)


def test_parallel_documents():
    assert list(parallel_documents(["a b", "", "d", "e\nf"], ["c", "x", " ", "g"])) == ["a b\nc", "e f\ng"]
    with pytest.raises(ValueError, match="Every source must have a target. Received: 1 targets"):
        list(parallel_documents(["a", "b"], ["c"]))
    with pytest.raises(ValueError, match="Received: 1 sources"):
        list(parallel_documents(["a"], ["c", "d"]))


def pairs_of(x, y, boundary):
    """(first, second, languages) of every pair, from rows packed or not."""
    rows = original(x, y)
    sequences = x["sequence_ids"] if "sequence_ids" in x else np.arange(rows.shape[1]) < x["lengths"][:, None]
    found = []
    for row, sequence, positions, languages in zip(
        rows, sequences.astype(int), x["position_ids"], x["language_ids"], strict=True
    ):
        for number in range(1, sequence.max() + 1):
            here = sequence == number
            tokens, where, language = row[here].tolist(), positions[here].tolist(), languages[here].tolist()
            middle = where.index(0, 1)
            assert where == [*range(middle), *range(len(where) - middle)]
            for part in (tokens[:middle], tokens[middle:]):
                assert part[0] == part[-1] == boundary and boundary not in part[1:-1]
            assert len(set(language[:middle])) == len(set(language[middle:])) == 1
            found.append((tokens[1 : middle - 1], tokens[middle + 1 : -1], (language[0], language[-1])))
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_pass_holds_every_pair(corpus, form):
    batches = batches_of(TranslationLMBatches, corpus, 7, 80, languages=(3, 5), **form)
    found = [pair for x, y, _ in batches for pair in pairs_of(x, y, corpus.tokenizer_info["sep_id"])]
    encoded = [corpus.tokenizer().encode(side, add_special_tokens=False) for side in (SOURCES, TARGETS)]
    expected = [(a.tolist(), b.tolist(), (3, 5)) for a, b in zip(*encoded, strict=True)]
    if form.get("both_orders", True):
        expected += [(b, a, (5, 3)) for a, b, _ in expected]
    assert sorted(found) == sorted(expected)
    assert batches.num_pairs == 40


@pytest.mark.parametrize("form", FORMS)
def test_replay_resume_and_shards(corpus, form):
    batches = batches_of(TranslationLMBatches, corpus, 6, 48, steps=300, seed=4, **form)
    again = batches_of(TranslationLMBatches, Corpus.open(corpus.folder), 6, 48, steps=250, seed=4, **form)
    for step in (200, 3):
        same(batches[step], again[step])
        same(batches[step], again.starting_at(step)[0])
        for index in range(3):
            same(again.shard(index, 3)[step], sliced(batches[step], 2 * index, 2 * index + 2))
    assert batches.recipe() == again.recipe()


@pytest.mark.parametrize("packed", [False, True])
def test_masks(corpus, packed):
    batches = TranslationLMBatches(corpus, 50, 64, steps=30, packed=packed)
    hidden = tokens = inner = 0
    for x, y, weight in batches:
        rows, slots = np.nonzero(weight)
        places = x["masked_positions"][rows, slots]
        real = x["sequence_ids"] > 0 if packed else np.arange(64) < x["lengths"][:, None]
        assert real[rows, places].all()
        firsts = np.zeros(real.shape, bool)
        if packed:
            row, slot = np.nonzero(x["first_positions"] >= 0)
            firsts[row, x["first_positions"][row, slot]] = True
        else:
            firsts[:, 0] = True
        assert not firsts[rows, places].any()
        hidden, tokens = hidden + len(rows), tokens + int((real & ~firsts).sum())
        inner += int((y[rows, slots] == corpus.tokenizer_info["sep_id"]).sum())
    assert abs(hidden / tokens - 0.15) < 5 * np.sqrt(0.1275 / tokens)
    assert inner > 0  # separators inside a pair may be hidden


def test_long_pairs_lose_the_end_of_the_longer_half(corpus):
    batches = TranslationLMBatches(corpus, 8, 12, both_orders=False)
    encoded = [corpus.tokenizer().encode(side, add_special_tokens=False) for side in (SOURCES, TARGETS)]
    originals = list(zip(*(map(list, side) for side in encoded), strict=True))
    for x, y, _ in batches:
        for a, b, _ in pairs_of(x, y, corpus.tokenizer_info["sep_id"]):
            assert len(a) + len(b) <= 8
            assert any(list(s[: len(a)]) == a and list(t[: len(b)]) == b for s, t in originals)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 5}, "`length` must be at least 6"),
        ({"languages": (1, 1)}, "two different ids"),
        ({"mask_rate": 0.0}, "masking rate must be above 0"),
        ({"rule": "elmo"}, "`rule` must be one of"),
    ],
)
def test_bad_arguments(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        batches_of(TranslationLMBatches, corpus, **{"batch_size": 4, "length": 48, **options})


def test_text_without_translations(corpus, tmp_path):
    single = Corpus.write(tmp_path / "single", ["a1 b2", "a1\nb2\nc3"], corpus.tokenizer())
    with pytest.raises(ValueError, match="documents of two lines"):
        TranslationLMBatches(single, 4, 48)

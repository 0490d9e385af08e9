import itertools
from collections import Counter

import numpy as np
import pytest

from kerasbert.data import (
    CausalLMBatches,
    Corpus,
    DenoisingBatches,
    MaskedLMBatches,
    MixtureBatches,
    Seq2SeqBatches,
    Seq2SeqLayout,
    StreamBatches,
    Tokenizer,
    mixing_rates,
)
from kerasbert.data.batches.mixtures import mixed_documents
from tests.data.batches.objects import batches_of

from ..conftest import make_documents
from .test_batches import same, sliced
from .test_masked_lm import original

pytestmark = pytest.mark.one_backend


def test_exponents_of_mbert_and_its_kin():
    for exponent, ratio in ((0.7, 125.893), (0.5, 31.623), (0.3, 7.943)):
        english, icelandic = mixing_rates([1000, 1], exponent)
        assert english / icelandic == pytest.approx(ratio, abs=1e-3)
    assert mixing_rates([1000, 1], 0.7) == pytest.approx([0.9921, 0.0079], abs=1e-4)
    sizes = [900, 90, 10]
    assert mixing_rates(sizes, 0.7) == pytest.approx([0.8049, 0.1606, 0.0345], abs=1e-4)
    assert mixing_rates(sizes, 0.5) == pytest.approx([0.7034, 0.2224, 0.0741], abs=1e-4)
    assert mixing_rates(sizes, 0.3) == pytest.approx([0.5680, 0.2847, 0.1473], abs=1e-4)
    assert mixing_rates(sizes, 1) == pytest.approx([0.9, 0.09, 0.01])
    assert mixing_rates(sizes, 0) == pytest.approx([1 / 3] * 3)
    assert mixing_rates([0.9, 0.09, 0.01], 0.7) == pytest.approx(mixing_rates(sizes, 0.7))


def test_temperatures_and_limits_of_t5():
    sizes = [1_000_000, 100_000, 1_000]
    assert mixing_rates(sizes, limit=2**16) == pytest.approx([0.4962, 0.4962, 0.0076], abs=1e-4)
    assert mixing_rates(sizes, 1 / 2, 2**21) == pytest.approx([0.7419, 0.2346, 0.0235], abs=1e-4)
    assert mixing_rates(sizes, 1 / 4, 2**21) == pytest.approx([0.5747, 0.3232, 0.1022], abs=1e-4)


@pytest.mark.parametrize("sizes", [[], [3, 0], [3, -1], [3, float("inf")], [3, float("nan")]])
def test_empty_tasks_are_refused(sizes):
    with pytest.raises(ValueError, match="must have a positive, finite size"):
        mixing_rates(sizes)


def test_bad_exponents():
    for further in ((-0.1,), (1.0, 0), (float("nan"),), (1.0, float("nan"))):
        with pytest.raises(ValueError, match="`exponent` must be at least 0"):
            mixing_rates([1, 2], *further)


def test_documents_for_a_vocabulary():
    sources = {"en": [f"english {number:04}" for number in range(900)], "is": ["icelandic 01", "icelandic 02"]}
    rates = dict(zip(sources, mixing_rates([900, 10], 0.7), strict=True))
    found = list(mixed_documents(sources, rates, 6000))
    sizes = {name: sum(map(len, set_)) for name, set_ in (
        ("en", [text for text in found if text[0] == "e"]), ("is", [text for text in found if text[0] == "i"])
    )}  # fmt: skip
    assert 6000 <= sum(sizes.values()) < 6012
    assert sizes["is"] / sum(sizes.values()) == pytest.approx(rates["is"], abs=0.003)
    assert [text for text in found if text[0] == "e"] == sources["en"][: sizes["en"] // 12]
    assert list(mixed_documents(sources, rates, 6000)) == found
    with pytest.raises(ValueError, match="yield text whenever it is iterated. Received: no text from 'is'"):
        list(mixed_documents({**sources, "is": iter(["once"])}, rates, 6000))
    for empty in ([], ["", ""]):
        with pytest.raises(ValueError, match="Received: no text from 'is'"):
            list(itertools.islice(mixed_documents({**sources, "is": empty}, rates, 6000), 1_000))
    with pytest.raises(ValueError, match="`rates` must have a positive number for every source"):
        next(mixed_documents(sources, {"en": 1.0}, 6000))


@pytest.fixture(scope="module")
def parts(tmp_path_factory, wordpiece):
    return {
        name: batches_of(
            MaskedLMBatches,
            Corpus.write(tmp_path_factory.mktemp(name) / name, make_documents(seed, size), wordpiece),
            *(5, 24),
            rows="stream",
            rule="xlm",
            language=seed,
            steps=1,
        )
        for seed, (name, size) in enumerate({"en": 20, "fr": 6, "de": 3}.items())
    }


RATES = {"en": 0.55, "fr": 0.33, "de": 0.12}


@pytest.mark.parametrize("by", ["rows", "batches"])
def test_replay_resume_shards_and_accumulation(parts, by):
    batches = MixtureBatches(parts, RATES, 12, 400, seed=3, by=by)
    again = MixtureBatches(parts, RATES, 12, 300, seed=3, by=by)
    micro = MixtureBatches(parts, RATES, 12, 300, seed=3, by=by).accumulated(2)
    for step in (257, 3):
        same(batches[step], again[step])
        same(batches[step], again.starting_at(step)[0])
        for index in range(3):
            same(again.shard(index, 3)[step], sliced(batches[step], 4 * index, 4 * index + 4))
        half = micro[2 * step + 1]
        del half[0]["loss_normalizer"]
        same(half, sliced(batches[step], 6, 12))
    languages = [sorted(parts).index(name) for name in batches.part_of(5)]
    seen = batches[5][0]["language_ids"][:, 0]
    assert [list(parts)[number] for number in seen] == batches.part_of(5) and len(languages) == 12
    assert len(set(seen.tolist())) == (1 if by == "batches" else 3)
    assert batches.recipe() == again.recipe()
    assert batches.recipe() != MixtureBatches(parts, RATES, 12, 300, seed=4, by=by).recipe()


def test_every_part_has_its_share_to_the_row(parts):
    batches = MixtureBatches(parts, RATES, 7, 200)
    counts = Counter()
    for step in range(200):
        counts.update(batches.part_of(step))
        for name, rate in batches.rates.items():
            assert abs(counts[name] - rate * 7 * (step + 1)) < 1.5
    updates = MixtureBatches(parts, RATES, 7, 2560, by="batches")
    order = [updates.part_of(step)[0] for step in range(2560)]
    assert Counter(order) == {name: pytest.approx(rate * 2560, abs=1.5) for name, rate in RATES.items()}
    follows = Counter(zip(order[:-1], order[1:], strict=True))
    for (first, second), count in follows.items():  # as if each were drawn
        expected = RATES[first] * RATES[second] * 2559
        assert abs(count - expected) < 5 * np.sqrt(expected)


@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.5], [0.98, 0.01, 0.01], [1 / 3] * 3, [0.6, 0.2, 0.1, 0.1]])
def test_quotas_never_shrink(parts, shares):
    names = [str(number) for number in range(len(shares))]
    mixture = MixtureBatches(dict.fromkeys(names, parts["en"]), dict(zip(names, shares, strict=True)), 4, 1)
    before = np.zeros(len(shares), int)
    for count in range(1, 400):
        quotas = mixture._quotas(count)
        assert quotas.sum() == count and (quotas >= before).all() and quotas.sum() - before.sum() == 1
        before = quotas


def test_parts_go_through_their_text_once_a_pass(parts):
    once = {
        name: Counter(
            row.tobytes() for x, y, _ in (part.endless()._rows(0, 0, part.num_rows),) for row in original(x, y)
        )
        for name, part in parts.items()
    }
    batches = MixtureBatches(parts, batch_size=6, steps=parts["en"].num_rows // 3)
    assert batches.rates["en"] == parts["en"].num_rows / sum(part.num_rows for part in parts.values())
    found = {name: [] for name in parts}
    for step, (x, y, _) in enumerate(batches):
        for row, name in zip(original(x, y), batches.part_of(step), strict=True):
            found[name].append(row.tobytes())
    for name, rows in found.items():
        first = rows[: parts[name].num_rows]
        assert len(first) < parts[name].num_rows or Counter(first) == once[name]
        assert not Counter(first) - once[name]
    assert len(found["de"]) >= parts["de"].num_rows


@pytest.fixture(scope="module")
def t5():
    return Tokenizer.train("unigram", make_documents(0, 40), 300, family="t5")


def test_text_to_text_tasks_beside_denoising(t5, tmp_path):
    corpus = Corpus.write(tmp_path / "t5", make_documents(1, 40), t5)
    targets = list("abcdefghij")
    sources = [f"copy {letter}" for letter in targets]
    task = Seq2SeqBatches(sources, targets, t5, batch_size=4, layout=Seq2SeqLayout(40, 40))
    length, target_length = task.shapes[0]
    denoise = batches_of(DenoisingBatches, corpus, 4, length, target_length=target_length)
    mixture = MixtureBatches({"c4": denoise, "copy": task}, {"c4": 3, "copy": 1}, batch_size=8, steps=20)
    seen = Counter()
    for step, (x, y, _) in enumerate(mixture):
        names = np.array(mixture.part_of(step))
        assert (names == "copy").sum() == 2 and x["token_ids"].shape == (8, length) and y.shape == (8, target_length)
        for row, target in zip(x["token_ids"][names == "copy"], y[names == "copy"], strict=True):
            if row[0]:  # not a row of padding at the end of a pass
                text = t5.decode(row)
                assert text.startswith("copy ") and t5.decode(target) == text.removeprefix("copy ")
                seen[text] += 1
    assert len(seen) == 10 and max(seen.values()) - min(seen.values()) <= 1


def test_bad_mixtures(parts, corpus):
    with pytest.raises(ValueError, match="at least one part"):
        MixtureBatches({}, {}, 4, 1)
    for rates in ({"en": 1, "fr": 1}, {"en": 1, "fr": 0, "de": 1}, {"en": 1, "fr": -1, "de": 1}):
        with pytest.raises(ValueError, match="`rates` must have a positive number for every part"):
            MixtureBatches(parts, rates, 4, 1)
    other = {**parts, "clm": CausalLMBatches(corpus, 4, 24)}
    with pytest.raises(ValueError, match="'clm' and 'en', which differ in .*x.masked_positions"):
        MixtureBatches(other, batch_size=4, steps=1)
    by_batch = MixtureBatches(other, batch_size=4, steps=50, by="batches")
    shapes = {tuple(sorted(x)) for x, _, _ in by_batch}
    assert len(shapes) == 2
    stream = {"en": StreamBatches(corpus, 4, 24)}
    for by in ("rows", "batches"):
        with pytest.raises(ValueError, match="must continue from step to step.*Received: the part 'en'"):
            MixtureBatches(stream, {"en": 1}, batch_size=4, steps=1, by=by)
    with pytest.raises(ValueError, match='`by` must be "rows" or "batches"'):
        MixtureBatches(parts, batch_size=4, steps=1, by="tokens")


def test_one_language_alone(parts):
    batches = MixtureBatches({"en": parts["en"]}, batch_size=4, steps=3)
    assert batches.rates == {"en": 1.0} and batches.tokens_per_step == 96
    assert [x["language_ids"].max() for x, _, _ in batches] == [0, 0, 0]

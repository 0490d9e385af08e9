"""BART's noise: the worked examples, exact parts, the rates over many draws, and batches that a model learns from."""

import keras
import numpy as np
import pytest

from kerasbert.data import Corpus, DenoisingBatches, TextInfilling, Tokenizer
from kerasbert.data.noise.infilling import at_random_words, inserted, permuted, span_lengths, without_spans
from kerasbert.models import Bart, BartConfig
from kerasbert.objectives import Seq2SeqLM

pytestmark = pytest.mark.one_backend

M = 99


def draws_for(*values, mean=3.0):
    """Draws for which spans have the given lengths."""
    probabilities = np.exp(-mean) * np.cumprod([1.0, *(mean / n for n in range(1, 18))])
    return np.array([[round((probabilities[:value].sum() + 0.5 * probabilities[value]) * 2**32) for value in values]])


def infilled(draws, starts, count=10, budget=4):
    """The text 20, 21, ... with spans whose lengths are drawn and which start at the given tokens, and its length."""
    text = np.arange(20, 20 + count)[None]
    keys = np.full((1, count), 2**31)
    keys[0, np.array(starts) - 20] = np.arange(len(starts))
    ones = np.ones((1, count), bool)
    lengths, empty = span_lengths(np.array([budget]), 3.0, draws_for(*draws))
    spans = at_random_words(ones, lengths, keys.astype("uint32"))
    (row,), (size,) = without_spans(text, ones, ones, spans, np.full_like(text, M))
    return row[:size].tolist(), int(empty[0])


def test_worked_examples():
    """Text 20 to 29 with 40% of ten words, as the algorithm of fairseq corrupts it."""
    assert infilled((2, 0, 3), (21, 26)) == ([20, M, 23, 24, 25, M, 28, 29], 1)
    assert infilled((5,), (22,)) == ([20, 21, M, 26, 27, 28, 29], 0)
    assert infilled((3, 3), (28, 20)) == ([M, 21, 22, 23, 24, 25, 26, 27, M], 0)
    assert infilled((2, 2), (24, 25)) == ([20, 21, 22, 23, M, 27, 28, 29], 0)  # a span inside another leaves no mask


def test_spans_consist_of_words():
    text, starts = np.arange(20, 28)[None], np.array([[1, 0, 1, 0, 0, 1, 1, 0]], bool)
    spans = np.array([[0, 0, 2, 0, 0, 0, 0, 0]])
    rows, lengths = without_spans(text, np.ones((1, 8), bool), starts, spans, np.full((1, 8), M))
    assert rows[0, : lengths[0]].tolist() == [20, 21, M, 26, 27]


def test_insertions_keep_the_order():
    text = np.array([[5, 6, 7, 0], [8, 0, 0, 0]])
    keys = np.array([[9, 1, 9, 9, 2, 0], [9, 8, 0, 0, 0, 0]], "uint32")
    rows, lengths = inserted(text, np.array([3, 1]), np.array([2, 1]), np.full((2, 6), M), keys)
    assert rows.tolist() == [[5, M, 6, 7, M, 0], [8, M, 0, 0, 0, 0]] and lengths.tolist() == [5, 2]


def test_sentences_are_permuted():
    """a b . c d . e -> c d . e a b . ; of a series of full stops, the first ends the sentence."""
    text = np.array([[1, 2, 9, 3, 4, 9, 5, 0], [1, 9, 9, 2, 9, 0, 0, 0]])
    real = text > 0
    draws = np.array([[7, 2, 5, 0, 0, 0, 0, 0], [3, 1, 0, 0, 0, 0, 0, 0]], "uint32")
    found = permuted(text, real, text == 9, draws)
    assert found[0].tolist() == [3, 4, 9, 5, 1, 2, 9, 0]
    assert found[1].tolist() == [9, 2, 9, 1, 9, 0, 0, 0]


def test_lengths_are_those_of_a_poisson_distribution():
    draws = np.random.default_rng(0).integers(0, 2**32, (1, 200_000), dtype="uint32")
    lengths, empty = span_lengths(np.array([10**9]), 3.0, draws)
    lengths = lengths[0, : 200_000 - int(empty[0]) - 1]
    shares = [empty[0] / 200_000, *(np.count_nonzero(lengths == n) / 200_000 for n in range(1, 6))]
    np.testing.assert_allclose(shares, [0.0498, 0.1494, 0.2240, 0.2240, 0.1680, 0.1008], atol=0.004)


@pytest.fixture(scope="module")
def corpus():
    documents = ["the cat sat on the mat . a dog ran over the hill . they sat on a chair . he ran"] * 40
    tokenizer = Tokenizer.train("byte_bpe", documents, 290)
    return Corpus.in_memory(documents, tokenizer)


def test_rates_and_batches(corpus):
    """Inputs and targets begin with <s> and end with </s>, with which the decoder starts; 30% of the words vanish."""
    batches = DenoisingBatches(corpus, 8, 40, TextInfilling(random_share=0.0), seed=1, steps=60)
    tokenizer = corpus.tokenizer()
    lost = words = 0
    for step in range(60):
        x, y, weights = batches[step]
        for ids, size, read, wanted, weight in zip(
            x["token_ids"], x["lengths"], x["decoder_token_ids"], y, weights, strict=True
        ):
            if not size:
                continue
            count = int(weight.sum())
            assert (ids[0], ids[size - 1], wanted[0], wanted[count - 1]) == (0, 2, 0, 2)
            assert read[:count].tolist() == [2, *wanted[: count - 1].tolist()]
            text, kept = wanted[1 : count - 1], ids[1 : size - 1]
            kept = kept[kept != tokenizer.mask_id]
            assert not set(kept.tolist()) - set(text.tolist())
            lost += np.count_nonzero(tokenizer.word_starts[text]) - np.count_nonzero(tokenizer.word_starts[kept])
            words += np.count_nonzero(tokenizer.word_starts[text])
    assert 0.22 < lost / words < 0.32  # 5.4 of 20 words, and not 6, because spans meet each other and the end
    again = DenoisingBatches(corpus, 8, 40, TextInfilling(random_share=0.0), seed=1, steps=60)
    np.testing.assert_array_equal(again[17][0]["token_ids"], batches[17][0]["token_ids"])
    assert again.recipe() == batches.recipe() and batches.recipe()["start_id"] == 2


def test_a_bart_learns_to_restore_text(corpus):
    batches = DenoisingBatches(corpus, 8, 40, TextInfilling(), seed=0, steps=20)
    size = corpus.tokenizer().vocabulary_size
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=32, feed_forward_dim=64, max_length=40, dropout=0.0)
    model = Seq2SeqLM(Bart(BartConfig(vocabulary_size=size, **sizes, initializer_range=0.1)))
    model.compile(keras.optimizers.Adam(0.01))
    losses = []
    for step in range(len(batches)):
        model.reset_metrics()
        losses.append(model.train_on_batch(*batches[step], return_dict=True)["loss"])
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(rate=1.0), "`rate` must be above 0 and below 1. Received: 1.0"),
        (dict(mean_span=0.0), "`mean_span` must be above 0"),
        (dict(random_share=1.5), "`random_share` must be between 0 and 1"),
    ],
)
def test_wrong_settings(fields, message):
    with pytest.raises(ValueError, match=message):
        TextInfilling(**fields)


def test_what_a_corpus_lacks(corpus):
    with pytest.raises(ValueError, match='Packing .* "text_infilling" are random'):
        DenoisingBatches(corpus, 2, 40, TextInfilling(), packed=True)
    documents = ["the cat sat on the mat", "a dog ran over the hill"] * 20
    tokenizer = Tokenizer.train("wordpiece", documents, 40)
    with pytest.raises(ValueError, match="the token '.'"):
        DenoisingBatches(Corpus.in_memory(documents, tokenizer), 2, 40, TextInfilling())
    tokenizer = Tokenizer.train("wordpiece", documents, 40, special_tokens={"pad": "[PAD]", "unk": "[UNK]", "sep": "."})
    with pytest.raises(ValueError, match="without a mask token"):
        DenoisingBatches(Corpus.in_memory(documents, tokenizer), 2, 40, TextInfilling())

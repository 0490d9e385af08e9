"""Whole words, n-grams and spans in text without spaces, and at the borders of texts."""

import numpy as np
import pytest

from kerasbert.data import Corpus, MaskedLMBatches, NGrams, Spans, Tokenizer, WholeWords
from kerasbert.data.noise.masking import WindowNGrams

pytestmark = pytest.mark.one_backend


def unspaced(text):
    """Documents of one long line each, of random parts of a text."""
    random, width = np.random.default_rng(0), 3
    parts = [text[place : place + width] for place in range(0, len(text), width)]
    return ["".join(random.choice(parts, 25)) for _ in range(20)]


CHINESE = unspaced("人人生而自由在尊严和权利上一律平等他们赋有理性和良心并应以兄弟关系的精神相对待")
JAPANESE = unspaced("すべての人間は生まれながらにして自由でありかつ尊厳と権利とについて平等である")
THAI = unspaced("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ")
ENGLISH = ["hello there world\nagain some words here\nlast line of text", "one more text\nwith lines"] * 8


def in_memory(kind, documents, size, **settings):
    return Corpus.in_memory(documents, Tokenizer.train(kind, documents, size, **settings))


@pytest.mark.parametrize(
    ("kind", "documents", "size"),
    [
        *(("byte_bpe", documents, 300) for documents in (CHINESE, JAPANESE, THAI)),
        *(("unigram", documents, 60) for documents in (CHINESE, JAPANESE, THAI)),
        ("wordpiece", THAI, 90),
    ],
)
@pytest.mark.parametrize("noise", [WholeWords(), WholeWords(by_word=True), NGrams(), Spans(), WindowNGrams()])
def test_text_without_spaces_has_targets(kind, documents, size, noise):
    """About 15% of the tokens, as in text with spaces, and never half a character."""
    corpus = in_memory(kind, documents, size)
    batches = MaskedLMBatches(corpus, 4, 64, noise=noise, steps=8)
    positions = [batches[step][0]["masked_positions"] for step in range(8)]
    rates = [(found >= 0).sum() / batches[step][0]["lengths"].sum() for step, found in enumerate(positions)]
    assert 0.08 < np.mean(rates) < 0.2
    if not isinstance(noise, Spans) and (kind != "unigram" or type(noise) is not NGrams):
        # The last span may end within a word, and ALBERT's rule knows other words.
        assert all(_are_whole(corpus, *batches[step][:2]) for step in range(8))


def _are_whole(corpus, x, y):
    """Whether both tokens of a pair of which the second continues a word are masked, or neither."""
    ids, rows = x["token_ids"].copy(), np.arange(len(x["token_ids"]))[:, None]
    used = x["masked_positions"] >= 0
    masked = np.zeros(ids.shape, bool)
    masked[(rows + 0 * x["masked_positions"])[used], x["masked_positions"][used]] = True
    ids[(rows + 0 * x["masked_positions"])[used], x["masked_positions"][used]] = y[used]
    info = corpus.tokenizer_info
    special = np.isin(ids, [info["cls_id"], info["sep_id"], info["pad_id"]])
    borders = np.zeros(ids.shape, bool)
    borders[:, 1:] = special[:, :-1]
    inside = ~corpus.tokenizer().word_boundaries(ids, borders)
    return (masked[:, 1:] == masked[:, :-1])[inside[:, 1:]].all()


def together(batches, first, second):
    """How often two tokens that follow each other are both masked, one of them, and neither."""
    counts = np.zeros(3, int)
    for x, y, _ in batches:
        ids, masked = x["token_ids"].copy(), np.zeros(x["token_ids"].shape, bool)
        row, slot = np.nonzero(x["masked_positions"] >= 0)
        masked[row, x["masked_positions"][row, slot]] = True
        ids[row, x["masked_positions"][row, slot]] = y[row, slot]
        here, place = np.nonzero(first(ids))
        for r, p in zip(here, place, strict=True):
            q = second(ids[r], p)
            if q is not None:
                counts[2 - int(masked[r, p]) - int(masked[r, q])] += 1
    return counts


@pytest.mark.parametrize("noise", [WholeWords(0.4), WholeWords(0.4, by_word=True), WholeWords(0.4, mask_special=True)])
def test_words_end_with_their_text(noise):
    """In packed byte-level rows, the last word of a text and the first one of the next are independent."""
    corpus = in_memory("byte_bpe", ["hello there\nworld"] * 40, 268)
    batches = MaskedLMBatches(corpus, 4, 64, noise=noise, rows="packed", steps=40)
    sep = corpus.tokenizer_info["sep_id"]

    def next_text(row, place):  # the separator, the first token of the next text, and its word
        return place + 3 if place + 3 < len(row) and row[place + 1] == sep and row[place + 3] != 1 else None

    counts = together(batches, lambda ids: np.roll(ids, -1, axis=1) == sep, next_text)
    assert counts.min() > 40  # both, one, neither


@pytest.mark.parametrize("rows", ["chunks", "packed", "segments", "segment_pairs"])
def test_words_end_with_their_line(rows):
    """The first token of a line has no mark in byte-level vocabularies."""
    corpus = in_memory("byte_bpe", ENGLISH, 300)
    batches = MaskedLMBatches(corpus, 4, 40, noise=WholeWords(0.4), rows=rows, steps=40)
    tokenizer = corpus.tokenizer()
    again, world = (tokenizer.encode([text], add_special_tokens=False)[0] for text in ("again", " world"))

    def after(row, place):
        return place + 1 if place + 1 < len(row) and row[place + 1] == again[0] else None

    y = (lambda part: part[1]["tokens"]) if batches.sentence_pairs else (lambda part: part[1])
    counts = together(((part[0], y(part), None) for part in batches), lambda ids: ids == world[-1], after)
    assert counts[1] > 20  # one of them; if they were one word, there would be none


@pytest.mark.parametrize("noise", [NGrams(0.4, ngrams=(0.0, 0.0, 1.0)), WindowNGrams(0.4, ngrams=(0.0, 0.0, 1.0))])
@pytest.mark.parametrize("rows", ["segment_pairs", "packed"])
def test_ngrams_end_with_their_text(noise, rows):
    """An n-gram that reaches the end of its text is shorter: it does not go on behind the separator."""
    corpus = in_memory("wordpiece", ["a b c d e f g h\nb c d e f g h a"] * 12, 21)
    batches = MaskedLMBatches(corpus, 4, 48, noise=noise, rows=rows, steps=60)
    vocabulary = batches._vocabulary
    for step in range(60):
        x = batches[step][0]
        rows_ = batches._maskable_rows(x, np.zeros(4, int))
        texts = np.cumsum(rows_.borders, axis=1)
        assert np.isin(x["token_ids"], vocabulary.separators).any() and texts.max() > 1
    seen = together(
        ((x, y["tokens"] if batches.sentence_pairs else y, None) for x, y, _ in batches),
        lambda ids: np.roll(ids, -1, axis=1) == corpus.tokenizer_info["sep_id"],
        lambda row, place: place + 2 + (rows == "packed") if place + 3 < len(row) else None,
    )
    assert seen[1] > 0.5 * seen[0]  # one side alone is as usual as both


def test_spans_end_with_their_text():
    corpus = in_memory("wordpiece", ["a b c d e f g h\nb c d e f g h a"] * 12, 21)
    noise = Spans(0.3, geometric=0.01, longest=10)
    for rows in ("segments", "packed"):
        batches = MaskedLMBatches(corpus, 8, 48, noise=noise, rows=rows, steps=20)
        for step in range(20):
            x = batches[step][0]
            given = batches._maskable_rows(x, np.zeros(8, int))
            texts = np.cumsum(given.borders, axis=1)
            for row, found in zip(texts, x["masked_positions"], strict=True):
                assert len(set(row[found[found >= 0]])) <= 4  # spans of ten words would reach more texts


def test_a_run_without_targets_is_refused():
    """Words with more tokens than a row may predict are never masked."""
    from kerasbert.models import Bert, BertConfig
    from kerasbert.objectives import MaskedLM

    corpus = in_memory("wordpiece", ["a" * 60 + "\n" + "b" * 60] * 4 + ["ab"], 9)
    batches = MaskedLMBatches(corpus, 2, 32, noise=WholeWords(), steps=25)
    assert not any(weights.any() for _, _, weights in batches)
    sizes = dict(vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=4, feed_forward_dim=4, max_length=32)
    model = MaskedLM(Bert(BertConfig(**sizes)), tokenizer=corpus.tokenizer())
    for run in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="A run must have targets. Received: 20 steps without any token"):
            run(batches, verbose=0)

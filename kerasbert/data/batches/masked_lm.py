"""Batches for masked language modeling."""

from collections.abc import Callable

import numpy as np

from ..corpus.corpus import Corpus
from ..noise.masking import Tokens
from ..noise.noise import MaskableRows, MaskingVocabulary, Noise
from ..sampling import DYNAMIC, STATIC, row_draws
from .pair_rows import SegmentPairs, SentenceOrder, SentencePairs
from .passes import PassBatches, tokenizer_info_of
from .rows import (
    DocSentenceRows,
    DocumentRows,
    FullSentenceRows,
    KnownRows,
    PackedRows,
    SegmentRows,
    SentenceRows,
    StreamRows,
    real_tokens,
)

ROWS = {
    "chunks": DocumentRows,
    "known_chunks": KnownRows,
    "sentences": SentenceRows,
    "segment_pairs": SegmentPairs(),
    "sentence_pairs": SentencePairs(),
    "sentence_order": SentenceOrder(),
    "segments": SegmentRows,
    "full_sentences": FullSentenceRows,
    "doc_sentences": DocSentenceRows,
    "stream": StreamRows,
    "packed": PackedRows,
}


def find_rows(rows: str | Callable) -> Callable:
    """The row layout of that name in `ROWS`, a function of (corpus, length, seed). A function is returned as is."""
    if callable(rows):
        return rows
    if rows not in ROWS:
        raise ValueError(
            f"`rows` must be one of {', '.join(ROWS)}, or a layout such as SegmentPairs(). Received: {rows!r}."
        )
    return ROWS[rows]


def sequence_starts(x: dict, real: np.ndarray) -> np.ndarray:
    """bool (b, s), True at the first token of each row, or of each sequence in packed rows.

    Args:
        x: a batch.
        real: bool (b, s), False at padding.
    """
    if "position_ids" in x:
        return x["position_ids"] == 0
    return np.arange(real.shape[1]) == np.argmax(real, axis=1)[:, None]


class MaskedLMBatches(PassBatches):
    """Batches for masked language modeling, with or without sentence pairs.

    x: "token_ids" (b, s), "lengths" (b,) or "padding_mask" (b, s), "masked_positions" (b, p) with -1 in unused slots,
    "segment_ids" (b, s) with pairs, and "language_ids" (b, s) if a language is given. Packed rows have "sequence_ids",
    "position_ids" and "first_positions" instead of the lengths. y: the original tokens (b, p), with weight 1 in used
    slots. With labeled pairs, y and the weights are dicts of "tokens" (b, p) and "sentence_pair" (b,). The label 0
    means that B follows A.

    A run makes passes over the corpus, each in a different order. Papers:

    - Devlin et al. 2018, arXiv 1810.04805
    - Liu et al. 2019, arXiv 1907.11692 (whole lines)
    - Lan et al. 2019, arXiv 1909.11942 (n-grams, sentence order)
    - Lample, Conneau 2019, arXiv 1901.07291 (streams)
    - Warner et al. 2024, arXiv 2412.13663 (packed rows)

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows per update.
        length: tokens per row, including special tokens and padding.
        seed: seed of the pairs, the order of the rows, and the masks.
        steps: number of updates in the run. Default: one pass over the text, with padding rows of weight 0 at the end
            of the last batch.
        rows: name of the row layout, or the layout itself, such as `SegmentPairs(passes=4)`:

            - "chunks": contiguous chunks of documents.
            - "known_chunks": the same, but chunks that are short or consist mostly of unknown tokens are left out, as
              in DistilBERT's code.
            - "sentences": as many whole sentences of one document as fit.
            - "segment_pairs", "sentence_pairs", "sentence_order": labeled pairs, as in `SegmentPairs()`,
              `SentencePairs()` and `SentenceOrder()`.
            - "segments": one or two segments without a label, as in ELECTRA's code.
            - "full_sentences", "doc_sentences": as many whole lines as fit, each followed by the end token, across
              documents or within one document.
            - "stream": contiguous chunks of the whole text, with an end token after every line.
            - "packed": several chunks per row.
        noise: the masking rule: `Tokens` (the default), `WholeWords`, `NGrams`, `Spans`, `RareTokens`, or any `Noise`.
        static_masks: number of different masks per row, used in turn. With 0, new masks are drawn in every step.
        language: language id of all tokens, for XLM.

    Raises:
        ValueError: if the corpus does not know its tokenizer, the tokenizer has no mask or padding token, `rows` is
            unknown, or `length` or the text is too short for a row.

    Example:
        >>> from kerasbert.data import Corpus, MaskedLMBatches, Tokenizer
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, tokenizer)
        >>> batches = MaskedLMBatches(corpus, batch_size=4, length=16)
        >>> len(batches)
        4
        >>> x, y, sample_weight = batches[0]
        >>> {name: array.shape for name, array in x.items()}
        {'token_ids': (4, 16), 'lengths': (4,), 'masked_positions': (4, 2)}
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        rows: str | Callable = "chunks",
        noise: Noise | None = None,
        static_masks: int = 0,
        language: int | None = None,
    ):
        info = tokenizer_info_of(corpus, "mask", "pad")
        self.corpus, self.length, self.language, self.static_masks = corpus, length, language, static_masks
        self._layout = find_rows(rows)(corpus, length, seed)
        self.noise = (noise or self.default_noise(length)).for_corpus(corpus)
        self.sentence_pairs = self._layout.labeled
        special = tuple(sorted({item for item, _ in self._layout.template if item not in ("A", "B")}))
        self._vocabulary = MaskingVocabulary(info["mask_id"], info["vocabulary_size"], special, corpus)
        self.max_predictions = self.noise.num_slots(length, length - self._layout.max_tokens)
        self._rows_name = rows if isinstance(rows, str) else getattr(rows, "__qualname__", repr(rows))
        super().__init__(batch_size, self._layout.bounds, seed, steps)

    @staticmethod
    def default_noise(length: int) -> Noise:
        return Tokens()

    def endless(self) -> "PassBatches":
        if self.noise.at(0.0) != self.noise.at(1.0):
            raise ValueError(
                "A masking rate that changes during the run needs batches that know how long it is, but a mixture has "
                f"parts without an end. Received: {self.noise!r}. Use a constant rate, or write all text into one "
                "corpus."
            )
        return super().endless()

    def recipe(self) -> dict:
        found = {**super().recipe(), "corpus": self.corpus.fingerprint, "language": self.language}
        masks = {"noise": self.noise.settings(), "static_masks": self.static_masks}
        resolved = {"sentence_pairs": self.sentence_pairs, "max_predictions": self.max_predictions}
        return {**found, "rows": self._rows_name, **masks, **resolved}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        if self.noise.whole_batch and (first, last) != (0, self.batch_size):
            return self._part_of_update(self._rows(update, 0, self.batch_size), first, last)
        lines, passes = self._places(update, first, last)
        x = self._layout.fill(lines)
        num_draws = self.noise.num_draws(self.length, self.max_predictions)
        if self.static_masks:
            marks = zip(lines.clip(0).tolist(), (passes % self.static_masks).tolist(), strict=True)
            draws = np.concatenate([row_draws(self.seed, d, STATIC, i, 1, num_draws) for i, d in marks])
        else:
            draws = row_draws(self.seed, update, DYNAMIC, first, last - first, num_draws)
        rows = self._maskable_rows(x, lines)
        x["masked_positions"], targets = self.noise.at(self._progress(update))(rows, draws)
        if self.language is not None:
            x["language_ids"] = np.full_like(x["token_ids"], self.language)
        weights = (x["masked_positions"] >= 0).astype(np.float32)
        return self._with_targets(x, targets, weights, lines, rows)

    def _with_targets(self, x: dict, targets: np.ndarray, weights: np.ndarray, lines: np.ndarray, rows) -> tuple:
        """(x, y, weights) of a batch."""
        if not self.sentence_pairs:
            return x, targets, weights
        real = (lines >= 0).astype(np.float32)
        labels = self._layout.labels(lines)
        return x, {"tokens": targets, "sentence_pair": labels}, {"tokens": weights, "sentence_pair": real}

    def _maskable_rows(self, x: dict, lines: np.ndarray) -> MaskableRows:
        real = real_tokens(x)
        return MaskableRows(
            token_ids=x["token_ids"],
            lengths=x["lengths"] if "lengths" in x else real.sum(axis=1),
            maskable=real,
            first=sequence_starts(x, real),
            num_slots=self.max_predictions,
            vocabulary=self._vocabulary,
            places=lambda: self._layout.places(lines, real),
            segments=x.get("sequence_ids", x.get("segment_ids")),
            line_starts=lambda: self._layout.line_starts(lines),
        )

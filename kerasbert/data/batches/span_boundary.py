"""Batches with masked spans, for the span boundary objective."""

import numpy as np

from ..corpus.corpus import Corpus
from ..corpus.packing import whole_sentences
from ..noise.span_masks import SCHEMES, SpanMasking, geometric_lengths, span_boundaries, spans_to_predict
from ..sampling import DYNAMIC, row_draws
from .passes import PassBatches, tokenizer_info_of
from .rows import ChunkRows, DocumentRows


class SentenceRows(ChunkRows):
    """As many whole sentences of one document as fit, in the template for single texts."""

    def __init__(self, corpus: Corpus, length: int):
        super().__init__(corpus, length)
        sentences = np.append(corpus.sequence_starts, corpus.num_tokens)
        self.make_plan("sentences", {}, lambda: [whole_sentences(sentences, corpus.document_starts, self.max_tokens)])
        if not len(self.plan):
            raise ValueError(
                f"Rows must hold whole sentences. Received: length={length}, and a corpus with only longer ones. "
                "Use a larger length, whole_sentences=False, or a corpus with shorter lines."
            )


class SpanMaskBatches(PassBatches):
    """Rows with masked spans: whole sentences of one document, no pairs (Joshi et al. 2019, arXiv 1907.10529).

    x: "token_ids" (b, s), "lengths" (b,) or "padding_mask" (b, s), "masked_positions" (b, p) with -1 in unused slots,
    and "span_left", "span_right", "span_offset" (b, p), -1 where there is no boundary term. y and weights: dicts of
    "tokens" and "boundary"; y has the original tokens (b, p) in both.

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows per update.
        length: tokens per row, including special tokens and padding.
        seed: determines order and masks.
        steps: number of updates in the run. Default: one pass over the text.
        whole_sentences: rows are whole lines, as many of one document as fit (SpanBERT's rule); lines longer than a row
            are left out. False: contiguous chunks of documents.
        scheme: "spans" of words, with geometric lengths; "words"; or "pieces", each decided independently.
        mask_rate: share of the text to predict, not counting special tokens.
        geometric: probability that a span ends after a word.
        longest: maximum number of words in a span.
        phrases: int (n, 2), start and stop in `corpus.tokens` of spans that are masked as a whole, such as entities or
            noun phrases; in order, without overlaps.
        phrase_share: probability of a phrase where one is available; otherwise `scheme` decides. The paper uses 0.5.
        boundary: False leaves out the boundary terms; y and weights are then single arrays, for `MaskedLM`.
        max_targets: maximum number of tokens of a span that have a boundary term.
        accumulation: number of items per update.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        whole_sentences: bool = True,
        scheme: str = "spans",
        mask_rate: float = 0.15,
        geometric: float = 0.2,
        longest: int = 10,
        phrases: np.ndarray | None = None,
        phrase_share: float = 0.5,
        boundary: bool = True,
        max_targets: int = 15,
        accumulation: int = 1,
    ):
        info = tokenizer_info_of(corpus, "mask", "pad")
        if scheme not in SCHEMES:
            raise ValueError(f"`scheme` must be one of {', '.join(SCHEMES)}. Received: {scheme!r}.")
        if not (0 < mask_rate < 1 and 0 < geometric < 1 and 0 <= phrase_share <= 1):
            raise ValueError(
                "`mask_rate` and `geometric` must be above 0 and below 1, and `phrase_share` from 0 to 1. Received: "
                f"{mask_rate}, {geometric}, {phrase_share}."
            )
        if longest < 1 or max_targets < 1:
            raise ValueError(f"`longest` and `max_targets` must be at least 1. Received: {longest}, {max_targets}.")
        self.corpus, self.length, self.boundary, self.max_targets = corpus, length, boundary, max_targets
        self.phrases, self.phrase_share = None if phrases is None else _checked(phrases, corpus), phrase_share
        self._layout = (SentenceRows if whole_sentences else DocumentRows)(corpus, length)
        self._masking = SpanMasking(
            mask_id=info["mask_id"],
            special_ids=tuple(sorted({item for item, _ in self._layout.template if item != "A"})),
            slots=int(spans_to_predict(np.array(self._layout.max_tokens), mask_rate)),
            noise=corpus.tokens,
            word_starts=None if scheme == "pieces" else corpus.word_starts,
            lengths=geometric_lengths(geometric, longest) if scheme == "spans" else (1.0,),
            rate=mask_rate,
            by_span=scheme != "pieces",
        )
        self._options = {
            "whole_sentences": whole_sentences,
            "scheme": scheme,
            "mask_rate": mask_rate,
            "geometric": geometric,
            "longest": longest,
        }
        super().__init__(batch_size, self._layout.bounds, seed, steps, accumulation)

    def recipe(self) -> dict:
        phrases = None if self.phrases is None else [len(self.phrases), int(self.phrases.sum())]
        return {
            **super().recipe(),
            "corpus": self.corpus.fingerprint,
            **self._options,
            **{"phrases": phrases, "phrase_share": self.phrase_share},
            **{"boundary": self.boundary, "max_targets": self.max_targets},
        }

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, _ = self._places(update, first, last)
        x = self._layout.fill(lines)
        columns = np.arange(self.length, dtype=np.int32)
        real = x["padding_mask"] if "padding_mask" in x else columns < x["lengths"][:, None]
        candidates = self._masking.candidates(x["token_ids"], real)
        draws = row_draws(self.seed, update, DYNAMIC, first, last - first, self._masking.num_draws())
        phrases = None if self.phrases is None else self._phrases_of(lines, real)
        x["masked_positions"], tokens = self._masking(x["token_ids"], candidates, draws, phrases, self.phrase_share)
        used = (x["masked_positions"] >= 0).astype(np.float32)
        if not self.boundary:
            return x, tokens, used
        x |= span_boundaries(x["masked_positions"], candidates, self.max_targets)
        bounded = (x["span_offset"] >= 0).astype(np.float32)
        return x, {"tokens": tokens, "boundary": tokens}, {"tokens": used, "boundary": bounded}

    def _phrases_of(self, lines: np.ndarray, real: np.ndarray) -> np.ndarray:
        """int (b, s): the number of the phrase that contains each token, counted from 1; 0 for none."""
        plan = np.asarray(self._layout.plan[np.maximum(lines, 0)])
        lead = [item for item, _ in self._layout.template].index("A")
        within = np.arange(self.length) - np.argmax(real, axis=1)[:, None] - lead
        inside = (within >= 0) & (within < plan[:, 1:]) & (lines >= 0)[:, None]
        places = plan[:, :1] + within
        number = np.searchsorted(self.phrases[:, 0], places, side="right")
        inside &= (number > 0) & (places < self.phrases[np.maximum(number, 1) - 1, 1])
        return np.where(inside, number, 0)


def _checked(phrases: np.ndarray, corpus: Corpus) -> np.ndarray:
    phrases = np.asarray(phrases)
    ends = phrases.reshape(-1)
    if phrases.ndim != 2 or phrases.shape[1] != 2 or not len(phrases) or phrases.dtype.kind not in "iu":
        raise ValueError(
            "`phrases` must be integers (n, 2): start and stop of each. Received: shape "
            f"{phrases.shape}, {phrases.dtype}."
        )
    phrases, ends = phrases.astype(np.int64), ends.astype(np.int64)
    in_order = (np.diff(ends) >= 0).all() and (phrases[:, 0] < phrases[:, 1]).all()
    if not in_order or ends[0] < 0 or ends[-1] > corpus.num_tokens:
        raise ValueError(
            "`phrases` must be in order, without overlaps, not empty, and within the corpus of "
            f"{corpus.num_tokens} tokens. Received: {phrases[:5].tolist()}..."
        )
    return phrases

"""Batches for masked language modelling."""

import math

import numpy as np

from ..corpus.corpus import Corpus
from ..noise.masking import albert_word_starts, masking_for, ngram_shares, rare_first_weights
from ..sampling import DYNAMIC, STATIC, row_draws
from .passes import PassBatches, tokenizer_info_of
from .rows import ROWS, token_counts


class MaskedLMBatches(PassBatches):
    """Rows for masked language modelling, with or without pairs of segments.

    x: "token_ids" (b, s), "lengths" (b,) or "padding_mask" (b, s), "masked_positions" (b, p) with -1 in unused slots,
    "segment_ids" (b, s) with pairs, and "language_ids" (b, s) if a language is given; packed rows have "sequence_ids",
    "position_ids" and "first_positions" instead of the lengths. y: the original tokens (b, p), with weight 1 in used
    slots. With pairs y and weights are dicts of "tokens" and "sentence_pair" (b,), 0 = B follows A.

    A run makes passes over the corpus, each in a different order. Papers: Devlin et al. 2018, 1810.04805; Liu et al.
    2019, 1907.11692 (whole lines); Lan et al. 2019, 1909.11942 (n-grams, sentence order); Lample & Conneau 2019,
    1901.07291 (streams); Warner et al. 2024, 2412.13663 (packed rows).

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows per update.
        length: tokens per row, including special tokens and padding.
        seed: determines pairs, order and masks.
        steps: number of updates in the run. Default: one pass over the text, each row once, with the last batch filled
            up with padding rows of weight 0.
        sentence_pairs: BERT's pairs of segments with a label, the same as rows="segment_pairs".
        whole_words: mask words, not pieces. A word that would exceed the count is skipped.
        static_masks: a row has the same mask each time the same one of the `dupe_factor` passes is repeated; otherwise
            masks are drawn again in every step.
        dupe_factor: number of passes with different pairs and static masks.
        mask_rate: share of tokens to predict, counting special tokens.
        max_predictions: maximum number of tokens to predict per row. Default: `mask_rate` of `length`, with a margin
            where the number is random.
        short_sequence_rate: share of documents that are cut into shorter pairs.
        accumulation: number of items per update.
        rows: "chunks" of documents; "known_chunks", those that DistilBERT's code keeps: neither short nor half unknown;
            pairs with label 1 for a random B ("segment_pairs", and of single sentences "sentence_pairs") or for A and
            B exchanged ("sentence_order"); one or two "segments" without a label, as in ELECTRA's code; as many whole
            lines as fit, across documents or not ("full_sentences", "doc_sentences"); a "stream" of all lines; or
            several chunks per row ("packed").
        rule: the masking rule: "bert" never masks special tokens, "roberta", "xlm" and "modernbert" may; with
            `whole_words` "roberta" counts and decides by word. "xlm" and "modernbert" decide for each token
            independently. "deberta" walks through a row from left to right and masks an n-gram in each window until it
            has enough; "deberta_anywhere" chooses among all these n-grams at random, so that the end of a row is masked
            as often as its beginning.
        ngrams: mask runs of up to this many whole words, n drawn in proportion to 1 / n, as ALBERT does; or the
            probabilities of n = 1, 2, ....
        lone_sentences: what "sentence_order" does with a chunk of one sentence: "skip" drops it, and "random" makes a
            pair with a random B and label 1, as in ALBERT's code.
        rare_exponent: choose tokens in proportion to their count in the corpus ** -exponent (XLM's paper: 0.5,
            DistilBERT: 0.7), separately in each row; the official codes choose among all tokens of a batch.
        language: language id, for XLM.
        shares: shares of the chosen tokens that become the mask, and that are kept; the others become random tokens.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        sentence_pairs: bool = False,
        whole_words: bool = False,
        static_masks: bool = False,
        dupe_factor: int = 10,
        mask_rate: float = 0.15,
        max_predictions: int | None = None,
        short_sequence_rate: float = 0.1,
        accumulation: int = 1,
        rows: str | None = None,
        rule: str = "bert",
        ngrams: int | tuple[float, ...] | None = None,
        lone_sentences: str = "skip",
        rare_exponent: float | None = None,
        language: int | None = None,
        shares: tuple[float, float] = (0.8, 0.1),
    ):
        info = tokenizer_info_of(corpus, "mask", "pad")
        rows = rows or ("segment_pairs" if sentence_pairs else "chunks")
        if rows not in ROWS:
            raise ValueError(f"`rows` must be one of {', '.join(ROWS)}. Received: {rows!r}.")
        if not 0 < mask_rate < 1:
            raise ValueError(f"`mask_rate` must be between 0 and 1. Received: {mask_rate}.")
        if dupe_factor < 1 or (max_predictions is not None and max_predictions < 1):
            raise ValueError(
                f"`dupe_factor` and `max_predictions` must be at least 1. Received: {dupe_factor}, {max_predictions}."
            )
        if not 0 <= short_sequence_rate <= 1:
            raise ValueError(f"`short_sequence_rate` must be from 0 to 1. Received: {short_sequence_rate}.")
        if ngrams is not None and not (ngrams >= 1 if isinstance(ngrams, int) else sum(ngrams) > 0 <= min(ngrams)):
            raise ValueError(
                "`ngrams` must be the longest n, at least 1, or the probabilities of n = 1, 2, .... Received: "
                f"{ngrams}. Use None to mask pieces."
            )
        if len(shares) != 2 or not (0 <= shares[0] <= 1 and 0 <= shares[1] <= 1 + 1e-9 - shares[0]):
            raise ValueError(f"`shares` must be two non-negative numbers with a sum of at most 1. Received: {shares}.")
        if lone_sentences not in ("skip", "random"):
            raise ValueError(f'`lone_sentences` must be "skip" or "random". Received: {lone_sentences!r}.')
        if rare_exponent is not None and not math.isfinite(rare_exponent):
            raise ValueError(f"`rare_exponent` must be a number. Received: {rare_exponent}.")
        if rare_exponent is not None and (whole_words or ngrams):
            raise ValueError("`rare_exponent` cannot be used with whole_words or ngrams. Received: both. Choose one.")
        self.corpus, self.length, self.language = corpus, length, language
        self._layout = ROWS[rows](
            corpus, length, seed=seed, passes=dupe_factor, short_rate=short_sequence_rate, lone=lone_sentences
        )
        self.sentence_pairs = self._layout.labelled
        self.whole_words, self.static_masks, self.dupe_factor = whole_words, static_masks, dupe_factor
        self.mask_rate, self.short_sequence_rate = mask_rate, short_sequence_rate
        self._masking = masking_for(
            rule,
            length,
            max_predictions,
            mask_id=info["mask_id"],
            vocabulary_size=info["vocabulary_size"],
            special_ids=tuple(sorted({item for item, _ in self._layout.template if item not in ("A", "B")})),
            rate=mask_rate,
            shares=tuple(shares),
            word_starts=self._word_starts(rule) if ngrams else corpus.word_starts if whole_words else None,
            ngrams=ngram_shares(ngrams) if isinstance(ngrams, int) else ngrams,
            token_weights=None if rare_exponent is None else self._token_weights(rare_exponent),
        )
        self.max_predictions, self._skips_first = self._masking.slots, self._masking.skip_first
        self._options = {"rows": rows, "rule": rule, "ngrams": ngrams, "lone_sentences": lone_sentences}
        self._options |= {"rare_exponent": rare_exponent, "language": language, "shares": list(shares)}
        super().__init__(batch_size, self._layout.bounds, seed, steps, accumulation)

    def recipe(self) -> dict:
        names = ("sentence_pairs", "whole_words", "static_masks", "dupe_factor", "mask_rate", "max_predictions")
        return {
            **super().recipe(),
            "corpus": self.corpus.fingerprint,
            **{name: getattr(self, name) for name in (*names, "short_sequence_rate")},
            **self._options,
        }

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, passes = self._places(update, first, last)
        x = self._layout.fill(lines)
        draws = self._masking.num_draws(self.length)
        if self.static_masks:
            marks = zip(lines.clip(0).tolist(), (passes % self.dupe_factor).tolist(), strict=True)
            draws = np.concatenate([row_draws(self.seed, d, STATIC, i, 1, draws) for i, d in marks])
        else:
            draws = row_draws(self.seed, update, DYNAMIC, first, last - first, draws)
        left = "padding_mask" in x
        # Rules that never mask the first token of a row never mask the first token of a packed sequence.
        never = x["position_ids"] == 0 if self._skips_first and "position_ids" in x else None
        x["masked_positions"], targets = self._masking(x["token_ids"], token_counts(x), draws, left, never)
        if self.language is not None:
            x["language_ids"] = np.full_like(x["token_ids"], self.language)
        weights = (x["masked_positions"] >= 0).astype(np.float32)
        if not self.sentence_pairs:
            return x, targets, weights
        real = (lines >= 0).astype(np.float32)
        labels = self._layout.labels(lines)
        return x, {"tokens": targets, "sentence_pair": labels}, {"tokens": weights, "sentence_pair": real}

    def _word_starts(self, rule: str) -> np.ndarray:
        """Where the words of n-grams start; ALBERT has a separate rule for SentencePiece."""
        tokenizer = self.corpus.tokenizer()
        unigram = tokenizer.content["model"]["type"] == "Unigram" and not rule.startswith("deberta")
        return albert_word_starts(tokenizer.tokens) if unigram else self.corpus.word_starts

    def _token_weights(self, exponent: float) -> np.ndarray:
        counts, info = self.corpus.counts(), self.corpus.tokenizer_info
        counts = np.pad(counts, (0, info["vocabulary_size"] - len(counts)))
        if info["unk_id"] is not None:
            counts[info["unk_id"]] = 0  # predicting the unknown token teaches nothing, since it replaces many words
        return rare_first_weights(counts, exponent)

"""Batches for skip-gram with negative sampling: words, each with a nearby word and random words."""

import numpy as np

from ..corpus.corpus import Corpus
from ..sampling import DYNAMIC, PLAN, row_draws, shuffled
from .batches import Batches


def keep_probabilities(counts: np.ndarray, threshold: float | None, rule: str = "paper") -> np.ndarray:
    """Computes the probability of keeping an occurrence of each word (subsampling). It is low for frequent words.

    word with a share of 1e-3 of the text, threshold 1e-5, "paper" -> 0.1; share 0.01, threshold 1e-3, "code" -> 0.4162

    Args:
        counts: number of occurrences of every word.
        threshold: t in the formulas below, or None to keep all occurrences.
        rule: "paper" for sqrt(t / share), where share is the relative frequency of the word (Mikolov et al. 2013,
            section 2.3), or "code" for sqrt(t / share) + t / share, as in the word2vec tool.
    """
    if threshold is None:
        return np.ones(len(counts))
    if not threshold > 0 or rule not in ("paper", "code"):
        raise ValueError(
            f'`threshold` must be positive, and `rule` must be "paper" or "code". Received: {threshold}, {rule!r}.'
        )
    ratios = threshold * counts.sum() / np.maximum(counts, 1)
    return np.minimum(np.sqrt(ratios) + (ratios if rule == "code" else 0), 1.0)


def noise_probabilities(counts: np.ndarray, power: float = 0.75) -> np.ndarray:
    """Computes the probability of drawing each word as a negative example, proportional to count ** power.

    counts 16, 1 -> 0.8889, 0.1111
    """
    weights = np.asarray(counts, dtype=np.float64) ** power * (np.asarray(counts) > 0)
    return weights / weights.sum()


class SkipGramBatches(Batches):
    """Pairs of a word and a nearby word, each with random words as negative examples.

    x: "token_ids" (b, 1), and "context_ids" (b, 1 + negatives), the nearby word first. y: int32 (b, 1 + negatives), 1
    for the nearby word and 0 for negative examples. Weights are 1, except for negative examples that equal the nearby
    word, whose weight is 0.

    Every pass first drops occurrences of frequent words at random. Dropped words do not count in windows. The size of
    the window is drawn for each word, from 1 to `window` words on both sides, and a window never crosses a line break.
    The rows of a pass are all its pairs, in random order. Paper: Mikolov et al. 2013, arXiv 1310.4546.

    line [5 6 7], window 1, nothing dropped -> pairs 5 6, 6 5, 6 7, 7 6

    Args:
        corpus: a `Corpus`.
        batch_size: pairs per update.
        window: maximum number of words on each side.
        negatives: number of negative examples per pair. The paper uses 5 to 20 for small corpora, 2 to 5 for large
            ones.
        threshold: as in `keep_probabilities`. The paper uses 1e-5, the tool 1e-3.
        rule: as in `keep_probabilities`.
        power: as in `noise_probabilities`.
        seed: seed of all random choices.
        steps: number of updates in the run. Default: one pass.

    Raises:
        ValueError: if `window` or `negatives` is below 1, `threshold` or `rule` is invalid, or no line has two words
            that are kept.
    """

    length = 1
    single_step = "its loss is a mean over the pairs, and not over the weights"

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        window: int = 5,
        negatives: int = 5,
        threshold: float | None = 1e-3,
        rule: str = "code",
        power: float = 0.75,
        seed: int = 0,
        steps: int | None = None,
    ):
        if window < 1 or negatives < 1:
            raise ValueError(f"`window` and `negatives` must be at least 1. Received: {window}, {negatives}.")
        self.corpus, self.window, self.negatives = corpus, window, negatives
        self.settings = {"window": window, "negatives": negatives, "threshold": threshold, "rule": rule, "power": power}
        counts = np.bincount(corpus.tokens)
        self._keep = keep_probabilities(counts, threshold, rule)
        self._noise = np.cumsum(noise_probabilities(counts, power))
        self._lines = np.repeat(np.arange(corpus.num_sequences), corpus.lengths)
        self._computed: dict = {}
        self.seed = seed
        self._first_pairs = [0]  # index of the first pair of each pass in the run
        pairs = self._first_pair(1)
        if pairs == 0:
            raise ValueError(
                "Pairs need a line with at least two words that are kept. Received: no such line. Use a larger "
                "`threshold`."
            )
        self._end = pairs if steps is None else None
        super().__init__(batch_size, -(-pairs // max(1, batch_size)) if steps is None else steps, seed)

    def recipe(self) -> dict:
        return {**super().recipe(), **self.settings, "corpus": self.corpus.fingerprint}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        places = update * self.batch_size + np.arange(first, last)
        there = np.ones(len(places), bool) if self._end is None else places < self._end
        words, near = np.zeros((2, len(places)), np.int32)
        passes = self._passes(places)
        for number in np.unique(passes[there]):
            here = there & (passes == number)
            tokens, left, before = self._pass(int(number))
            pairs = shuffled(places[here] - self._first_pair(number), int(before[-1]), self.seed, int(number))
            centers = np.searchsorted(before, pairs, side="right") - 1
            distances = pairs - before[centers] - left[centers]
            words[here], near[here] = tokens[centers], tokens[centers + distances + (distances >= 0)]
        draws = row_draws(self.seed, update, DYNAMIC, first, len(places), self.negatives)[:, : self.negatives]
        drawn = np.searchsorted(self._noise, (draws + 0.5) / 2.0**32).astype(np.int32)
        weights = there[:, None] * (drawn != near[:, None])
        x = {"token_ids": words[:, None], "context_ids": np.concatenate([near[:, None], drawn], axis=1)}
        y = np.zeros(x["context_ids"].shape, np.int32)
        y[:, 0] = 1
        return x, y, np.concatenate([there[:, None], weights], axis=1).astype(np.float32)

    def _passes(self, places: np.ndarray) -> np.ndarray:
        """Returns the number of the pass that contains each pair, given the indices of the pairs in the run."""
        while self._end is None and self._first_pairs[-1] <= places.max(initial=0):
            self._first_pair(len(self._first_pairs))
        return np.searchsorted(self._first_pairs, places, side="right") - 1

    def _first_pair(self, number: int) -> int:
        """Number of pairs in all passes before the given one."""
        while len(self._first_pairs) <= number:
            _, _, before = self._pass(len(self._first_pairs) - 1)
            self._first_pairs.append(self._first_pairs[-1] + int(before[-1]))
        return self._first_pairs[number]

    def _pass(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the pairs of a pass.

        Returns: the tokens that are kept; for each of them, the number of words in its window on the left; and the
            number of pairs of all tokens before each token, followed by the total.
        """
        if number not in self._computed:
            draws = row_draws(self.seed, number, PLAN, 0, self.corpus.num_tokens, 2)[:, :2]
            kept = draws[:, 0] < self._keep[self.corpus.tokens] * 2.0**32
            tokens, lines = self.corpus.tokens[kept].astype(np.int32), self._lines[kept]
            windows = 1 + draws[kept, 1].astype(np.int64) % self.window
            places = np.arange(len(tokens))
            left = np.minimum(windows, places - np.searchsorted(lines, lines, side="left"))
            right = np.minimum(windows, np.searchsorted(lines, lines, side="right") - 1 - places)
            before = np.concatenate([[0], np.cumsum(left + right)])
            self._computed = {**dict(list(self._computed.items())[-1:]), number: (tokens, left, before)}
        return self._computed[number]

"""What a model must be better than: predictions that only count, and the standard error of the difference.

Losses are in nats, one for each target. A bar is measured on the same held-out targets as the model:

- unigrams: how frequent a token is in the training text, of the same language where there are several;
- bigrams: which token came before (interpolated modified Kneser-Ney), for models that read it;
- bags: which tokens are shown, without their order, for models that put them in order;
- copies: the shown tokens without loss, in their places, and the others by their frequency, for models that restore a
  text most of which they are shown;
- for replaced tokens, what the generator likes to write, and how well a token fits its two neighbors;
- for labels, the most frequent one (accuracy) and the entropy of their shares (loss).

A difference is compared with its standard error over documents, or over other independent parts of the held-out text.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.studies.suite.ngram_model import NgramModel

POWERS = (1.0, 0.7, 0.5, 0.3)  # of frequencies, see `unigram_losses`

# === Tokens ===


def unigram_losses(targets: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Losses of a model that knows how often each token is in the training text, plus one: float64, as the targets.

    Where rare tokens are chosen more often than others, targets are distributed as a power of the frequencies. The
    power with the least mean loss is used.

    targets 0 0 0 1, counts 5 1 -> -log 6/8, -log 6/8, -log 6/8, -log 2/8
    """
    raised = [(np.asarray(counts) + 1.0) ** power for power in POWERS]
    losses = [np.log(weights.sum() / weights)[targets] for weights in raised]
    return min(losses, key=np.mean) if np.size(targets) else losses[0]


def bigram_losses(model: NgramModel, contexts: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Losses of targets (n,), each after the token in `contexts` (n,), by a model of order 2: float64 (n,)."""
    return -model.log_probabilities(np.stack([contexts, targets], axis=1).ravel())[1::2]


def bag_losses(shown: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Losses of two models that know which tokens are shown, but not their order: float64 (n,), row by row.

    The first guesses among all the shown tokens, the second among those that have not been a target before. A target
    that is not shown, or not any more, counts as one of the tokens.

    shown 7 7 8, targets 7 8 7 -> -log 2/3, -log 1/3, -log 2/3; and -log 2/3, -log 1/2, -log 1/1

    Args:
        shown: ints (b, s), -1 where nothing is shown.
        targets: ints (b, t), -1 where there is none.
    """
    count = (shown[:, None, :] == targets[:, :, None]).sum(axis=2)
    total = np.broadcast_to((shown >= 0).sum(axis=1)[:, None], targets.shape)
    earlier = np.tri(targets.shape[1], k=-1, dtype=bool)
    same = ((targets[:, :, None] == targets[:, None, :]) & earlier).sum(axis=2)
    before = ((targets >= 0)[:, None, :] & earlier).sum(axis=2)
    used = targets >= 0
    whole, rest = (
        np.log(np.maximum(total - gone, 1) / np.maximum(count - taken, 1))[used]
        for gone, taken in ((0, 0), (before, same))
    )
    return whole, rest


def hidden_targets(shown: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Which targets are not among the shown tokens of their row: bool (b, t).

    Each shown token stands for one target; of equal targets, the first ones are shown.

    shown 7 8, targets 7 7 9 -> False True True

    Args:
        shown: ints (b, s), -1 where nothing is shown.
        targets: ints (b, t), -1 where there is none.
    """
    earlier = np.tri(targets.shape[1], k=-1, dtype=bool)
    before = ((targets[:, :, None] == targets[:, None, :]) & earlier).sum(axis=2)
    return before >= (shown[:, None, :] == targets[:, :, None]).sum(axis=2)


def frequency_pair_losses(
    candidates: np.ndarray, labels: np.ndarray, weights: np.ndarray, near: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """Losses of negative sampling for a model that ignores the first word of a pair: float64 (b,).

    A candidate c is the nearby word with the odds near(c) / (n noise(c)), where n is the number of negatives.

    Args:
        candidates: ids (b, 1 + n): the nearby word, and n words from the noise.
        labels: (b, 1 + n), 1 for the nearby word.
        weights: float (b, 1 + n).
        near, noise: float (vocabulary,), the probability of every word to be near one, and in the noise.
    """
    score = np.log(near[candidates]) - np.log((candidates.shape[1] - 1) * noise[candidates])
    return (weights * np.logaddexp(0, (1 - 2 * labels) * score)).sum(axis=1)


# === Replaced tokens ===


def frequency_scores(ids: np.ndarray, generated: np.ndarray, original: np.ndarray) -> np.ndarray:
    """How many times as likely a token is among the generator's replacements as in the text, as a logarithm.

    Args:
        ids: the tokens to score, of any shape.
        generated, original: float (vocabulary,), the probability of each token in either, above 0.
    """
    return np.log(generated[ids]) - np.log(original[ids])


def bigram_scores(scores: np.ndarray, lifts: np.ndarray) -> np.ndarray:
    """`frequency_scores` less how much likelier a token is between its neighbors than anywhere: float (n,).

    By Bayes' rule, if both neighbors depend on the token independently, and the generator ignores them.

    Args:
        scores: float (n,), `frequency_scores`.
        lifts: float (2, n): log p(token | neighbor) - log p(token), for the left and the right neighbor.
    """
    return scores - lifts.sum(axis=0)


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """The probability that a positive has a higher score than a negative; ties count as one half.

    scores 1 2 2 3, positive 0 0 1 1 -> (1 + 1/2 + 1 + 1) / 4
    """
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]  # from 1, the mean rank of ties
    ones = int(np.count_nonzero(positive))
    zeros = len(rank) - ones
    if not ones or not zeros:
        return 0.5
    return float((rank[np.asarray(positive, bool)].sum() - ones * (ones + 1) / 2) / (ones * zeros))


# === Labels ===


def majority(labels: np.ndarray) -> float:
    """The share of the most frequent label, the accuracy of always giving it."""
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def entropy(labels: np.ndarray) -> float:
    """The loss of a model that knows the shares of the labels."""
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    return float(-(shares * np.log(shares)).sum())


# === Differences ===


class Origins:
    """Finds which part of a text rows of its tokens come from: the part with most of their n-grams.

    Only n-grams that occur in one part count.

    Call:
        rows: ints (b, s).

    Returns: ints (b,), -1 for rows without such an n-gram.

    Args:
        tokens: ints (n,), the text.
        starts: where each part begins, from 0 on.
        size: tokens of an n-gram.
    """

    def __init__(self, tokens: np.ndarray, starts: np.ndarray, size: int = 5):
        keys = _ngrams(tokens, size)
        parts = np.searchsorted(starts, np.arange(len(keys)), side="right") - 1
        order = np.lexsort((parts, keys))
        keys, parts = keys[order], parts[order]
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        last = np.append(first[1:], len(keys)) - 1
        alone = first[parts[first] == parts[last]]
        self.size, self.keys, self.parts = size, keys[alone], parts[alone]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        keys = _ngrams(rows, self.size)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        votes = [self.parts[place][self.keys[place] == key] for place, key in zip(places, keys, strict=True)]
        return np.array([np.bincount(vote).argmax() if len(vote) else -1 for vote in votes])


def _ngrams(ids: np.ndarray, size: int) -> np.ndarray:
    """A number for every n-gram along the last axis; a hash of 64 bits."""
    ids = np.asarray(ids).astype(np.uint64)
    width = ids.shape[-1] - size + 1
    key = np.zeros((*ids.shape[:-1], max(width, 0)), np.uint64)
    for i in range(size if width > 0 else 0):
        key = key * np.uint64(0x9E3779B97F4A7C15) + ids[..., i : i + width]
    return key


def standard_error(statistic: Callable[[np.ndarray], float], units: np.ndarray) -> float:
    """The standard error of a statistic, by a jackknife that leaves out one unit at a time.

    The mean of one number a unit has its usual standard error. NaN for a single unit.

    Args:
        statistic: of the observations that a bool array (n,) selects.
        units: ints (n,), the unit of every observation; units are independent of each other.
    """
    numbers = np.unique(units)
    if len(numbers) < 2:
        return float("nan")
    left = np.array([statistic(units != number) for number in numbers])
    return float(np.sqrt((len(left) - 1) / len(left) * np.square(left - left.mean()).sum()))


def mean(values: np.ndarray) -> Callable[[np.ndarray], float]:
    """The mean as a statistic."""
    return lambda chosen: float(values[chosen].mean())


def compared(
    value: Callable[[np.ndarray], float],
    bars: dict[str, Callable[[np.ndarray], float]],
    units: np.ndarray,
    higher: bool = False,
) -> dict:
    """A statistic of a model beside the same statistic of its bars.

    Args:
        value: the model's statistic, of the observations that a bool array (n,) selects.
        bars: {name: statistic}.
        units: as in `standard_error`.
        higher: whether more is better.

    Returns: {"value", "bars": {name: value}, "bar": the name of the best one, "gain": by how much the model is better
        than that, "error": its standard error, "units": their number}.
    """
    everything, sign = np.ones(len(units), bool), 1 if higher else -1
    found = {name: bar(everything) for name, bar in bars.items()}
    best = max(found, key=lambda name: sign * found[name])

    def gain(chosen: np.ndarray) -> float:
        return sign * (value(chosen) - bars[best](chosen))

    result = {"value": value(everything), "bars": found, "bar": best, "gain": gain(everything)}
    return {**result, "error": standard_error(gain, units), "units": len(np.unique(units))}

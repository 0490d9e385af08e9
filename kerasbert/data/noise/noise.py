"""The base class of masking rules, and what a rule is given: rows of tokens and a vocabulary."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from .corruption import replace_tokens


class MaskingVocabulary:
    """What masking rules may know about tokens.

    Args:
        mask_id: id of the mask token.
        size: number of token ids.
        special_ids: ids of the special tokens of a row.
        corpus: the `Corpus` from which word starts and token counts are read when they are needed.
        word_starts: bool (size,), instead of those of the corpus.
    """

    def __init__(self, mask_id: int, size: int, special_ids: tuple[int, ...] = (), corpus=None, word_starts=None):
        self.mask_id, self.size, self.special_ids = mask_id, size, tuple(special_ids)
        self.corpus = corpus
        self._weights: dict[float, np.ndarray] = {}
        if word_starts is not None:
            self.word_starts = self.albert_word_starts = word_starts

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """bool (size,): which tokens begin a word."""
        return self.corpus.word_starts

    @functools.cached_property
    def albert_word_starts(self) -> np.ndarray:
        """bool (size,): which tokens begin a word in ALBERT's code, which has a separate rule for SentencePiece."""
        tokenizer = self.corpus.tokenizer()
        unigram = tokenizer.content["model"]["type"] == "Unigram"
        return albert_word_starts(tokenizer.tokens) if unigram else self.word_starts

    def rare_first_weights(self, exponent: float) -> np.ndarray:
        """float (size,): `rare_first_weights` of the token counts of the corpus; 0 for the unknown token.

        Predicting the unknown token teaches nothing, since it replaces many words.
        """
        if exponent not in self._weights:
            counts, unknown = self.corpus.counts(), self.corpus.tokenizer_info["unk_id"]
            counts = np.pad(counts, (0, self.size - len(counts)))
            if unknown is not None:
                counts[unknown] = 0
            self._weights[exponent] = rare_first_weights(counts, exponent)
        return self._weights[exponent]


@dataclasses.dataclass(frozen=True)
class MaskableRows:
    """Rows of a batch, as a masking rule is given them.

    Args:
        token_ids: int32 (b, s). The rule replaces tokens in place.
        lengths: int (b,), number of tokens in each row, including special tokens.
        maskable: bool (b, s), False at padding and at tokens that no rule may mask.
        first: bool (b, s), True at the first token of each row, or of each sequence of a packed row.
        num_slots: p, the maximum number of predictions per row.
        vocabulary: a `MaskingVocabulary`.
        places: function that returns the positions of the tokens in `corpus.tokens`, int (b, s), -1 at special tokens
            and padding; or None if they are unknown.
    """

    token_ids: np.ndarray
    lengths: np.ndarray
    maskable: np.ndarray
    first: np.ndarray
    num_slots: int
    vocabulary: MaskingVocabulary
    places: Callable[[], np.ndarray | None] = lambda: None

    @functools.cached_property
    def text(self) -> np.ndarray:
        """bool (b, s): the maskable tokens that are not special."""
        text = self.maskable.copy()
        for special in self.vocabulary.special_ids:
            text &= self.token_ids != special
        return text


class Noise:
    """Base class of masking rules: which tokens of a row are predicted, and what replaces them in the input.

    A rule of your own implements `num_slots` and `choose`, and `choice_draws` if it needs random numbers:

        class EveryThird(Noise):
            def num_slots(self, length, num_special):
                return -(-length // 3)

            def choose(self, rows, draws):
                chosen = rows.text & (np.arange(rows.text.shape[1]) % 3 == 0)
                return positions_of(chosen, rows.num_slots)

    Randomness comes in raw 32-bit draws, a fixed number per row, so that any row of a run can be made at any time. The
    chosen tokens become the mask with probability `shares[0]`, are kept with probability `shares[1]`, and otherwise
    become a random token from id `random_from` on. A rule that replaces tokens differently also overrides `num_draws`
    and `__call__`.
    """

    shares: tuple[float, float] = (0.8, 0.1)
    random_from: int = 0

    def for_corpus(self, corpus) -> "Noise":
        """The rule for a corpus. Rules that refer to a corpus check it here."""
        return self

    def num_slots(self, length: int, num_special: int) -> int:
        """Maximum number of predictions in a row of `length` tokens, of which at least `num_special` are special."""
        raise NotImplementedError

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        """Positions of the tokens to predict, int32 (b, p), ascending; -1 in unused slots.

        Args:
            draws: uint32 (b, at least `choice_draws`).
        """
        raise NotImplementedError

    def choice_draws(self, length: int, num_slots: int) -> int:
        """Number of 32-bit draws per row that `choose` needs."""
        return 0

    def num_draws(self, length: int, num_slots: int) -> int:
        """Number of 32-bit draws per row: to choose positions, then one for each slot."""
        return self.choice_draws(length, num_slots) + num_slots

    def __call__(self, rows: MaskableRows, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Replaces tokens of `rows.token_ids` in place.

        Args:
            draws: uint32 (b, at least `num_draws`).

        Returns: positions and targets (the original tokens; 0 in unused slots), int32 (b, p).
        """
        positions = self.choose(rows, draws)
        first = self.choice_draws(rows.token_ids.shape[1], rows.num_slots)
        return positions, self.replace(rows, positions, draws[:, first : first + rows.num_slots])

    def replace(self, rows: MaskableRows, positions: np.ndarray, draws: np.ndarray, further=None) -> np.ndarray:
        """Replaces the tokens at `positions` in place by `replace_tokens`, and returns the targets."""
        vocabulary = rows.vocabulary
        kinds = vocabulary.mask_id, vocabulary.size, self.shares, self.random_from
        return replace_tokens(rows.token_ids, positions, draws, *kinds, further)

    def settings(self) -> dict:
        """The settings of the rule, JSON-serialisable, for the record of a run."""
        values = dataclasses.asdict(self) if dataclasses.is_dataclass(self) else vars(self)
        return {"class": type(self).__name__, **values}


def check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise ValueError(f"The masking rate must be above 0 and below 1. Received: {rate}.")


def check_shares(shares: tuple[float, float]) -> None:
    if len(shares) != 2 or not (0 <= shares[0] <= 1 and 0 <= shares[1] <= 1 + 1e-9 - shares[0]):
        raise ValueError(f"`shares` must be two non-negative numbers with a sum of at most 1. Received: {shares}.")


def albert_word_starts(tokens: list[str]) -> np.ndarray:
    """Pieces that begin a word by ALBERT's rule for SentencePiece, bool (vocabulary,).

    A piece begins a word if it starts with "▁" or "<", is a single punctuation mark, or contains anything but letters
    a-z and punctuation, which excludes the apostrophe:
    "ing", "s", "..." -> False; ",", "9", "é", "'s" -> True
    """
    punctuation = set('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
    plain = punctuation | set("abcdefghijklmnopqrstuvwxyz") | set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return np.array(
        [
            token[:1] in ("▁", "<") or (len(token) == 1 and token in punctuation) or not plain >= set(token)
            for token in tokens
        ]
    )


def rare_first_weights(counts: np.ndarray, exponent: float = 0.5) -> np.ndarray:
    """Weights max(count, 1) ** -exponent for XLM's choice of tokens; 0 for tokens that never occur (special tokens).

    counts 100, 4, 0, exponent 0.5 -> 0.1, 0.5, 0
    """
    return np.where(counts > 0, np.maximum(counts, 1.0) ** -exponent, 0.0)

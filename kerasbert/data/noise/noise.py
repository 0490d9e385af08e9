"""The base class of masking rules, and the rows and vocabulary that a rule receives."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .corruption import replace_tokens


class MaskingVocabulary:
    """Properties of the vocabulary that masking rules use.

    Args:
        mask_id: id of the mask token.
        size: number of token ids.
        special_ids: ids of the special tokens that rows contain.
        corpus: the `Corpus` that provides word starts and token counts when a rule needs them.
        word_starts: bool (size,), which overrides the word starts of the corpus.
    """

    def __init__(self, mask_id: int, size: int, special_ids: tuple[int, ...] = (), corpus=None, word_starts=None):
        self.mask_id, self.size, self.special_ids = mask_id, size, tuple(special_ids)
        self.corpus = corpus
        self._weights: dict[float, np.ndarray] = {}
        self._is_given = word_starts is not None
        if self._is_given:
            self.word_starts = self.albert_word_starts = word_starts

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """bool (size,), True for tokens that begin a word."""
        return self.corpus.word_starts

    @functools.cached_property
    def albert_word_starts(self) -> np.ndarray:
        """bool (size,), True for tokens that begin a word by ALBERT's rule (see the function `albert_word_starts`)."""
        tokenizer = self.corpus.tokenizer()
        unigram = tokenizer.content["model"]["type"] == "Unigram"
        return albert_word_starts(tokenizer.tokens) if unigram else self.word_starts

    @functools.cached_property
    def separators(self) -> np.ndarray:
        """Ids of special tokens behind which another text may begin, int32."""
        return self._role_ids("sep", "eos", "pad")

    @functools.cached_property
    def _special(self) -> np.ndarray:
        return self._role_ids("bos", "eos", "sep", "pad", "cls", "mask")

    def _role_ids(self, *roles: str) -> np.ndarray:
        info = getattr(self.corpus, "tokenizer_info", None) or {}
        ids = {info.get(f"{role}_id") for role in roles} - {None}
        return np.array(sorted(ids), dtype=np.int32)

    def word_starts_of(self, rows: "MaskableRows") -> np.ndarray:
        """bool (b, s), True at tokens of rows that begin a word. No word crosses a special token or a border."""
        borders = rows.borders.copy()
        borders[:, 1:] |= np.isin(rows.token_ids[:, :-1], self._special)
        lines = None if self._boundaries is None or self._boundaries.marks_lines else rows.line_starts()
        if lines is not None:
            borders |= lines
        if self._boundaries is None:
            return self.word_starts.take(rows.token_ids) | borders
        return self._boundaries(rows.token_ids, borders)

    def albert_word_starts_of(self, rows: "MaskableRows") -> np.ndarray:
        """bool (b, s), like `word_starts_of`, with ALBERT's rule for SentencePiece."""
        if self._is_given or self.corpus.tokenizer().content["model"]["type"] != "Unigram":
            return rows.word_starts
        return self.albert_word_starts.take(rows.token_ids) | (
            rows.word_starts & ~self.word_starts.take(rows.token_ids)
        )

    @functools.cached_property
    def _boundaries(self):
        """The `WordBoundaries` of the corpus's tokenizer, or None if the word starts are given."""
        return None if self._is_given else self.corpus.tokenizer().word_boundaries

    def rare_first_weights(self, exponent: float) -> np.ndarray:
        """float (size,), sampling weights of the tokens (see the function `rare_first_weights`).

        The weight of the unknown token is 0, because it stands for many different words.
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
    """The rows of a batch that a masking rule receives.

    Args:
        token_ids: int32 (b, s), which the rule changes in place.
        lengths: int (b,), number of tokens in each row, including special tokens.
        maskable: bool (b, s), False at padding, and at tokens that no rule may mask.
        first: bool (b, s), True at the first token of each row, or of each sequence in packed rows.
        num_slots: p, the maximum number of predictions per row.
        vocabulary: a `MaskingVocabulary`.
        places: a function that returns the position of every token in `corpus.tokens`, int (b, s), -1 at special tokens
            and padding, or None if these positions are not known.
        segments: int (b, s), the number of the text that each token belongs to, or None if a row has one text.
        line_starts: a function that returns where lines of the corpus begin, bool (b, s), or None if it is not known.
    """

    token_ids: np.ndarray
    lengths: np.ndarray
    maskable: np.ndarray
    first: np.ndarray
    num_slots: int
    vocabulary: MaskingVocabulary
    places: Callable[[], np.ndarray | None] = lambda: None
    segments: np.ndarray | None = None
    line_starts: Callable[[], np.ndarray | None] = lambda: None

    @functools.cached_property
    def borders(self) -> np.ndarray:
        """bool (b, s), True at tokens that begin a text. No word, n-gram or span crosses them."""
        borders = np.broadcast_to(self.first, self.token_ids.shape).copy()
        if self.segments is not None:
            borders[:, 1:] |= np.diff(self.segments, axis=1) != 0
        borders[:, 1:] |= np.isin(self.token_ids[:, :-1], self.vocabulary.separators)
        return borders

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """bool (b, s), True at tokens that begin a word. Read it before tokens are replaced."""
        return self.vocabulary.word_starts_of(self)

    @functools.cached_property
    def text(self) -> np.ndarray:
        """bool (b, s), True at maskable tokens that are not special tokens."""
        text = self.maskable.copy()
        for special in self.vocabulary.special_ids:
            text &= self.token_ids != special
        return text


class Noise:
    """Base class of masking rules, which select the tokens to predict and replace them in the input.

    To write a rule, implement `num_slots` and `choose`, and `choice_draws` if the rule needs random numbers:

        class EveryThird(Noise):
            def num_slots(self, length, num_special):
                return -(-length // 3)

            def choose(self, rows, draws):
                chosen = rows.text & (np.arange(rows.text.shape[1]) % 3 == 0)
                return positions_of(chosen, rows.num_slots)

    Rules receive their random numbers as 32-bit integers ("draws"), a fixed number per row, so that every row of a run
    can be computed independently. A selected token becomes the mask token with probability `shares[0]`, is kept with
    probability `shares[1]`, and otherwise becomes a random token whose id is at least `random_from`. A rule that
    replaces tokens in another way overrides `num_draws` and `__call__`, too.
    """

    shares: tuple[float, float] = (0.8, 0.1)
    random_from: int = 0
    whole_batch = False  # whether a row depends on the other rows of its update

    def at(self, progress: float) -> "Noise":
        """Returns the rule to use at a point of the run. Rules that change during the run override this method.

        Args:
            progress: the point, from 0 at the start of the run to 1 at its end.
        """
        return self

    def for_corpus(self, corpus: Any) -> "Noise":
        """Returns the rule to use with a corpus. Rules whose arguments depend on the corpus override this method."""
        return self

    def num_slots(self, length: int, num_special: int) -> int:
        """Maximum number of predictions in a row of `length` tokens, of which at least `num_special` are special."""
        raise NotImplementedError

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        """Selects the tokens to predict.

        Args:
            rows: the `MaskableRows`.
            draws: random integers, uint32 (b, n), where n is at least `choice_draws`.

        Returns: their positions, int32 (b, p), ascending, -1 in unused slots.
        """
        raise NotImplementedError

    def choice_draws(self, length: int, num_slots: int) -> int:
        """Number of draws per row that `choose` needs."""
        return 0

    def num_draws(self, length: int, num_slots: int) -> int:
        """Number of draws per row: first those for `choose`, then one for each slot."""
        return self.choice_draws(length, num_slots) + num_slots

    def __call__(self, rows: MaskableRows, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Selects the tokens to predict and replaces them in `rows.token_ids`, in place.

        Args:
            rows: the `MaskableRows`.
            draws: random integers, uint32 (b, n), where n is at least `num_draws`.

        Returns: the positions, -1 in unused slots, and the original tokens, 0 in unused slots. Both int32 (b, p).
        """
        positions = self.choose(rows, draws)
        first = self.choice_draws(rows.token_ids.shape[1], rows.num_slots)
        return positions, self.replace(rows, positions, draws[:, first : first + rows.num_slots])

    def replace(self, rows: MaskableRows, positions: np.ndarray, draws: np.ndarray, further: Any = None) -> np.ndarray:
        """Calls `replace_tokens` on `rows.token_ids`, with `further` as its `random_draws`, and returns its result."""
        vocabulary = rows.vocabulary
        kinds = vocabulary.mask_id, vocabulary.size, self.shares, self.random_from
        return replace_tokens(rows.token_ids, positions, draws, *kinds, further)

    def settings(self) -> dict:
        """The settings of the rule, as a dict that JSON can represent. The dict is stored with a run."""
        values = dataclasses.asdict(self) if dataclasses.is_dataclass(self) else vars(self)
        return {"class": type(self).__name__, **values}


def check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise ValueError(f"The masking rate must be above 0 and below 1. Received: {rate}.")


def check_shares(shares: tuple[float, float]) -> None:
    if len(shares) != 2 or not (0 <= shares[0] <= 1 and 0 <= shares[1] <= 1 + 1e-9 - shares[0]):
        raise ValueError(f"`shares` must be two non-negative numbers with a sum of at most 1. Received: {shares}.")


def albert_word_starts(tokens: list[str]) -> np.ndarray:
    """bool (vocabulary_size,), True for tokens that begin a word by ALBERT's rule for SentencePiece.

    A token begins a word if it starts with "▁" or "<", is a single punctuation mark, or contains a character that is
    neither a letter a-z nor punctuation. The apostrophe does not count as punctuation.

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
    """Computes the weights with which XLM samples tokens: count ** -exponent, or 0 if the count is 0.

    counts 100, 4, 0, exponent 0.5 -> 0.1, 0.5, 0
    """
    return np.where(counts > 0, np.maximum(counts, 1.0) ** -exponent, 0.0)

"""The unsupervised objectives of T5 (Raffel et al. 2019, arXiv 1910.10683, section 3.3)."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from ..corpus.corpus import Corpus
from ..tokenizers.tokenizer import Tokenizer
from .span_corruption import (
    Rows,
    kept,
    masked_or_random,
    noise_counts,
    random_ends,
    random_spans,
    random_tokens,
    shuffled_noise,
    span_draws,
    spans_replaced,
)


@dataclass(frozen=True)
class DenoisingObjective:
    """Specifies which tokens are noise, and how the noise appears in inputs and targets.

    Args:
        noise: the noise tokens: "spans", "tokens" (each independently), "end" (all tokens after a random position) or
            "all".
        inputs: what replaces the noise in the inputs: "sentinels" (one per span), "mask" (a mask token per noise
            token), "mask_or_random" (the mask or a random token), "nothing" (noise is left out), or "shuffled" (the
            noise tokens in random order).
        targets: "noise" (the noise tokens), "sentinels" (the same with a sentinel for each span of kept tokens), or
            "text" (the original text).
    """

    noise: str
    inputs: str
    targets: str


OBJECTIVES = {
    "prefix_lm": DenoisingObjective("end", "nothing", "noise"),
    "lm": DenoisingObjective("all", "nothing", "text"),
    "bert": DenoisingObjective("tokens", "mask_or_random", "text"),
    "mass": DenoisingObjective("tokens", "mask", "text"),
    "deshuffling": DenoisingObjective("all", "shuffled", "text"),
    "replace_spans": DenoisingObjective("tokens", "sentinels", "sentinels"),
    "drop_tokens": DenoisingObjective("tokens", "nothing", "noise"),
    "random_spans": DenoisingObjective("spans", "sentinels", "sentinels"),
}


@dataclass(frozen=True)
class Denoising:
    """One of T5's unsupervised objectives, with its parameters.

    Args:
        objective: one of `OBJECTIVES`: "random_spans", "replace_spans", "drop_tokens", "bert", "mass", "deshuffling",
            "prefix_lm", or "lm", which has no inputs.
        rate: share of noise tokens.
        mean_span: mean length of random spans, in tokens.
        roll: whether random spans are rotated, so that a text may begin with noise and end with kept tokens.
        sentinels: ids of the sentinels, in order. The first is also used as the mask token. Ids beyond the vocabulary
            are allowed, but the model must have embeddings for them. Default: <extra_id_0>, <extra_id_1>, ... of the
            tokenizer.
        vocabulary: (first, last + 1), the range of ids of random tokens. Default: all ids after the special tokens at
            the beginning of the vocabulary.

    Raises:
        ValueError: if `objective` is unknown, or `rate` or `mean_span` is out of range. For a corpus, if the vocabulary
            has no sentinels.
    """

    objective: str = "random_spans"
    rate: float = 0.15
    mean_span: float = 3.0
    roll: bool = False
    sentinels: tuple[int, ...] | None = None
    vocabulary: tuple[int, int] | None = None

    starts_with_end = False  # decoders start with the padding token
    num_first = 0  # number of special tokens before texts

    def __post_init__(self):
        if self.objective not in OBJECTIVES:
            raise ValueError(f"`objective` must be one of {', '.join(OBJECTIVES)}. Received: {self.objective!r}.")
        if not 0 < self.rate < 1:
            raise ValueError(
                f"`rate` must be above 0 and below 1. Received: {self.rate}. For noise in all tokens, use the "
                "objectives "
                "deshuffling or lm."
            )
        if self.mean_span < 1:
            raise ValueError(f"`mean_span` must be at least 1. Received: {self.mean_span}.")
        if self.sentinels is not None:
            object.__setattr__(self, "sentinels", tuple(int(number) for number in self.sentinels))

    def for_corpus(self, corpus: Corpus) -> "Denoising":
        """Returns the same objective with defaults for `sentinels` and `vocabulary` from the tokenizer of a corpus."""
        info, sentinels = corpus.tokenizer_info, self.sentinels
        if sentinels is None:
            sentinels = tuple(sentinel_ids(corpus.tokenizer()).tolist()) if self.needs_sentinels else ()
        if (self.needs_sentinels and not len(sentinels)) or min(sentinels, default=0) < 0:
            raise ValueError(
                f"`sentinels` must be at least one id, and ids must not be negative. Received: {list(sentinels)[:9]}."
            )
        leading = {info[role] for role in info if role.endswith("_id")}
        first = next(number for number in range(len(leading) + 1) if number not in leading)
        vocabulary = self.vocabulary or (first, info["vocabulary_size"])
        return dataclasses.replace(self, sentinels=sentinels, vocabulary=vocabulary)

    @property
    def parts(self) -> DenoisingObjective:
        """The entry of `OBJECTIVES`, which specifies the noise tokens and how they appear in inputs and targets."""
        return OBJECTIVES[self.objective]

    @property
    def needs_sentinels(self) -> bool:
        return self.parts.inputs in ("sentinels", "mask", "mask_or_random")

    @property
    def has_inputs(self) -> bool:
        """Whether the objective has inputs. A plain language model has only targets."""
        return self.objective != "lm"

    def recipe(self) -> dict:
        """Returns what the rows of a run depend on, for JSON."""
        return {
            **{name: getattr(self, name) for name in ("rate", "mean_span", "roll")},
            "sentinels": list(self.sentinels or ()),
        }

    def num_draws(self, width: int) -> int:
        """Number of 32-bit random integers needed per row."""
        return self._shape_draws(width) + (width if self.parts.inputs in ("mask_or_random", "shuffled") else 0) + 2

    def __call__(self, token_ids: np.ndarray, lengths: np.ndarray, draws: np.ndarray) -> tuple[Rows, Rows]:
        """Corrupts rows of text.

        Args:
            token_ids: int32 (b, s), padded on the right.
            lengths: int (b,), number of tokens in each row.
            draws: random integers, uint32 (b, n), where n is at least `num_draws(s)`.

        Returns: inputs and targets, each as (token ids, lengths), without end tokens.
        """
        width = token_ids.shape[1]
        real = np.arange(width) < lengths[:, None]
        noise = self._noise(lengths, width, draws)
        further = draws[:, self._shape_draws(width) :]
        kind = self.parts.inputs
        if kind == "sentinels":
            inputs = spans_replaced(token_ids, lengths, noise, self._sentinels)
        elif kind == "nothing":
            inputs = kept(token_ids, real & ~noise)
        elif kind == "mask":
            inputs = np.where(noise, np.int32(self.sentinels[0]), token_ids), lengths
        elif kind == "shuffled":
            inputs = shuffled_noise(token_ids, noise, further), lengths
        else:
            inputs = masked_or_random(token_ids, noise, self.sentinels[0], self.vocabulary, further), lengths
        if self.parts.targets == "sentinels":
            return inputs, spans_replaced(token_ids, lengths, real & ~noise, self._sentinels)
        return inputs, (token_ids, lengths) if self.parts.targets == "text" else kept(token_ids, noise)

    @property
    def _sentinels(self) -> np.ndarray:
        return np.asarray(self.sentinels, dtype=np.int32)

    def _noise(self, lengths: np.ndarray, width: int, draws: np.ndarray) -> np.ndarray:
        kind = self.parts.noise
        if kind == "spans":
            return random_spans(lengths, width, self.rate, self.mean_span, draws[:, : span_draws(width)], self.roll)
        if kind == "tokens":
            return random_tokens(lengths, width, self.rate, draws)
        return random_ends(lengths, width, draws) if kind == "end" else np.arange(width) < lengths[:, None]

    def _shape_draws(self, width: int) -> int:
        return {"spans": span_draws(width), "tokens": width, "end": 1, "all": 0}[self.parts.noise]

    def most(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Maximum numbers of tokens in the inputs, in the targets, and in both together, without end tokens.

        If each token is noise independently, any number of noise tokens is possible. The result then allows for six
        standard deviations above the mean.

        Args:
            lengths: int (n,), numbers of tokens of texts.
        """
        if self.parts.noise == "spans":
            noise, spans = noise_counts(lengths, self.rate, self.mean_span)
            shorter = np.maximum(lengths, 2) - lengths
            inputs, targets = lengths - noise + spans + self.roll, noise + spans - shorter + self.roll
            return inputs, targets, inputs + targets
        if self.parts.targets == "text":
            inputs = lengths * (self.has_inputs)
            return inputs, lengths, inputs + lengths
        if self.parts.noise == "end":
            return lengths - 1, lengths - 1, lengths
        spread = 6 * np.sqrt(lengths * self.rate * (1 - self.rate))
        noise = np.minimum(np.ceil(lengths * self.rate + spread), lengths).astype(np.int64)
        if self.parts.targets == "noise":
            return lengths, noise, lengths
        runs = np.ceil(lengths * self.rate * (1 - self.rate)).astype(np.int64)
        return lengths, noise + runs + 1, np.ceil(lengths + 2 * runs + spread).astype(np.int64) + 1


def sentinel_ids(tokenizer: Tokenizer) -> np.ndarray:
    """The ids of the sentinels <extra_id_0>, <extra_id_1>, ... of a tokenizer, int32 (n,).

    Raises:
        ValueError: the vocabulary has no sentinels.
    """
    numbers = {token: number for number, token in enumerate(tokenizer.tokens) if token.startswith("<extra_id_")}
    ids = []
    while (token := f"<extra_id_{len(ids)}>") in numbers:
        ids.append(numbers[token])
    if not ids:
        raise ValueError(
            "Span corruption needs the sentinels <extra_id_0>, <extra_id_1>, ... in the vocabulary. Received: a "
            'vocabulary without them. Train a tokenizer with family="t5", or pass ids: sentinels=[id, ...].'
        )
    return np.array(ids, dtype=np.int32)

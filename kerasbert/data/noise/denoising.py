"""Noise for encoder-decoders: noise masks, and renderings of inputs and targets, vectorised over the batch.

Each of the eight unsupervised objectives of T5 (Raffel et al. 2019, arXiv 1910.10683, section 3.3) combines a noise
shape, a rendering of the inputs and a rendering of the targets: see `OBJECTIVES`. All rows, given and returned, are
padded on the right.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from ..corpus.corpus import Corpus
from ..tokenizers.tokenizer import Tokenizer
from .corruption import choose_tokens, sort_keys

Rows = tuple[np.ndarray, np.ndarray]  # token ids, int32 (b, s), and lengths (b,)

# === Lengths ===


def noise_counts(lengths: np.ndarray, rate: float, mean_span: float) -> tuple[np.ndarray, np.ndarray]:
    """Number of noise tokens per row, and of spans that they form; both are at least 1, and at least one token is kept.

    Rounded in single precision, exact halves to even, like the masks of the reference implementation.
    length 32, rate 0.25, mean_span 2 -> 8, 4
    """
    lengths = np.maximum(lengths, 2)
    noise = np.rint(lengths.astype(np.float32) * np.float32(rate)).astype(np.int64)
    noise = np.clip(noise, 1, lengths - 1)
    spans = np.rint(noise.astype(np.float32) / np.float32(mean_span)).astype(np.int64)
    return noise, np.clip(spans, 1, np.minimum(noise, lengths - noise))


def span_corruption_lengths(inputs_length: int, rate: float = 0.15, mean_span: float = 3.0) -> tuple[int, int]:
    """Number of text tokens whose corruption fills `inputs_length`, and the target length, both including an end token.

    Rounded in double precision, like the helper of the reference implementation. 512, 0.15, 3 -> 568, 114
    """

    def lengths_of(tokens: int) -> tuple[int, int]:
        noise = round(tokens * rate)
        spans = round(noise / mean_span)
        return tokens - noise + spans + 1, noise + spans + 1

    tokens = inputs_length - 1  # always fits: every span hides at least one token
    while lengths_of(tokens + 1)[0] <= inputs_length:
        tokens += 1
    targets = lengths_of(tokens)[1]
    if rate == 0.5 and targets > inputs_length:  # with half the tokens as noise, targets must not be longer than inputs
        tokens, targets = tokens - 1, targets - 1
    return tokens, targets


# === Shapes ===


def random_spans(
    lengths: np.ndarray, width: int, rate: float, mean_span: float, draws: np.ndarray, roll: bool = False
) -> np.ndarray:
    """Spans of noise, bool (b, width): a row begins with kept tokens and ends with noise.

    Noise and kept tokens are split into the same number of parts, with every split equally likely. A row of one token
    has no noise.

    Args:
        lengths: int (b,).
        rate: share of noise tokens. 0 still makes one token noise, and 1 still keeps one.
        mean_span: mean length of a span.
        draws: uint32 (b, at least `span_draws(width)`).
        roll: rotate the row by a random number of positions, so that noise can occur anywhere.
    """
    inner = max(width, 2)
    noise, spans = noise_counts(lengths, rate, mean_span)
    totals = np.maximum(lengths, 2)
    half = span_draws(inner) // 2
    kept = _random_parts(totals - noise, spans, draws[:, :half])
    hidden = _random_parts(noise, spans, draws[:, half : 2 * half])
    most = kept.shape[1]
    sizes = np.empty((len(totals), 2 * most + 1), dtype=np.int64)
    sizes[:, 0:-1:2], sizes[:, 1::2], sizes[:, -1] = kept, hidden, inner - totals
    flags = np.tile(np.arange(2 * most + 1) % 2 == 1, len(totals))
    mask = np.repeat(flags, sizes.reshape(-1)).reshape(len(totals), inner)[:, :width]
    if roll:
        offset = (draws[:, -1].astype(np.uint64) * np.maximum(lengths, 1).astype(np.uint64) >> np.uint64(32)).astype(
            int
        )
        places = (np.arange(width) - offset[:, None]) % np.maximum(lengths, 1)[:, None]
        mask = np.take_along_axis(mask, places, axis=1)
    if (lengths < 2).any() or roll:
        mask = mask & (np.arange(width) < lengths[:, None])
    return mask


def span_draws(width: int) -> int:
    """Number of 32-bit draws that `random_spans` needs per row."""
    return 2 * (-(-max(width, 2) // 2) + 1) + 1


def _random_parts(totals: np.ndarray, parts: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Sizes of non-empty parts that add up to the totals, int64 (b, most parts); 0 after a row's last part."""
    most = int(parts.max(initial=1))
    ends = np.empty((len(totals), most + 1), dtype=np.int64)
    ends[:, 0], ends[:, 1:] = 0, totals[:, None]
    if most > 1:
        places = int(totals.max()) - 1
        inner = choose_tokens(np.arange(places) < totals[:, None] - 1, parts - 1, most - 1, draws)
        np.copyto(ends[:, 1:-1], inner + 1, where=inner >= 0)
    return np.diff(ends, axis=1)


def random_tokens(lengths: np.ndarray, width: int, rate: float, draws: np.ndarray) -> np.ndarray:
    """Each token is noise independently with probability `rate`, bool (b, width). Draws: `width` per row.

    A row may have no noise.
    """
    return (draws[:, :width] < min(round(rate * 2**32), 2**32 - 1)) & (np.arange(width) < lengths[:, None])


def random_ends(lengths: np.ndarray, width: int, draws: np.ndarray) -> np.ndarray:
    """All tokens after the first n are noise, n uniform in 1...length - 1, bool (b, width). Draws: one per row."""
    split = 1 + (draws[:, 0].astype(np.uint64) * np.maximum(lengths - 1, 0).astype(np.uint64) >> np.uint64(32))
    columns = np.arange(width)
    return (columns >= split[:, None].astype(np.int64)) & (columns < lengths[:, None])


# === Renderings ===


def kept(token_ids: np.ndarray, keep: np.ndarray) -> Rows:
    """The tokens where `keep` is True, and their number per row.

    10...15, keep F F T T F T -> 12 13 15
    """
    counts = np.count_nonzero(keep, axis=1)
    rows = np.zeros((len(keep), int(counts.max(initial=0))), dtype=np.int32)
    rows[np.arange(rows.shape[1]) < counts[:, None]] = token_ids[keep]
    return rows, counts


def spans_replaced(token_ids: np.ndarray, lengths: np.ndarray, noise: np.ndarray, sentinels: np.ndarray) -> Rows:
    """Replaces each run of noise by one sentinel: the first run of a row by the first sentinel, and so on.

    10...15, noise T T F F T F, sentinels 999 998 -> 999 12 13 998 15

    Args:
        sentinels: int (n,). Runs beyond the last sentinel use the ids below it, as in the reference implementation.
    """
    begins = noise.copy()
    begins[:, 1:] &= ~noise[:, :-1]
    flat = np.flatnonzero(begins)
    counts = np.count_nonzero(begins, axis=1)
    number = np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)
    last = len(sentinels) - 1
    rendered = np.array(token_ids, dtype=np.int32)
    rendered.reshape(-1)[flat] = np.asarray(sentinels)[np.minimum(number, last)] - np.maximum(number - last, 0)
    real = np.arange(token_ids.shape[1]) < lengths[:, None]
    return kept(rendered, real & (~noise | begins))


def shuffled_noise(token_ids: np.ndarray, noise: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Puts the noise tokens of each row in random order. Draws: half of `width` (rounded up) plus one per row."""
    keys, low, scramble = sort_keys(token_ids.shape[1], draws)
    np.copyto(keys, np.uint32(2**32 - 1), where=~noise)
    keys.sort(axis=1)
    rendered = np.array(token_ids, dtype=np.int32)
    first = np.arange(token_ids.shape[1]) < np.count_nonzero(noise, axis=1)[:, None]
    order = ((keys & low) ^ scramble).astype(np.int64)
    order[~first] = 0
    rendered[noise] = np.take_along_axis(token_ids, order, axis=1)[first]
    return rendered


def masked_or_random(
    token_ids: np.ndarray, noise: np.ndarray, mask_id: int, vocabulary: tuple[int, int], draws: np.ndarray, share=0.9
) -> np.ndarray:
    """Replaces each noise token by the mask with probability `share`, otherwise by a random id from a range.

    Draws: `width` per row.

    Args:
        vocabulary: the first id of the range, and the id after the last one.
    """
    draws = draws[:, : token_ids.shape[1]]
    limit = round(share * 2**32)
    excess = np.maximum(draws, np.uint32(min(limit, 2**32 - 1))).astype(np.uint64) - np.uint64(limit)
    low, high = vocabulary
    random = low + (excess * np.uint64(high - low) // np.uint64(max(1, 2**32 - limit))).astype(np.int32)
    return np.where(noise, np.where(draws < limit, np.int32(mask_id), random), token_ids).astype(np.int32)


# === Objectives ===


@dataclass(frozen=True)
class Objective:
    """A noise shape and how it is rendered.

    Args:
        noise: "spans", "tokens" (each independently), "end" (all tokens after a random position) or "all".
        inputs: rendering of the noise: "sentinels" (one per run), "mask" (one per token), "mask_or_random", "nothing"
            or "shuffled".
        targets: "sentinels" (the noise, with kept runs replaced by sentinels), "noise" or "text".
    """

    noise: str
    inputs: str
    targets: str


OBJECTIVES = {
    "prefix_lm": Objective("end", "nothing", "noise"),
    "lm": Objective("all", "nothing", "text"),
    "bert": Objective("tokens", "mask_or_random", "text"),
    "mass": Objective("tokens", "mask", "text"),
    "deshuffling": Objective("all", "shuffled", "text"),
    "replace_spans": Objective("tokens", "sentinels", "sentinels"),
    "drop_tokens": Objective("tokens", "nothing", "noise"),
    "random_spans": Objective("spans", "sentinels", "sentinels"),
}


@dataclass(frozen=True)
class Denoising:
    """A denoising objective with its parameters.

    Args:
        objective: one of `OBJECTIVES`: "random_spans", "replace_spans", "drop_tokens", "bert", "mass", "deshuffling",
            "prefix_lm", or "lm", which has no inputs.
        rate: share of noise tokens.
        mean_span: mean length of random spans.
        roll: rotate random spans, so that a text may begin with noise and end with kept tokens.
        sentinels: ids, first sentinel first; the first is also used as the mask. Ids beyond the vocabulary are allowed
            if the model has embeddings for them. Default: <extra_id_0>, <extra_id_1>, ... of the tokenizer.
        vocabulary: random tokens are drawn from [first, last). Default: all but the leading special tokens.
    """

    objective: str = "random_spans"
    rate: float = 0.15
    mean_span: float = 3.0
    roll: bool = False
    sentinels: tuple[int, ...] | None = None
    vocabulary: tuple[int, int] | None = None

    def __post_init__(self):
        if self.objective not in OBJECTIVES:
            raise ValueError(f"`objective` must be one of {', '.join(OBJECTIVES)}. Received: {self.objective!r}.")
        if not 0 < self.rate < 1:
            raise ValueError(
                f"`rate` must be between 0 and 1. Received: {self.rate}. To make all tokens noise, use deshuffling or "
                "lm."
            )
        if self.mean_span < 1:
            raise ValueError(f"`mean_span` must be at least 1. Received: {self.mean_span}.")
        if self.sentinels is not None:
            object.__setattr__(self, "sentinels", tuple(int(number) for number in self.sentinels))

    def for_corpus(self, corpus: Corpus) -> "Denoising":
        """The same objective with the sentinels and the vocabulary of a corpus, where they are not given."""
        info, sentinels = corpus.tokenizer_info, self.sentinels
        if sentinels is None:
            sentinels = tuple(sentinel_ids(corpus.tokenizer()).tolist()) if self.needs_sentinels else ()
        if (self.needs_sentinels and not len(sentinels)) or min(sentinels, default=0) < 0:
            raise ValueError(
                f"`sentinels` must contain at least one id, and no negative ones. Received: {list(sentinels)[:9]}."
            )
        leading = {info[role] for role in info if role.endswith("_id")}
        first = next(number for number in range(len(leading) + 1) if number not in leading)
        vocabulary = self.vocabulary or (first, info["vocabulary_size"])
        return dataclasses.replace(self, sentinels=sentinels, vocabulary=vocabulary)

    @property
    def parts(self) -> Objective:
        """The noise shape and the renderings."""
        return OBJECTIVES[self.objective]

    @property
    def needs_sentinels(self) -> bool:
        return self.parts.inputs in ("sentinels", "mask", "mask_or_random")

    @property
    def has_inputs(self) -> bool:
        """False for a plain language model."""
        return self.objective != "lm"

    def num_draws(self, width: int) -> int:
        """Number of 32-bit draws needed per row."""
        return self._shape_draws(width) + (width if self.parts.inputs in ("mask_or_random", "shuffled") else 0) + 2

    def __call__(self, token_ids: np.ndarray, lengths: np.ndarray, draws: np.ndarray) -> tuple[Rows, Rows]:
        """Inputs and targets for int32 `token_ids` (b, s), without end tokens."""
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
        """Maximum number of tokens in the inputs, in the targets and in both together, without end tokens.

        Where each token is noise independently, any number is possible; the result allows for six standard deviations.
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
    """Ids of <extra_id_0>, <extra_id_1>, ..., int32.

    Raises:
        ValueError: if the vocabulary has no sentinels.
    """
    numbers = {token: number for number, token in enumerate(tokenizer.tokens) if token.startswith("<extra_id_")}
    ids = []
    while (token := f"<extra_id_{len(ids)}>") in numbers:
        ids.append(numbers[token])
    if not ids:
        raise ValueError(
            "Span corruption needs sentinels in the vocabulary: <extra_id_0>, <extra_id_1>, .... Received: a "
            'vocabulary without any. Train a tokenizer with family="t5", or pass their ids: sentinels=[id, ...].'
        )
    return np.array(ids, dtype=np.int32)

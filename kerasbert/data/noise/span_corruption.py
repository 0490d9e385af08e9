"""Noise for encoder-decoders: which tokens are noise, and how the noise appears in inputs and targets.

The functions are vectorized over the batch. All rows that they take and return are padded on the right.
"""

import numpy as np

from .corruption import choose_tokens, sort_keys

Rows = tuple[np.ndarray, np.ndarray]  # token ids, int32 (b, s), and lengths, int (b,)

# === Lengths ===


def noise_counts(lengths: np.ndarray, rate: float, mean_span: float) -> tuple[np.ndarray, np.ndarray]:
    """Computes the number of noise tokens in each row, and the number of spans that they form.

    Both are at least 1, and at least one token is kept. They are computed in single precision, and 0.5 is rounded to
    even, as in the noise masks of the reference code.

    length 32, rate 0.25, mean_span 2 -> 8, 4
    """
    lengths = np.maximum(lengths, 2)
    noise = np.rint(lengths.astype(np.float32) * np.float32(rate)).astype(np.int64)
    noise = np.clip(noise, 1, lengths - 1)
    spans = np.rint(noise.astype(np.float32) / np.float32(mean_span)).astype(np.int64)
    return noise, np.clip(spans, 1, np.minimum(noise, lengths - noise))


def span_corruption_lengths(inputs_length: int, rate: float = 0.15, mean_span: float = 3.0) -> tuple[int, int]:
    """Computes how many text tokens make inputs of `inputs_length` tokens, and the length of the targets.

    Both lengths include an end token. They are computed in double precision, as in the reference code.

    inputs_length 512, rate 0.15, mean_span 3 -> 568, 114
    """

    def lengths_of(tokens: int) -> tuple[int, int]:
        noise = round(tokens * rate)
        spans = round(noise / mean_span)
        return tokens - noise + spans + 1, noise + spans + 1

    tokens = inputs_length - 1  # always fits, because a span is replaced by one sentinel and has at least one token
    while lengths_of(tokens + 1)[0] <= inputs_length:
        tokens += 1
    targets = lengths_of(tokens)[1]
    # With half of the tokens as noise, targets must not be longer than inputs.
    if rate == 0.5 and targets > inputs_length:
        tokens, targets = tokens - 1, targets - 1
    return tokens, targets


# === Which tokens are noise ===


def random_spans(
    lengths: np.ndarray, width: int, rate: float, mean_span: float, draws: np.ndarray, roll: bool = False
) -> np.ndarray:
    """Draws random spans of noise, bool (b, width). A row begins with kept tokens and ends with noise.

    The noise tokens and the kept tokens are each divided at random into the same number of parts, and the parts
    alternate. All divisions are equally likely. A row of one token has no noise.

    Args:
        lengths: int (b,), number of tokens in each row.
        width: number of columns.
        rate: share of noise tokens. With 0, one token is noise, and with 1, one token is kept.
        mean_span: mean length of a span.
        draws: random integers, uint32 (b, at least `span_draws(width)`).
        roll: whether to rotate each row by a random number of positions, so that noise can occur anywhere.
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
    """Number of 32-bit random integers that `random_spans` needs per row."""
    return 2 * (-(-max(width, 2) // 2) + 1) + 1


def _random_parts(totals: np.ndarray, parts: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Divides each total at random into non-empty parts.

    Returns: the sizes of the parts, int64 (b, largest number of parts), 0 after the last part of a row.
    """
    most = int(parts.max(initial=1))
    ends = np.empty((len(totals), most + 1), dtype=np.int64)
    ends[:, 0], ends[:, 1:] = 0, totals[:, None]
    if most > 1:
        places = int(totals.max()) - 1
        inner = choose_tokens(np.arange(places) < totals[:, None] - 1, parts - 1, most - 1, draws)
        np.copyto(ends[:, 1:-1], inner + 1, where=inner >= 0)
    return np.diff(ends, axis=1)


def random_tokens(lengths: np.ndarray, width: int, rate: float, draws: np.ndarray) -> np.ndarray:
    """Draws noise tokens, bool (b, width): each token is noise independently with probability `rate`.

    A row may have no noise. Needs `width` draws per row.
    """
    return (draws[:, :width] < min(round(rate * 2**32), 2**32 - 1)) & (np.arange(width) < lengths[:, None])


def random_ends(lengths: np.ndarray, width: int, draws: np.ndarray) -> np.ndarray:
    """Makes the end of each row noise, bool (b, width): all tokens but the first n, with n uniform in [1, length).

    Needs one draw per row.
    """
    split = 1 + (draws[:, 0].astype(np.uint64) * np.maximum(lengths - 1, 0).astype(np.uint64) >> np.uint64(32))
    columns = np.arange(width)
    return (columns >= split[:, None].astype(np.int64)) & (columns < lengths[:, None])


# === How noise appears in inputs and targets ===


def kept(token_ids: np.ndarray, keep: np.ndarray) -> Rows:
    """Moves the tokens at which `keep` is True to the left. Also returns their number in each row.

    10...15, keep F F T T F T -> 12 13 15
    """
    counts = np.count_nonzero(keep, axis=1)
    rows = np.zeros((len(keep), int(counts.max(initial=0))), dtype=np.int32)
    rows[np.arange(rows.shape[1]) < counts[:, None]] = token_ids[keep]
    return rows, counts


def spans_replaced(token_ids: np.ndarray, lengths: np.ndarray, noise: np.ndarray, sentinels: np.ndarray) -> Rows:
    """Replaces each span of noise by one sentinel: the first span of a row by the first sentinel, and so on.

    10...15, noise T T F F T F, sentinels 999 998 -> 999 12 13 998 15

    Args:
        sentinels: int (n,). If there are more spans than sentinels, the remaining spans get the ids below the last
            sentinel, as in the reference code.
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
    """Shuffles the noise tokens of each row. Needs ceil(width / 2) + 1 draws per row."""
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
    """Replaces each noise token by the mask token with probability `share`, and otherwise by a random token.

    Needs one draw per column.

    Args:
        vocabulary: (first, last + 1), the range of ids of random tokens.
    """
    draws = draws[:, : token_ids.shape[1]]
    limit = round(share * 2**32)
    excess = np.maximum(draws, np.uint32(min(limit, 2**32 - 1))).astype(np.uint64) - np.uint64(limit)
    low, high = vocabulary
    random = low + (excess * np.uint64(high - low) // np.uint64(max(1, 2**32 - limit))).astype(np.int32)
    return np.where(noise, np.where(draws < limit, np.int32(mask_id), random), token_ids).astype(np.int32)

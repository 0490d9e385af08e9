"""Encodes texts as rows of token ids, in the template of the tokenizer."""

from collections.abc import Sequence

import numpy as np

from ..tokenizers.tokenizer import Tokenizer


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str | tuple[str, str]],
    max_length: int | None = None,
    pad_to: int | None = None,
    plain_text: bool = False,
) -> dict[str, np.ndarray]:
    """Encodes texts as model inputs, with special tokens, segments and padding from the tokenizer's template.

    Single texts that are too long are truncated at the end, and pairs as `kept_lengths` says.

    BERT, max_length 8: ("a b c d", "e f") -> [CLS] a b c [SEP] e f [SEP]

    Args:
        tokenizer: a `Tokenizer`.
        texts: list of str, or of (str, str) for pairs.
        max_length: maximum number of tokens per row, including special tokens. Default: the maximum length of the
            tokenizer, if it has one.
        pad_to: width of the rows. Default: the length of the longest row.
        plain_text: whether to treat names of special tokens in a text as ordinary text.

    Returns:
        A dict of int32 "token_ids" (b, s); int32 "lengths" (b,), or bool "padding_mask" (b, s) for a tokenizer that
        pads on the left; and int32 "segment_ids" (b, s) if the tokenizer's pairs have segments.

    Raises:
        ValueError: if `texts` is a single str, a text is neither a str nor a pair of str, or `max_length` leaves no
            space for text.

    Example:
        >>> from kerasbert.data import Tokenizer, encode_texts
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> rows = encode_texts(tokenizer, [("the cat", "it sat"), ("a dog", "it ran home")])
        >>> rows["token_ids"].shape
        (2, 8)
        >>> rows["segment_ids"]
        array([[0, 0, 0, 0, 1, 1, 1, 0],
               [0, 0, 0, 0, 1, 1, 1, 1]], dtype=int32)
    """
    if isinstance(texts, (str, bytes)):
        raise ValueError("`texts` must be a list of str or of (str, str) tuples. Received: one str. Use [text].")
    pairs = [_checked(text, number) for number, text in enumerate(texts)]
    flat = tokenizer.encode([part for pair in pairs for part in pair], add_special_tokens=False, plain_text=plain_text)
    remaining = iter(flat)
    rows = [tuple(next(remaining) for _ in pair) for pair in pairs]
    max_length = tokenizer.max_length if max_length is None else max_length
    if pad_to and (max_length is None or max_length > pad_to):
        max_length = pad_to
    info = tokenizer.info
    if max_length is not None:
        rows = [_shortened(row, max_length, info["pair" if len(row) == 2 else "single"]) for row in rows]
    rows = [never_empty(info, row) for row in rows]
    return fill_rows(info, rows, pad_to, segments=info["segments"])


def kept_lengths(length_a: np.ndarray, length_b: np.ndarray, max_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Number of tokens of A and B that are kept in a pair: the end of the longer text is dropped, and then of both.

    An odd token is kept in the text that was longer, or in B on a tie, as in the fast tokenizers of transformers.

    lengths 5 and 9, max_tokens 8 -> 4 and 4; 9 and 9, max_tokens 7 -> 3 and 4

    Args:
        length_a, length_b: int arrays of the same shape.
        max_tokens: maximum number of tokens of both together.
    """
    total = np.minimum(length_a + length_b, max_tokens)
    shorter = np.minimum(np.minimum(length_a, length_b), np.where(length_a + length_b > max_tokens, total // 2, total))
    kept_a = np.where(length_a <= length_b, shorter, total - shorter)
    return kept_a, total - kept_a


def never_empty(info: dict, row: tuple) -> tuple:
    """Adds an end token (or a padding token, if there is none) to a row that would otherwise have no tokens.

    Without this token, the row would consist of padding only, and its output would depend on the width of the batch.

    Args:
        info: the `Tokenizer.info`.
        row: one or two arrays of token ids.
    """
    if any(map(len, row)) or len(info["pair" if len(row) == 2 else "single"]) > len(row):
        return row
    token = next((info[name] for name in ("eos_id", "pad_id") if info[name] is not None), 0)
    return (np.array([token], dtype=np.int32), *row[1:])


def fill_rows(info: dict, rows: Sequence[tuple], width: int | None = None, segments: bool = False) -> dict:
    """Puts token ids into the tokenizer's templates.

    Args:
        info: the `Tokenizer.info`.
        rows: one or two arrays of token ids for each row, or () for a padding row.
        width: width of the rows. Default: the length of the longest row.
        segments: whether to return "segment_ids".

    Returns: a dict as in `encode_texts`.
    """
    templates = [None, info["single"], info["pair"]]
    totals = np.zeros(len(rows), dtype=np.int32)
    for number, row in enumerate(rows):
        if row:
            totals[number] = len(templates[len(row)]) - len(row) + sum(map(len, row))
    width = width or int(totals.max(initial=1))
    token_ids = np.full((len(rows), width), info["pad_id"] or 0, dtype=np.int32)
    segment_ids = np.zeros((len(rows), width), dtype=np.int32) if segments else None
    left = info["padding_side"] == "left"
    for number, row in enumerate(rows):  # copying slices is faster than indexing by position
        place = width - int(totals[number]) if left else 0
        for item, segment in templates[len(row)] or ():
            ids = item if item.__class__ is int else row[0] if item == "A" else row[1]
            stop = place + (1 if ids is item else len(ids))
            token_ids[number, place:stop] = ids
            if segments and segment:
                segment_ids[number, place:stop] = segment
            place = stop
    x = {"token_ids": token_ids}
    if left:
        x["padding_mask"] = np.arange(width) >= width - totals[:, None]
    else:
        x["lengths"] = totals
    if segments:
        x["segment_ids"] = segment_ids
    return x


def _checked(text: object, number: int) -> tuple[str, ...]:
    pair = (text,) if isinstance(text, str) else text
    if not isinstance(pair, (tuple, list)) or len(pair) not in (1, 2) or not all(isinstance(p, str) for p in pair):
        raise ValueError(f"Every text must be a str or a pair (str, str). Received: {text!r:.60} as text {number}.")
    return tuple(pair)


def _shortened(row: tuple, max_length: int, template: Sequence) -> tuple:
    budget = max_length - (len(template) - len(row))
    if budget < len(row):
        raise ValueError(
            f"`max_length` must leave space for text besides the special tokens. Received: {max_length}. "
            f"Use at least {len(template)}."
        )
    if len(row) == 1:
        return (row[0][:budget],)
    kept = kept_lengths(np.array(len(row[0])), np.array(len(row[1])), budget)
    return tuple(part[: int(length)] for part, length in zip(row, kept, strict=True))

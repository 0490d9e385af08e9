"""Batches of sources and targets, for encoder-decoders."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..sampling import shuffled
from ..tasks.examples import encode_texts
from ..tokenizers.tokenizer import Tokenizer
from .batches import Batches


class Seq2SeqBatches(Batches):
    """Sources with their targets, in rows of a few fixed widths; in a new order in every pass.

    x: "token_ids" (b, s), "lengths" (b,), "decoder_token_ids" (b, t), the targets shifted right by one after the start
    token, "decoder_lengths" (b,). y: the targets (b, t), with weight 1 on their tokens, including the end token.

    source [5 6 1], target [7 8], start 0, end 1 -> reads [5 6 1] and [0 7 8], predicts [7 8 1]

    Pairs of similar length form a bucket with separate widths, and a batch comes from one bucket; the last batch of a
    bucket is filled up with padding rows of weight 0. A pass begins with a batch of the widest bucket and one of the
    narrowest, so that running out of memory shows at once. Sequences that are too long lose their tail, but never their
    end token.

    Args:
        sources: texts, or lists of token ids, to which no special tokens are added.
        targets: as many texts, or lists of token ids; the end token is added where it is not the last.
        tokenizer: for texts. Sources get the special tokens of its template, targets only the end token.
        batch_size: rows per update.
        length: maximum number of tokens in a source. Default: that of the longest, or the maximum length of the
            tokenizer.
        target_length: maximum number of tokens in a target with its end token. Default: that of the longest.
        num_buckets: maximum number of different batch shapes.
        start_id: token with which a decoder starts; the config's `decoder_start_id`. Default: the tokenizer's padding,
            or 0.
        end_id: token with which a target ends; None for no token. Default: the tokenizer's end (or separator) token.
        sample_weight: one number per pair.
        epochs: number of passes over the pairs, if `steps` is not given.
        steps: number of updates in the run.
        seed: determines the orders.
        shuffle: False keeps the given order within each bucket.
        accumulation: number of items per update.
    """

    def __init__(
        self,
        sources: Sequence,
        targets: Sequence,
        tokenizer: Tokenizer | None = None,
        batch_size: int = 32,
        length: int | None = None,
        target_length: int | None = None,
        num_buckets: int = 1,
        start_id: int | None = None,
        end_id: int | str | None = "default",
        sample_weight: Any = None,
        epochs: int = 1,
        steps: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        accumulation: int = 1,
    ):
        sources, targets = list(sources), list(targets)
        if len(sources) != len(targets) or not len(sources):
            raise ValueError(
                f"There must be a target for each source, and at least one pair. Received: {len(sources)} sources, "
                f"{len(targets)} targets."
            )
        if num_buckets < 1:
            raise ValueError(f"`num_buckets` must be at least 1. Received: {num_buckets}.")
        info = {} if tokenizer is None else tokenizer.info
        if end_id == "default":
            end_id = info.get("sep_id") if info.get("eos_id") is None else info["eos_id"]
        self.pad_id = info.get("pad_id") or 0
        self.start_id = self.pad_id if start_id is None else start_id
        self._sources = sources = _Sequences(source_ids(sources, tokenizer, length), length, end_id)
        targets = [_ended(row, end_id) for row in _target_ids(targets, tokenizer)]
        self._targets = targets = _Sequences(targets, target_length, end_id)
        weights = np.ones(len(sources.lengths)) if sample_weight is None else sample_weight
        self._weights = np.asarray(weights, dtype=np.float32)
        if self._weights.shape != sources.lengths.shape:
            raise ValueError(
                f"`sample_weight` must have a number for each of the {len(sources.lengths)} pairs. Received: an array "
                f"of shape {self._weights.shape}."
            )
        self._buckets = _buckets(sources.lengths, targets.lengths, num_buckets)
        widths = np.array([[side.lengths[pairs].max() for side in (sources, targets)] for pairs in self._buckets])
        self.shapes = [tuple(map(int, shape)) for shape in np.maximum.accumulate(widths)]
        self.shuffle = shuffle
        # For every batch of a pass: its bucket, and its number within the bucket.
        batches = [-(-len(bucket) // max(1, batch_size)) for bucket in self._buckets]
        self._plan = np.array([(b, i) for b, count in enumerate(batches) for i in range(count)])
        self.steps_per_epoch = len(self._plan)
        self.length = round(float(np.mean([sum(self.shapes[bucket]) for bucket, _ in self._plan])))
        super().__init__(batch_size, self.steps_per_epoch * epochs if steps is None else steps, seed, accumulation)

    def recipe(self) -> dict:
        return {
            **super().recipe(),
            "pairs": hashlib.sha256(b"".join(self._sources.bytes() + self._targets.bytes())).hexdigest(),
            "weights": hashlib.sha256(self._weights.tobytes()).hexdigest(),
            "shapes": [list(shape) for shape in self.shapes],
            "start_id": self.start_id,
            "shuffle": self.shuffle,
        }

    def shape_steps(self) -> list[int]:
        first: dict[int, int] = {}
        for step in range(min(len(self), self.steps_per_epoch * self.accumulation)):
            first.setdefault(self._place((self._start + step) // self.accumulation)[1], step)
        return sorted(first.values())

    def _place(self, update: int) -> tuple[int, int, int]:
        """For an update: the number of its first permutation, its bucket, and its batch's number within the bucket."""
        number, step = divmod(update, self.steps_per_epoch)
        number *= 1 + len(self._buckets)  # permutations per pass: one of its batches, and one of each bucket's pairs
        if self.shuffle and self.steps_per_epoch > 2:
            inner = self.steps_per_epoch - 2
            step = 1 + int(shuffled(np.array([step - 2]), inner, self.seed, number)[0]) if step > 1 else step - 1
        return number, *map(int, self._plan[step])

    def _rows(self, update: int, first: int, last: int) -> tuple:
        number, bucket, batch = self._place(update)
        pairs = self._buckets[bucket]
        places = batch * self.batch_size + np.arange(first, last)
        real = places < len(pairs)
        places = places[real]
        if self.shuffle:
            places = shuffled(places, len(pairs), self.seed, number + 1 + bucket)
        chosen = np.full(len(real), -1)
        chosen[real] = pairs[places]

        width, target_width = self.shapes[bucket]
        token_ids, lengths = self._sources.rows(chosen, width, self.pad_id)
        labels, target_lengths = self._targets.rows(chosen, target_width, self.pad_id)
        there = np.arange(target_width) < target_lengths[:, None]
        decoder_ids = np.concatenate([np.full((len(labels), 1), self.start_id, np.int32), labels[:, :-1]], axis=1)
        x = {
            "token_ids": token_ids,
            "lengths": lengths,
            "decoder_token_ids": np.where(there, decoder_ids, np.int32(self.pad_id)),
            "decoder_lengths": target_lengths,
        }
        return x, labels, there * np.where(real, self._weights[chosen], np.float32(0))[:, None]


class _Sequences:
    """Sequences of token ids, concatenated in one array.

    Args:
        rows: int32 arrays.
        length: maximum length of a sequence; None for no limit.
        end_id: the end token, which is kept when a sequence is cut.
    """

    def __init__(self, rows: list, length: int | None, end_id: int | None):
        if length is not None:
            if length < 1:
                raise ValueError(f"Lengths must be at least 1. Received: {length}.")
            rows = [_cut(row, length, end_id) for row in rows]
        self.lengths = np.array([len(row) for row in rows], dtype=np.int32)
        if not self.lengths.all():
            raise ValueError(
                "Sources and targets must have at least one token. Received: an empty sequence, number "
                f"{int(np.argmin(self.lengths))}."
            )
        self.tokens = np.concatenate(rows).astype(np.int32)
        self.starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths

    def rows(self, numbers: np.ndarray, width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """The given sequences, int32 (b, width), padded on the right, and their lengths (b,); -1 is a padding row."""
        lengths = np.where(numbers < 0, 0, self.lengths[numbers]).astype(np.int32)
        columns = np.arange(width)
        there = columns < lengths[:, None]
        places = np.where(there, self.starts[numbers][:, None] + columns, 0)
        return np.where(there, self.tokens[places], np.int32(pad_id)), lengths

    def bytes(self) -> list[bytes]:
        return [self.lengths.tobytes(), self.tokens.tobytes()]


def _ended(row: np.ndarray, end_id: int | None) -> np.ndarray:
    return row if end_id is None or (len(row) and row[-1] == end_id) else np.append(row, np.int32(end_id))


def _cut(row: np.ndarray, length: int, end_id: int | None) -> np.ndarray:
    if len(row) <= length:
        return row
    return np.append(row[: length - 1], row[-1:]) if row[-1] == end_id else row[:length]


def source_ids(sources: Sequence, tokenizer: Tokenizer | None, length: int | None = None) -> list:
    """Token ids of every source. Texts that are too long are truncated, but keep the special tokens of the template."""
    if not len(sources) or not isinstance(sources[0], str):
        return [np.asarray(row, dtype=np.int32) for row in sources]
    encoded = encode_texts(_required(tokenizer), sources, length)
    if "lengths" in encoded:
        return [row[:count] for row, count in zip(encoded["token_ids"], encoded["lengths"], strict=True)]
    return [row[real] for row, real in zip(encoded["token_ids"], encoded["padding_mask"], strict=True)]


def _target_ids(targets: Sequence, tokenizer: Tokenizer | None) -> list:
    if not isinstance(targets[0], str):
        return [np.asarray(row, dtype=np.int32) for row in targets]
    return _required(tokenizer).encode(targets, add_special_tokens=False)


def _required(tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise ValueError("Text needs a tokenizer. Received: texts without one. Pass a tokenizer, or token ids.")
    return tokenizer


def _buckets(lengths: np.ndarray, target_lengths: np.ndarray, count: int) -> list[np.ndarray]:
    """Splits the pairs into at most `count` parts of similar length (the longer side) and about as many tokens each."""
    longest = np.maximum(lengths, target_lengths)
    order = np.argsort(longest, kind="stable")
    share = np.cumsum(longest[order]) / longest.sum()
    cuts = np.searchsorted(share, np.arange(1, count) / count)
    # Pairs of equal length stay together.
    cuts = np.unique(np.searchsorted(longest[order], longest[order][np.minimum(cuts, len(order) - 1)]))
    return [np.sort(part) for part in np.split(order, cuts) if len(part)]

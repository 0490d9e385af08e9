"""Batches of pairs of sequences, for encoder-decoders."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..sampling import shuffled
from ..tasks.examples import encode_texts
from ..tokenizers.tokenizer import Tokenizer
from .batches import Batches


class Seq2SeqBatches(Batches):
    """Sources with their targets, in rows of a few fixed widths; a new order in every pass.

    x: "token_ids" (b, s), "lengths" (b,), "decoder_token_ids" (b, t), the targets moved by one behind the start token,
    "decoder_lengths" (b,). y: the targets (b, t), weights 1 on their tokens, the end included.

    source [5 6 1], target [7 8], start 0, end 1 -> reads [5 6 1] and [0 7 8], predicts [7 8 1]

    Pairs of like length form a bucket with widths of its own, and a batch comes from one bucket; the last batch of a
    bucket is filled up with rows of padding that weigh nothing. A pass begins with a batch of the widest bucket and one
    of the narrowest: what does not fit into memory shows at once. What is too long loses its tail, but never its end.

    Args:
        sources: texts, or lists of token ids, which are taken as they are.
        targets: as many texts, or lists of token ids; the end token is added where it is not the last.
        tokenizer: for texts. Sources have the special tokens of its template, targets their end alone.
        batch_size: rows of an update.
        length: most tokens of a source. Default: those of the longest, or what the tokenizer sets as its most.
        target_length: most tokens of a target with its end. Default: the longest.
        num_buckets: of how many different shapes batches are at most.
        start_id: what a decoder starts with; the config's `decoder_start_id`. Default: the tokenizer's padding, or 0.
        end_id: what a target ends with; None for nothing. Default: the tokenizer's end (or separator) token.
        sample_weight: a number a pair.
        epochs: passes over the pairs ...
        steps: ... unless this says how many updates the run has.
        seed: of the orders.
        shuffle: False keeps the given order, in each bucket.
        accumulation: items that make up an update.
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
                f"There must be a target for each source, and one pair at least. Received: {len(sources)} sources, "
                f"{len(targets)} targets."
            )
        if num_buckets < 1:
            raise ValueError(f"`num_buckets` must be at least 1. Received: {num_buckets}.")
        facts = {} if tokenizer is None else tokenizer.facts
        if end_id == "default":
            end_id = facts.get("sep_id") if facts.get("eos_id") is None else facts["eos_id"]
        self.pad_id = facts.get("pad_id") or 0
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
        # Of every batch of a pass: its bucket, and which batch of the bucket it is.
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
        """Of an update: the number of its first permutation, its bucket, and which batch of the bucket it is."""
        number, step = divmod(update, self.steps_per_epoch)
        number *= 1 + len(self._buckets)  # a pass has so many permutations: of its batches, and of each bucket's pairs
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
    """Sequences of ids, one behind the other in one array.

    Args:
        rows: int32 arrays.
        length: where they are cut; None for nowhere.
        end_id: the end token, which a cut keeps.
    """

    def __init__(self, rows: list, length: int | None, end_id: int | None):
        if length is not None:
            if length < 1:
                raise ValueError(f"Lengths must be at least 1. Received: {length}.")
            rows = [_cut(row, length, end_id) for row in rows]
        self.lengths = np.array([len(row) for row in rows], dtype=np.int32)
        if not self.lengths.all():
            raise ValueError(
                f"Sources and targets must have at least one token. Received: number {int(np.argmin(self.lengths))} "
                "is empty."
            )
        self.tokens = np.concatenate(rows).astype(np.int32)
        self.starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths

    def rows(self, numbers: np.ndarray, width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """int32 (b, width) of some sequences, padded on the right, and their lengths (b,); -1 is a row of padding."""
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
    """Ids of every source. Texts that are too long are cut between the special tokens of the template."""
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
        raise ValueError("Text needs a tokenizer. Received: texts without one. Pass tokenizer, or give token ids.")
    return tokenizer


def _buckets(lengths: np.ndarray, target_lengths: np.ndarray, count: int) -> list[np.ndarray]:
    """The pairs in `count` parts or fewer, of like longest side and of about as many tokens each."""
    longest = np.maximum(lengths, target_lengths)
    order = np.argsort(longest, kind="stable")
    share = np.cumsum(longest[order]) / longest.sum()
    cuts = np.searchsorted(share, np.arange(1, count) / count)
    # Pairs of one length stay together.
    cuts = np.unique(np.searchsorted(longest[order], longest[order][np.minimum(cuts, len(order) - 1)]))
    return [np.sort(part) for part in np.split(order, cuts) if len(part)]

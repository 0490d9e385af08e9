"""Batches of sources and targets, for encoder-decoders."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..sampling import shuffled
from ..tasks.examples import encode_texts
from ..tokenizers.tokenizer import Tokenizer
from .batches import Batches


@dataclasses.dataclass(frozen=True)
class Seq2SeqLayout:
    """Specifies how sources and targets are put into rows.

    Args:
        length: maximum number of tokens in a source. Default: the length of the longest source, or the tokenizer's
            maximum length if that is smaller.
        target_length: maximum number of tokens in a target, including its end token. Default: the length of the longest
            target.
        num_buckets: maximum number of different batch shapes.
        start_id: token with which a decoder starts. It must equal `decoder_start_id` in the model's config. Default:
            the padding token of the tokenizer, or 0.
        end_id: token with which a target ends, or None if targets get no end token. Default: the end (or separator)
            token of the tokenizer.
        first_id: token with which a target begins, such as <s> in BART, or None.
        last_id: token after the end token of a target, such as the code of its language in mBART, or None.

    Raises:
        ValueError: if `num_buckets` is below 1.
    """

    length: int | None = None
    target_length: int | None = None
    num_buckets: int = 1
    start_id: int | None = None
    end_id: int | str | None = "default"
    first_id: int | None = None
    last_id: int | None = None

    def __post_init__(self):
        if self.num_buckets < 1:
            raise ValueError(f"`num_buckets` must be at least 1. Received: {self.num_buckets}.")


class Seq2SeqBatches(Batches):
    """Batches of sources and their targets, in a few fixed widths. Every pass uses a different order.

    x: "token_ids" (b, s), "lengths" (b,), "decoder_token_ids" (b, t), the targets shifted right by one after the start
    token, "decoder_lengths" (b,). y: the targets (b, t), with weight 1 on their tokens, including the end token.

    source [5 6 1], target [7 8], start 0, end 1 -> reads [5 6 1] and [0 7 8], predicts [7 8 1]

    Pairs of similar length form a bucket, each bucket has its own widths, and all rows of a batch come from one bucket.
    If the last batch of a bucket is not full, padding rows with weight 0 are added. The first two steps of a pass are a
    batch of the widest bucket, which reveals at once if memory is too small, and one of the narrowest bucket. Sequences
    that are too long are truncated at the end, but keep their end token.

    Args:
        sources: texts, or lists of token ids. No special tokens are added to token ids.
        targets: one text or list of token ids for each source. The end token, and the last token of the layout after
            it, are added unless they are already there, and the first token of the layout unless it is already the
            first.
        tokenizer: a `Tokenizer`, required for texts. Sources get the special tokens of its template, targets only the
            end token.
        batch_size: rows per update.
        layout: a `Seq2SeqLayout`: maximum lengths, number of buckets, and start and end tokens.
        sample_weight: one number per pair. Default: 1.
        epochs: number of passes over the pairs. Ignored if `steps` is given.
        steps: number of updates in the run. Default: `epochs` passes.
        seed: seed of the order of the pairs and of the batches. None keeps the given order within each bucket.

    Raises:
        ValueError: if the numbers of sources, targets and weights differ, a sequence is empty, texts have no tokenizer,
            or a length is below 1.

    Example:
        >>> from kerasbert.data import Seq2SeqBatches, Seq2SeqLayout
        >>> sources, targets = [[5, 6, 1], [7, 1]], [[8, 9], [8]]
        >>> layout = Seq2SeqLayout(start_id=0, end_id=1)
        >>> batches = Seq2SeqBatches(sources, targets, batch_size=2, layout=layout, seed=None)
        >>> x, y, sample_weight = batches[0]
        >>> x["decoder_token_ids"]
        array([[0, 8, 9],
               [0, 8, 0]], dtype=int32)
        >>> y
        array([[8, 9, 1],
               [8, 1, 0]], dtype=int32)
    """

    def __init__(
        self,
        sources: Sequence,
        targets: Sequence,
        tokenizer: Tokenizer | None = None,
        batch_size: int = 32,
        layout: Seq2SeqLayout | None = None,
        sample_weight: Any = None,
        epochs: int = 1,
        steps: int | None = None,
        seed: int | None = 0,
    ):
        self.shuffle = seed is not None
        layout = layout or Seq2SeqLayout()
        sources, targets = list(sources), list(targets)
        if len(sources) != len(targets) or not len(sources):
            raise ValueError(
                "Every source must have a target, and there must be at least one pair. Received: "
                f"{len(sources)} sources, {len(targets)} targets."
            )
        info, end_id = {} if tokenizer is None else tokenizer.info, layout.end_id
        if end_id == "default":
            end_id = info.get("sep_id") if info.get("eos_id") is None else info["eos_id"]
        self.pad_id = info.get("pad_id") or 0
        self.start_id = self.pad_id if layout.start_id is None else layout.start_id
        ends = [token for token in (end_id, layout.last_id) if token is not None]
        self._sources = sources = _Sequences(source_ids(sources, tokenizer, layout.length), layout.length, ends[:1])
        targets = [_begun(_ended(row, ends), layout.first_id) for row in _target_ids(targets, tokenizer)]
        self._targets = targets = _Sequences(targets, layout.target_length, ends)
        weights = np.ones(len(sources.lengths)) if sample_weight is None else sample_weight
        self._weights = np.asarray(weights, dtype=np.float32)
        if self._weights.shape != sources.lengths.shape:
            raise ValueError(
                f"`sample_weight` must have a number for each of the {len(sources.lengths)} pairs. Received: an array "
                f"of shape {self._weights.shape}."
            )
        self._buckets = _buckets(sources.lengths, targets.lengths, layout.num_buckets)
        widths = np.array([[side.lengths[pairs].max() for side in (sources, targets)] for pairs in self._buckets])
        self.shapes = [tuple(map(int, shape)) for shape in np.maximum.accumulate(widths)]
        # For every batch of a pass: its bucket, and its index within the bucket.
        batches = [-(-len(bucket) // max(1, batch_size)) for bucket in self._buckets]
        self._plan = np.array([(b, i) for b, count in enumerate(batches) for i in range(count)])
        self.steps_per_epoch = len(self._plan)
        self.length = round(float(np.mean([sum(self.shapes[bucket]) for bucket, _ in self._plan])))
        steps = self.steps_per_epoch * epochs if steps is None else steps
        super().__init__(batch_size, steps, 0 if seed is None else seed)

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
        """Returns the number of the first permutation of an update's pass, its bucket, and its index in the bucket."""
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
    """Sequences of token ids, stored in one array.

    Args:
        rows: the sequences, int32 arrays.
        length: maximum number of tokens in a sequence, or None for no limit.
        ends: the tokens at the ends of sequences, which truncated sequences keep.
    """

    def __init__(self, rows: list, length: int | None, ends: list[int]):
        if length is not None:
            if length < 1:
                raise ValueError(f"`length` and `target_length` must be at least 1. Received: {length}.")
            rows = [_cut(row, length, ends) for row in rows]
        self.lengths = np.array([len(row) for row in rows], dtype=np.int32)
        if not self.lengths.all():
            raise ValueError(
                "Every source and target must have at least one token. Received: an empty sequence, number "
                f"{int(np.argmin(self.lengths))}."
            )
        self.tokens = np.concatenate(rows).astype(np.int32)
        self.starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths

    def rows(self, numbers: np.ndarray, width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """The sequences with the given indices, int32 (b, width), padded on the right, and their lengths, int32 (b,).

        The index -1 gives a padding row.
        """
        lengths = np.where(numbers < 0, 0, self.lengths[numbers]).astype(np.int32)
        columns = np.arange(width)
        there = columns < lengths[:, None]
        places = np.where(there, self.starts[numbers][:, None] + columns, 0)
        return np.where(there, self.tokens[places], np.int32(pad_id)), lengths

    def bytes(self) -> list[bytes]:
        return [self.lengths.tobytes(), self.tokens.tobytes()]


def _ended(row: np.ndarray, ends: list[int]) -> np.ndarray:
    there = next(count for count in range(len(ends), -1, -1) if row[len(row) - count :].tolist() == ends[:count])
    return np.append(row, np.array(ends[there:], np.int32))


def _begun(row: np.ndarray, first_id: int | None) -> np.ndarray:
    return row if first_id is None or (len(row) and row[0] == first_id) else np.append(np.int32(first_id), row)


def _cut(row: np.ndarray, length: int, ends: list[int]) -> np.ndarray:
    if len(row) <= length:
        return row
    ends = ends[:length] if row[len(row) - len(ends) :].tolist() == ends else []
    return np.append(row[: length - len(ends)], np.array(ends, np.int32))


def source_ids(sources: Sequence, tokenizer: Tokenizer | None, length: int | None = None) -> list:
    """Token ids of every source, as int32 arrays. Texts are truncated to `length` tokens, including special tokens."""
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
        raise ValueError("Texts need a tokenizer. Received: texts, and no tokenizer. Pass `tokenizer`, or token ids.")
    return tokenizer


def _buckets(lengths: np.ndarray, target_lengths: np.ndarray, count: int) -> list[np.ndarray]:
    """Splits the pairs into at most `count` buckets with about the same number of tokens each.

    The length of a pair is the length of its longer side. The pairs of a bucket have similar lengths.

    Returns: the indices of the pairs of each bucket, in ascending order.
    """
    longest = np.maximum(lengths, target_lengths)
    order = np.argsort(longest, kind="stable")
    share = np.cumsum(longest[order]) / longest.sum()
    cuts = np.searchsorted(share, np.arange(1, count) / count)
    # Pairs of equal length stay together.
    cuts = np.unique(np.searchsorted(longest[order], longest[order][np.minimum(cuts, len(order) - 1)]))
    return [np.sort(part) for part in np.split(order, cuts) if len(part)]

"""Batches for denoising with an encoder-decoder, or with a language model that reads inputs and targets in one row."""

from collections.abc import Sequence

import numpy as np

from ..corpus.bin_packing import lay_out, pack, packed_keys
from ..corpus.corpus import Corpus
from ..corpus.packing import document_chunks
from ..noise.denoising import OBJECTIVES, Denoising, noise_counts, sentinel_ids, span_corruption_lengths
from ..sampling import DYNAMIC, row_draws
from .passes import PassBatches, tokenizer_info_of

LAYOUTS = ("encoder_decoder", "prefix", "causal")


class DenoisingBatches(PassBatches):
    """Corrupted text and its targets, for the unsupervised objectives of T5.

    "encoder_decoder": x has "token_ids" (b, s), the inputs with an end token, "lengths" (b,), "decoder_token_ids" (b,
    t), the targets with an end token, shifted right by one after the start token, "decoder_lengths" (b,); y: the
    targets (b, t), with weight 1 on their tokens. "prefix" and "causal" have inputs and targets in one row of
    "token_ids" (b, s), shifted right by one, with "lengths"; y (b, s) is the row without the shift. With "prefix",
    "prefix_mask" (b, s) is True where the inputs are read, and weights are 1 on targets; with "causal" they are 1 on
    all tokens. Packed rows have "sequence_ids" and "position_ids" (and their "decoder_" counterparts) instead of the
    lengths.

    inputs 9 4 6 1, targets 3 9 1, start 0, "prefix" -> reads 0 9 4 6 1 3 9, predicts 9 4 6 1 3 9 1

    Text is cut into pieces of a fixed length, except for the last piece of every `group` of documents. A run makes
    passes over the corpus, each in a different order, and noise is drawn again in every step. Paper: Raffel et al.
    2019, 1910.10683, section 3.3.

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows per update.
        length: tokens per row: of the inputs with their end token, or of inputs and targets in one row. It determines
            how much text fits.
        objective: "random_spans", "replace_spans", "drop_tokens", "bert", "mass", "deshuffling", "prefix_lm" or "lm"
            (which has no inputs, so it needs layout="causal").
        seed: determines order and noise.
        steps: number of updates in the run. Default: one pass over the text, each row once.
        rate: share of noise tokens.
        mean_span: mean length of random spans.
        target_length: tokens of a target with its end token. Default: the largest possible number, with a margin where
            the number is random. Longer sequences lose their tail, never their end token; packed rows lose nothing.
        layout: "encoder_decoder", "prefix" or "causal".
        packed: put as many pieces into a row as fit; they do not attend to each other.
        group: number of documents that are concatenated before they are cut into pieces. Default: 128, as in T5's code,
            and 1 for "prefix_lm" and "deshuffling".
        roll: rotate the random spans, so that a piece may begin with noise.
        sentinels: ids, first sentinel first; ids beyond the vocabulary are allowed if the model has embeddings for
            them. Default: <extra_id_0>, <extra_id_1>, ... of the vocabulary.
        start_id: token with which a decoder starts. Default: the padding token, as in T5.
        targets_only: False gives weight 1 to inputs, too ("prefix" and "causal"). Default: False only with "causal".
        accumulation: number of items per update.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        objective: str = "random_spans",
        seed: int = 0,
        steps: int | None = None,
        rate: float = 0.15,
        mean_span: float = 3.0,
        target_length: int | None = None,
        layout: str = "encoder_decoder",
        packed: bool = False,
        group: int | None = None,
        roll: bool = False,
        sentinels: Sequence[int] | None = None,
        start_id: int | None = None,
        targets_only: bool | None = None,
        accumulation: int = 1,
    ):
        info = tokenizer_info_of(corpus, "pad")
        self._check(objective, layout, rate, mean_span, packed, group)
        self.corpus, self.length, self.objective = corpus, length, objective
        self.layout, self.packed = layout, packed
        self.group = (1 if objective in ("prefix_lm", "deshuffling") else 128) if group is None else group
        self.targets_only = layout != "causal" if targets_only is None else targets_only
        self._pad = info["pad_id"]
        self._start_id = self._pad if start_id is None else start_id
        self._end_id = info["eos_id"] if info["eos_id"] is not None else info["sep_id"]
        if self._end_id is None:
            raise ValueError("Denoising needs a tokenizer with an end (or separator) token.")
        needs_sentinels = {"sentinels", "mask", "mask_or_random"} & {OBJECTIVES[objective].inputs}
        if sentinels is None:
            sentinels = sentinel_ids(corpus.tokenizer()) if needs_sentinels else ()
        size = info["vocabulary_size"]
        if (needs_sentinels and not len(sentinels)) or min(sentinels, default=0) < 0:
            raise ValueError(
                f"`sentinels` must contain at least one id, and no negative ones. Received: {list(sentinels)[:9]}."
            )
        leading = {info[role] for role in info if role.endswith("_id")}
        self._denoising = Denoising(
            OBJECTIVES[objective],
            np.asarray(sentinels, dtype=np.int32),
            (next(i for i in range(len(leading) + 1) if i not in leading), size),
            rate,
            mean_span,
            roll,
        )
        self.max_tokens = self._max_tokens()
        inputs, targets, both = (int(sizes[0]) for sizes in self._sizes(np.array([self.max_tokens])))
        if self.max_tokens < 2 or (layout == "encoder_decoder" and inputs < 2):
            raise ValueError(f"`length` must leave space for text besides the end tokens. Received: {length}.")
        spans = int(noise_counts(np.array([self.max_tokens]), rate, mean_span)[1][0])
        if objective == "random_spans" and spans > len(self._denoising.sentinels):
            raise ValueError(
                f"There must be a sentinel for every span. Received: {len(self._denoising.sentinels)} sentinels for "
                f"{spans} spans in {self.max_tokens} tokens. Use longer spans, a lower rate, or shorter rows."
            )
        self._make_plan(seed)
        widest = self._widest_target(targets)
        if target_length is not None and (layout != "encoder_decoder" or target_length < (widest if packed else 2)):
            raise ValueError(
                f'`target_length` must be at least {widest if packed else 2} and needs layout="encoder_decoder". '
                f"Received: target_length={target_length}, layout={layout!r}, packed={packed}."
            )
        self.target_length = widest if target_length is None else target_length
        super().__init__(batch_size, (0, len(self._plan)), seed, steps, accumulation)

    @property
    def tokens_per_step(self) -> int:
        """Token slots of one item, for inputs and targets, including padding."""
        return self.rows * (self.length + (self.target_length if self.layout == "encoder_decoder" else 0))

    def recipe(self) -> dict:
        names = ("objective", "layout", "packed", "group", "target_length", "targets_only")
        noise = self._denoising
        return {
            **super().recipe(),
            "corpus": self.corpus.fingerprint,
            **{name: getattr(self, name) for name in names},
            **{name: getattr(noise, name) for name in ("rate", "mean_span", "roll")},
            "sentinels": noise.sentinels.tolist(),
            "start_id": self._start_id,
        }

    # ------------------------------------------------------------------ plan

    @staticmethod
    def _check(objective: str, layout: str, rate: float, mean_span: float, packed: bool, group: int | None) -> None:
        for name, value, known in (("objective", objective, OBJECTIVES), ("layout", layout, LAYOUTS)):
            if value not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {value!r}.")
        if not 0 < rate < 1:
            raise ValueError(
                f"`rate` must be between 0 and 1. Received: {rate}. To make all tokens noise, use deshuffling or lm."
            )
        if mean_span < 1:
            raise ValueError(f"`mean_span` must be at least 1. Received: {mean_span}.")
        if group is not None and group < 1:
            raise ValueError(f"`group` must be at least 1. Received: {group}.")
        if objective == "lm" and layout != "causal":
            raise ValueError('"lm" has no inputs. Use layout="causal", or objective="prefix_lm".')
        if packed and objective == "replace_spans":
            raise ValueError(
                'Packing needs to know the lengths of corrupted pieces in advance, but those of "replace_spans" are '
                'random. Use objective="random_spans" or packed=False.'
            )

    def _sizes(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Maximum tokens in inputs, in targets and in both, with end tokens, for pieces of the given lengths."""
        inputs, targets, both = self._denoising.most(lengths)
        ends = 1 if self.objective != "lm" else 0
        return inputs + ends, targets + 1, both + 1 + ends

    def _max_tokens(self) -> int:
        """Maximum number of text tokens per row."""
        if self.layout == "encoder_decoder":
            if self.objective != "random_spans":
                return self.length - 1
            noise = self._denoising
            max_tokens = span_corruption_lengths(self.length - noise.roll, noise.rate, noise.mean_span)[0]
            # The reference formula ignores that short pieces have at least one span, too.
            fits = self._sizes(np.arange(1, max_tokens + 1))[0] <= self.length
            return max_tokens if fits.all() else int(np.argmin(fits))
        sizes = np.arange(1, max(2, self.length))
        fitting = np.flatnonzero(self._sizes(sizes)[2] <= self.length)
        return int(sizes[fitting[-1]]) if len(fitting) else 0

    def _make_plan(self, seed: int) -> None:
        corpus, shortest = self.corpus, 2 if self.objective == "prefix_lm" else 1
        documents = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts]

        def build() -> list[np.ndarray]:
            pieces = document_chunks(np.append(documents[:-1][:: self.group], documents[-1]), self.max_tokens)
            return [pieces[pieces[:, 1] >= shortest]]

        settings = {"tokens": self.max_tokens, "group": self.group, "shortest": shortest}
        self._pieces = corpus.plan(f"pieces_{self.max_tokens}", settings, build)
        if not len(self._pieces):
            raise ValueError(
                "A prefix and its continuation need two tokens. Received: a corpus with only one in every document."
            )
        if not self.packed:
            self._plan, self._order = np.arange(len(self._pieces)), None
            return
        # For an encoder-decoder, rows are packed by their inputs, and targets get the width that they need.
        sizes = self._sizes(self._pieces[:, 1])[0 if self.layout == "encoder_decoder" else 2]
        self._order, starts = pack(sizes, self.length, seed)
        self._plan = np.stack([starts[:-1], np.diff(starts)], axis=1)
        self._most = int(self._plan[:, 1].max())

    def _widest_target(self, one: int) -> int:
        if not self.packed:
            return one
        sizes = self._sizes(self._pieces[:, 1])[1][self._order]
        return int(np.add.reduceat(sizes, self._plan[:, 0]).max())

    # ------------------------------------------------------------------ rows

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, _ = self._places(update, first, last)
        draws = self._denoising.num_draws(self.max_tokens)
        most = self._most if self.packed else 1
        draws = row_draws(self.seed, update, DYNAMIC, first, last - first, draws * most)[:, : draws * most]
        if self.packed:
            there = np.where((lines >= 0)[:, None], self._plan[np.maximum(lines, 0)], 0)
            counts = there[:, 1]
            used = np.arange(most) < counts[:, None]
            numbers = self._order[(there[:, :1] + np.arange(most))[used]]
            draws = draws.reshape(len(lines), most, -1)[used]
        else:
            counts = (lines >= 0).astype(np.int64)
            numbers, draws = lines[lines >= 0], draws[lines >= 0]
        token_ids, lengths = self._text(numbers)
        inputs, targets = self._denoising(token_ids, lengths, draws)
        if self.layout == "encoder_decoder":
            return self._two_sided(inputs, targets, counts)
        return self._joined(inputs, targets, counts)

    def _text(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pieces = np.asarray(self._pieces[numbers])
        token_ids = np.zeros((len(pieces), self.max_tokens), dtype=np.int32)
        for row, (start, size) in zip(token_ids, pieces.tolist(), strict=True):
            row[:size] = self.corpus.tokens[start : start + size]
        return token_ids, pieces[:, 1].astype(np.int64)

    def _ended(self, rows: tuple, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows followed by the end token, truncated so that it fits."""
        token_ids, lengths = rows
        lengths = np.minimum(lengths, width - 1)
        ended = np.zeros((len(token_ids), width), dtype=np.int32)
        ended[:, : min(width, token_ids.shape[1])] = token_ids[:, :width]
        ended[np.arange(len(ended)), lengths] = self._end_id
        return ended, lengths + 1

    def _two_sided(self, inputs: tuple, targets: tuple, counts: np.ndarray) -> tuple:
        x = {}
        for prefix, rows, width in (("", inputs, self.length), ("decoder_", targets, self.target_length)):
            token_ids, lengths = self._ended(rows, width)
            flat = token_ids[np.arange(width) < lengths[:, None]]
            totals = _sums(lengths, counts)
            y = lay_out(flat, totals, width, self._pad)
            if self.packed:
                keys = packed_keys(lengths, counts, width, self._most, prefix)
                del keys[prefix + "first_positions"]
            else:
                keys = {prefix + "lengths": totals.astype(np.int32)}
            shown = lay_out(_shifted_right(flat, lengths, self._start_id), totals, width, self._pad) if prefix else y
            x |= {prefix + "token_ids": shown, **keys}
        return x, y, (np.arange(width) < totals[:, None]).astype(np.float32)

    def _joined(self, inputs: tuple, targets: tuple, counts: np.ndarray) -> tuple:
        first, first_lengths = self._ended(inputs, inputs[0].shape[1] + 1)
        if self.objective == "lm":
            first_lengths = np.zeros_like(first_lengths)
        second, second_lengths = self._ended(targets, targets[0].shape[1] + 1)
        if not self.packed:  # where the number of tokens is random, inputs and targets may exceed the row
            second_lengths = np.minimum(second_lengths, self.length - first_lengths)
            second[np.arange(len(second)), second_lengths - 1] = self._end_id
        both = np.concatenate([first, second], axis=1)
        columns = np.arange(both.shape[1]) - first.shape[1]
        is_target = (columns >= 0) & (columns < second_lengths[:, None])
        is_input = (columns < 0) & (columns + first.shape[1] < first_lengths[:, None])
        lengths = first_lengths + second_lengths
        flat, totals = both[is_input | is_target], _sums(lengths, counts)
        within = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        prefix = within <= np.repeat(first_lengths, lengths)  # includes the position that predicts the first target
        width = self.length
        y = lay_out(flat, totals, width, self._pad)
        x = {"token_ids": lay_out(_shifted_right(flat, lengths, self._start_id), totals, width, self._pad)}
        if self.packed:
            x |= packed_keys(lengths, counts, width, self._most)
            del x["first_positions"]
        else:
            x["lengths"] = totals.astype(np.int32)
        if self.layout == "prefix":
            x["prefix_mask"] = lay_out(prefix, totals, width, False)
        weighed = within >= np.repeat(first_lengths, lengths) if self.targets_only else np.ones(len(flat), bool)
        return x, y, lay_out(weighed.astype(np.float32), totals, width)


def _shifted_right(flat: np.ndarray, lengths: np.ndarray, start: int) -> np.ndarray:
    """Shifts every sequence of a flat array right by one, after the start token.

    3 8 1 9 1, lengths 3 2, start 0 -> 0 3 8 0 9
    """
    moved = np.empty_like(flat)
    moved[1:] = flat[:-1]
    moved[np.cumsum(lengths) - lengths] = start
    return moved


def _sums(lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Number of tokens in each row, summed over its sequences.

    lengths 3 2 4, counts 2 0 1 -> 5 0 4
    """
    ends = np.append(0, np.cumsum(lengths))
    rows = np.cumsum(counts)
    return ends[rows] - ends[rows - counts]

"""Denoising batches for encoder-decoders, and for language models that read inputs and targets in one row."""

import dataclasses
import hashlib

import numpy as np

from ..corpus.bin_packing import lay_out, pack, packed_keys
from ..corpus.blocks import Block
from ..corpus.corpus import Corpus
from ..corpus.packing import document_chunks
from ..noise.denoising import Denoising
from ..noise.infilling import TextInfilling
from ..noise.span_corruption import noise_counts, span_corruption_lengths
from ..sampling import DYNAMIC, row_draws
from .passes import PassBatches, tokenizer_info_of
from .rows import two_plans

LAYOUTS = ("encoder_decoder", "prefix", "causal")


@dataclasses.dataclass(frozen=True)
class DenoisingLayout:
    """Specifies how inputs and targets are put into rows.

    Args:
        kind: "encoder_decoder" for separate rows; "prefix" or "causal" for inputs and targets in one row.
        target_length: for "encoder_decoder", the width of the targets, including the end token. Default: the maximum
            length of a target, or an estimate of it if the length is random. Longer targets are truncated, but keep
            their end token. Packed targets are never truncated.
        start_id: token with which a decoder starts. Default: the padding token, as in T5, or for `TextInfilling` the
            end token, as in BART.
        targets_only: for "prefix" and "causal", whether inputs have weight 0, so that only targets are predicted.
            Default: True for "prefix", False for "causal".

    Raises:
        ValueError: if `kind` is unknown.
    """

    kind: str = "encoder_decoder"
    target_length: int | None = None
    start_id: int | None = None
    targets_only: bool | None = None

    def __post_init__(self):
        if self.kind not in LAYOUTS:
            raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)}. Received: {self.kind!r}.")


class DenoisingBatches(PassBatches):
    """Batches of corrupted text and its targets, for the unsupervised objectives of T5 and for BART's.

    Layout "encoder_decoder": x has "token_ids" (b, s), the inputs with an end token; "lengths" (b,);
    "decoder_token_ids" (b, t), the targets with an end token, shifted right by one after the start token; and
    "decoder_lengths" (b,). y: the targets (b, t), with weight 1 on their tokens.

    Layouts "prefix" and "causal": x has "token_ids" (b, s), inputs and targets in one row, shifted right by one after
    the start token; and "lengths" (b,). y: the same row (b, s) without the shift. "prefix" also has "prefix_mask" (b,
    s), True at inputs, and weight 1 on targets only. With "causal", all tokens have weight 1.

    Packed rows have "sequence_ids" and "position_ids" (and their "decoder_" counterparts) instead of the lengths.

    inputs 9 4 6 1, targets 3 9 1, start 0, "prefix" -> reads 0 9 4 6 1 3 9, predicts 9 4 6 1 3 9 1

    Groups of `group` documents are concatenated and split into pieces of equal length. The last piece of a group may be
    shorter. A run makes passes over the corpus, each in a different order, and every step draws new noise. Paper:
    Raffel et al. 2019, arXiv 1910.10683, section 3.3.

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows per update.
        length: tokens per row, including end tokens: of the inputs, or of inputs and targets together if they share a
            row.
        noise: a `TextInfilling` (BART), a `Denoising` (T5), or the name of its objective: "random_spans",
            "replace_spans", "drop_tokens", "bert", "mass", "deshuffling", "prefix_lm" or "lm". "lm" has no inputs, and
            requires layout="causal".
        seed: seed of the order of the rows and of the noise.
        steps: number of updates in the run. Default: one pass over the text.
        layout: "encoder_decoder", "prefix" or "causal", or a `DenoisingLayout`.
        packed: whether to put as many pieces into a row as fit. They do not attend to each other.
        group: number of documents that are concatenated before they are split into pieces. Default: 128, as in T5's
            code, and 1 for "prefix_lm", "deshuffling" and `TextInfilling`.

    Raises:
        ValueError: if the tokenizer has no end token or too few sentinels, `length` or `target_length` is too short, or
            the noise does not fit the layout or cannot be packed.

    Example:
        >>> from kerasbert.data import Corpus, DenoisingBatches, Tokenizer
        >>> documents = ["the cat sat on the mat and then it slept"] * 8
        >>> tokenizer = Tokenizer.train("unigram", documents, vocabulary_size=118, family="t5")
        >>> x, y, sample_weight = DenoisingBatches(Corpus.in_memory(documents, tokenizer), batch_size=1, length=16)[0]
        >>> tokenizer.decode(x["token_ids"][0], skip_special_tokens=False)
        'the cat sat on the <extra_id_0></s>'
        >>> tokenizer.decode(y[0], skip_special_tokens=False)
        '<extra_id_0>mat</s>'
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        noise: str | Denoising | TextInfilling = "random_spans",
        seed: int = 0,
        steps: int | None = None,
        layout: "str | DenoisingLayout" = "encoder_decoder",
        packed: bool = False,
        group: int | None = None,
    ):
        noise = Denoising(noise) if isinstance(noise, str) else noise
        layout = DenoisingLayout(layout) if isinstance(layout, str) else layout
        info, kind = tokenizer_info_of(corpus, "pad"), layout.kind
        self._check(noise, kind, packed, group)
        self.corpus, self.length, self.objective = corpus, length, noise.objective
        self.layout, self.packed = kind, packed
        alone = noise.objective in ("prefix_lm", "deshuffling", "text_infilling")
        self.group = (1 if alone else 128) if group is None else group
        self.targets_only = kind != "causal" if layout.targets_only is None else layout.targets_only
        self._pad = info["pad_id"]
        self._end_id = info["eos_id"] if info["eos_id"] is not None else info["sep_id"]
        usual = self._end_id if noise.starts_with_end else self._pad
        self._start_id = usual if layout.start_id is None else layout.start_id
        if self._end_id is None:
            raise ValueError(
                "Denoising needs a tokenizer with an end (or separator) token. Received: one with neither."
            )
        self.noise = noise.for_corpus(corpus)
        self.max_tokens = self._max_tokens()
        inputs, targets, both = (int(sizes[0]) for sizes in self._sizes(np.array([self.max_tokens])))
        if self.max_tokens < 2 or (kind == "encoder_decoder" and inputs < 2):
            raise ValueError(
                f"`length` must leave space for at least two tokens of text besides the end tokens. Received: {length}."
            )
        if isinstance(self.noise, Denoising):
            spans = int(noise_counts(np.array([self.max_tokens]), noise.rate, noise.mean_span)[1][0])
            if self.objective == "random_spans" and spans > len(self.noise.sentinels or ()):
                raise ValueError(
                    f"Every span needs a sentinel. Received: {len(self.noise.sentinels or ())} sentinels for "
                    f"{spans} spans in {self.max_tokens} tokens. Use longer spans, a lower rate, or shorter rows."
                )
        self._make_plan(seed)
        widest, target_length = self._widest_target(targets), layout.target_length
        if target_length is not None and (kind != "encoder_decoder" or target_length < (widest if packed else 2)):
            raise ValueError(
                f'`target_length` must be at least {widest if packed else 2}, and requires layout="encoder_decoder". '
                f"Received: target_length={target_length}, layout={kind!r}, packed={packed}."
            )
        self.target_length = widest if target_length is None else target_length
        super().__init__(batch_size, (0, len(self._plan)), seed, steps)

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens of inputs and targets in one step, including padding."""
        return self.rows * (self.length + (self.target_length if self.layout == "encoder_decoder" else 0))

    def recipe(self) -> dict:
        names = ("objective", "layout", "packed", "group", "target_length", "targets_only")
        return {
            **super().recipe(),
            "corpus": self.corpus.fingerprint,
            **{name: getattr(self, name) for name in names},
            **self.noise.recipe(),
            "start_id": self._start_id,
        }

    # === Plan ===

    @staticmethod
    def _check(noise: Denoising | TextInfilling, kind: str, packed: bool, group: int | None) -> None:
        if group is not None and group < 1:
            raise ValueError(f"`group` must be at least 1. Received: {group}.")
        if not noise.has_inputs and kind != "causal":
            raise ValueError(
                f'The objective "lm" has no inputs, so it requires layout="causal". Received: layout={kind!r}. Use '
                '"causal", or the objective "prefix_lm".'
            )
        if packed and noise.objective in ("replace_spans", "text_infilling"):
            raise ValueError(
                f'Packing requires the lengths of corrupted pieces in advance, but those of "{noise.objective}" are '
                'random. Received: packed=True. Use objective="random_spans", or packed=False.'
            )

    def _sizes(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Maximum numbers of tokens, including end tokens, in the inputs, in the targets, and in both together.

        Args:
            lengths: number of tokens in each piece of text.
        """
        inputs, targets, both = self.noise.most(lengths)
        ends = int(self.noise.has_inputs)
        return inputs + ends, targets + 1, both + 1 + ends

    def _max_tokens(self) -> int:
        """Maximum number of text tokens per row."""
        if self.layout == "encoder_decoder":
            noise = self.noise
            if not isinstance(noise, Denoising) or self.objective != "random_spans":
                return self.length - 1 - noise.num_first
            max_tokens = span_corruption_lengths(self.length - noise.roll, noise.rate, noise.mean_span)[0]
            # The formula of the reference code does not account for the fact that even a short piece has at least one
            # span.
            fits = self._sizes(np.arange(1, max_tokens + 1))[0] <= self.length
            return max_tokens if fits.all() else int(np.argmin(fits))
        sizes = np.arange(1, max(2, self.length))
        fitting = np.flatnonzero(self._sizes(sizes)[2] <= self.length)
        return int(sizes[fitting[-1]]) if len(fitting) else 0

    def _make_plan(self, seed: int) -> None:
        corpus, shortest = self.corpus, 2 if self.objective == "prefix_lm" else 1

        def cut(block: Block) -> np.ndarray:
            documents = block.document_tokens
            pieces = document_chunks(np.append(documents[:-1][:: self.group], documents[-1]), self.max_tokens)
            return pieces[pieces[:, 1] >= shortest]

        def packing(block: Block) -> tuple[np.ndarray, np.ndarray]:
            pieces = cut(block)
            order, starts = pack(sizes[pieces[:, 1]], self.length, seed, block=block.number)
            return pieces[order], np.stack([starts[:-1], np.diff(starts)], axis=1)

        settings = {"tokens": self.max_tokens, "group": self.group, "shortest": shortest}
        if not self.packed:
            self._pieces = corpus.plan(f"pieces_{self.max_tokens}", settings, lambda: map(cut, corpus.blocks()))
            self._plan = self._pieces
        else:
            # For an encoder-decoder, rows are packed by their inputs, and targets get the width that they need.
            sizes = self._sizes(np.arange(self.max_tokens + 1))[0 if self.layout == "encoder_decoder" else 2]
            settings |= {"length": self.length, "seed": seed, "sizes": hashlib.sha256(sizes.tobytes()).hexdigest()}
            self._pieces, rows = two_plans(corpus, f"packed_pieces_{self.max_tokens}", settings, packing)
            self._plan = corpus.plan(f"rows_of_pieces_{self.length}", settings, rows)
        if not len(self._pieces):
            raise ValueError(
                "A prefix and its continuation need at least two tokens. Received: a corpus with one token in every "
                "document."
            )
        if self.packed:
            self._most = int(self._plan[:, 1].max())

    def _widest_target(self, one: int) -> int:
        if not self.packed:
            return one
        sizes, widest = self._sizes(np.arange(self.max_tokens + 1))[1], 0
        for start in range(0, len(self._plan), 1 << 16):
            rows = np.asarray(self._plan[start : start + (1 << 16)])
            pieces = self._pieces[rows[0, 0] : rows[-1].sum(), 1]
            widest = max(widest, int(np.add.reduceat(sizes[pieces], rows[:, 0] - rows[0, 0]).max()))
        return widest

    # === Rows ===

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, _ = self._places(update, first, last)
        draws = self.noise.num_draws(self.max_tokens)
        most = self._most if self.packed else 1
        draws = row_draws(self.seed, update, DYNAMIC, first, last - first, draws * most)[:, : draws * most]
        if self.packed:
            there = np.where((lines >= 0)[:, None], self._plan[np.maximum(lines, 0)], 0)
            counts = there[:, 1]
            used = np.arange(most) < counts[:, None]
            numbers = (there[:, :1] + np.arange(most))[used]
            draws = draws.reshape(len(lines), most, -1)[used]
        else:
            counts = (lines >= 0).astype(np.int64)
            numbers, draws = lines[lines >= 0], draws[lines >= 0]
        token_ids, lengths = self._text(numbers)
        inputs, targets = self.noise(token_ids, lengths, draws)
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
        """Appends the end token to each row. Rows that leave no space for it are truncated first."""
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
        if not self.noise.has_inputs:
            first_lengths = np.zeros_like(first_lengths)
        second, second_lengths = self._ended(targets, targets[0].shape[1] + 1)
        if not self.packed:  # inputs and targets of random length may exceed the row
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
    """Shifts every sequence of a flat array right by one and puts the start token first.

    3 8 1 9 1, lengths 3 2, start 0 -> 0 3 8 0 9
    """
    moved = np.empty_like(flat)
    moved[1:] = flat[:-1]
    moved[np.cumsum(lengths) - lengths] = start
    return moved


def _sums(lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sums the lengths of the sequences in each row. `counts` are the numbers of sequences per row.

    lengths 3 2 4, counts 2 0 1 -> 5 0 4
    """
    ends = np.append(0, np.cumsum(lengths))
    rows = np.cumsum(counts)
    return ends[rows] - ends[rows - counts]

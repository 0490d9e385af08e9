"""Batches for translation language modeling, and documents from parallel text."""

from collections.abc import Iterable, Iterator

import numpy as np

from ..corpus.bin_packing import pack, packed_keys
from ..corpus.corpus import Corpus
from ..corpus.packing import truncation
from ..noise.masking import masking_rule
from ..noise.noise import MaskableRows, MaskingVocabulary, Noise
from ..sampling import DYNAMIC, row_draws
from .passes import PassBatches, tokenizer_info_of


def parallel_documents(sources: Iterable[str], targets: Iterable[str]) -> Iterator[str]:
    """Yields a document of two lines, source and target, for every pair of sentences of which neither is empty.

    "a b" and "c" -> "a b\\nc"

    Raises:
        ValueError: if one side has more sentences than the other.
    """
    ends = object()
    sources, targets = iter(sources), iter(targets)
    for number in range(1 << 62):
        source, target = next(sources, ends), next(targets, ends)
        if source is ends and target is ends:
            return
        if source is ends or target is ends:
            shorter, longer = ("sources", "targets") if source is ends else ("targets", "sources")
            raise ValueError(f"Every source must have a target. Received: {number} {shorter}, but more {longer}.")
        pair = [" ".join(side.split()) for side in (source, target)]
        if all(pair):
            yield "\n".join(pair)


class TranslationLMBatches(PassBatches):
    """Batches of sentence pairs, each a sentence and its translation in one row, for translation language modeling.

    Masked tokens can be predicted from both languages. A row is </s> x1 </s> </s> x2 </s>. Positions start at 0 in each
    half, and each half has the id of its language.

    x: "token_ids", "position_ids", "language_ids" (b, s), "lengths" (b,) or, for packed rows, "sequence_ids" (b, s) and
    "first_positions" (b, n), and "masked_positions" (b, p) with -1 in unused slots. y: the original tokens (b, p), with
    weight 1 in used slots. The first token of a pair is never masked. Pairs that are too long are truncated at the end
    of the longer half. Paper: Lample, Conneau 2019, arXiv 1901.07291, section 3.4.

    Args:
        corpus: a `Corpus` of documents that consist of two lines, a sentence and its translation (see
            `parallel_documents`). Other documents are left out.
        batch_size: rows per update.
        length: tokens per row, at least 6.
        languages: language ids of the first and the second line.
        seed: seed of the order of the rows and of the masks.
        steps: number of updates in the run. Default: one pass over the pairs.
        both_orders: whether every pair occurs twice per pass, once in each order of the two languages.
        packed: whether to put as many pairs into a row as fit. They do not attend to each other.
        noise: the masking rule. Default: XLM's rule, which selects each token independently.

    Raises:
        ValueError: if the corpus has no documents of two lines, the tokenizer has no separator or end token, `length`
            is below 6, or `languages` are not two different ids.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        languages: tuple[int, int] = (0, 1),
        seed: int = 0,
        steps: int | None = None,
        both_orders: bool = True,
        packed: bool = False,
        noise: Noise | None = None,
    ):
        info = tokenizer_info_of(corpus, "mask", "pad")
        self._end_id = info["sep_id"] if info["sep_id"] is not None else info["eos_id"]
        if self._end_id is None:
            raise ValueError("Pairs need a tokenizer with a separator (or end) token. Received: one with neither.")
        if length < 6:
            raise ValueError(f"`length` must be at least 6, four of which are special tokens. Received: {length}.")
        if len(set(languages)) != 2:
            raise ValueError(f"`languages` must be two different ids. Received: {languages}.")
        self.corpus, self.length, self.languages = corpus, length, tuple(languages)
        self.both_orders, self.packed = both_orders, packed
        lines = np.diff(corpus.document_starts)
        first = np.asarray(corpus.document_starts[:-1])[lines == 2]
        if not len(first):
            raise ValueError(
                "The corpus must have documents of two lines, a sentence and its translation. Received: a corpus "
                "without "
                "such documents. Create them with kerasbert.data.parallel_documents."
            )
        self.num_pairs = len(first)
        sizes = np.stack([corpus.lengths[first], corpus.lengths[first + 1]], axis=1).astype(np.int64)
        sizes -= np.stack(truncation(sizes[:, 0], sizes[:, 1], length - 4), axis=1)
        starts = np.stack([corpus.sequence_starts[first], corpus.sequence_starts[first + 1]], axis=1)
        # The start and the size of each half, and whether the translation comes first (1) or not (0).
        self._pairs = np.column_stack([starts[:, 0], sizes[:, 0], starts[:, 1], sizes[:, 1], np.zeros(len(first), int)])
        if both_orders:
            other = self._pairs[:, [2, 3, 0, 1, 4]]
            other[:, 4] = 1
            self._pairs = np.concatenate([self._pairs, other])
        rows = len(self._pairs)
        if packed:
            order, bounds = pack(self._pairs[:, 1] + self._pairs[:, 3] + 4, length, seed)
            self._pairs, self._packs = self._pairs[order], np.stack([bounds[:-1], np.diff(bounds)], axis=1)
            rows = len(self._packs)
        self.noise = (noise or masking_rule("xlm")).for_corpus(corpus)
        self._vocabulary = MaskingVocabulary(info["mask_id"], info["vocabulary_size"], (self._end_id,), corpus)
        self.max_predictions = self.noise.num_slots(length, 4)
        super().__init__(batch_size, (0, rows), seed, steps)

    def recipe(self) -> dict:
        found = {**super().recipe(), "corpus": self.corpus.fingerprint, "languages": list(self.languages)}
        found |= {"both_orders": self.both_orders, "packed": self.packed}
        return {**found, "noise": self.noise.settings(), "max_predictions": self.max_predictions}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, _ = self._places(update, first, last)
        tokens, end, shape = self.corpus.tokens, self._end_id, (len(lines), self.length)
        token_ids = np.full(shape, self.corpus.tokenizer_info["pad_id"], dtype=np.int32)
        positions, languages = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        starts, sizes, counts = np.zeros(shape, bool), [], []
        for row, line in enumerate(lines.tolist()):
            begin, count = (0, 0) if line < 0 else self._packs[line].tolist() if self.packed else (line, 1)
            place = 0
            for *halves, order in self._pairs[begin : begin + count].tolist():
                starts[row, place] = True
                sizes.append(4 + halves[1] + halves[3])
                for half, (start, size) in enumerate((halves[:2], halves[2:])):
                    stop = place + size + 2
                    token_ids[row, place], token_ids[row, stop - 1] = end, end
                    token_ids[row, place + 1 : stop - 1] = tokens[start : start + size]
                    positions[row, place:stop] = np.arange(size + 2)
                    languages[row, place:stop] = self.languages[half ^ order]
                    place = stop
            counts.append(count)
        lengths = np.zeros(len(lines), dtype=np.int32)
        np.add.at(lengths, np.repeat(np.arange(len(lines)), counts), sizes)
        x = {"token_ids": token_ids, "position_ids": positions, "language_ids": languages}
        if self.packed:
            most = int(self._packs[:, 1].max())
            keys = packed_keys(np.array(sizes, dtype=np.int64), np.array(counts), self.length, most)
            x |= {name: keys[name] for name in ("sequence_ids", "first_positions")}
        else:
            x["lengths"] = lengths
        real = np.arange(self.length) < lengths[:, None]
        rows = MaskableRows(token_ids, lengths, real & ~starts, starts, self.max_predictions, self._vocabulary)
        num_draws = self.noise.num_draws(self.length, self.max_predictions)
        draws = row_draws(self.seed, update, DYNAMIC, first, last - first, num_draws)
        x["masked_positions"], targets = self.noise(rows, draws)
        return x, targets, (x["masked_positions"] >= 0).astype(np.float32)

"""Row layouts: chunks, whole lines, a stream, or several sequences per row. Layouts of pairs are in `pair_rows`.

A layout has a plan with one entry per row. The entry says which tokens of the corpus fill the row. To add a layout,
write a class that is called with `(corpus, length, seed)` and has the attributes and methods of `ChunkRows`.
"""

from collections.abc import Callable, Iterator

import numpy as np

from ..corpus.bin_packing import pack, packed_keys
from ..corpus.blocks import Block
from ..corpus.corpus import Corpus
from ..corpus.packing import document_chunks, sentence_blocks, whole_sentences
from ..corpus.segments import joined_segments
from ..corpus.streams import TokenStream
from ..tasks.examples import fill_rows


class _LineStarts:
    """Says for the tokens of a corpus, instead of their ids, which of them begin a line.

    Args:
        corpus: the `Corpus`.
    """

    FIRST, LATER = -1, -2

    def __init__(self, corpus: Corpus):
        self._starts = corpus.sequence_starts

    def __getitem__(self, part: slice) -> np.ndarray:
        found = np.full(part.stop - part.start, self.LATER, dtype=np.int32)
        first, last = np.searchsorted(self._starts, (part.start, part.stop))
        found[self._starts[first:last] - part.start] = self.FIRST
        return found


class ChunkRows:
    """Base class of row layouts that put text into the tokenizer's template for single texts or pairs.

    Attributes:
        labeled: whether rows have a sentence-pair label, which `labels(lines)` then returns.
        template: the layout of a row as a list of (item, segment id), where an item is the id of a special token, or
            "A" or "B" for a text. () for rows without special tokens.
        max_tokens: maximum number of tokens of text per row.
        plan: integers (entries, columns), one entry per row.
        bounds: index in the plan at which each pass with different rows begins, followed by the length of the plan.
    """

    labeled = False
    texts = ("single", 1)

    def __init__(self, corpus: Corpus, length: int, seed: int = 0):
        if not hasattr(length, "__index__"):
            raise ValueError(f"`length` must be an integer. Received: {length!r}.")
        self.corpus, self.length = corpus, length
        self.template = corpus.tokenizer_info[self.texts[0]]
        self.max_tokens = length - sum(item not in ("A", "B") for item, _ in self.template)
        if self.max_tokens < self.texts[1]:
            raise ValueError(
                f"`length` must leave space for text besides the special tokens. Received: {length}. Use at least "
                f"{len(self.template)}."
            )
        self.plan, self.bounds = None, None

    def make_plan(self, name: str, settings: dict, build) -> None:
        self.plan = self.corpus.plan(f"{name}_{self.length}", {"tokens": self.max_tokens, **settings}, build)
        self.bounds = (0, len(self.plan))

    def places(self, lines: np.ndarray, real: np.ndarray) -> np.ndarray | None:
        """Position in `corpus.tokens` of every token of the given rows, or -1 for special tokens and padding.

        Args:
            lines: int (b,), indices into the plan.
            real: bool (b, s), False at padding.

        Returns: int (b, s), or None for layouts whose rows are not contiguous in the corpus.
        """
        return None

    def line_starts(self, lines: np.ndarray) -> np.ndarray | None:
        """bool (b, s), True at the first token of each line of the corpus, or None if special tokens separate lines.

        Args:
            lines: as in `fill`.
        """
        return self.fill(lines, _LineStarts(self.corpus))["token_ids"] == _LineStarts.FIRST

    def fill(self, lines: np.ndarray, tokens: "np.ndarray | _LineStarts | None" = None) -> dict:
        """Builds the x of a batch.

        Args:
            lines: int (b,), index in the plan of each row's entry, or -1 for a padding row.
            tokens: what the rows contain. Default: the tokens of the corpus.
        """
        plan = np.asarray(self.plan[np.maximum(lines, 0)])
        tokens = self.corpus.tokens if tokens is None else tokens
        columns = ((0, 1), (2, 3))[: self.texts[1]]
        rows = [
            tuple(tokens[line[start] : line[start] + line[size]] for start, size in columns) if there else ()
            for line, there in zip(plan.tolist(), (lines >= 0).tolist(), strict=True)
        ]
        return fill_rows(self.corpus.tokenizer_info, rows, self.length, segments=self.texts[1] == 2)


class SingleChunkRows(ChunkRows):
    """Base class of layouts whose rows are contiguous in the corpus."""

    def places(self, lines: np.ndarray, real: np.ndarray) -> np.ndarray:
        plan = np.asarray(self.plan[np.maximum(lines, 0)])
        lead = [item for item, _ in self.template].index("A")
        within = np.arange(self.length) - np.argmax(real, axis=1)[:, None] - lead
        inside = (within >= 0) & (within < plan[:, 1:]) & (lines >= 0)[:, None]
        return np.where(inside, plan[:, :1] + within, -1)


class DocumentRows(SingleChunkRows):
    """Rows that are contiguous chunks of documents."""

    def __init__(self, corpus: Corpus, length: int, seed: int = 0):
        super().__init__(corpus, length)
        self.make_plan(
            "chunks",
            {},
            lambda: (document_chunks(block.document_tokens, self.max_tokens) for block in corpus.blocks()),
        )


class SentenceRows(SingleChunkRows):
    """Rows of as many whole sentences of one document as fit. Sentences longer than a row are left out."""

    def __init__(self, corpus: Corpus, length: int, seed: int = 0):
        super().__init__(corpus, length)
        self.make_plan(
            "sentences",
            {},
            lambda: (whole_sentences(block.sentences, block.documents, self.max_tokens) for block in corpus.blocks()),
        )
        if not len(self.plan):
            raise ValueError(
                f"A row must have space for a whole sentence. Received: length={length}, and only longer sentences. "
                'Use a larger length, rows="chunks", or a corpus with shorter lines.'
            )


class KnownRows(SingleChunkRows):
    """The rows of `DocumentRows`, except those that are short or mostly unknown tokens, as in DistilBERT's code.

    Rows of at most 11 tokens, and rows in which at least half of the tokens are unknown, are left out. Both counts
    include special tokens.
    """

    def __init__(self, corpus: Corpus, length: int, seed: int = 0):
        super().__init__(corpus, length)

        def build() -> Iterator[np.ndarray]:
            for block in corpus.blocks():
                chunks = document_chunks(block.document_tokens, self.max_tokens)
                texts = (corpus.tokens[start : start + size] for start, size in chunks.tolist())
                unknown = np.array([np.count_nonzero(text == corpus.tokenizer_info["unk_id"]) for text in texts])
                sizes = chunks[:, 1] + length - self.max_tokens
                yield chunks[(sizes > 11) & (2 * unknown < sizes)]

        self.make_plan("known_chunks", {"shortest": 12, "unknown": 0.5}, build)


class SegmentRows(ChunkRows):
    """Rows of whole sentences of one document, in one or two segments without a label (see `joined_segments`)."""

    texts = ("pair", 2)

    def __init__(self, corpus: Corpus, length: int, seed: int = 0):
        super().__init__(corpus, length)
        special = tuple(
            sum(item not in ("A", "B") for item, _ in corpus.tokenizer_info[kind]) for kind in ("single", "pair")
        )

        def segments(block: Block) -> tuple[np.ndarray, np.ndarray]:
            documents = np.unique(block.documents)  # without those that are empty
            return joined_segments(block.sentences, documents, length, special, seed, block=block.number)

        settings = {"special": special, "seed": seed}
        self._runs, rows = two_plans(corpus, f"segment_runs_{length}", settings, segments)
        self.make_plan("segments", settings, rows)

    def fill(self, lines: np.ndarray, tokens: "np.ndarray | _LineStarts | None" = None) -> dict:
        tokens, rows = self.corpus.tokens if tokens is None else tokens, []
        for line in lines.tolist():
            first, *counts = self.plan[line].tolist() if line >= 0 else (0, 0, 0)
            row = []
            for count in counts:
                runs = self._runs[first : first + count].tolist()
                row += [np.concatenate([tokens[start : start + size] for start, size in runs])] if runs else []
                first += count
            rows.append(tuple(row))
        return fill_rows(self.corpus.tokenizer_info, rows, self.length, segments=True)


class FullSentenceRows(ChunkRows):
    """Rows of as many whole lines as fit, across documents. An end token follows every line and every document.

    <s> line </s> line </s> </s> line </s>. A line longer than a row is split into several lines.
    """

    within_documents = False

    def __init__(self, corpus: Corpus, length: int, seed: int = 0):
        super().__init__(corpus, length)
        place = [item for item, _ in self.template].index("A")
        self._lead = [item for item, _ in self.template[:place]]
        if len(self.template) != place + 2:
            raise ValueError(
                "Rows of whole lines need a tokenizer whose template for single texts ends with one special token. "
                f"Received: the template {self.template}."
            )
        self._end = self.template[-1][0]
        limit = length - len(self._lead)

        def lines_and_rows(block: Block) -> tuple[np.ndarray, np.ndarray]:
            lines = self._cut_lines(block, limit - 1)
            ends = lines[:, 1] == 0 if self.within_documents else None
            return lines, sentence_blocks(lines[:, 1] + 1, limit, ends)

        self._lines, rows = two_plans(corpus, f"lines_{length}", {"lines": limit - 1}, lines_and_rows)
        name = "doc_sentences" if self.within_documents else "full_sentences"
        self.make_plan(name, {"limit": limit, "within_documents": self.within_documents}, rows)

    @staticmethod
    def _cut_lines(block: Block, longest: int) -> np.ndarray:
        """Start and length of every line, and a line of length 0 after each document."""
        pieces = document_chunks(block.sentences, longest)
        ends = np.unique(block.document_tokens)[1:]
        lines = np.concatenate([pieces, np.stack([ends, np.zeros_like(ends)], axis=1)])
        # The empty line at the end of a document is sorted before the line that begins at the same position.
        return lines[np.lexsort((lines[:, 1], lines[:, 0]))]

    def line_starts(self, lines: np.ndarray) -> None:
        return None

    def fill(self, lines: np.ndarray) -> dict:
        info, lead = self.corpus.tokenizer_info, len(self._lead)
        token_ids = np.full((len(lines), self.length), info["pad_id"] or 0, dtype=np.int32)
        totals = np.zeros(len(lines), dtype=np.int32)
        left = info["padding_side"] == "left"
        for number, line in enumerate(lines.tolist()):
            if line < 0:
                continue
            first, count = self.plan[line].tolist()
            block = self._lines[first : first + count]
            start, stop = int(block[0, 0]), int(block[-1].sum())
            total = totals[number] = lead + stop - start + count
            row = token_ids[number, self.length - total if left else 0 :][:total]
            row[:lead] = self._lead
            is_text = np.ones(total - lead, dtype=bool)
            is_text[np.cumsum(block[:, 1] + 1) - 1] = False
            row[lead:] = self._end
            row[lead:][is_text] = self.corpus.tokens[start:stop]
        if left:
            return {"token_ids": token_ids, "padding_mask": np.arange(self.length) >= self.length - totals[:, None]}
        return {"token_ids": token_ids, "lengths": totals}


class DocSentenceRows(FullSentenceRows):
    """Like `FullSentenceRows`, but every row is from one document."""

    within_documents = True


class StreamRows(ChunkRows):
    """Rows that are contiguous chunks of the whole text, with the end token after every line and without a template."""

    def __init__(self, corpus: Corpus, length: int, seed: int = 0):
        if length < 2:
            raise ValueError(f"`length` must be at least 2: the first token is never predicted. Received: {length}.")
        info = corpus.tokenizer_info
        self.corpus, self.length, self.max_tokens, self.template = corpus, length, length, ()
        self._stream = TokenStream(corpus, info["eos_id"] if info["eos_id"] is not None else info["sep_id"], True)
        self.bounds = (0, -(-len(self._stream) // length))

    def line_starts(self, lines: np.ndarray) -> None:
        return None

    def fill(self, lines: np.ndarray) -> dict:
        places = lines[:, None] * self.length + np.arange(self.length)
        there = (places < len(self._stream)) & (lines >= 0)[:, None]
        tokens = self._stream[np.where(there, places, 0)]
        pad = np.int32(self.corpus.tokenizer_info["pad_id"] or 0)
        return {"token_ids": np.where(there, tokens, pad), "lengths": there.sum(axis=1, dtype=np.int32)}


class PackedRows(ChunkRows):
    """Rows that each contain several chunks of documents, to reduce padding. Each chunk has its special tokens.

    "sequence_ids" says which chunk each token belongs to, because chunks do not attend to each other. "position_ids"
    are positions within a chunk, and "first_positions" are the positions at which the chunks of a row begin.
    """

    def __init__(self, corpus: Corpus, length: int, seed: int = 0):
        super().__init__(corpus, length)
        self._special = len(self.template) - 1

        def packing(block: Block) -> tuple[np.ndarray, np.ndarray]:
            chunks = document_chunks(block.document_tokens, self.max_tokens)
            order, starts = pack(chunks[:, 1] + self._special, length, seed, block=block.number)
            return chunks[order], np.stack([starts[:-1], np.diff(starts)], axis=1)

        settings = {"tokens": self.max_tokens, "seed": seed}
        self._chunks, rows = two_plans(corpus, f"packed_chunks_{length}", settings, packing)
        self.make_plan("packed_rows", {"seed": seed}, rows)
        self.most = int(self.plan[:, 1].max())

    def fill(self, lines: np.ndarray, tokens: "np.ndarray | _LineStarts | None" = None) -> dict:
        info, tokens = self.corpus.tokenizer_info, self.corpus.tokens if tokens is None else tokens
        token_ids = np.full((len(lines), self.length), info["pad_id"] or 0, dtype=np.int32)
        lengths, counts = [], []
        for row, line in zip(token_ids, lines.tolist(), strict=True):
            first, count = self.plan[line].tolist() if line >= 0 else (0, 0)
            place = 0
            for start, size in self._chunks[first : first + count].tolist():
                for item, _ in self.template:
                    ids = tokens[start : start + size] if item == "A" else [item]
                    row[place : place + len(ids)] = ids
                    place += len(ids)
                lengths.append(size + self._special)
            counts.append(count)
        keys = packed_keys(np.array(lengths, dtype=np.int64), np.array(counts), self.length, self.most)
        return {"token_ids": token_ids, **keys}


def two_plans(
    corpus: Corpus, name: str, settings: dict, build: Callable[[Block], tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, Callable[[], Iterator[np.ndarray]]]:
    """Builds a plan of pieces. Returns it with a function that builds the plan of rows, which refer to the pieces.

    Args:
        name, settings: arguments of `Corpus.plan` for the plan of pieces.
        build: function that returns the pieces and the rows of a block. The first column of the rows is the index of a
            piece in the block. In the plan, it becomes the index in the corpus.
    """
    latest: dict = {}  # the block that was built last: both plans of a corpus of one block need it

    def built(block: Block) -> tuple[np.ndarray, np.ndarray]:
        if block.number not in latest:
            latest.clear()
            latest[block.number] = build(block)
        return latest[block.number]

    def rows() -> Iterator[np.ndarray]:
        first = 0
        for block in corpus.blocks():
            pieces, found = built(block)
            yield np.concatenate([found[:, :1] + first, found[:, 1:]], axis=1)
            first += len(pieces)

    return corpus.plan(name, settings, lambda: (built(block)[0] for block in corpus.blocks())), rows


def real_tokens(x: dict) -> np.ndarray:
    """bool (b, s), True at tokens of a batch that are not padding."""
    if "lengths" in x:
        return np.arange(x["token_ids"].shape[1], dtype=np.int32) < x["lengths"][:, None]
    return x["padding_mask"] if "padding_mask" in x else x["sequence_ids"] > 0

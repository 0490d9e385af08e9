"""Batches of queries with lists of documents, whose pairs are put together when a batch is read."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..tasks.examples import fill_rows, kept_lengths, never_empty
from ..tokenizers.tokenizer import Tokenizer
from .batches import ExampleBatches
from .bucketing import PREDICTED_WIDTHS, bucket_width

NO_DOCUMENT = -1


@dataclasses.dataclass(frozen=True)
class Lists:
    """Queries, each with a list of documents, and how their pairs are put together.

    Args:
        tokenizer: a `Tokenizer`.
        queries: str (n,).
        documents: the documents of each query, one or more str.
        max_length: maximum number of tokens per pair, including special tokens. Longer pairs are truncated as in
            `encode_texts`.
        choose: if given, the documents that a query is paired with are chosen in each batch among those of all its
            queries, by a function of (queries, documents per query, seed) that returns a table like
            `retrieval.SampledNegatives.documents`. Where a chosen document equals the query's first one, the place is
            left empty.
    """

    tokenizer: Tokenizer
    queries: Sequence[str]
    documents: Sequence[Sequence[str]]
    max_length: int
    choose: Callable[[int, int, Any], np.ndarray] | None = None

    def __post_init__(self) -> None:
        least = len(self.tokenizer.info["pair"])
        if self.max_length < least:
            raise ValueError(
                "`max_length` must leave space for text besides the special tokens. Received: "
                f"{self.max_length}. Use at least {least}."
            )


class DocumentLists(ExampleBatches):
    """Batches of queries, each with a list of documents: x has "token_ids" (b, c, s), a row for each pair.

    Every text is tokenized once. Lists that are shorter than others, and missing examples of the last batch, are filled
    with rows without tokens.

    Args:
        lists: a `Lists`.
        y, sample_weight, batch_size, epochs, seed, shuffle: as in `ExampleBatches`.
    """

    def __init__(
        self,
        lists: Lists,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int = 32,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
    ):
        count = len(lists.queries)
        super().__init__(np.arange(count), y, sample_weight, batch_size, epochs, seed, shuffle)
        self._info, self._choose, self.length = lists.tokenizer.info, lists.choose, lists.max_length
        self._special = len(self._info["pair"]) - 2  # number of special tokens
        known = {text: number for number, text in enumerate(dict.fromkeys(lists.queries))}
        self._queries = np.array([known[text] for text in lists.queries])
        self._query_ids = lists.tokenizer.encode(list(known), add_special_tokens=False)
        flat = (text for texts in lists.documents for text in texts)
        known = {text: number for number, text in enumerate(dict.fromkeys(flat))}
        self._documents = np.full((count, max(map(len, lists.documents))), NO_DOCUMENT)
        for row, texts in zip(self._documents, lists.documents, strict=True):
            row[: len(texts)] = [known[text] for text in texts]
        self._document_ids = lists.tokenizer.encode(list(known), add_special_tokens=False)
        self._query_lengths, self._document_lengths = (
            np.array([len(ids) for ids in texts]) for texts in (self._query_ids, self._document_ids)
        )
        self._columns = self._documents.shape[1]
        if self._choose is not None:  # the last batch of a pass may have fewer
            self._columns = self._choose(min(batch_size, count), self._columns, 0).shape[1]

    def _table(self, examples: np.ndarray, update: int) -> np.ndarray:
        """The numbers of the documents of the examples in a batch, int (rows, columns)."""
        documents = self._documents[examples]
        if self._choose is not None:
            of_batch = documents.T.reshape(-1)
            chosen = self._choose(len(examples), documents.shape[1], (self.seed, update))
            own, documents = documents[:, :1], of_batch[chosen]
            documents[:, 1:][documents[:, 1:] == own] = NO_DOCUMENT
        missing = self._columns - documents.shape[1]
        return np.pad(documents, [(0, 0), (0, missing)], constant_values=NO_DOCUMENT)

    def _lengths(self, queries: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of tokens of queries and documents after truncation, int (rows, columns) each."""
        lengths = np.broadcast_arrays(self._query_lengths[queries][:, None], self._document_lengths[documents])
        return kept_lengths(*lengths, self.length - self._special)

    def _planned(self, update: int) -> tuple:
        """(queries, documents, their lengths, width) of an update, without the rows that are missing."""
        number, step = divmod(update, self.steps_per_epoch)
        examples = ExampleBatches._rows(self, update, 0, self.batch_size)[0]
        examples = examples[: self.num_examples - step * self.batch_size]
        queries, documents = self._queries[examples], self._table(examples, update)
        first, second = self._lengths(queries, documents)
        longest = int(np.where(documents == NO_DOCUMENT, 0, first + second).max()) + self._special
        return queries, documents, first, second, bucket_width(max(longest, 1), self.length, PREDICTED_WIDTHS)

    def _rows(self, update: int, first: int, last: int) -> tuple:
        _, y, weight = super()._rows(update, first, last)
        queries, documents, *lengths, width = self._planned(update)
        rows = []
        for row in range(first, last):
            if row >= len(queries):
                rows += [()] * self._columns
                continue
            query = self._query_ids[queries[row]]
            for document, a, b in zip(documents[row], *(length[row] for length in lengths), strict=True):
                pair = (query[:a], self._document_ids[document][:b])
                rows.append(() if document == NO_DOCUMENT else never_empty(self._info, pair))
        x = fill_rows(self._info, rows, width, segments=self._info["segments"])
        x = {key: array.reshape(last - first, self._columns, *array.shape[1:]) for key, array in x.items()}
        return x, y, weight

    @property
    def tokens_per_step(self) -> int:
        """Mean number of tokens per step, without padding, if every query is paired with documents of mean length."""
        mean = self._query_lengths[self._queries].mean() + self._document_lengths.mean() + self._special
        return max(1, round(self.rows * self._columns * min(self.length, mean)))

    def shape_steps(self) -> list[int]:
        first: dict[int, int] = {}
        for step in range(min(len(self), 2 * self.steps_per_epoch * self.accumulation)):
            first.setdefault(self._planned((self._start + step) // self.accumulation)[-1], step)
        return sorted(first.values())

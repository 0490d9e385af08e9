"""Batches of a corpus of pairs, for encoder-decoders."""

from typing import Any

import numpy as np

from kerasbert.data import Corpus, Seq2SeqBatches


class PairBatches(Seq2SeqBatches):
    """`Seq2SeqBatches` of a corpus whose documents have two lines, a source and its target; others are left out.

    `kerasbert.data.parallel_documents` makes such documents out of parallel files. Both sides end with the end token,
    and a side that is too long loses its tail, but never its end.

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: pairs of an update.
        length: most tokens of a source.
        target_length: most tokens of a target. Default: `length`.
        num_buckets: of how many different shapes batches are at most.
        full_width: rows are as wide as `length` and `target_length` allow, to be mixed with others.
        **options: of `Seq2SeqBatches`, such as `steps`, `seed` and `accumulation`.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        target_length: int | None = None,
        num_buckets: int = 4,
        full_width: bool = False,
        **options: Any,
    ):
        starts = np.append(corpus.sequence_starts, corpus.num_tokens)
        pairs = np.flatnonzero(np.diff(corpus.document_starts) == 2)
        if not len(pairs):
            raise ValueError(
                "Pairs are documents of two lines. Received: a corpus without any. Make them with "
                "kerasbert.data.parallel_documents."
            )
        facts, first = corpus.facts, corpus.document_starts[pairs]
        end_id = facts["sep_id"] if facts["eos_id"] is None else facts["eos_id"]
        sides = [
            [corpus.tokens[starts[line] : starts[line + 1]].astype(np.int32) for line in lines]
            for lines in (first, first + 1)
        ]
        sources = sides[0] if end_id is None else [np.append(row, np.int32(end_id)) for row in sides[0]]
        super().__init__(
            sources,
            sides[1],
            batch_size=batch_size,
            length=length,
            target_length=target_length or length,
            num_buckets=1 if full_width else num_buckets,
            start_id=facts["pad_id"] or 0,
            end_id=end_id,
            **options,
        )
        self.corpus, self.num_pairs = corpus, len(pairs)
        if full_width:
            self.shapes, self.length = [(length, target_length or length)], length + (target_length or length)

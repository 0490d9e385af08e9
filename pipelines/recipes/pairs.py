"""Batches of source-target pairs in a corpus, for encoder-decoders."""

from typing import Any

import numpy as np

from kerasbert.data import Corpus, Seq2SeqBatches, Seq2SeqLayout


class PairBatches(Seq2SeqBatches):
    """`Seq2SeqBatches` for the documents of a corpus that consist of two lines, a source and its target.

    `kerasbert.data.parallel_documents` creates such documents from parallel files. Other documents are skipped. The end
    token is added to sources and targets, and sequences that are too long are truncated before it.

    Args:
        corpus: a `Corpus` with a tokenizer.
        batch_size: pairs per update.
        length: maximum number of tokens in a source.
        target_length: maximum number of tokens in a target. Default: `length`.
        num_buckets: maximum number of different batch shapes.
        full_width: whether to pad rows to `length` and `target_length`, so that the batches can be mixed with others.
        **options: arguments of `Seq2SeqBatches`, such as `steps` and `seed`.
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
                "The corpus must have documents of two lines, a source and its target. Received: none. "
                "Create them with kerasbert.data.parallel_documents."
            )
        info, first = corpus.tokenizer_info, corpus.document_starts[pairs]
        end_id = info["sep_id"] if info["eos_id"] is None else info["eos_id"]
        sides = [
            [corpus.tokens[starts[line] : starts[line + 1]].astype(np.int32) for line in lines]
            for lines in (first, first + 1)
        ]
        sources = sides[0] if end_id is None else [np.append(row, np.int32(end_id)) for row in sides[0]]
        layout = Seq2SeqLayout(
            length, target_length or length, 1 if full_width else num_buckets, info["pad_id"] or 0, end_id
        )
        super().__init__(sources, sides[1], batch_size=batch_size, layout=layout, **options)
        self.corpus, self.num_pairs = corpus, len(pairs)
        if full_width:
            self.shapes, self.length = [(length, target_length or length)], length + (target_length or length)

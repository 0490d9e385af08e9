"""Turns text into a corpus of token ids.

python -m pipelines.prepare_corpus --source text.txt --tokenizer corpora/tokenizer --output corpora/text
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from kerasbert.data import Corpus, Tokenizer, read_documents

from .command import command


def prepare_corpus(
    source: list[str],
    tokenizer: Path,
    output: Path,
    held_out: Path | None = None,
    held_out_every: int = 100,
    column: str | None = None,
    errors: Literal["strict", "replace", "ignore"] = "strict",
    encoding: str = "utf-8",
    subset: str | None = None,
    split: str = "train",
    clean: Literal["c4"] | None = None,
    deduplicate: Literal["lines", "documents", "spans"] | None = None,
) -> Corpus:
    """Tokenizes documents into Megatron's .bin and .idx files.

    Args:
        source: files or folders (text, CSV, TSV, JSON, JSONL, Parquet), or hf://name for a data set of the hub. In text
            files a blank line ends a document.
        tokenizer: folder of the tokenizer.
        output: folder of the corpus, which must not hold one.
        held_out: folder for a second corpus, to evaluate on: every `held_out_every`-th document; of fewer than
            twice as many, two (of two or three, the last).
        held_out_every: 100 holds one per cent out.
        column: of a table, the one with the text.
        errors: what to do with bytes that are not text.
        encoding: of the files.
        subset: configuration of a data set of the hub.
        split: of a data set of the hub.
        clean: by the rules of C4: lines of web text that are no sentences, and pages with code or too little text, go.
        deduplicate: keep each line or document once, or of any three sentences in a row the first occurrence.
    """

    options = dict(column=column, errors=errors, encoding=encoding, subset=subset, split=split)
    options |= dict(clean=clean, deduplicate=deduplicate)

    if held_out:
        # Before anything is written: a corpus of one document has none to hold out.
        first = sum(1 for _ in itertools.islice(read_documents(source, **options), 2 * held_out_every))
        if first < 2 or held_out_every < 2:
            raise ValueError(
                "Whole documents are held out: there must be two or more, and `held_out_every` at least 2. Received: "
                f"{first} of them, held_out_every={held_out_every}. A blank line in a text file ends one. Or drop "
                "--held-out, and prepare a corpus of other text to evaluate on."
            )
        # Two, so that sentence pairs can be measured.
        held_out_every = min(held_out_every, first // 2 if first > 3 else first)

    def documents(unseen: bool) -> Iterator[str]:
        for number, document in enumerate(read_documents(source, **options), start=1):
            if unseen == (held_out is not None and number % held_out_every == 0):
                yield document

    loaded = Tokenizer.load(tokenizer)
    corpus = Corpus.write(output, documents(False), loaded, sources=source)
    describe(corpus)
    if held_out:
        describe(Corpus.write(held_out, documents(True), loaded, sources=source))
    return corpus


def describe(corpus: Corpus) -> None:
    unknown = corpus.summary["unknown_tokens"] / corpus.num_tokens
    print(
        f"{corpus.folder}: {corpus.num_documents:,} documents, {corpus.num_sequences:,} lines, "
        f"{corpus.num_tokens:,} tokens ({unknown:.2%} unknown), unigram entropy {corpus.unigram_entropy():.3f} nats"
    )


if __name__ == "__main__":
    command(prepare_corpus)

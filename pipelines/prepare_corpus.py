"""Turns text into a corpus of token ids.

python -m pipelines.prepare_corpus --source text.txt --tokenizer corpora/tokenizer --output corpora/text
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import tyro

from kerasbert.data import Corpus, Tokenizer, read_documents


def prepare_corpus(
    source: list[str],
    tokenizer: Path,
    output: Path,
    held_out: Path | None = None,
    held_out_every: int = 100,
    column: str | None = None,
    errors: Literal["strict", "replace", "ignore"] = "strict",
    encoding: str = "utf-8",
) -> Corpus:
    """Tokenizes documents into Megatron's .bin and .idx files.

    Args:
        source: files or folders (text, CSV, TSV, JSON, JSONL, Parquet), or hf://name for a data set of the hub. In text
            files a blank line ends a document.
        tokenizer: folder of the tokenizer.
        output: folder of the corpus, which must not hold one.
        held_out: folder for a second corpus, to evaluate on: every `held_out_every`-th document.
        held_out_every: 100 holds one per cent out.
        column: of a table, the one with the text.
        errors: what to do with bytes that are not text.
        encoding: of the files.
    """

    def documents(kept: bool) -> Iterator[str]:
        every = held_out_every if held_out else 0
        for number, document in enumerate(read_documents(source, column=column, errors=errors, encoding=encoding)):
            if kept == bool(every and (number + 1) % every == 0):
                continue
            yield document

    loaded = Tokenizer.load(tokenizer)
    corpus = Corpus.write(output, documents(True), loaded, sources=source)
    describe(corpus)
    if held_out:
        describe(Corpus.write(held_out, documents(False), loaded, sources=source))
    return corpus


def describe(corpus: Corpus) -> None:
    unknown = corpus.summary["unknown_tokens"] / corpus.num_tokens
    print(
        f"{corpus.folder}: {corpus.num_documents:,} documents, {corpus.num_sequences:,} lines, "
        f"{corpus.num_tokens:,} tokens ({unknown:.2%} unknown), unigram entropy {corpus.unigram_entropy():.3f} nats"
    )


if __name__ == "__main__":
    tyro.cli(prepare_corpus)

"""Learns a vocabulary from text.

python -m pipelines.train_tokenizer --source text.txt --output corpora/tokenizer --vocabulary-size 16000 --lowercase
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from kerasbert.data import Tokenizer, read_documents

from .command_line.command import Command
from .corpora.options import TextFiles
from .prepare_corpus import boundary


def train_tokenizer(
    source: list[str],
    output: Path,
    vocabulary_size: int = 16_000,
    kind: Literal["wordpiece", "byte_bpe", "unigram", "bpe"] = "wordpiece",
    lowercase: bool = False,
    accents: Literal["keep", "strip"] | None = None,
    family: str | None = None,
    text: TextFiles = TextFiles(),
) -> Tokenizer:
    """Learns a vocabulary from text, and saves the tokenizer in a format that transformers reads.

    Args:
        source: files or folders (text, CSV, TSV, JSON, JSONL, Parquet), or hf://name for a data set on the hub.
        output: folder for the tokenizer's files.
        vocabulary_size: number of tokens, including special tokens.
        kind: WordPiece as in BERT, byte-level BPE as in RoBERTa, unigram as in ALBERT and T5, or BPE as in XLM.
        lowercase: convert text to lower case. Accents are kept; see `accents`.
        accents: keep accents, or strip them: canapé becomes canape, in all languages, as in uncased BERT, ELECTRA and
            ALBERT. Default: keep, but the BPE of XLM strips them with --lowercase.
        family: model type whose special tokens to use, such as t5 (which has sentinels) or xlnet.
    """
    count = characters = 0

    def texts() -> Iterator[str]:
        nonlocal count, characters
        ends = boundary(source, text.documents, text.encoding)
        for document in read_documents(source, documents=ends, **text.reading()):
            count, characters = count + 1, characters + len(document)
            yield document

    tokenizer = Tokenizer.train(kind, texts(), vocabulary_size, lowercase, family=family, accents=accents)
    tokenizer.save(output)
    print(
        f"{tokenizer.vocabulary_size:,} tokens in {output}, from {count:,} documents of {characters / count:,.0f} "
        "characters on average"
    )
    return tokenizer


main = Command(
    train_tokenizer,
    groups={"text": ("source",), "tokenizer": ("output", "vocabulary_size", "kind", "lowercase", "accents", "family")},
)

if __name__ == "__main__":
    main()

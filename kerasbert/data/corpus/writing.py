"""Tokenizes documents and writes the files of a corpus, in one pass over the text."""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..text.documents import checked_documents, lines_of
from ..text.files import write_text
from ..tokenizers.tokenizer import Tokenizer
from ..tokenizers.words import WordEncoder
from .megatron import EncodedDocuments, PairWriter
from .statistics import entropy

LIST_CHARACTERS = 1 << 20  # minimum number of characters of the documents that `document_batches` puts together
_BATCH_CHARACTERS = 1 << 18  # characters of text that are tokenized at once


def write_corpus(folder: Path, documents: Iterable[str], tokenizer: Tokenizer, sources: Iterable[str]) -> None:
    """Writes the files of a new corpus (see `Corpus.write`). corpus.json is written last.

    Raises:
        FileExistsError: the folder already holds a corpus, or a different tokenizer.
        ValueError: no document has any text.
    """
    check_is_free(folder, tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    counts = np.zeros(tokenizer.vocabulary_size, dtype=np.int64)
    digest = hashlib.sha256()
    with PairWriter(folder / "corpus", token_dtype(tokenizer)) as writer:
        for batch in encoded_batches(checked_documents(documents), tokenizer):
            writer.append(batch)
            digest.update(batch.tokens)
            counts += np.bincount(batch.tokens, minlength=len(counts))
        if not writer.num_sequences:
            raise ValueError(
                "A corpus needs at least one document with text. Received: no document with text. Check the source."
            )
    write_tokenizer(folder, tokenizer)
    write_record(folder, tokenizer, counts, writer, sources, sha256=digest.hexdigest())


def check_is_free(folder: Path, tokenizer: Tokenizer) -> None:
    """Raises a FileExistsError if a folder already holds a corpus, or a different tokenizer."""
    for name in ("corpus.json", "corpus.idx", "corpus.bin"):
        if (folder / name).exists():
            raise FileExistsError(f"{folder} already holds a corpus ({name}). Remove it, or choose another folder.")
    if (folder / "tokenizer.json").exists() and Tokenizer.load(folder).hash != tokenizer.hash:
        raise FileExistsError(f"{folder} holds another tokenizer. Choose another folder for the corpus.")


def token_dtype(tokenizer: Tokenizer) -> np.dtype:
    """Returns the dtype in which a corpus stores token ids.

    Megatron uses uint16 for vocabularies below 65,500 rather than 2**16, which leaves space for the tokens it adds.
    """
    return np.dtype(np.uint16 if tokenizer.vocabulary_size < 65500 else np.int32)


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(folder)
    with contextlib.suppress(ValueError):  # XLM's tokens mark the end of a word, not its start
        np.save(folder / "word_starts.npy", tokenizer.word_starts)


def write_record(folder: Path, tokenizer: Tokenizer, counts: np.ndarray, size, sources: Iterable[str], **more) -> None:
    """Writes corpus.json.

    Args:
        counts: how often each token occurs.
        size: an object with `num_sequences` and `num_documents`.
        **more: the digest, and other entries of the file.
    """
    record = {
        "num_tokens": int(counts.sum()),
        "num_sequences": size.num_sequences,
        "num_documents": size.num_documents,
        "unknown_tokens": int(counts[tokenizer.unk_id]) if tokenizer.unk_id is not None else 0,
        "unigram_entropy": entropy(counts),
        **more,
        "sources": [str(source) for source in sources],
        "tokenizer": tokenizer.info,
    }
    write_text(folder / "corpus.json", json.dumps(record, indent=1))


def encoded_batches(documents: Iterable[str], tokenizer: Tokenizer) -> Iterator[EncodedDocuments]:
    """Yields the token ids of documents. Several documents are tokenized at once."""
    encoder = WordEncoder(tokenizer)
    return (encode_documents(batch, encoder) for batch in document_batches(documents))


def document_batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Yields lists of consecutive documents, each except the last with at least a million characters in total.

    The lists depend only on the documents, so that a resumed run gets the same lists.
    """
    batch: list[str] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= LIST_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def encode_documents(documents: list[str], encoder: WordEncoder) -> EncodedDocuments:
    """Encodes documents. Every non-empty line becomes a sequence without special tokens."""
    lines, numbers = [], []  # the lines, and the index of the document of each
    for number, document in enumerate(documents):
        found = list(lines_of(document))
        lines += found
        numbers += [number] * len(found)
    ends = np.cumsum([0, *(len(line) for line in lines)])
    cuts = np.searchsorted(ends, np.arange(0, ends[-1], _BATCH_CHARACTERS)).tolist()
    groups = itertools.pairwise([*cuts, len(lines)])
    encoded = [encoder(lines[start:stop]) for start, stop in groups if stop > start]
    tokens, lengths = (
        np.concatenate([np.zeros(0, np.int32), *(parts[place] for parts in encoded)]) for place in range(2)
    )
    counts = np.bincount(np.array(numbers, dtype=np.int64)[lengths > 0], minlength=len(documents))
    return EncodedDocuments(tokens.astype(token_dtype(encoder.tokenizer)), lengths[lengths > 0], counts[counts > 0])

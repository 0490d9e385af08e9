"""Tokenizes documents and writes the files of a corpus, in one pass over the text."""

import contextlib
import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..text.documents import checked_documents, lines_of
from ..text.files import write_text, written_whole
from ..tokenizers.tokenizer import Tokenizer
from .megatron import write_index
from .statistics import entropy

_BATCH_CHARACTERS = 1 << 18  # characters of text that are tokenized at once


def write_corpus(folder: Path, documents: Iterable[str], tokenizer: Tokenizer, sources: Iterable[str]) -> None:
    """Writes the files of a new corpus (see `Corpus.write`). corpus.json is written last.

    Raises:
        FileExistsError: the folder already holds a corpus, or a different tokenizer.
        ValueError: no document has any text.
    """
    for name in ("corpus.json", "corpus.idx", "corpus.bin"):
        if (folder / name).exists():
            raise FileExistsError(f"{folder} already holds a corpus ({name}). Remove it, or choose another folder.")
    if (folder / "tokenizer.json").exists() and Tokenizer.load(folder).hash != tokenizer.hash:
        raise FileExistsError(f"{folder} holds another tokenizer. Choose another folder for the corpus.")
    folder.mkdir(parents=True, exist_ok=True)
    # Megatron uses uint16 for vocabularies below 65,500 rather than 2**16, which leaves space for the tokens it adds.
    dtype = np.dtype(np.uint16 if tokenizer.vocabulary_size < 65500 else np.int32)
    counts = np.zeros(tokenizer.vocabulary_size, dtype=np.int64)
    digest = hashlib.sha256()
    lengths, document_starts = array("i"), array("q", [0])
    with written_whole(folder / "corpus.idx") as index, written_whole(folder / "corpus.bin") as binary:
        current = 0
        for number, ids in _encoded(documents, tokenizer):
            if not len(ids):
                continue
            if number != current and lengths:
                document_starts.append(len(lengths))
            current = number
            data = ids.astype(dtype)
            binary.write(data)
            digest.update(data)
            counts += np.bincount(ids, minlength=len(counts))
            lengths.append(len(ids))
        document_starts.append(len(lengths))
        if not lengths:
            raise ValueError(
                "A corpus needs at least one document with text. Received: no document with text. Check the source."
            )
        write_index(index, lengths, document_starts, dtype)
    tokenizer.save(folder)
    with contextlib.suppress(ValueError):  # XLM's tokens mark where a word ends, not where it starts
        np.save(folder / "word_starts.npy", tokenizer.word_starts)
    summary = {
        "num_tokens": int(counts.sum()),
        "num_sequences": len(lengths),
        "num_documents": len(document_starts) - 1,
        "unknown_tokens": int(counts[tokenizer.unk_id]) if tokenizer.unk_id is not None else 0,
        "unigram_entropy": entropy(counts),
        "sha256": digest.hexdigest(),
        "sources": [str(source) for source in sources],
        "tokenizer": tokenizer.info,
    }
    write_text(folder / "corpus.json", json.dumps(summary, indent=1))


def _encoded(documents: Iterable[str], tokenizer: Tokenizer) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the document index and the token ids of every line of text. Many lines are tokenized at once."""
    waiting: list[tuple[int, str]] = []
    size = 0
    for number, document in enumerate(checked_documents(documents)):
        for line in lines_of(document):
            waiting.append((number, line))
            size += len(line)
            if size >= _BATCH_CHARACTERS:
                yield from _encoded_lines(waiting, tokenizer)
                waiting, size = [], 0
    yield from _encoded_lines(waiting, tokenizer)


def _encoded_lines(lines: list[tuple[int, str]], tokenizer: Tokenizer) -> Iterator[tuple[int, np.ndarray]]:
    ids = tokenizer.encode([line for _, line in lines], add_special_tokens=False, plain_text=True)
    return zip((number for number, _ in lines), ids, strict=True)

"""Parts, which hold the encoded documents of a corpus in preparation, and the corpus that is assembled from them.

part-00000.bin, part-00000.idx    encoded documents, in Megatron's files
part-00000.json                   how many documents were read, and what filters dropped; written last

An interrupted preparation continues after the last complete part. The number of documents is known only at the end, so
they are divided into shards, and into training and held-out documents, at the end.
"""

import dataclasses
import functools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..text.files import write_text
from ..text.filters import DropReport, Filter, filtered
from ..tokenizers.tokenizer import Tokenizer
from ..tokenizers.words import WordEncoder
from .blocks import num_blocks
from .megatron import EncodedDocuments, MegatronPair, Pairs, PairWriter
from .shards import Selection, shard_blocks, shard_name, shard_table, write_documents, write_shard
from .statistics import count_tokens
from .verification import tokens_digest
from .writing import encode_documents, token_dtype, write_record, write_tokenizer


@dataclasses.dataclass(frozen=True)
class Batch:
    """The result of filtering and encoding consecutive documents.

    Attributes:
        encoded: the documents that are kept.
        read: number of documents that were read.
        dropped: what the filters dropped; see `DropReport.to_list`.
    """

    encoded: EncodedDocuments
    read: int
    dropped: list[dict]


@dataclasses.dataclass(frozen=True)
class BatchEncoder:
    """A callable that filters and tokenizes documents: list of str -> `Batch`. It can be sent to other processes."""

    tokenizer: Tokenizer
    filters: tuple[Filter, ...] = ()

    @functools.cached_property
    def _encoder(self) -> WordEncoder:
        return WordEncoder(self.tokenizer)

    def __call__(self, documents: list[str]) -> Batch:
        report = DropReport()
        kept = list(filtered(documents, self.filters, report))
        return Batch(encode_documents(kept, self._encoder), len(documents), report.to_list())


class Parts:
    """A folder of parts.

    Args:
        folder: the folder. Parts in it that were made with other settings are removed.
        settings: everything that determines the parts, as a dict that JSON can represent. Default: the settings that
            are stored in the folder.
    """

    def __init__(self, folder: Path, settings: dict | None = None):
        self.folder = folder
        if settings is not None:
            self._start(settings)

    def _start(self, settings: dict) -> None:
        folder = self.folder
        text = json.dumps(settings, indent=1, sort_keys=True)
        path = folder / "settings.json"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            write_text(path, text)
        for partial in folder.glob(".*.partial"):  # of a process that was killed
            partial.unlink()

    def record(self, number: int) -> dict | None:
        """Returns the record of a part, or None if it is not complete."""
        path = self._prefix(number).with_suffix(".json")
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def complete(self) -> list[dict]:
        """The records of the complete parts, up to the first missing part."""
        records = []
        while (record := self.record(len(records))) is not None:
            records.append(record)
        return records

    def write(self, number: int, batches: Iterable[Batch], dtype: np.dtype) -> dict:
        """Writes a part, and returns its record."""
        report, read = DropReport(), 0
        with PairWriter(self._prefix(number), dtype) as writer:
            for batch in batches:
                writer.append(batch.encoded)
                report.add(batch.dropped)
                read += batch.read
        record = {"read": read, "documents": writer.num_documents, "dropped": report.to_list()}
        write_text(self._prefix(number).with_suffix(".json"), json.dumps(record, indent=1))
        return record

    def prefixes(self, count: int) -> list[Path]:
        """Returns the paths of the parts, out of `count`, that contain documents."""
        return [self._prefix(number) for number in range(count) if self.record(number)["documents"]]

    def _prefix(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}"


@dataclasses.dataclass(frozen=True)
class Assembly:
    """A corpus that is assembled from the documents of parts. Its pieces can be written by different processes.

    Args:
        folder: the folder of the corpus.
        parts: paths of the parts.
        tokenizer: the tokenizer that encoded them.
        selection: which documents are in the corpus.
        shards: number of shards, at most one for each block, or None for one file that is one block.
        block_documents: number of documents of a block, for a corpus in shards.
    """

    folder: Path
    parts: tuple[Path, ...]
    tokenizer: Tokenizer
    selection: Selection
    shards: int | None
    block_documents: int

    def num_pieces(self) -> int:
        """Number of pieces: shards, or 1."""
        return 1 if self.shards is None else min(self.shards, num_blocks(self._documents(), self.block_documents))

    def write(self, number: int) -> np.ndarray:
        """Writes a piece. Returns how often each token occurs in it, int64 (vocabulary_size,)."""
        files, pieces = self._files(), self.num_pieces()
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.shards is not None:
            blocks = shard_blocks(number, pieces, self._documents(), self.block_documents)
            prefix = self.folder / shard_name(number)
            return write_shard(prefix, files, self.selection, blocks, self.block_documents, self.tokenizer)
        prefix = self.folder / "corpus"
        write_documents(prefix, files, self.selection, 0, self._documents(), token_dtype(self.tokenizer))
        return count_tokens(Pairs([MegatronPair(prefix)]).token_blocks(), self.tokenizer.vocabulary_size)

    def finish(self, counts: np.ndarray, sources: Iterable[str]) -> None:
        """Writes the files of the tokenizer and corpus.json, after all pieces are written.

        Args:
            counts: how often each token occurs in all pieces.
            sources: names of the sources of the text, which corpus.json records.
        """
        if self.shards is None:
            pairs = [MegatronPair(self.folder / "corpus")]
            further = {"sha256": tokens_digest(Pairs(pairs))}
        else:
            further = shard_table(self.folder, self.num_pieces(), self.tokenizer.hash)
            further["block_documents"] = self.block_documents
            pairs = [MegatronPair(self.folder / shard["name"]) for shard in further["shards"]]
        write_tokenizer(self.folder, self.tokenizer)
        write_record(self.folder, self.tokenizer, counts, Pairs(pairs), sources, **further)

    def _files(self) -> Pairs:
        return Pairs([MegatronPair(path) for path in self.parts])

    def _documents(self) -> int:
        return self.selection.count(self._files().num_documents)


def num_documents(parts: Iterable[Path]) -> int:
    """Returns the number of documents in parts, given their paths."""
    return Pairs([MegatronPair(path) for path in parts]).num_documents

"""Reads and writes the `.bin` and `.idx` files of Megatron corpora, which datatrove, NeMo and MaxText use, too."""

import contextlib
import copy
import dataclasses
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..text.files import written_whole
from .joined import Joined, Shifted
from .record import check_ids

CHECKED_ON_OPEN = 1 << 22  # bytes of the index, and of the tokens, up to which opening a corpus checks them
_CHUNK = 1 << 22  # tokens that are read at once
_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")  # magic number, version, dtype code, sequences, documents + 1
_DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}


@dataclasses.dataclass(frozen=True)
class EncodedDocuments:
    """The token ids of consecutive documents. Empty lines and documents are left out.

    Attributes:
        tokens: all token ids, int (tokens,).
        lengths: number of tokens of each line, int32 (lines,).
        lines: number of lines of each document, int64 (documents,).
    """

    tokens: np.ndarray
    lengths: np.ndarray
    lines: np.ndarray


class PairWriter:
    """Writes documents to a `.bin` and an `.idx` file, in constant memory.

    It is a context manager. The files appear when the block ends without an error.

    Args:
        prefix: path of the files without their suffixes.
        dtype: dtype of the tokens.
    """

    def __init__(self, prefix: Path, dtype: np.dtype):
        self._prefix, self._dtype = prefix, np.dtype(dtype)

    def __enter__(self) -> "PairWriter":
        with contextlib.ExitStack() as stack:
            self._index, self._binary = (
                stack.enter_context(written_whole(self._prefix.with_name(self._prefix.name + suffix)))
                for suffix in (".idx", ".bin")
            )
            # The index holds three arrays, one after another, whose sizes are known only at the end.
            self._lengths, self._starts = (
                stack.enter_context(tempfile.TemporaryFile(dir=self._prefix.parent)) for _ in range(2)
            )
            self.num_tokens = self.num_sequences = self.num_documents = 0
            self._stack = stack.pop_all()
        return self

    def append(self, documents: EncodedDocuments) -> None:
        starts = self.num_sequences + np.cumsum(documents.lines) - documents.lines
        self._binary.write(documents.tokens.astype(self._dtype))
        self._lengths.write(documents.lengths.astype("<i4"))
        self._starts.write(starts.astype("<i8"))
        self.num_tokens += len(documents.tokens)
        self.num_sequences += len(documents.lengths)
        self.num_documents += len(documents.lines)

    def __exit__(self, *error) -> None:
        if error[0] is None:
            self._write_index()
        self._stack.__exit__(*error)

    def _write_index(self) -> None:
        header = _HEADER.pack(_MAGIC, 1, _CODES[self._dtype], self.num_sequences, self.num_documents + 1)
        self._index.write(header)
        for block in _blocks_of(self._lengths):
            self._index.write(block)
        position = 0
        for block in _blocks_of(self._lengths):
            ends = position + np.cumsum(np.frombuffer(block, "<i4").astype(np.int64) * self._dtype.itemsize)
            self._index.write(np.concatenate([[position], ends[:-1]]).astype("<i8"))
            position = ends[-1]
        for block in _blocks_of(self._starts):
            self._index.write(block)
        self._index.write(np.array([self.num_sequences], "<i8"))


def _blocks_of(file: BinaryIO, size: int = 1 << 22) -> Iterator[bytes]:
    file.seek(0)
    return iter(lambda: file.read(size), b"")


def read_index(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.dtype]:
    """Reads the index of a corpus into memory-mapped arrays.

    Returns: the length of each sequence in tokens, int32 (sequences,); its byte offset in the `.bin` file, int64
        (sequences,); the index of the first sequence of each document, followed by the number of sequences, int64
        (documents + 1,); and the dtype of the tokens.

    Raises: ValueError if the file is not an index, or is damaged.
    """
    size = path.stat().st_size
    data = np.memmap(path, mode="r") if size else np.zeros(0, np.uint8)
    if size < _HEADER.size or bytes(data[:9]) != _MAGIC:
        raise ValueError(f"{path} is not a Megatron index: it does not begin with {_MAGIC!r}.")
    _, version, code, sequences, documents = _HEADER.unpack(bytes(data[: _HEADER.size]))
    if version != 1 or code not in _DTYPES:
        raise ValueError(
            f"{path} must have version 1 and a dtype code in {[*_DTYPES]}. Received: version {version}, "
            f"dtype code {code}."
        )
    if sequences == 0 or documents < 2:
        raise ValueError(f"{path} is the index of an empty corpus. Write the corpus again.")
    if size not in (_HEADER.size + 12 * sequences + 8 * documents, _HEADER.size + 13 * sequences + 8 * documents):
        raise ValueError(
            f"{path} must have {_HEADER.size + 12 * sequences + 8 * documents} bytes for {sequences} sequences and "
            f"{documents - 1} documents. Received: {size} bytes. It is truncated or damaged. Write the corpus again."
        )
    offset, arrays = _HEADER.size, []
    for dtype, count in (("<i4", sequences), ("<i8", sequences), ("<i8", documents)):
        arrays.append(np.frombuffer(data, dtype=dtype, count=count, offset=offset))
        offset += arrays[-1].nbytes
    return (*arrays, np.dtype(_DTYPES[code]))


class MegatronPair:
    """A `.bin` and an `.idx` file, memory-mapped.

    Attributes:
        tokens: all token ids, int (tokens,).
        lengths: int32 (sequences,), number of tokens of each sequence.
        sequence_starts: int64 (sequences,), where each sequence begins in `tokens`; see `Shifted`.
        document_starts: int64 (documents + 1,), index of each document's first sequence, followed by the end.

    Args:
        prefix: path of the files without their suffixes.

    Raises:
        FileNotFoundError: one of the files is missing.
        ValueError: a file is truncated or damaged.
    """

    def __init__(self, prefix: Path):
        self.index, self.binary = (prefix.with_name(prefix.name + suffix) for suffix in (".idx", ".bin"))
        for path in (self.index, self.binary):
            if not path.is_file():
                raise FileNotFoundError(f"There is no corpus at {prefix}: {path.name} is missing.")
        self.lengths, self._offsets, self.document_starts, dtype = read_index(self.index)
        expected = int(self._offsets[-1]) + int(self.lengths[-1]) * dtype.itemsize
        if self.binary.stat().st_size != expected:
            raise ValueError(
                f"{self.binary} must have {expected} bytes, according to {self.index.name}. Received: "
                f"{self.binary.stat().st_size} bytes. The file is truncated, or belongs to another index. Write the "
                "corpus again."
            )
        self.tokens = np.asarray(np.memmap(self.binary, dtype=dtype, mode="r"))
        self.sequence_starts = Shifted(self._offsets, 0, dtype.itemsize)
        if self.index.stat().st_size <= CHECKED_ON_OPEN:
            self.check_index()

    def check_index(self, block: int = 1 << 20) -> None:
        """Checks the whole index block by block. Raises a ValueError if it is damaged."""
        problems = {}
        position = 0
        for start in range(0, len(self.lengths), block):
            sizes = self.lengths[start : start + block].astype(np.int64) * self.tokens.itemsize
            ends = position + np.cumsum(sizes)
            problems["a sequence without tokens"] = (sizes <= 0).any()
            problems["sequences that are not contiguous"] = (self._offsets[start : start + block] != ends - sizes).any()
            position = ends[-1]
            self._raise_first(problems)
        for start in range(0, len(self.document_starts) - 1, block):
            problems["documents out of order"] = (np.diff(self.document_starts[start : start + block + 1]) < 0).any()
            self._raise_first(problems)
        problems["documents out of order"] = self.document_starts[0] != 0
        problems["documents beyond the last sequence"] = self.document_starts[-1] != len(self.lengths)
        self._raise_first(problems)

    def check_ends(self, vocabulary_size: int, size: int) -> None:
        """Checks that the first and the last tokens, `size` bytes in total, are in the vocabulary."""
        count = max(1, size // 2 // self.tokens.itemsize)
        check_ids(self.binary, self.tokens[:count], 0, vocabulary_size)
        last = max(0, len(self.tokens) - count)
        check_ids(self.binary, self.tokens[last:], last, vocabulary_size)

    def in_memory(self) -> "MegatronPair":
        """Returns the same pair with its arrays in memory."""
        pair = copy.copy(self)
        pair.tokens, pair.lengths = np.array(self.tokens), np.array(self.lengths)
        pair.document_starts, pair._offsets = np.array(self.document_starts), np.array(self._offsets)
        pair.sequence_starts = Shifted(pair._offsets, 0, pair.tokens.itemsize)
        return pair

    def _raise_first(self, problems: dict[str, bool]) -> None:
        for problem, found in problems.items():
            if found:
                raise ValueError(f"{self.index} is damaged: it has {problem}. Write the corpus again.")


class Pairs:
    """Several pairs of Megatron files that are read as one.

    Attributes:
        tokens, lengths, sequence_starts, document_starts: as in `MegatronPair`, but for all pairs together. If there
            are several pairs, the arrays are `Joined` or `Shifted`.
    """

    def __init__(self, pairs: Sequence[MegatronPair]):
        dtypes = {pair.tokens.dtype for pair in pairs}
        if len(dtypes) > 1:
            raise ValueError(
                f"All shards must have tokens of the same dtype. Received: {', '.join(sorted(map(str, dtypes)))}, in "
                f"{pairs[0].index.parent}. They belong to different corpora."
            )
        self.pairs = list(pairs)
        sequences = np.cumsum([0, *(len(pair.lengths) for pair in pairs)]).tolist()
        tokens = np.cumsum([0, *(len(pair.tokens) for pair in pairs)]).tolist()
        self.num_tokens, self.num_sequences = tokens[-1], sequences[-1]
        self.num_documents = sum(len(pair.document_starts) - 1 for pair in pairs)
        self.tokens, self.lengths = (
            getattr(pairs[0], name) if len(pairs) == 1 else Joined([getattr(pair, name) for pair in pairs])
            for name in ("tokens", "lengths")
        )
        self.sequence_starts = Joined(
            [Shifted(pair.sequence_starts, start) for pair, start in zip(pairs, tokens, strict=False)]
        )
        # The end of a pair is where the next one begins.
        bounds = [pair.document_starts[:-1] for pair in pairs[:-1]] + [pairs[-1].document_starts]
        self.document_starts = (
            bounds[0]
            if len(pairs) == 1
            else Joined([Shifted(bound, start) for bound, start in zip(bounds, sequences, strict=False)])
        )

    def token_blocks(self) -> Iterator[np.ndarray]:
        """Yields all tokens in arrays of up to 4 million."""
        return (self.tokens[start : start + _CHUNK] for start in range(0, self.num_tokens, _CHUNK))

    def token_starts(self, sequences: np.ndarray) -> np.ndarray:
        """Start of the given sequences in `tokens`. For the number of sequences, it is the end of the tokens."""
        starts = self.sequence_starts[np.minimum(sequences, self.num_sequences - 1)]
        return np.where(sequences < self.num_sequences, starts, self.num_tokens)

    def documents(self, first: int, last: int) -> EncodedDocuments:
        """Returns the documents [first, last)."""
        starts = np.asarray(self.document_starts[first : last + 1])
        begin, end = self.token_starts(starts[[0, -1]]).tolist()
        return EncodedDocuments(self.tokens[begin:end], self.lengths[starts[0] : starts[-1]], np.diff(starts))

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, EncodedDocuments]]:
        """Divides the documents [first, last) into chunks, and yields (index of the first document, documents) of each.

        A chunk has at most 4096 documents and 4 million tokens. A longer document is a chunk of its own.
        """
        while first < last:
            starts = np.asarray(self.document_starts[first : min(last, first + 4096) + 1])
            positions = self.token_starts(starts)
            count = max(1, int(np.searchsorted(positions, positions[0] + _CHUNK, side="right")) - 1)
            yield first, self.documents(first, first + count)
            first += count

"""Reads and writes the `.idx` file of Megatron corpora, a format that datatrove, NeMo and MaxText use, too."""

import struct
from array import array
from pathlib import Path

import numpy as np

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")  # magic number, version, dtype code, sequences, documents + 1
_DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}


def write_index(file, lengths: array, document_starts: array, dtype: np.dtype) -> None:
    """Writes an index.

    Args:
        file: a binary file, open for writing.
        lengths: number of tokens of each sequence, as an array of C ints.
        document_starts: index of the first sequence of each document, followed by the number of sequences.
        dtype: dtype of the tokens.
    """
    sizes = np.frombuffer(lengths, dtype=np.int32).astype(np.int64) * dtype.itemsize
    file.write(_HEADER.pack(_MAGIC, 1, _CODES[dtype], len(lengths), len(document_starts)))
    file.write(np.frombuffer(lengths, dtype=np.int32).astype("<i4"))
    file.write((np.cumsum(sizes) - sizes).astype("<i8"))
    file.write(np.frombuffer(document_starts, dtype=np.int64).astype("<i8"))


def read_index(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.dtype]:
    """Reads an index. The arrays are memory-mapped.

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

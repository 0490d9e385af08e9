"""The `.idx` file of Megatron's corpora, which datatrove, NeMo and MaxText read and write as well."""

import struct
from array import array
from pathlib import Path

import numpy as np

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")  # magic, version 1, dtype code, sequences, entries of the document index
_DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}


def write_index(file, lengths: array, document_starts: array, dtype: np.dtype) -> None:
    """Writes the lengths of sequences and where documents begin, the end last, for tokens of `dtype`."""
    sizes = np.frombuffer(lengths, dtype=np.int32).astype(np.int64) * dtype.itemsize
    file.write(_HEADER.pack(_MAGIC, 1, _CODES[dtype], len(lengths), len(document_starts)))
    file.write(np.frombuffer(lengths, dtype=np.int32).astype("<i4"))
    file.write((np.cumsum(sizes) - sizes).astype("<i8"))
    file.write(np.frombuffer(document_starts, dtype=np.int64).astype("<i8"))


def read_index(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.dtype]:
    """(lengths, byte offsets of sequences, document starts, dtype of the tokens) of an index, memory-mapped.

    Raises: ValueError for a file that is not an index, or is damaged.
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

"""A corpus: documents as token ids in Megatron's `.bin` and `.idx`, memory-mapped, beside its plans and its tokenizer.

corpus.bin    token ids, sequence after sequence, uint16 or int32
corpus.idx    lengths of the sequences (a sentence or paragraph each) and where documents begin
corpus.json   counts, sources, digest, and the tokenizer's hash, ids and templates; written last
plans/        tables of rows, made when they are first asked for
tokenizer.json and its companions
"""

import contextlib
import hashlib
import json
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from ..text.documents import checked_documents, lines_of
from ..text.files import write_text, written_whole
from ..tokenizers.tokenizer import Tokenizer
from .record import COUNTS, check_ids, read_record

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")  # magic, version 1, dtype code, sequences, entries of the document index
_DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items()}
_BATCH_CHARACTERS = 1 << 18
_CHECKED_AT_ONCE = 1 << 22  # bytes of an index, and of tokens, that are checked whenever they are opened


class Corpus:
    """Token ids of documents on disk. Made by `Corpus.write` or `Corpus.open`.

    Attributes:
        tokens: all token ids, memory-mapped.
        lengths: int32 (sequences,), tokens of each sequence.
        sequence_starts: int64 (sequences,), where each begins in `tokens`.
        document_starts: int64 (documents + 1,), where each begins, in sequences; the end last.
        facts: what the tokenizer decides (see `Tokenizer.facts`), or None for a corpus of unknown origin.
    """

    def __init__(self, prefix: Path, facts: dict | None, summary: dict):
        self.prefix = prefix
        self.folder = prefix.parent
        self.facts = facts
        self.summary = summary
        self._tokenizer: Tokenizer | None = None
        index, binary = prefix.with_name(prefix.name + ".idx"), prefix.with_name(prefix.name + ".bin")
        self.lengths, pointers, self.document_starts, dtype = _read_index(index)
        expected = int(pointers[-1]) + int(self.lengths[-1]) * dtype.itemsize
        if binary.stat().st_size != expected:
            raise ValueError(
                f"{binary} must have {expected} bytes, as {index.name} says. It has {binary.stat().st_size}: it is "
                "truncated or belongs to another index. Write the corpus again."
            )
        self.tokens = np.asarray(np.memmap(binary, dtype=dtype, mode="r"))
        self._pointers = pointers
        self.num_tokens = len(self.tokens)
        self.num_sequences = len(self.lengths)
        self.num_documents = len(self.document_starts) - 1
        for name in COUNTS:
            count, promised = getattr(self, name), summary.get(name, getattr(self, name))
            if count != promised:
                raise ValueError(
                    f"{index} must agree with corpus.json. Received: {name}={count}, but corpus.json says {promised}. "
                    "The files belong to different corpora, or are damaged."
                )
        if index.stat().st_size <= _CHECKED_AT_ONCE:
            self._check_index()
        if facts:
            if facts["vocabulary_size"] - 1 > np.iinfo(dtype).max:
                raise ValueError(
                    f"{index} must have a type for ids below {facts['vocabulary_size']}. Received: {dtype}. The files "
                    "belong to different corpora, or are damaged."
                )
            count = _CHECKED_AT_ONCE // 2 // dtype.itemsize  # those at both ends; `verify` looks at all
            check_ids(binary, self.tokens[:count], 0, facts["vocabulary_size"])
            last = max(0, self.num_tokens - count)
            check_ids(binary, self.tokens[last:], last, facts["vocabulary_size"])

    # ------------------------------------------------------------------ making

    @classmethod
    def write(
        cls, folder: str | Path, documents: Iterable[str], tokenizer: Tokenizer, sources: Iterable[str] = ()
    ) -> "Corpus":
        """Tokenizes documents into a new corpus, in memory that does not grow with the text.

        Every line with text becomes a sequence, without special tokens; documents without tokens are left out.
        Nothing appears in the folder before all of it is on disk, and a corpus that is there is never overwritten.

        Raises:
            FileExistsError: the folder has a corpus, or another tokenizer.
            ValueError: no document had tokens.
        """
        folder = Path(folder)
        for name in ("corpus.json", "corpus.idx", "corpus.bin"):
            if (folder / name).exists():
                raise FileExistsError(f"{folder} holds a corpus ({name}). Remove it, or choose another folder.")
        if (folder / "tokenizer.json").exists() and Tokenizer.load(folder).hash != tokenizer.hash:
            raise FileExistsError(f"{folder} holds another tokenizer. Choose another folder for the corpus.")
        folder.mkdir(parents=True, exist_ok=True)
        # Megatron's own limit, below 2**16 for the sake of its extra tokens.
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
                raise ValueError("A corpus must have text. No document was left after empty lines were removed.")
            _write_index(index, lengths, document_starts, dtype)
        tokenizer.save(folder)
        with contextlib.suppress(ValueError):  # XLM's pieces say where a word ends, not where one starts
            np.save(folder / "word_starts.npy", tokenizer.word_starts)
        summary = {
            "num_tokens": int(counts.sum()),
            "num_sequences": len(lengths),
            "num_documents": len(document_starts) - 1,
            "unknown_tokens": int(counts[tokenizer.unk_id]) if tokenizer.unk_id is not None else 0,
            "unigram_entropy": _entropy(counts),
            "sha256": digest.hexdigest(),
            "sources": [str(source) for source in sources],
            "tokenizer": tokenizer.facts,
        }
        write_text(folder / "corpus.json", json.dumps(summary, indent=1))
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | Path, tokenizer: Tokenizer | None = None) -> "Corpus":
        """Opens a corpus folder, or any Megatron pair of files by the path of one of them.

        Args:
            tokenizer: which one wrote it, for files that do not say. With a corpus folder it is compared.

        Raises:
            FileNotFoundError: no corpus there.
            ValueError: truncated or damaged files, or another tokenizer.
        """
        path = Path(path)
        prefix = path / "corpus" if path.is_dir() else path.with_suffix("") if path.suffix in (".bin", ".idx") else path
        for suffix in (".idx", ".bin"):
            if not prefix.with_name(prefix.name + suffix).is_file():
                raise FileNotFoundError(f"There is no corpus at {path}: {prefix.name}{suffix} is missing.")
        summary = {}
        if path.is_dir():
            try:
                summary = read_record(path / "corpus.json")
            except FileNotFoundError:
                raise FileNotFoundError(f"{path} has no corpus.json: writing it was never finished.") from None
            facts = summary["tokenizer"]
        else:
            facts = tokenizer.facts if tokenizer else None
        corpus = cls(prefix, facts, summary)
        if tokenizer is not None:
            if path.is_dir():
                corpus.check_tokenizer(tokenizer)
            corpus._tokenizer = tokenizer
        return corpus

    # ------------------------------------------------------------------ asking

    @property
    def tokenizer_hash(self) -> str | None:
        return self.facts and self.facts["hash"]

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that wrote the corpus."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.load(self.folder)
        return self._tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises ValueError unless the corpus was written by this tokenizer."""
        # The stored hash may come from another version of `tokenizers`, so the stored tokenizer has the last word.
        if tokenizer.hash not in (self.tokenizer_hash, self.tokenizer().hash):
            raise ValueError(
                f"The corpus in {self.folder} must be read with the tokenizer that wrote it "
                f"(hash {self.tokenizer_hash[:12]}, {self.facts['vocabulary_size']} tokens). Received: one with hash "
                f"{tokenizer.hash[:12]}, {tokenizer.vocabulary_size} tokens. Use corpus.tokenizer(), or write the "
                "corpus again."
            )

    @property
    def sequence_starts(self) -> np.ndarray:
        return self._pointers // self.tokens.itemsize

    @property
    def word_starts(self) -> np.ndarray:
        """bool (vocabulary,): which tokens begin a word."""
        path = self.folder / "word_starts.npy"
        return np.load(path) if self._tokenizer is None and path.is_file() else self.tokenizer().word_starts

    @property
    def fingerprint(self) -> str:
        """Identifies the tokens and the tokenizer."""
        parts = [self.summary.get("sha256"), self.tokenizer_hash, self.num_tokens, self.num_sequences]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def unigram_entropy(self) -> float:
        """Entropy of the token frequencies, in nats a token: the loss of a model that knows nothing else."""
        if "unigram_entropy" not in self.summary:
            self.summary["unigram_entropy"] = _entropy(self.counts())
        return self.summary["unigram_entropy"]

    def unigram_loss(self, held_out: "Corpus") -> float:
        """Loss on another text of a model that knows the token frequencies of this one, in nats a token.

        Every token of the vocabulary counts once more than it occurs, so that none is impossible.
        """
        size = self.facts["vocabulary_size"]
        known, found = (np.pad(c, (0, size - len(c))) for c in (self.counts(), held_out.counts()))
        return float(-(found * np.log((known + 1) / (known.sum() + size))).sum() / found.sum())

    def counts(self) -> np.ndarray:
        """How often each token occurs, int64, up to the largest that does."""
        counts = np.zeros(1, dtype=np.int64)
        for block in self._blocks():
            found = np.bincount(block)
            counts = np.pad(counts, (0, max(0, len(found) - len(counts))))
            counts[: len(found)] += found
        return counts

    def verify(self) -> None:
        """Reads everything once: the index is consistent, every token is in the vocabulary, and corpus.json is right.

        Raises:
            ValueError: naming what is wrong and where.
        """
        self._check_index()
        digest = hashlib.sha256()
        start = 0
        for block in self._blocks():
            digest.update(block)
            if self.facts:
                check_ids(self.prefix.with_name(self.prefix.name + ".bin"), block, start, self.facts["vocabulary_size"])
            start += len(block)
        if self.summary.get("sha256", digest.hexdigest()) != digest.hexdigest():
            raise ValueError(f"{self.prefix}.bin is damaged: its digest differs from corpus.json. Write it again.")
        if not self.facts or not self.summary:
            return
        counts, known, unknown = self.counts(), self.tokenizer().facts, self.facts.get("unk_id")
        found = {
            "unknown_tokens": int(counts[unknown]) if unknown is not None and unknown < len(counts) else 0,
            "unigram_entropy": _entropy(counts),
            # The hash may be that of another version of `tokenizers`.
            "tokenizer": {name: known[name] for name in self.facts if name in known and name != "hash"},
        }
        said = {**self.summary, "tokenizer": {name: self.facts[name] for name in found["tokenizer"]}}
        for name, value in found.items():
            value = json.loads(json.dumps(value))
            near = isinstance(value, float) and value - 1e-9 < said.get(name, value) < value + 1e-9
            if said.get(name, value) != value and not near:
                raise ValueError(
                    f"{self.folder / 'corpus.json'} must say what the corpus has. Received: {name!r} of "
                    f"{said[name]!r:.200}, where the files have {value!r:.200}. Write the corpus again."
                )

    def plan(self, name: str, settings: dict, build: Callable[[], Iterable[np.ndarray]]) -> np.ndarray:
        """A table of rows, memory-mapped; built from blocks of lines and kept beside the corpus the first time.

        Args:
            name: of the file, for people.
            settings: all that the plan depends on beside the corpus.
            build: gives blocks of integers with the same number of columns.
        """
        key = json.dumps([settings, self.fingerprint], sort_keys=True)
        path = self.folder / "plans" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.npy"
        try:
            return np.asarray(np.load(path, mmap_mode="r"))
        except (FileNotFoundError, ValueError, EOFError):  # not there, or cut short: it can be made again
            pass
        self.verify()
        dtype = np.dtype(np.int32 if self.num_tokens < 2**31 else np.int64)
        try:
            path.parent.mkdir(exist_ok=True)
            with written_whole(path) as file:
                _write_table(file, build(), dtype)
        except PermissionError:  # a corpus that others own and that may only be read
            return np.concatenate([block.astype(dtype) for block in build()])
        return np.asarray(np.load(path, mmap_mode="r"))

    def _blocks(self, size: int = 1 << 22) -> Iterator[np.ndarray]:
        return (self.tokens[start : start + size] for start in range(0, self.num_tokens, size))

    def _check_index(self) -> None:
        sizes = self.lengths.astype(np.int64) * self.tokens.itemsize
        steps = np.diff(self.document_starts)
        problems = {
            "a sequence without tokens": (sizes <= 0).any(),
            "sequences that do not follow each other": (self._pointers != np.cumsum(sizes) - sizes).any(),
            "documents out of order": (steps < 0).any() or self.document_starts[0] != 0,
            "documents beyond the last sequence": self.document_starts[-1] != len(sizes),
        }
        for problem, found in problems.items():
            if found:
                raise ValueError(f"{self.prefix}.idx is damaged: it has {problem}. Write the corpus again.")


def _encoded(documents: Iterable[str], tokenizer: Tokenizer) -> Iterator[tuple[int, np.ndarray]]:
    """The document's number and the token ids of every line; tokenized many lines at a time."""
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


def _write_index(file, lengths: array, document_starts: array, dtype: np.dtype) -> None:
    sizes = np.frombuffer(lengths, dtype=np.int32).astype(np.int64) * dtype.itemsize
    file.write(_HEADER.pack(_MAGIC, 1, _CODES[dtype], len(lengths), len(document_starts)))
    file.write(np.frombuffer(lengths, dtype=np.int32).astype("<i4"))
    file.write((np.cumsum(sizes) - sizes).astype("<i8"))
    file.write(np.frombuffer(document_starts, dtype=np.int64).astype("<i8"))


def _read_index(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.dtype]:
    size = path.stat().st_size
    data = np.memmap(path, mode="r") if size else np.zeros(0, np.uint8)
    if size < _HEADER.size or bytes(data[:9]) != _MAGIC:
        raise ValueError(f"{path} is not a Megatron index: it does not begin with {_MAGIC!r}.")
    _, version, code, sequences, documents = _HEADER.unpack(bytes(data[: _HEADER.size]))
    if version != 1 or code not in _DTYPES:
        raise ValueError(f"{path} has version {version}, dtype code {code}. Known: version 1, codes {[*_DTYPES]}.")
    if sequences == 0 or documents < 2:
        raise ValueError(f"{path} is an index of an empty corpus.")
    if size not in (_HEADER.size + 12 * sequences + 8 * documents, _HEADER.size + 13 * sequences + 8 * documents):
        raise ValueError(
            f"{path} must have {_HEADER.size + 12 * sequences + 8 * documents} bytes for {sequences} sequences and "
            f"{documents - 1} documents. It has {size}: it is truncated or damaged. Write the corpus again."
        )
    offset, arrays = _HEADER.size, []
    for dtype, count in (("<i4", sequences), ("<i8", sequences), ("<i8", documents)):
        arrays.append(np.frombuffer(data, dtype=dtype, count=count, offset=offset))
        offset += arrays[-1].nbytes
    return (*arrays, np.dtype(_DTYPES[code]))


def _write_table(file, blocks: Iterable[np.ndarray], dtype: np.dtype) -> None:
    """An .npy file whose number of lines is only known at the end."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (0, 0)}
    lines = columns = 0
    for block in blocks:
        if not columns:  # numpy leaves room in the header for the first axis to grow
            columns = block.shape[1]
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (0, columns)})
        file.write(np.ascontiguousarray(block, dtype=dtype))
        lines += len(block)
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, {**header, "shape": (lines, columns)})
    file.seek(0, os.SEEK_END)


def _entropy(counts: np.ndarray) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())

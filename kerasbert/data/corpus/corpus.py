"""A corpus: documents as token ids in Megatron's `.bin` and `.idx`, memory-mapped, with its plans and its tokenizer.

corpus.bin    token ids, sequence after sequence, uint16 or int32
corpus.idx    lengths of the sequences (a sentence or paragraph each) and where documents begin
corpus.json   counts, sources, digest, and the tokenizer's hash, ids and templates; written last
plans/        tables of rows, built on first use
tokenizer.json and the other tokenizer files
"""

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from ..text.documents import checked_documents, lines_of
from ..text.files import write_text, written_whole
from ..tokenizers.tokenizer import Tokenizer
from .megatron import read_index, write_index
from .record import COUNTS, check_ids, read_record

_BATCH_CHARACTERS = 1 << 18
_CHECKED_AT_ONCE = 1 << 22  # bytes of the index, and of the tokens, that are checked on every open


class Corpus:
    """Token ids of documents. Created by `Corpus.write`, `Corpus.open` or `Corpus.in_memory`.

    Attributes:
        tokens: all token ids, memory-mapped.
        lengths: int32 (sequences,), number of tokens of each sequence.
        sequence_starts: int64 (sequences,), where each sequence begins in `tokens`.
        document_starts: int64 (documents + 1,), index of each document's first sequence, followed by the end.
        tokenizer_info: properties of the tokenizer (see `Tokenizer.info`), or None for a corpus of unknown origin.
    """

    def __init__(self, prefix: Path, info: dict | None, summary: dict):
        self.prefix = prefix
        self.folder = prefix.parent
        self.tokenizer_info = info
        self.summary = summary
        self._plans: dict | None = None  # of a corpus in memory
        self._tokenizer: Tokenizer | None = None
        index, binary = prefix.with_name(prefix.name + ".idx"), prefix.with_name(prefix.name + ".bin")
        self.lengths, pointers, self.document_starts, dtype = read_index(index)
        expected = int(pointers[-1]) + int(self.lengths[-1]) * dtype.itemsize
        if binary.stat().st_size != expected:
            raise ValueError(
                f"{binary} must have {expected} bytes, according to {index.name}. Received: {binary.stat().st_size} "
                "bytes. It is truncated or belongs to another index. Write the corpus again."
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
        if info:
            if info["vocabulary_size"] - 1 > np.iinfo(dtype).max:
                raise ValueError(
                    f"{index} must have a dtype for ids below {info['vocabulary_size']}. Received: {dtype}. The files "
                    "belong to different corpora, or are damaged."
                )
            count = _CHECKED_AT_ONCE // 2 // dtype.itemsize  # tokens at each end; `verify` checks all
            check_ids(binary, self.tokens[:count], 0, info["vocabulary_size"])
            last = max(0, self.num_tokens - count)
            check_ids(binary, self.tokens[last:], last, info["vocabulary_size"])

    # ------------------------------------------------------------------ construction

    @classmethod
    def write(
        cls, folder: str | Path, documents: Iterable[str], tokenizer: Tokenizer, sources: Iterable[str] = ()
    ) -> "Corpus":
        """Tokenizes documents into a new corpus; memory use does not grow with the text.

        Every non-empty line becomes a sequence, without special tokens; documents without tokens are left out. The
        files appear in the folder only once all tokens are on disk, and an existing corpus is never overwritten.

        Raises:
            FileExistsError: the folder already holds a corpus, or another tokenizer.
            ValueError: no document had tokens.
        """
        folder = Path(folder)
        for name in ("corpus.json", "corpus.idx", "corpus.bin"):
            if (folder / name).exists():
                raise FileExistsError(f"{folder} already holds a corpus ({name}). Remove it, or choose another folder.")
        if (folder / "tokenizer.json").exists() and Tokenizer.load(folder).hash != tokenizer.hash:
            raise FileExistsError(f"{folder} holds another tokenizer. Choose another folder for the corpus.")
        folder.mkdir(parents=True, exist_ok=True)
        # Megatron's limit, below 2**16 to leave space for its extra tokens.
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
                raise ValueError("A corpus must have text. Received: no document with text. Check the source.")
            write_index(index, lengths, document_starts, dtype)
        tokenizer.save(folder)
        with contextlib.suppress(ValueError):  # XLM's pieces mark where a word ends, not where it starts
            np.save(folder / "word_starts.npy", tokenizer.word_starts)
        summary = {
            "num_tokens": int(counts.sum()),
            "num_sequences": len(lengths),
            "num_documents": len(document_starts) - 1,
            "unknown_tokens": int(counts[tokenizer.unk_id]) if tokenizer.unk_id is not None else 0,
            "unigram_entropy": _entropy(counts),
            "sha256": digest.hexdigest(),
            "sources": [str(source) for source in sources],
            "tokenizer": tokenizer.info,
        }
        write_text(folder / "corpus.json", json.dumps(summary, indent=1))
        return cls.open(folder)

    @classmethod
    def in_memory(cls, documents: Iterable[str], tokenizer: Tokenizer) -> "Corpus":
        """Tokenizes documents into a corpus that is held in memory, as are its plans: for texts that fit into it.

        Raises:
            ValueError: no document had tokens.
        """
        with tempfile.TemporaryDirectory() as folder:
            corpus = cls.write(folder, documents, tokenizer)
            # Copies: a file that is still mapped could not be removed on Windows and on network disks.
            corpus.tokens, corpus.lengths = np.array(corpus.tokens), np.array(corpus.lengths)
            corpus.document_starts, corpus._pointers = np.array(corpus.document_starts), np.array(corpus._pointers)
            corpus._tokenizer, corpus._plans = tokenizer, {}
        return corpus

    @classmethod
    def open(cls, path: str | Path, tokenizer: Tokenizer | None = None) -> "Corpus":
        """Opens a corpus folder, or any pair of Megatron files, given the path of one of them.

        Args:
            tokenizer: the one that wrote the corpus, for files that do not record it. A corpus folder must match it.

        Raises:
            FileNotFoundError: there is no corpus at `path`.
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
                raise FileNotFoundError(f"{path} has no corpus.json: the corpus is incomplete.") from None
            info = summary["tokenizer"]
        else:
            info = tokenizer.info if tokenizer else None
        corpus = cls(prefix, info, summary)
        if tokenizer is not None:
            if path.is_dir():
                corpus.check_tokenizer(tokenizer)
            corpus._tokenizer = tokenizer
        return corpus

    # ------------------------------------------------------------------ access

    @property
    def facts(self) -> dict | None:
        """Deprecated name of `tokenizer_info`."""
        warnings.warn("Corpus.facts is now Corpus.tokenizer_info.", DeprecationWarning, stacklevel=2)
        return self.tokenizer_info

    @property
    def tokenizer_hash(self) -> str | None:
        return self.tokenizer_info and self.tokenizer_info["hash"]

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that wrote the corpus."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.load(self.folder)
        return self._tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises ValueError unless the corpus was written by this tokenizer."""
        # The stored hash may come from another version of `tokenizers`, so compare the stored tokenizer, too.
        if tokenizer.hash not in (self.tokenizer_hash, self.tokenizer().hash):
            raise ValueError(
                f"The corpus in {self.folder} must be read with the tokenizer that wrote it "
                f"(hash {self.tokenizer_hash[:12]}, {self.tokenizer_info['vocabulary_size']} tokens). Received: one "
                f"with hash {tokenizer.hash[:12]}, {tokenizer.vocabulary_size} tokens. Use corpus.tokenizer(), or "
                "write the corpus again."
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
        """Entropy of the token frequencies, in nats per token: the loss of the best unigram model."""
        if "unigram_entropy" not in self.summary:
            self.summary["unigram_entropy"] = _entropy(self.counts())
        return self.summary["unigram_entropy"]

    def unigram_loss(self, held_out: "Corpus") -> float:
        """Loss on another corpus of a unigram model with the token frequencies of this one, in nats per token.

        One is added to the count of every token in the vocabulary, so that no probability is zero.
        """
        size = self.tokenizer_info["vocabulary_size"]
        known, found = (np.pad(c, (0, size - len(c))) for c in (self.counts(), held_out.counts()))
        return float(-(found * np.log((known + 1) / (known.sum() + size))).sum() / found.sum())

    def counts(self) -> np.ndarray:
        """How often each token id occurs, int64, up to the largest id that does."""
        counts = np.zeros(1, dtype=np.int64)
        for block in self._blocks():
            found = np.bincount(block)
            counts = np.pad(counts, (0, max(0, len(found) - len(counts))))
            counts[: len(found)] += found
        return counts

    def verify(self) -> None:
        """Reads everything and checks that index and corpus.json are consistent and all tokens are in the vocabulary.

        Raises:
            ValueError: the corpus is damaged; the message states what is wrong and where.
        """
        self._check_index()
        digest = hashlib.sha256()
        start = 0
        for block in self._blocks():
            digest.update(block)
            if self.tokenizer_info:
                check_ids(
                    self.prefix.with_name(self.prefix.name + ".bin"),
                    block,
                    start,
                    self.tokenizer_info["vocabulary_size"],
                )
            start += len(block)
        if self.summary.get("sha256", digest.hexdigest()) != digest.hexdigest():
            raise ValueError(f"{self.prefix}.bin is damaged: its digest differs from corpus.json. Write it again.")
        if not self.tokenizer_info or not self.summary:
            return
        counts, known, unknown = self.counts(), self.tokenizer().info, self.tokenizer_info.get("unk_id")
        found = {
            "unknown_tokens": int(counts[unknown]) if unknown is not None and unknown < len(counts) else 0,
            "unigram_entropy": _entropy(counts),
            # The hash may come from another version of `tokenizers`.
            "tokenizer": {name: known[name] for name in self.tokenizer_info if name in known and name != "hash"},
        }
        said = {**self.summary, "tokenizer": {name: self.tokenizer_info[name] for name in found["tokenizer"]}}
        for name, value in found.items():
            value = json.loads(json.dumps(value))
            near = isinstance(value, float) and value - 1e-9 < said.get(name, value) < value + 1e-9
            if said.get(name, value) != value and not near:
                raise ValueError(
                    f"{self.folder / 'corpus.json'} must match the files. Received: {name!r} is "
                    f"{said[name]!r:.200}, but the files have {value!r:.200}. Write the corpus again."
                )

    def plan(self, name: str, settings: dict, build: Callable[[], Iterable[np.ndarray]]) -> np.ndarray:
        """A memory-mapped table of rows, built from blocks of lines on first use and stored with the corpus.

        Args:
            name: human-readable part of the file name.
            settings: everything that the plan depends on besides the corpus.
            build: returns blocks of integers that all have the same number of columns.
        """
        key = json.dumps([settings, self.fingerprint], sort_keys=True)
        dtype = np.dtype(np.int32 if self.num_tokens < 2**31 else np.int64)
        if self._plans is not None:
            if (name, key) not in self._plans:
                self._plans[name, key] = np.concatenate([block.astype(dtype) for block in build()])
            return self._plans[name, key]
        path = self.folder / "plans" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.npy"
        try:
            return np.asarray(np.load(path, mmap_mode="r"))
        except (FileNotFoundError, ValueError, EOFError):  # missing or truncated: build it again
            pass
        self.verify()
        try:
            path.parent.mkdir(exist_ok=True)
            with written_whole(path) as file:
                _write_table(file, build(), dtype)
        except PermissionError:  # a read-only corpus of another user
            return np.concatenate([block.astype(dtype) for block in build()])
        return np.asarray(np.load(path, mmap_mode="r"))

    def _blocks(self, size: int = 1 << 22) -> Iterator[np.ndarray]:
        return (self.tokens[start : start + size] for start in range(0, self.num_tokens, size))

    def _check_index(self) -> None:
        sizes = self.lengths.astype(np.int64) * self.tokens.itemsize
        steps = np.diff(self.document_starts)
        problems = {
            "a sequence without tokens": (sizes <= 0).any(),
            "sequences that are not contiguous": (self._pointers != np.cumsum(sizes) - sizes).any(),
            "documents out of order": (steps < 0).any() or self.document_starts[0] != 0,
            "documents beyond the last sequence": self.document_starts[-1] != len(sizes),
        }
        for problem, found in problems.items():
            if found:
                raise ValueError(f"{self.prefix}.idx is damaged: it has {problem}. Write the corpus again.")


def _encoded(documents: Iterable[str], tokenizer: Tokenizer) -> Iterator[tuple[int, np.ndarray]]:
    """The document index and the token ids of every line; many lines are tokenized at once."""
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


def _write_table(file, blocks: Iterable[np.ndarray], dtype: np.dtype) -> None:
    """Writes an .npy file whose number of lines is known only at the end."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (0, 0)}
    lines = columns = 0
    for block in blocks:
        if not columns:  # numpy leaves space in the header for the first axis to grow
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

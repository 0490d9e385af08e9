"""A corpus: the token ids of documents in memory-mapped Megatron files, with a tokenizer and plans.

corpus.bin    token ids of all sequences, one after another, uint16 or int32
corpus.idx    length of each sequence (a sentence or paragraph) and where each document begins
corpus.json   counts, sources, digest, and the tokenizer's hash, ids and templates; written last
plans/        tables that say which tokens make up each row, built on first use
tokenizer.json and the other files of the tokenizer
"""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from ..tokenizers.tokenizer import Tokenizer
from .megatron import read_index
from .plans import joined_blocks, read_table, write_table
from .record import COUNTS, check_ids, read_record
from .statistics import count_tokens, entropy, smoothed_unigram_loss
from .writing import write_corpus

_CHECKED_ON_OPEN = 1 << 22  # bytes of the index, and of the tokens, up to which opening a corpus checks them


class Corpus:
    """The token ids of a collection of documents, made by `Corpus.write`, `Corpus.open` or `Corpus.in_memory`.

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
        self._plans: dict | None = None  # the plans of a corpus in memory, by name and key
        self._tokenizer: Tokenizer | None = None
        index, binary = prefix.with_name(prefix.name + ".idx"), prefix.with_name(prefix.name + ".bin")
        self.lengths, pointers, self.document_starts, dtype = read_index(index)
        expected = int(pointers[-1]) + int(self.lengths[-1]) * dtype.itemsize
        if binary.stat().st_size != expected:
            raise ValueError(
                f"{binary} must have {expected} bytes, according to {index.name}. Received: {binary.stat().st_size} "
                "bytes. The file is truncated, or belongs to another index. Write the corpus again."
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
        if index.stat().st_size <= _CHECKED_ON_OPEN:
            self._check_index()
        if info:
            if info["vocabulary_size"] - 1 > np.iinfo(dtype).max:
                raise ValueError(
                    f"{index} must have a dtype that holds ids up to {info['vocabulary_size'] - 1}. Received: {dtype}. "
                    "The files belong to different corpora, or are damaged."
                )
            # The first and last tokens; `verify` checks all of them.
            count = _CHECKED_ON_OPEN // 2 // dtype.itemsize
            check_ids(binary, self.tokens[:count], 0, info["vocabulary_size"])
            last = max(0, self.num_tokens - count)
            check_ids(binary, self.tokens[last:], last, info["vocabulary_size"])

    # === Construction ===

    @classmethod
    def write(
        cls, folder: str | Path, documents: Iterable[str], tokenizer: Tokenizer, sources: Iterable[str] = ()
    ) -> "Corpus":
        """Tokenizes documents and writes them to disk as a new corpus, in constant memory.

        Every non-empty line becomes a sequence without special tokens, and documents without tokens are left out. The
        files appear in the folder only when all tokens are on disk, and an existing corpus is never overwritten.

        Args:
            folder: the folder of the corpus, which is created if needed.
            documents: the texts. Lines are separated by newline characters.
            tokenizer: the `Tokenizer`, which is saved with the corpus.
            sources: names of the files that the documents come from, which corpus.json records.

        Raises:
            FileExistsError: the folder already holds a corpus, or a different tokenizer.
            ValueError: no document has any text.
        """
        write_corpus(Path(folder), documents, tokenizer, sources)
        return cls.open(folder)

    @classmethod
    def in_memory(cls, documents: Iterable[str], tokenizer: Tokenizer) -> "Corpus":
        """Tokenizes documents into a corpus that is held in memory, together with its plans.

        Raises:
            ValueError: no document has any text.
        """
        with tempfile.TemporaryDirectory() as folder:
            corpus = cls.write(folder, documents, tokenizer)
            # Copy the arrays, because Windows and network disks cannot delete a file that is still memory-mapped.
            corpus.tokens, corpus.lengths = np.array(corpus.tokens), np.array(corpus.lengths)
            corpus.document_starts, corpus._pointers = np.array(corpus.document_starts), np.array(corpus._pointers)
            corpus._tokenizer, corpus._plans = tokenizer, {}
        return corpus

    @classmethod
    def open(cls, path: str | Path, tokenizer: Tokenizer | None = None) -> "Corpus":
        """Opens a corpus folder, or a pair of Megatron files.

        Args:
            path: the folder, or the path of the `.bin` or `.idx` file, with or without its suffix.
            tokenizer: the tokenizer that wrote the files. Megatron files do not record it. A corpus folder does, and
                raises an error if this is a different one.

        Raises:
            FileNotFoundError: there is no corpus at `path`.
            ValueError: a file is truncated or damaged, or the tokenizer is not the one that wrote the corpus.
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
                raise FileNotFoundError(
                    f"{path} has no corpus.json, so the corpus is incomplete. Write it again."
                ) from None
            info = summary["tokenizer"]
        else:
            info = tokenizer.info if tokenizer else None
        corpus = cls(prefix, info, summary)
        if tokenizer is not None:
            if path.is_dir():
                corpus.check_tokenizer(tokenizer)
            corpus._tokenizer = tokenizer
        return corpus

    # === Access ===

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
        """Raises a ValueError if another tokenizer wrote the corpus."""
        # Other versions of `tokenizers` can give another hash, so the hash of the stored tokenizer is accepted, too.
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
        """bool (vocabulary_size,), True for the tokens that begin a word."""
        path = self.folder / "word_starts.npy"
        return np.load(path) if self._tokenizer is None and path.is_file() else self.tokenizer().word_starts

    @property
    def fingerprint(self) -> str:
        """A hash of 16 hexadecimal digits that identifies the tokens and the tokenizer."""
        parts = [self.summary.get("sha256"), self.tokenizer_hash, self.num_tokens, self.num_sequences]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def unigram_entropy(self) -> float:
        """Entropy of the token frequencies, in nats per token: the loss of the best unigram model."""
        if "unigram_entropy" not in self.summary:
            self.summary["unigram_entropy"] = entropy(self.counts())
        return self.summary["unigram_entropy"]

    def unigram_loss(self, held_out: "Corpus") -> float:
        """Loss on another corpus of a unigram model of this corpus, in nats per token.

        The model uses add-one smoothing, so that no token of the vocabulary has probability zero.
        """
        return smoothed_unigram_loss(self.counts(), held_out.counts(), self.tokenizer_info["vocabulary_size"])

    def counts(self) -> np.ndarray:
        """How often each token id occurs: int64 (n,), where n - 1 is the largest id that occurs."""
        return count_tokens(self._blocks())

    def verify(self) -> None:
        """Reads all files and checks that they agree with each other and that all tokens are in the vocabulary.

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
            raise ValueError(
                f"{self.prefix}.bin is damaged: its digest differs from that in corpus.json. Write the corpus again."
            )
        if not self.tokenizer_info or not self.summary:
            return
        counts, known, unknown = self.counts(), self.tokenizer().info, self.tokenizer_info.get("unk_id")
        found = {
            "unknown_tokens": int(counts[unknown]) if unknown is not None and unknown < len(counts) else 0,
            "unigram_entropy": entropy(counts),
            # Without the hash, which depends on the version of `tokenizers`.
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
        """A plan: a table that says which tokens make up each row, built on first use and stored with the corpus.

        Args:
            name: first part of the file name.
            settings: everything that the plan depends on besides the corpus, as a dict that JSON can represent.
            build: a function that returns the entries of the plan, in blocks: integer arrays (entries, columns), all
                with the same number of columns.

        Returns: int32 (entries, columns), or int64 if the corpus has 2**31 tokens or more. Memory-mapped, unless the
            corpus is in memory or the folder is read-only.
        """
        key = json.dumps([settings, self.fingerprint], sort_keys=True)
        dtype = np.dtype(np.int32 if self.num_tokens < 2**31 else np.int64)
        if self._plans is not None:
            if (name, key) not in self._plans:
                self._plans[name, key] = joined_blocks(build(), dtype)
            return self._plans[name, key]
        path = self.folder / "plans" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.npy"
        table = read_table(path)
        if table is None:
            self.verify()
            table = write_table(path, build, dtype)
        return table

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

"""A corpus: the token ids of documents in memory-mapped Megatron files, with a tokenizer and plans.

corpus.bin    token ids of all sequences, one after another, uint16 or int32
corpus.idx    length of each sequence (a sentence or paragraph) and where each document begins
corpus.json   counts, sources, digest, and the tokenizer's hash, ids and templates; written last
shard-*       instead of corpus.bin and corpus.idx, the files of the shards that corpus.json lists; see shards.py
plans/        tables that say which tokens make up each row, built on first use
tokenizer.json and the other files of the tokenizer
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..text.folders import folder_at
from ..tokenizers.tokenizer import Tokenizer
from .blocks import Block, block_range, num_blocks
from .megatron import CHECKED_ON_OPEN, MegatronPair, Pairs
from .plans import joined_blocks, read_table, write_table
from .record import COUNTS, read_record
from .shards import open_files
from .statistics import count_tokens, entropy, smoothed_unigram_loss
from .verification import verify
from .writing import write_corpus


class Corpus:
    r"""The token ids of a collection of documents, made by `Corpus.write`, `Corpus.open` or `Corpus.in_memory`.

    Attributes:
        tokens: all token ids, memory-mapped.
        lengths: int32 (sequences,), number of tokens of each sequence.
        sequence_starts: int64 (sequences,), where each sequence begins in `tokens`.
        document_starts: int64 (documents + 1,), index of each document's first sequence, followed by the number of
            sequences.
        tokenizer_info: properties of the tokenizer (see `Tokenizer.info`), or None for a corpus of unknown origin.

    Example:
        >>> from kerasbert.data import Corpus, Tokenizer
        >>> documents = ["The cat sat on the mat.\nThen it slept.", "A dog ran home."]
        >>> corpus = Corpus.write("corpora/animals", documents, Tokenizer.from_preset("bert_mini_en"))
        >>> corpus.num_documents, corpus.num_tokens
        (2, 16)
        >>> corpus = Corpus.open("corpora/animals")
        >>> corpus.tokenizer().decode(corpus.tokens[: corpus.lengths[0]])
        'the cat sat on the mat.'
    """

    def __init__(self, folder: Path, pairs: Sequence[MegatronPair], info: dict | None, summary: dict):
        self.folder = folder
        self.tokenizer_info = info
        self.summary = summary
        self._plans: dict | None = None  # the plans of a corpus in memory, by name and key
        self._tokenizer: Tokenizer | None = None
        self._files = files = Pairs(pairs)
        self.tokens, self.lengths, self.document_starts = files.tokens, files.lengths, files.document_starts
        self.num_tokens = files.num_tokens
        self.num_sequences = files.num_sequences
        self.num_documents = files.num_documents
        for name in COUNTS:
            count, promised = getattr(self, name), summary.get(name, getattr(self, name))
            if count != promised:
                raise ValueError(
                    f"{pairs[0].index} must agree with corpus.json. Received: {name}={count}, but corpus.json says "
                    f"{promised}. The files belong to different corpora, or are damaged."
                )
        if info:
            if info["vocabulary_size"] - 1 > np.iinfo(self.tokens.dtype).max:
                raise ValueError(
                    f"{pairs[0].index} must have a dtype that holds ids up to {info['vocabulary_size'] - 1}. Received: "
                    f"{self.tokens.dtype}. The files belong to different corpora, or are damaged."
                )
            for pair in pairs:
                pair.check_ends(info["vocabulary_size"], CHECKED_ON_OPEN // len(pairs))

    # === Construction ===

    @classmethod
    def write(
        cls, folder: str | Path, documents: Iterable[str], tokenizer: Tokenizer, sources: Iterable[str] = ()
    ) -> "Corpus":
        """Tokenizes documents and writes them to disk as a new corpus. The memory use is constant.

        Every non-empty line becomes a sequence without special tokens, and documents without tokens are left out. The
        files appear in the folder only when all tokens are on disk, and an existing corpus is never overwritten.

        Args:
            folder: the folder of the corpus, which is created if needed.
            documents: the texts. Lines are separated by newline characters.
            tokenizer: the `Tokenizer`, which is saved with the corpus.
            sources: names of the files that the documents come from, which corpus.json records.

        Raises:
            FileExistsError: if the folder already holds a corpus, or a different tokenizer.
            ValueError: if no document has any text.
        """
        write_corpus(folder_at(folder), documents, tokenizer, sources)
        return cls.open(folder)

    @classmethod
    def in_memory(cls, documents: Iterable[str], tokenizer: Tokenizer) -> "Corpus":
        """Tokenizes documents into a corpus that is held in memory, together with its plans.

        Raises:
            ValueError: if no document has any text.
        """
        with tempfile.TemporaryDirectory() as folder:
            corpus = cls.write(folder, documents, tokenizer)
            # Copy the arrays, because Windows and network disks cannot delete a file that is still memory-mapped.
            pairs = [pair.in_memory() for pair in corpus._files.pairs]
            corpus = cls(corpus.folder, pairs, corpus.tokenizer_info, corpus.summary)
            corpus._tokenizer, corpus._plans = tokenizer, {}
        return corpus

    @classmethod
    def open(cls, path: str | Path, tokenizer: Tokenizer | None = None) -> "Corpus":
        """Opens a corpus folder, or a pair of Megatron files.

        Args:
            path: the folder, or the path of the `.bin` or `.idx` file, with or without its suffix.
            tokenizer: the tokenizer that wrote the files. Required for Megatron files, which do not record it. A corpus
                folder has its tokenizer, and opening it with a different one is an error.

        Raises:
            FileNotFoundError: if there is no corpus at `path`.
            ValueError: if a file is truncated or damaged, or the tokenizer is not the one that wrote the corpus.
        """
        path = folder_at(path)
        if path.is_dir():
            try:
                summary = read_record(path / "corpus.json")
            except FileNotFoundError:
                if not any(path.glob("shard-*")):
                    MegatronPair(path / "corpus")  # names the file that is missing
                raise FileNotFoundError(
                    f"{path} has no corpus.json, so the corpus is incomplete. Write it again."
                ) from None
            pairs, info = open_files(path, summary), summary["tokenizer"]
        else:
            prefix = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
            pairs, summary, info = [MegatronPair(prefix)], {}, tokenizer.info if tokenizer else None
        corpus = cls(path if path.is_dir() else path.parent, pairs, info, summary)
        if tokenizer is not None:
            if path.is_dir():
                corpus.check_tokenizer(tokenizer)
            corpus._tokenizer = tokenizer
        return corpus

    # === Access ===

    @property
    def tokenizer_hash(self) -> str | None:
        return self.tokenizer_info and self.tokenizer_info["hash"]

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that wrote the corpus."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.load(self.folder)
        return self._tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Checks that a tokenizer is the one that wrote the corpus.

        Raises:
            ValueError: if it is another one.
        """
        # Another version of `tokenizers` can compute a different hash, so the hash of the stored tokenizer is accepted,
        # too.
        if tokenizer.hash != self.tokenizer_hash and tokenizer.hash != self.tokenizer().hash:
            raise ValueError(
                f"The corpus in {self.folder} must be read with the tokenizer that wrote it "
                f"(hash {self.tokenizer_hash[:12]}, {self.tokenizer_info['vocabulary_size']} tokens). Received: one "
                f"with hash {tokenizer.hash[:12]}, {tokenizer.vocabulary_size} tokens. Use corpus.tokenizer(), or "
                "write the corpus again."
            )

    def check_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Checks that the ids of the corpus stand for the same tokens as the ids of a tokenizer.

        Raises:
            ValueError: if they stand for other tokens.
        """
        if tokenizer.hash != self.tokenizer_hash and tokenizer.tokens != self.tokenizer().tokens:
            self.check_tokenizer(tokenizer)

    @property
    def sequence_starts(self) -> np.ndarray:
        return np.asarray(self._files.sequence_starts)

    @property
    def word_starts(self) -> np.ndarray:
        """bool (vocabulary_size,), True for the tokens that begin a word."""
        path = self.folder / "word_starts.npy"
        return np.load(path) if self._tokenizer is None and path.is_file() else self.tokenizer().word_starts

    @property
    def fingerprint(self) -> str:
        """A hash of 16 hexadecimal digits that identifies the tokens and the tokenizer."""
        parts = [self.summary.get("sha256"), self.tokenizer_hash, self.num_tokens, self.num_sequences]
        parts += [self.block_documents] if self.block_documents else []
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def unigram_entropy(self) -> float:
        """Entropy of the token frequencies, in nats per token: the loss of the best unigram model."""
        if "unigram_entropy" not in self.summary:
            self.summary["unigram_entropy"] = entropy(self.counts())
        return self.summary["unigram_entropy"]

    def unigram_loss(self, held_out: "Corpus") -> float:
        """Evaluates a unigram model of this corpus on another corpus. Returns the loss in nats per token.

        The model uses add-one smoothing, so that no token of the vocabulary has probability zero.
        """
        return smoothed_unigram_loss(self.counts(), held_out.counts(), self.tokenizer_info["vocabulary_size"])

    def counts(self) -> np.ndarray:
        """How often each token id occurs: int64 (n,), where n - 1 is the largest id that occurs."""
        return count_tokens(self._files.token_blocks())

    @property
    def block_documents(self) -> int | None:
        """Number of documents of a block, or None if the whole corpus is one block; see `blocks`."""
        return self.summary.get("block_documents")

    def blocks(self) -> Iterator[Block]:
        """The blocks of consecutive documents for which plans are built.

        A corpus in shards has blocks of `block_documents` documents. The last block also contains the remaining
        documents, so it may be almost twice as large. Blocks do not depend on the number or the boundaries of shards.
        Any other corpus is a single block.
        """
        size = self.block_documents or self.num_documents
        for number in range(num_blocks(self.num_documents, size)):
            first, last = block_range(number, self.num_documents, size)
            starts = np.asarray(self.document_starts[first : last + 1])
            sentences = self._files.sequence_starts[starts[0] : starts[-1]]
            end = self._files.token_starts(starts[-1:])
            yield Block(number, np.append(sentences, end), starts - starts[0] if first else starts)

    def verify(self) -> None:
        """Reads all files and checks that they agree with each other and that all tokens are in the vocabulary.

        Raises:
            ValueError: if the corpus is damaged. The message states what is wrong and where.
        """
        verify(self.folder, self._files, self.summary, self.tokenizer_info, self.tokenizer)

    def plan(self, name: str, settings: dict, build: Callable[[], Iterable[np.ndarray]]) -> np.ndarray:
        """Returns a plan: a table that says which tokens make up each row. It is built once and stored with the corpus.

        Args:
            name: first part of the file name.
            settings: everything that the plan depends on besides the corpus, as a dict that JSON can represent.
            build: a function that returns the entries of the plan, in blocks: integer arrays (entries, columns), all
                with the same number of columns.

        Returns: int32 (entries, columns), or int64 if the corpus has 2**31 tokens and sequences or more.
            Memory-mapped, unless the corpus is in memory or the folder is read-only.
        """
        key = json.dumps([settings, self.fingerprint], sort_keys=True)
        dtype = np.dtype(np.int32 if self.num_tokens + self.num_sequences < 2**31 else np.int64)
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

"""Corpora in shards: several pairs of Megatron files, which different processes can write, and one manifest.

shard-00000.bin, shard-00000.idx    the documents of the shard, which begins and ends at borders of blocks
shard-00000.json                    the counts, digest and tokenizer of the shard; written last by its process
corpus.json                         what a corpus.json of one file says, the size of blocks, and the list of the shards

A block is a fixed number of consecutive documents. The digest of a shard is the sum of the SHA-256 hashes of its
blocks, modulo 2**256. The digest of the corpus is the sum over its shards, so it does not depend on the number of
shards.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np

from ..text.files import write_text
from ..text.json_files import inside
from ..tokenizers.tokenizer import Tokenizer
from .blocks import block_range, num_blocks
from .megatron import EncodedDocuments, MegatronPair, Pairs, PairWriter
from .record import COUNTS, problem_of_shard
from .statistics import count_tokens
from .writing import token_dtype


@dataclasses.dataclass(frozen=True)
class Selection:
    """Selects every `every`-th document of a sequence of documents, or all others.

    every 3, of 7 documents -> documents 2 and 5; the rest -> documents 0, 1, 3, 4 and 6

    Args:
        every: None to select all documents as the rest.
        rest: select the other documents instead.
    """

    every: int | None = None
    rest: bool = True

    def count(self, documents: int) -> int:
        """Number of selected documents in a sequence of `count` documents."""
        chosen = documents // self.every if self.every else 0
        return documents - chosen if self.rest else chosen

    def place(self, number: int) -> int:
        """Index, in the whole sequence, of the selected document `number`, counted from 0."""
        if not self.rest:
            return (number + 1) * self.every - 1
        return number + number // (self.every - 1) if self.every else number

    def mask(self, first: int, count: int) -> np.ndarray:
        """bool (count,), True for the selected documents among [first, first + count)."""
        chosen = (
            np.zeros(count, dtype=bool) if not self.every else (np.arange(first, first + count) + 1) % self.every == 0
        )
        return chosen != self.rest


def write_documents(prefix: Path, files: Pairs, selection: Selection, first: int, last: int, dtype: np.dtype) -> None:
    """Copies a range of the selected documents to new Megatron files.

    Documents that are not selected are not counted: the range [0, 2) is the first two selected documents.

    Args:
        prefix: path of the new files without their suffixes.
        files: the files that are read.
        selection: selects documents of `files`.
        first, last: the range [first, last).
        dtype: dtype of the tokens in the new files.
    """
    with PairWriter(prefix, dtype) as writer:
        for start, documents in files.chunks(selection.place(first), selection.place(last - 1) + 1):
            writer.append(_masked(documents, selection.mask(start, len(documents.lines))))


def _masked(documents: EncodedDocuments, mask: np.ndarray) -> EncodedDocuments:
    if mask.all():
        return documents
    lines = np.repeat(mask, documents.lines)
    tokens = np.repeat(lines, documents.lengths)
    return EncodedDocuments(documents.tokens[tokens], documents.lengths[lines], documents.lines[mask])


def shard_blocks(number: int, shards: int, documents: int, block_documents: int) -> range:
    """Returns the blocks of shard `number` of a corpus. There are at most as many shards as blocks."""
    blocks = num_blocks(documents, block_documents)
    shards = min(shards, blocks)
    return range(blocks * number // shards, blocks * (number + 1) // shards)


def write_shard(
    prefix: Path, files: Pairs, selection: Selection, blocks: range, block_documents: int, tokenizer: Tokenizer
) -> np.ndarray:
    """Writes one shard of a corpus. Different processes may write different shards.

    Args:
        prefix: path of the files of the shard without their suffixes.
        files: the encoded documents.
        selection: which of them are in the corpus.
        blocks: the blocks of the corpus that are in this shard.
        block_documents: number of documents of a block.
        tokenizer: the tokenizer that encoded the documents.

    Returns: how often each token occurs in the shard, int64 (vocabulary_size,).
    """
    total = selection.count(files.num_documents)
    first, last = block_range(blocks[0], total, block_documents)[0], block_range(blocks[-1], total, block_documents)[1]
    write_documents(prefix, files, selection, first, last, token_dtype(tokenizer))
    shard = Pairs([MegatronPair(prefix)])
    record = {
        "name": prefix.name,
        **{name: getattr(shard, name) for name in COUNTS},
        "first_block": blocks[0],
        "sha256": shard_digest(shard, blocks[0], block_documents),
        "tokenizer": tokenizer.hash,
    }
    write_text(_side(prefix), json.dumps(record, indent=1))
    return count_tokens(shard.token_blocks(), tokenizer.vocabulary_size)


def shard_digest(files: Pairs, first_block: int, block_documents: int) -> str:
    """The sum of the digests of the blocks of a shard, 64 hexadecimal digits."""
    total = 0
    for number in range(num_blocks(files.num_documents, block_documents)):
        parts = [hashlib.sha256() for _ in range(3)]
        for _, documents in files.chunks(*block_range(number, files.num_documents, block_documents)):
            for part, values in zip(parts, (documents.lines, documents.lengths, documents.tokens), strict=True):
                part.update(np.ascontiguousarray(values))
        whole = hashlib.sha256(f"{first_block + number}".encode() + b"".join(part.digest() for part in parts))
        total += int.from_bytes(whole.digest())
    return _hexadecimal(total)


def shard_table(folder: Path, shards: int, tokenizer_hash: str) -> dict:
    """Returns the entries of corpus.json about shards: their list, and the digest of the corpus.

    Raises:
        ValueError: shards are missing, or of another tokenizer.
    """
    prefixes = [folder / shard_name(number) for number in range(shards)]
    records = [_read_side(prefix, tokenizer_hash) for prefix in prefixes]
    return {
        "sha256": _hexadecimal(sum(int(record["sha256"], 16) for record in records)),
        "shards": [{name: value for name, value in record.items() if name != "tokenizer"} for record in records],
    }


def open_files(folder: Path, record: dict) -> list[MegatronPair]:
    """Opens the files of a corpus, in shards or not, and checks that its shards belong to it.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: a file is truncated or damaged, leads out of the folder, or belongs to another corpus.
    """
    if "shards" not in record:
        return [MegatronPair(folder / "corpus")]
    prefixes = [inside(folder, shard["name"], folder / "corpus.json") for shard in record["shards"]]
    names = [f"{prefix.name}{suffix}" for prefix in prefixes for suffix in (".bin", ".idx", ".json")]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} must have the files of all {len(prefixes)} shards that corpus.json lists. Missing: "
            f"{', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}. Copy them into the folder, or write the "
            "corpus again."
        )
    pairs = []
    for prefix, shard in zip(prefixes, record["shards"], strict=True):
        pair, said = MegatronPair(prefix), _read_side(prefix, record["tokenizer"]["hash"])
        counts = dict(zip(COUNTS, (len(pair.tokens), len(pair.lengths), len(pair.document_starts) - 1), strict=True))
        for source, values in (("corpus.json", shard), (f"{prefix.name}.json", said)):
            wrong = [name for name, value in {**said, **counts}.items() if name in values and values[name] != value]
            if wrong:
                raise ValueError(
                    f"{prefix} must agree with {source}. Received: {wrong[0]}={ {**said, **counts}[wrong[0]] }, but "
                    f"{source} says {values[wrong[0]]}. The files belong to different corpora, or are damaged."
                )
        pairs.append(pair)
    return pairs


def shard_name(number: int) -> str:
    return f"shard-{number:05d}"


def _side(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.json")


def _read_side(prefix: Path, tokenizer_hash: str) -> dict:
    path = _side(prefix)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: the shard is incomplete. Write it again.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. Write the corpus again.") from None
    problem = problem_of_shard(record)
    if problem:
        raise ValueError(f"{path} is damaged: {problem}. Write the corpus again.")
    if record.get("tokenizer") != tokenizer_hash:
        raise ValueError(
            f"All shards must be written with the tokenizer of the corpus (hash {tokenizer_hash[:12]}). Received: "
            f"{path.name} with hash {str(record.get('tokenizer')):.12}. The shard belongs to another corpus."
        )
    return record


def _hexadecimal(number: int) -> str:
    return f"{number % 2**256:064x}"

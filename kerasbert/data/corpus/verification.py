"""Checks a whole corpus: reads all of its files and compares them with corpus.json."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..tokenizers.tokenizer import Tokenizer
from .megatron import MegatronPair, Pairs
from .record import check_ids
from .shards import shard_digest
from .statistics import count_tokens, entropy


def verify(folder: Path, files: Pairs, record: dict, info: dict | None, tokenizer: Callable[[], Tokenizer]) -> None:
    """Reads all files of a corpus and checks that they agree; see `Corpus.verify`.

    Args:
        folder: the folder of the corpus.
        files: the opened files.
        record: the content of corpus.json, or {}.
        info: properties of the tokenizer, or None.
        tokenizer: function that loads the tokenizer.
    """
    for pair in files.pairs:
        pair.check_index()
        if info:
            start = 0
            for block in Pairs([pair]).token_blocks():
                check_ids(pair.binary, block, start, info["vocabulary_size"])
                start += len(block)
    if "shards" in record:
        for pair, shard in zip(files.pairs, record["shards"], strict=True):
            found = shard_digest(Pairs([pair]), shard["first_block"], record["block_documents"])
            _check_digest(pair, found, shard["sha256"])
    elif record.get("sha256"):
        _check_digest(files.pairs[0], tokens_digest(files), record["sha256"])
    if not info or not record:
        return
    counts = count_tokens(files.token_blocks())
    known, unknown = tokenizer().info, info.get("unk_id")
    found = {
        "unknown_tokens": int(counts[unknown]) if unknown is not None and unknown < len(counts) else 0,
        "unigram_entropy": entropy(counts),
        # Without the hash, which depends on the version of `tokenizers`.
        "tokenizer": {name: known[name] for name in info if name in known and name != "hash"},
    }
    said = {**record, "tokenizer": {name: info[name] for name in found["tokenizer"]}}
    for name, value in found.items():
        value = json.loads(json.dumps(value))
        near = isinstance(value, float) and value - 1e-9 < said.get(name, value) < value + 1e-9
        if said.get(name, value) != value and not near:
            raise ValueError(
                f"{folder / 'corpus.json'} must match the files. Received: {name!r} is {said[name]!r:.200}, but the "
                f"files have {value!r:.200}. Write the corpus again."
            )


def tokens_digest(files: Pairs) -> str:
    """SHA-256 hash of all tokens, as 64 hexadecimal digits: the digest of a corpus that is not in shards."""
    digest = hashlib.sha256()
    for block in files.token_blocks():
        digest.update(np.ascontiguousarray(block))
    return digest.hexdigest()


def _check_digest(pair: MegatronPair, found: str, said: str) -> None:
    if found != said:
        raise ValueError(
            f"{pair.binary} is damaged: its digest differs from that in corpus.json. Write the corpus again."
        )

"""Reads corpus.json and validates it before use."""

import json
import math
import re
from pathlib import Path

import numpy as np

COUNTS = ("num_tokens", "num_sequences", "num_documents")
_HASH = re.compile("[0-9a-f]{64}")


def read_record(path: Path) -> dict:
    """Reads a corpus.json: counts, SHA-256 digest, sources, and properties of the tokenizer.

    Raises:
        ValueError: the file is not JSON, or a value is missing, of the wrong type, or out of range.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. Write the corpus again.") from None
    problem = _problem_of_record(record)
    if problem:
        raise ValueError(f"{path} is damaged: {problem}. Write the corpus again.")
    return record


def _problem_of_record(record: object) -> str | None:
    if not isinstance(record, dict) or not isinstance(record.get("tokenizer"), dict):
        return "it must be an object with the properties of the tokenizer under 'tokenizer'"
    for name in COUNTS:
        if not _is_count(record.get(name), 1):
            return f"{name!r} must be an integer of at least 1. Received: {record.get(name)!r}"
    unknown, entropy = record.get("unknown_tokens", 0), record.get("unigram_entropy", 0.0)
    if not _is_count(unknown, 0) or unknown > record["num_tokens"]:
        return f"'unknown_tokens' must be an integer of at most {record['num_tokens']}. Received: {unknown!r}"
    if type(entropy) not in (int, float) or not 0.0 <= entropy < math.inf:
        return f"'unigram_entropy' must be a number of at least 0. Received: {entropy!r}"
    digest, sources = record.get("sha256"), record.get("sources", [])
    if digest is not None and not (isinstance(digest, str) and _HASH.fullmatch(digest)):
        return f"'sha256' must be 64 hexadecimal digits. Received: {digest!r:.80}"
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        return f"'sources' must be a list of names. Received: {sources!r:.80}"
    return _problem_of_shards(record) or _problem_of_tokenizer(record["tokenizer"])


def _problem_of_shards(record: dict) -> str | None:
    if "shards" not in record and "block_documents" not in record:
        return None
    if not _is_count(record.get("block_documents"), 2):
        return f"'block_documents' must be an integer of at least 2. Received: {record.get('block_documents')!r:.80}"
    shards = record.get("shards")
    if not isinstance(shards, list) or not shards:
        return f"'shards' must be a list of shards. Received: {shards!r:.80}"
    for shard in shards:
        if problem := problem_of_shard(shard):
            return f"in 'shards', {problem}"
    for name in COUNTS:
        total = sum(shard[name] for shard in shards)
        if record[name] != total:
            return f"{name!r} must be the sum over the shards, {total}. Received: {record[name]}"
    block = 0
    for number, shard in enumerate(shards):
        blocks, rest = divmod(shard["num_documents"], record["block_documents"])
        if shard["first_block"] != block or (rest and number + 1 < len(shards)):
            return f"shards must end at borders of blocks, in order. Received: {shard['name']!r:.80}"
        block += blocks
    return None


def problem_of_shard(shard: object) -> str | None:
    """Describes what is wrong with the record of a shard. Returns None if it is valid."""
    if not isinstance(shard, dict) or not isinstance(shard.get("name"), str):
        return f"a shard must have a 'name'. Received: {shard!r:.80}"
    for name, least in (*((name, 1) for name in COUNTS), ("first_block", 0)):
        if not _is_count(shard.get(name), least):
            return f"{name!r} must be an integer of at least {least}. Received: {shard.get(name)!r:.80}"
    digest = shard.get("sha256")
    if not (isinstance(digest, str) and _HASH.fullmatch(digest)):
        return f"'sha256' must be 64 hexadecimal digits. Received: {digest!r:.80}"
    return None


def _problem_of_tokenizer(info: dict) -> str | None:
    size = info.get("vocabulary_size")
    if not _is_count(size, 1):
        return f"'vocabulary_size' must be an integer of at least 1. Received: {size!r}"
    if not isinstance(info.get("hash"), str) or not _HASH.fullmatch(info["hash"]):
        return f"the tokenizer's 'hash' must be 64 hexadecimal digits. Received: {info.get('hash')!r:.80}"
    if info.get("padding_side") not in ("left", "right"):
        return f"'padding_side' must be 'left' or 'right'. Received: {info.get('padding_side')!r:.80}"
    for name, value in info.items():
        if name.endswith("_id") and value is not None and not (_is_count(value, 0) and value < size):
            return f"{name!r} must be an id below {size}, or null. Received: {value!r:.80}"
    for name, parts in (("single", ["A"]), ("pair", ["A", "B"])):
        template = info.get(name)
        right = isinstance(template, list) and all(
            isinstance(entry, list)
            and len(entry) == 2
            and _is_count(entry[1], 0)
            and (entry[0] in parts if isinstance(entry[0], str) else _is_count(entry[0], 0) and entry[0] < size)
            for entry in template
        )
        if not right or sorted(entry[0] for entry in template if isinstance(entry[0], str)) != parts:
            wanted = " and ".join(parts)
            return f"the template {name!r} must consist of {wanted} and ids below {size}. Received: {template!r:.80}"
    return None


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def check_ids(path: Path, tokens: np.ndarray, first: int, size: int) -> None:
    """Raises a ValueError that names the first token id outside the vocabulary, if there is one.

    Args:
        path: path of the file that holds the tokens, for the message.
        tokens: consecutive token ids from the file.
        first: index of `tokens[0]` in the file.
        size: size of the vocabulary.
    """
    if len(tokens) and (tokens.min() < 0 or tokens.max() >= size):
        bad = int(np.argmax((tokens < 0) | (tokens >= size)))
        raise ValueError(
            f"{path} must hold ids below {size}. Received: {int(tokens[bad])} as token {first + bad}. The file is "
            "damaged, or was written with another tokenizer. Write the corpus again."
        )

"""Finds word starts and row templates of a backend (a `tokenizers.Tokenizer`), and makes variants of it.

The copy for plain text does not recognize special tokens in text.
"""

import json
import re
from collections.abc import Sequence

import numpy as np
import tokenizers as hf
from tokenizers import normalizers, pre_tokenizers

from .checks import NOT_ENCODED, rust_errors


def word_starts(content: dict, tokens: Sequence[str]) -> np.ndarray:
    """bool (tokens,), True for tokens that begin a word.

    Args:
        content: the backend as a dict, as in `tokenizer.json`.
        tokens: all tokens in the order of their ids.

    Raises:
        ValueError: the vocabulary does not mark the start of words.
    """
    model = content["model"]
    if model["type"] == "WordPiece":
        prefix = model["continuing_subword_prefix"]
        return np.array([not token.startswith(prefix) for token in tokens])
    if model["type"] == "Unigram" or "Metaspace" in json.dumps(content["pre_tokenizer"]):
        mark = "▁"
    elif "ByteLevel" in json.dumps([content["pre_tokenizer"], content["decoder"]]):
        mark = "Ġ"
    else:
        raise ValueError(
            "Word starts are only known for vocabularies that mark the start of words. Received: "
            f"{model['type']} without such a mark."
        )
    return np.array([token.startswith(mark) for token in tokens])


def row_template(backend: hf.Tokenizer, tokens: Sequence[str], pair: bool) -> tuple[tuple[int | str, int], ...]:
    """Finds the template of rows (see `Tokenizer.template`) by encoding a text.

    Without a template, `tokenizers` gives the second text of a pair segment 1. Here it is 0, because the families
    without a template have no segments. GPT-2 would add the embedding of the token with this id.
    """
    with rust_errors(NOT_ENCODED):
        encodings = (backend.encode(text, add_special_tokens=False) for text in ("a", "0", *tokens))
        probe = next((encoding for encoding in encodings if encoding.ids), None)
        if probe is None:
            raise ValueError(f"{NOT_ENCODED}: it cannot encode any token of its vocabulary.")
        full = backend.post_process(probe, probe if pair else None)
    state = backend.post_processor.__getstate__().decode() if backend.post_processor else ""
    has_template = any(kind in state for kind in ("TemplateProcessing", "BertProcessing", "RobertaProcessing"))
    segments = full.type_ids if has_template else [0] * len(full)
    items: list[tuple[int | str, int]] = []
    texts = 0
    for index, segment, special in zip(full.ids, segments, full.special_tokens_mask, strict=True):
        if special:
            items.append((index, segment))
            continue
        if texts % len(probe.ids) == 0:
            items.append(("AB"[texts // len(probe.ids)], segment))
        texts += 1
    return tuple(items)


def lower_casing_copy(backend: hf.Tokenizer) -> hf.Tokenizer:
    """Copies the backend so that the copy first converts texts to lower case, except for special tokens."""
    copy = hf.Tokenizer.from_str(backend.to_str())
    before = [copy.normalizer] if copy.normalizer else []
    copy.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])
    return copy


def plain_copy(backend: hf.Tokenizer, special_tokens: Sequence[str]) -> hf.Tokenizer:
    """Copies the backend so that the copy does not recognize special tokens in text."""
    copy = hf.Tokenizer.from_str(backend.to_str())
    copy.encode_special_tokens = True
    # The vocabulary of a unigram model contains the special tokens, with the highest scores. The first character of
    # their names is split off in texts, so that they cannot match.
    names = [name for name in special_tokens if len(name) > 1]
    if isinstance(copy.pre_tokenizer, pre_tokenizers.BertPreTokenizer):
        # It makes a word of every punctuation mark, so that names such as [MASK] cannot match anyway.
        names = [name for name in names if len(copy.pre_tokenizer.pre_tokenize_str(name)) == 1]
    if names:
        pattern = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
        before = [copy.pre_tokenizer] if copy.pre_tokenizer else []
        split = pre_tokenizers.Split(hf.Regex(pattern), "isolated")
        copy.pre_tokenizer = pre_tokenizers.Sequence([*before, split])
    return copy

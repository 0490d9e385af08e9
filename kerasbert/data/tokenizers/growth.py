"""Bounds how much the steps of a tokenizer can lengthen a text.

`tokenizer.json` can hold any number of steps that replace a character by many. A few of them, one after the other, turn
a short text into more bytes than there is memory, and the tokenizers library then ends the process. The bounds are
computed from the steps alone, before a text is encoded. They are factors of bytes in UTF-8.
"""

import base64
import binascii
import json
import math
import re

import tokenizers as hf
from tokenizers import normalizers

from ..text.json_files import shortened
from .checks import rust_errors

# ALBERT's steps, the longest chain of published tokenizers, have a bound of 2,200. They lengthen real text by a few %.
MOST_WHEN_ENCODING, MOST_WHEN_DECODING = 4_000, 20
MOST_BYTES_OF_A_TOKEN = 10_000
MOST_SPECIAL_TOKENS = 1_000  # of a template
MOST_CHARACTERS_OF_A_WORD = 10_000  # the time of WordPiece is quadratic in them

# By how much Unicode's mappings lengthen a text at most: https://www.unicode.org/faq/normalization
_UNICODE = {"NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Lowercase": 1.5, "BertNormalizer": 9, "StripAccents": 1}
# ByteLevel writes each byte as a character of two bytes, after a space. Metaspace writes spaces as "▁", and one before.
_FACTORS = {"ByteLevel": 4, "Metaspace": 6, "Nmt": 1, "Strip": 1}
_SHORTENING = {"ByteFallback": 1, "Fuse": 1, "Metaspace": 1, "Strip": 1}


def check_growth(backend: hf.Tokenizer) -> None:
    """Raises a ValueError if the steps of a tokenizer could lengthen a text, or a token, without reasonable bounds."""
    encoding = _of_normalizers(_steps(backend.normalizer)) * _of_pre_tokenizers(_steps(backend.pre_tokenizer))
    for what, factor, most in (
        ("encodes", encoding, MOST_WHEN_ENCODING),
        ("decodes", _of_decoders(_steps(backend.decoder)), MOST_WHEN_DECODING),
    ):
        if factor > most:
            raise ValueError(
                f"A tokenizer must not lengthen a text by more than {most:,} times when it {what}. Received: steps "
                f"that could lengthen it {factor:.3g} times. Remove the steps that replace characters by long texts."
            )
    for step in _steps(backend.post_processor):
        _check_template(step)
    _check_model(backend)


def _steps(component: object) -> list[dict]:
    """Returns the steps of a component in the form of `tokenizer.json`, without nested sequences."""
    if component is None:
        return []
    with rust_errors("The steps of the tokenizer must be readable"):
        left, steps = [json.loads(component.__getstate__())], []
    while left:
        step = left.pop()
        inner = next((step[key] for key in _SEQUENCES if step["type"] == "Sequence" and key in step), None)
        if inner is None:
            steps.append(step)
        else:
            left += reversed(inner)
    return steps


_SEQUENCES = ("normalizers", "pretokenizers", "decoders", "processors")


def _of_normalizers(steps: list[dict]) -> float:
    factor, since_replacement = 1.0, set()  # a mapping of Unicode lengthens a text only once
    for step in steps:
        kind = step["type"]
        if kind in _UNICODE:
            kinds = since_replacement | {kind}
            factor *= _of_unicode(kinds) / _of_unicode(since_replacement)
            since_replacement = kinds
            continue
        if kind == "Replace":
            factor *= _of_replacement(step)
        elif kind == "Prepend":
            factor *= 1 + _bytes(step["prepend"])
        elif kind == "Precompiled":
            factor *= _of_charsmap(step["precompiled_charsmap"])
        else:
            factor *= _FACTORS.get(kind, MOST_WHEN_ENCODING)
        since_replacement = set()
    return factor


def _of_unicode(kinds: set[str]) -> float:
    """The bound of several mappings, of which the compatibility forms contain the canonical ones."""
    forms = [_UNICODE[kind] for kind in kinds if kind.startswith("NF")]
    return max(forms, default=1) * math.prod(_UNICODE[kind] for kind in kinds if not kind.startswith("NF"))


def _of_charsmap(charsmap: str) -> float:
    """The bytes of the longest text in the rules of SentencePiece: size of a tree, tree, texts that end in 0."""
    try:
        content = base64.b64decode(charsmap)
    except (binascii.Error, ValueError):
        return math.inf
    return max(map(len, content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")), default=1) or 1


def _of_replacement(step: dict) -> float:
    content, pattern = _bytes(step["content"]), step["pattern"]
    if "String" in pattern:
        size = _bytes(pattern["String"])
        return max(1.0, content / size) if size else 1.0 + content
    if not content:
        return 1.0
    return float(1 + content) if _matches_nothing(pattern["Regex"]) else float(content)


def _matches_nothing(pattern: str) -> bool:
    """Whether an expression may match between two characters. It is then inserted, and nothing is removed."""
    if re.search(r"\(\?|\\[bBAzZG]|[\^$]", re.sub(r"\[\^", "[", pattern)):
        return True  # matches that depend on the characters around them are not searched for
    with rust_errors("The expressions of the tokenizer must be valid"):
        return bool(normalizers.Replace(hf.Regex(f"({pattern})a"), "").normalize_str("a") == "")


def _of_pre_tokenizers(steps: list[dict]) -> float:
    return math.prod(_FACTORS.get(step["type"], 1) for step in steps)


def _of_decoders(steps: list[dict]) -> float:
    factor = 1.0
    for step in steps:
        factor *= _of_replacement(step) if step["type"] == "Replace" else _SHORTENING.get(step["type"], 2)
    return factor


def _check_template(step: dict) -> None:
    """Raises a ValueError if a template repeats texts, or has very many special tokens."""
    for name in ("single", "pair") if step["type"] == "TemplateProcessing" else ():
        sequences = [item["Sequence"]["id"] for item in step[name] if "Sequence" in item]
        tokens = [item["SpecialToken"]["id"] for item in step[name] if "SpecialToken" in item]
        ids = sum(len(step["special_tokens"].get(token, {}).get("ids", ())) for token in tokens)
        if len(set(sequences)) < len(sequences) or ids > MOST_SPECIAL_TOKENS:
            raise ValueError(
                f"A template may contain each text once, and {MOST_SPECIAL_TOKENS:,} special tokens. "
                f"Received: the texts {shortened(', '.join(sequences))} and {ids:,} special tokens."
            )


def _check_model(backend: hf.Tokenizer) -> None:
    longest = max(backend.get_vocab(with_added_tokens=True), key=len, default="")
    marks = [getattr(backend.model, name, None) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix")]
    longest = max(longest, *marks, key=len)
    if _bytes(longest) > MOST_BYTES_OF_A_TOKEN:
        raise ValueError(
            f"A token must have at most {MOST_BYTES_OF_A_TOKEN:,} bytes. Received: {shortened(longest)} with "
            f"{_bytes(longest):,} bytes."
        )
    characters = getattr(backend.model, "max_input_chars_per_word", 0)
    if characters > MOST_CHARACTERS_OF_A_WORD:
        raise ValueError(
            f"`max_input_chars_per_word` must be at most {MOST_CHARACTERS_OF_A_WORD:,}. Received: "
            f"{shortened(characters)}."
        )


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))

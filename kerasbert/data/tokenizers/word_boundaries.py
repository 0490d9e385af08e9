"""Finds the tokens that begin words in rows of token ids, also in scripts that put no spaces between words.

Where text has spaces, tokens carry marks: "▁" or "Ġ" at the start of a word, "##" inside it, or "</w>" at its end.
Chinese, Japanese, Thai, Lao, Khmer and Burmese have no spaces, so that whole sentences would be one word. There, words
are found by the characters of the tokens, as in Unicode's text segmentation (UAX 29): an ideograph or a letter of these
scripts begins a word unless it is inside a token, and Katakana is joined to Katakana.
"""

import functools
import json
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from .backends import word_starts

_PLAIN, _SPACE, _EXTEND, _LETTER, _KATAKANA = range(5)
_LETTERS = (  # ideographs, their punctuation, and letters of scripts without spaces
    *((0x2E80, 0x312F), (0x3190, 0x31EF), (0x3200, 0x4DBF), (0x4E00, 0xA4CF), (0xF900, 0xFAFF), (0xFE30, 0xFE4F)),
    *((0xFF01, 0xFF65), (0xFFE0, 0xFFEF), (0x1B000, 0x1B16F), (0x1F200, 0x1F2FF), (0x20000, 0x3FFFF)),
)
_SOUTH_EAST = (  # Thai, Lao, Burmese, Khmer, Tai Le, New Tai Lue, Tai Tham, and further letters of Burmese
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF)),
    (0xAA60, 0xAA7F),
)
_KATAKANAS = ((0x30A0, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F))
_EXTENDS = ((0x0300, 0x036F), (0x200C, 0x200D), (0x3099, 0x309A), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))


@functools.cache
def character_classes(ideographs: bool = True) -> np.ndarray:
    """The class of every character, uint8 (0x110000,).

    Args:
        ideographs: whether the classes include Chinese and Japanese.
    """
    classes = np.zeros(0x110000, dtype=np.uint8)
    for first, last in (*(_LETTERS if ideographs else ()), *_SOUTH_EAST):
        classes[first : last + 1] = _LETTER
    for first, last in _KATAKANAS if ideographs else ():
        classes[first : last + 1] = _KATAKANA
    marks = [code for first, last in _SOUTH_EAST for code in range(first, last + 1)]
    classes[[code for code in marks if unicodedata.category(chr(code)).startswith("M")]] = _EXTEND
    for first, last in _EXTENDS:
        classes[first : last + 1] = _EXTEND
    classes[ord(" ")] = _SPACE
    return classes


class WordBoundaries:
    """Finds the tokens that begin words in rows of token ids.

    Args:
        content: the backend of the tokenizer as a dict, as in `tokenizer.json`.
        tokens: all tokens in the order of their ids.
        special_ids: ids of the special tokens, which are words.

    Attributes:
        starts: bool (tokens,), True for tokens that always begin a word.
        marks_lines: whether the first token of a line always has a mark.

    Raises:
        ValueError: the tokens mark neither the start nor the end of words.
    """

    def __init__(self, content: dict, tokens: Sequence[str], special_ids: np.ndarray):
        model = content["model"]
        suffix = model.get("end_of_word_suffix") if model["type"] == "BPE" else None
        self._ends = np.array([bool(suffix) and token.endswith(suffix) for token in tokens])
        self.starts = np.zeros(len(tokens), bool) if suffix else word_starts(content, tokens)
        self.starts[special_ids] = True
        pieces = [b""] * len(tokens)
        self.marks_lines = model["type"] != "BPE" or "ByteLevel" not in json.dumps(content["pre_tokenizer"])
        self._classes = character_classes(ideographs=not _splits_ideographs(content))
        special = set(special_ids.tolist())
        for index, token in enumerate(tokens):
            if index not in special:
                pieces[index] = _bytes_of(token, model, "Metaspace" in json.dumps(content["pre_tokenizer"]))
        self._sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        self._offsets = np.cumsum(self._sizes) - self._sizes
        self._bytes = np.frombuffer(b"".join(pieces), dtype=np.uint8)
        self._unmarked = np.array([self._may_be_unmarked(piece) for piece in pieces])

    def _may_be_unmarked(self, piece: bytes) -> bool:
        """Whether a token has letters of scripts without spaces, or parts of characters that may be such letters."""
        try:
            return any(self._classes[ord(character)] >= _EXTEND for character in piece.decode())
        except UnicodeDecodeError:
            return True

    def __call__(self, token_ids: np.ndarray, borders: np.ndarray | None = None) -> np.ndarray:
        """bool (b, s), True at tokens that begin a word.

        Args:
            token_ids: int (b, s).
            borders: bool (b, s), True at tokens that begin a text. They begin a word, too.
        """
        starts = self.starts.take(token_ids)
        starts[:, 1:] |= self._ends.take(token_ids[:, :-1])
        if borders is not None:
            starts |= borders
        if self._unmarked.take(token_ids).any():
            self._add_unmarked(token_ids, starts)
        return starts

    def _add_unmarked(self, token_ids: np.ndarray, starts: np.ndarray) -> None:
        """Adds the words of scripts without spaces to `starts`, in place."""
        ids = token_ids.reshape(-1)
        sizes = self._sizes[ids]
        ends = np.cumsum(sizes)
        text = self._bytes[np.repeat(self._offsets[ids] - ends + sizes, sizes) + np.arange(sizes.sum())]
        if not len(text):
            return
        leads = np.flatnonzero((text & 0xC0) != 0x80)  # the bytes at which characters begin
        classes = self._classes[_code_points(text, leads)]
        # The class of the last character before each character that is more than a combining mark.
        base = np.maximum.accumulate(np.where(classes != _EXTEND, np.arange(len(classes)), 0))
        before = np.append(_PLAIN, classes[base][:-1])
        joined = (classes == _KATAKANA) & (before == _KATAKANA)
        unmarked = ((classes >= _LETTER) & (before != _SPACE)) | ((classes == _PLAIN) & (before >= _LETTER))
        begins = np.zeros(len(text) + 1, dtype=bool)
        begins[leads] = unmarked & ~joined
        found = begins[np.minimum(ends - sizes, len(text))] & (sizes > 0)
        starts |= found.reshape(token_ids.shape)


def _splits_ideographs(content: dict) -> bool:
    """Whether the normalizer makes a word of every ideograph, so that "##" marks what is inside a word of Kana."""
    return '"handle_chinese_chars": true' in json.dumps(content["normalizer"])


def _bytes_of(token: str, model: dict, is_sentencepiece: bool) -> bytes:
    """The bytes of the text of a token."""
    if model["type"] == "WordPiece":
        return token.removeprefix(model["continuing_subword_prefix"]).encode()
    if model["type"] == "Unigram" or is_sentencepiece:
        if re.fullmatch("<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").encode()
    if suffix := model.get("end_of_word_suffix"):
        return token.removesuffix(suffix).encode()
    alphabet = _byte_alphabet()
    return bytes(alphabet[character] for character in token) if set(token) <= alphabet.keys() else token.encode()


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level BPE (GPT-2)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


def _code_points(text: np.ndarray, leads: np.ndarray) -> np.ndarray:
    """Decodes the UTF-8 characters that begin at `leads`. The result is below 0x110000, also for damaged text."""
    more = np.append(text, np.zeros(3, np.uint8)).astype(np.int64)
    one, two, three, four = (more[leads + place] for place in range(4))
    two, three, four = two & 63, three & 63, four & 63
    found = np.where(one < 0x80, one, (one & 31) << 6 | two)
    found = np.where(one >= 0xE0, (one & 15) << 12 | two << 6 | three, found)
    found = np.where(one >= 0xF0, (one & 7) << 18 | two << 12 | three << 6 | four, found)
    return np.minimum(found, 0x10FFFF)

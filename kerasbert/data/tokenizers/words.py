"""Encodes lines of text by looking up the ids of their words in a table.

Most words of a text have occurred before, so this is several times as fast as encoding whole lines, with the same ids.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from .sentencepiece import BREAKS, MARK, SPACES_AT_ENDS, SPACES_BEHIND
from .tokenizer import Tokenizer

_TABLE_CHARACTERS = 1 << 21  # a table whose words have more characters is emptied; this is about 50 MB of memory

# The components of tokenizers that encode a space and the word behind it independently of the text around them. The
# pre-tokenizer that comes first either drops white space or attaches a single space to the next word.
_DROP_SPACES = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
_ATTACH_SPACES = ("ByteLevel", "Metaspace")
_PRE_TOKENIZERS = (*_DROP_SPACES, *_ATTACH_SPACES, "Split", "Punctuation", "Digits")
_NORMALIZERS = (
    *("BertNormalizer", "Lowercase", "Nmt", "StripAccents", "Precompiled"),
    *("NFC", "NFD", "NFKC", "NFKD"),
)
# Regular expressions, and what replaces them.
_SPACE_RULES = ((r"\s+", " "), (" {2,}", " "), (BREAKS, " "), (SPACES_AT_ENDS, ""), (SPACES_BEHIND, ""))


class WordEncoder:
    """Encodes lines as `Tokenizer.encode_joined` does, but every word only once.

    The tokenizer encodes the whole line if words cannot be encoded alone: because of the tokenizer (see `word_rules`),
    or because of white space other than single spaces between words.

    Args:
        tokenizer: the tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self._independent, self._drops_spaces = word_rules(tokenizer)
        self._clear()

    def _clear(self) -> None:
        self._numbers = _Numbers()
        self._tokens, self._ends = np.zeros(0, np.int32), np.zeros(1, np.int64)
        self._alone = np.zeros(0, bool)  # whether each word can be encoded alone
        self._characters = 0

    def __call__(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes lines into one array, int32 (tokens,). Also returns their lengths, int32 (lines,).

        Args:
            lines: texts without line breaks.
        """
        if not self._independent or not lines:
            return self.tokenizer.encode_joined(lines)
        if self._characters > _TABLE_CHARACTERS:
            self._clear()
        numbers = self._look_up("\n".join(lines).replace(" ", "\n ").split("\n"))
        counts = np.fromiter((line.count(" ") for line in lines), np.int64, len(lines)) + 1
        alone = np.logical_and.reduceat(self._alone[numbers], np.cumsum(counts) - counts)
        numbers = numbers[np.repeat(alone, counts)]
        starts, sizes = self._ends[numbers], np.diff(self._ends)[numbers]
        ends = np.cumsum(sizes)
        ids = self._tokens[np.repeat(starts - ends + sizes, sizes) + np.arange(sizes.sum())]
        lengths = np.diff(np.append(0, ends)[np.cumsum(counts[alone])], prepend=0).astype(np.int32)
        if alone.all():
            return ids, lengths
        rest = [line for line, is_alone in zip(lines, alone, strict=True) if not is_alone]
        return _merged(alone, (ids, lengths), self.tokenizer.encode_joined(rest))

    def _look_up(self, words: list[str]) -> np.ndarray:
        """Returns the numbers of words, int64 (words,). New words are added to the table."""
        try:
            numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
            if new := self._numbers.take_new():
                tokens, lengths = self.tokenizer.encode_joined(new)
                self._tokens = np.concatenate([self._tokens, tokens])
                self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(lengths)])
                self._alone = np.concatenate([self._alone, [*map(self._can_be_alone, new)]])
                self._characters += sum(map(len, new))
        except BaseException:  # the table has numbers of words without their tokens
            self._clear()
            raise
        return numbers

    def _can_be_alone(self, word: str) -> bool:
        """Whether a space before or behind the word cannot merge with its own white space, or marks for spaces."""
        if self._drops_spaces:
            return True
        normalizer = self.tokenizer.backend.normalizer
        word = normalizer.normalize_str(word) if normalizer else word
        return bool(word) and not word[-1].isspace() and MARK not in word


class _Numbers(dict):
    """Numbers words in the order of their first occurrence."""

    def __init__(self):
        self._new: list[str] = []

    def __missing__(self, word: str) -> int:
        self._new.append(word)
        number = self[word] = len(self)
        return number

    def take_new(self) -> list[str]:
        """Returns the words that were numbered since the last call."""
        new, self._new = self._new, []
        return new


def _merged(choice: np.ndarray, one: tuple, other: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Merges (ids, lengths) of the lines for which `choice` is True with those of the other lines."""
    lengths = np.empty(len(choice), np.int32)
    lengths[choice], lengths[~choice] = one[1], other[1]
    ids, places = np.empty(lengths.sum(), np.int32), np.repeat(choice, lengths)
    ids[places], ids[~places] = one[0], other[0]
    return ids, lengths


def word_rules(tokenizer: Tokenizer) -> tuple[bool, bool]:
    """Returns whether the tokenizer encodes words independently, and whether it drops the spaces between them."""
    content = tokenizer.content
    rules = [*_flat(content["normalizer"], "normalizers")]
    steps = [*_flat(content["pre_tokenizer"], "pretokenizers")]
    first = steps[0] if steps else {"type": None}
    independent = (
        tokenizer.preparation is None
        and not content["model"].get("dropout")
        and all(token["special"] for token in content["added_tokens"])
        and all(map(_normalizes_locally, rules))
        and not (first["type"] == "ByteLevel" and any(rule["type"] == "Replace" for rule in rules))  # may strip spaces
        and first["type"] in _DROP_SPACES + _ATTACH_SPACES
        and first.get("use_regex", True)
        and all(step["type"] in _PRE_TOKENIZERS for step in steps)
        and all(step["split"] and step["prepend_scheme"] == "always" for step in steps if step["type"] == "Metaspace")
    )
    return independent, first["type"] in _DROP_SPACES


def _flat(step: dict | None, name: str) -> Iterator[dict]:
    """Yields the steps of nested sequences of normalizers or pre-tokenizers."""
    if step is not None:
        if step["type"] == "Sequence":
            for inner in step[name]:
                yield from _flat(inner, name)
        else:
            yield step


def _normalizes_locally(step: dict) -> bool:
    if step["type"] != "Replace":
        return step["type"] in _NORMALIZERS
    text, pattern = step["pattern"].get("String"), step["pattern"].get("Regex")
    return (pattern, step["content"]) in _SPACE_RULES or (text is not None and " " not in text + step["content"])

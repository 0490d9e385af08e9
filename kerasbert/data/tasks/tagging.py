"""Token classification: entities in all tagging schemes, and rows in which a word is tagged at its first token."""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from ..tokenizers.tokenizer import Tokenizer
from .windows import most_context, right_padded_rows, window_starts


@functools.cache
def _words() -> re.Pattern:
    """A pattern that matches words and punctuation marks.

    A word is a sequence of letters and digits. In scripts that are written without spaces (ideographs, kana, Thai),
    each character is a word. Every other visible character is also a word. Combining marks (vowel signs, points,
    accents, joiners) belong to the character before them.
    """
    marks = "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c).startswith("M"))
    marks += "\u200c\u200d"
    alone = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\U00020000-\U0003ffff"
    return re.compile(f"[{alone}][{marks}]*|\\w+(?:[{marks}]+\\w*)*|\\S[{marks}]*")


def words_of(text: str) -> list[tuple[int, int]]:
    """Character spans [start, stop) of all words and punctuation marks of a text.

    "It's  5." -> (0, 2), (2, 3), (3, 4), (6, 7), (7, 8)
    """
    return [match.span() for match in _words().finditer(text)]


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Extracts the entities of one sentence as (type, first word, last word + 1), by the rules of conlleval.

    Tags may be BIO (IOB2), IOB1, BIOES (IOBES, BILOU), or types without a prefix. An entity begins at a tag with the
    prefix B, S or U, and at any other tag except O that follows O, a tag with the prefix E, S, L or U, or a tag of
    another type.

    B-PER I-PER O I-LOC -> (PER, 0, 2), (LOC, 3, 4)
    """
    wrong = tags if isinstance(tags, str) else next((tag for tag in tags if not isinstance(tag, str)), None)
    if wrong is not None:
        raise ValueError(f"The tags of a sentence must be a list of str. Received: {wrong!r:.60}.")
    found: list[tuple[str, int, int]] = []
    running = None  # (type, first word) of the entity that the next word may continue
    for number, tag in enumerate([*tags, "O"]):
        prefix, kind = _parts(tag)
        if running is not None and (prefix in ("B", "S", "U", "O") or kind != running[0]):
            found.append((*running, number))
            running = None
        if prefix != "O" and running is None:
            running = (kind, number)
        if prefix in ("E", "L", "S", "U"):
            found.append((*running, number + 1))
            running = None
    return found


def tags_of(spans: Sequence[tuple[str, int, int]], length: int, scheme: str = "bio") -> list[str]:
    """Converts the entities of a sentence of `length` words to tags in the scheme "bio", "bioes" or "iob1".

    This is the inverse of `entities`.
    """
    tags = ["O"] * length
    last = None  # type and stop of the previous entity, for iob1
    for kind, start, stop in sorted(spans, key=lambda span: span[1]):
        if not 0 <= start < stop <= length or tags[start:stop] != ["O"] * (stop - start):
            raise ValueError(f"Entities must lie within the {length} words and must not overlap. Received: {spans}.")
        tags[start:stop] = [f"I-{kind}"] * (stop - start)
        if scheme == "bioes" and stop - start == 1:
            tags[start] = f"S-{kind}"
        elif scheme == "bioes":
            tags[start], tags[stop - 1] = f"B-{kind}", f"E-{kind}"
        elif scheme == "bio" or last == (kind, start):
            tags[start] = f"B-{kind}"
        elif scheme != "iob1":
            raise ValueError(f'`scheme` must be "bio", "bioes" or "iob1". Received: {scheme!r}.')
        last = (kind, stop)
    return tags


def tags_within(tag: str, count: int) -> list[str]:
    """Splits the tag of a word into tags of `count` words. With two, B-LOC -> B-LOC I-LOC, S-LOC -> B-LOC E-LOC."""
    if not isinstance(tag, str):  # a number, which has no prefix
        return [tag] * count
    prefix, dash, kind = tag.partition("-")
    if count == 1 or not dash or prefix not in ("B", "I", "E", "L", "S", "U"):
        return [tag] * count
    first = prefix if prefix in ("B", "I") else "B" if prefix in ("S", "U") else "I"
    last = {"S": "E", "U": "L", "E": "E", "L": "L"}.get(prefix, "I")
    return [f"{first}-{kind}", *[f"I-{kind}"] * (count - 2), f"{last}-{kind}"]


def _parts(tag: str) -> tuple[str, str]:
    if tag in ("O", "B", "I"):  # corpora with a single type of entity do not name it
        return tag, ""
    prefix, dash, kind = tag.partition("-")
    return (prefix, kind) if dash and prefix in ("B", "I", "E", "S", "L", "U", "M") else ("I", tag)


class TaggedRows:
    """Encodes sentences as rows for a tagger, which classifies every word at its first token.

    A sentence that is too long is split into overlapping windows. Each word is classified in the window in which it has
    the most context. A word without tokens, such as a control character, is in no window. If one token covers two
    words, as in `).`, both words get the result of the first.

    Args:
        tokenizer: a `Tokenizer`, whose template for single texts is used.
        sentences: lists of words, or texts, which are split by `words_of`.
        max_length: maximum number of tokens per window, including special tokens.
        stride: number of tokens between the starts of consecutive windows. Default: half of the text tokens of a
            window.

    Attributes:
        x: a dict of int32 "token_ids" (windows, s) and "lengths" (windows,).
        words: int32 (windows, s), the index of the word that is classified at each position, or -1.
        sentence: int32 (windows,), the index of the sentence of each window.
        texts, word_spans: each sentence as one text, and the character spans of its words.
        hosts: for each sentence, int32 (words,), the index of the word whose result each word gets. This is the word
            itself, the word whose token contains it, or -1 if there is none.
    """

    def __init__(self, tokenizer: Tokenizer, sentences: Sequence, max_length: int, stride: int | None = None):
        checked = [_checked(sentence, number) for number, sentence in enumerate(sentences)]
        self.texts = [text for text, _ in checked]
        self.word_spans = [spans for _, spans in checked]
        pieces, firsts, chosen, self.hosts = [], [], [], []
        template = tokenizer.info["single"]
        max_tokens = max_length - (len(template) - 1)
        if max_tokens < 1:
            raise ValueError(
                f"`max_length` must leave space for text besides the special tokens. Received: {max_length}."
            )
        stride = max(1, max_tokens // 2) if stride is None else stride
        for number, (ids, offsets) in enumerate(tokenizer.encode_with_offsets(self.texts)):
            first, hosts = _first_pieces(offsets, self.word_spans[number])
            self.hosts.append(hosts)
            starts = window_starts(len(ids), max_tokens, stride)
            best = most_context(starts, max_tokens, len(ids))
            for window, start in enumerate(starts):
                here = slice(start, start + max_tokens)
                pieces.append(ids[here])
                firsts.append(np.where(best[here] == window, first[here], -1))
                chosen.append(number)
        self.sentence = np.array(chosen, dtype=np.int32)
        self.x, columns = right_padded_rows(tokenizer.info, [(ids,) for ids in pieces])
        self.words = np.full(self.x["token_ids"].shape, -1, dtype=np.int32)
        for row, (first, column) in enumerate(zip(firsts, columns, strict=True)):
            self.words[row, column : column + len(first)] = first

    def targets(self, tags: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Computes labels, int32 (windows, s), and weights, float32 (windows, s), 1 where a word is classified.

        Args:
            tags: the label ids of the words of each sentence.
        """
        if len(tags) != len(self.texts):
            raise ValueError(
                f"Every sentence must have labels. Received: {len(self.texts)} sentences, {len(tags)} lists of labels."
            )
        y = np.zeros(self.words.shape, dtype=np.int32)
        for row, number in enumerate(self.sentence):
            labels = np.asarray(tags[number], dtype=np.int32)
            if len(labels) != len(self.word_spans[number]):
                raise ValueError(
                    f"Every word must have a label. Received: sentence {number} of {len(self.word_spans[number])} "
                    f"words with {len(labels)} labels."
                )
            here = self.words[row] >= 0
            y[row, here] = labels[self.words[row, here]]
        return y, (self.words >= 0).astype(np.float32)

    def read(self, outputs: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the outputs for the words of every sentence, float64 (words, ...). Words in no window get NaN.

        Args:
            outputs: outputs of the model, float (windows, s, ...).
        """
        found = [np.full((len(spans), *outputs.shape[2:]), np.nan, dtype=np.float64) for spans in self.word_spans]
        for row, number in enumerate(self.sentence):
            here = self.words[row] >= 0
            found[number][self.words[row, here]] = outputs[row, : len(here)][here]
        for values, hosts in zip(found, self.hosts, strict=True):
            values[hosts >= 0] = values[hosts[hosts >= 0]]
        return iter(found)


def _first_pieces(offsets: np.ndarray, spans: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the index of the word that begins at each token, or -1, int32 (n,), and `hosts` as in `TaggedRows`."""
    starts = np.array([start for start, _ in spans], dtype=np.int32)
    words = np.searchsorted(starts, offsets[:, 0], side="right") - 1
    words[offsets[:, 0] == offsets[:, 1]] = -1  # only whitespace
    _, first = np.unique(words, return_index=True)
    is_first = np.zeros(len(words), dtype=bool)
    is_first[first] = True
    is_first &= words >= 0
    hosts = np.full(len(starts), -1, dtype=np.int32)
    hosts[words[is_first]] = words[is_first]
    inside = np.flatnonzero(hosts < 0)
    around = np.searchsorted(offsets[:, 0], starts[inside]) - 1  # the last token that begins before the word
    inside, around = inside[around >= 0], around[around >= 0]
    hosts[inside] = np.where(starts[inside] < offsets[around, 1], words[around], -1)
    return np.where(is_first, words, -1).astype(np.int32), hosts


def _checked(sentence: object, number: int) -> tuple[str, list[tuple[int, int]]]:
    """Checks a sentence, and returns its text and the character spans of its words."""
    if isinstance(sentence, str):
        return sentence, words_of(sentence)
    if not isinstance(sentence, (list, tuple)) or not all(isinstance(word, str) for word in sentence):
        raise ValueError(
            f"A sentence must be a str or a list of words. Received: {sentence!r:.60} as sentence {number}."
        )
    stops = np.cumsum([len(word) + 1 for word in sentence]) - 1
    spans = [(int(stop) - len(word), int(stop)) for word, stop in zip(sentence, stops, strict=True)]
    return " ".join(sentence), spans
